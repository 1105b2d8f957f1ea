//! Sends, receives, probes, cancellation.

use rerail_core::endpoint::{Level, Notify, RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::{Cookie, OpId, PeerId};
use rerail_linux::driver::RequestError;

use super::ledger::{Entry, Record, SILENT, What};
use super::{Errno, Pieces, Port, Stage, refusal};
use crate::abi::*;

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Through which endpoint.
    pub endpoint: u32,
    /// The destination.
    pub to: u64,
    /// Its tag.
    pub tag: Option<u64>,
    /// Immediate data.
    pub data: Option<u64>,
    /// The payload.
    pub pieces: Pieces,
    /// The caller's.
    pub context: u64,
    /// The call's flags; `None`: those of the endpoint.
    pub flags: Option<u64>,
}

/// A buffer for messages.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Through which endpoint.
    pub endpoint: u32,
    /// The source.
    pub from: u64,
    /// Tag, and bits of it that don't matter.
    pub tag: Option<(u64, u64)>,
    /// The buffer.
    pub pieces: Pieces,
    /// The caller's.
    pub context: u64,
    /// The call's flags; `None`: those of the endpoint.
    pub flags: Option<u64>,
}

/// What a probe does with the message it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It stays.
    Peek,
    /// It is kept for a receive with the same context.
    Claim,
    /// It is dropped.
    Discard,
}

/// A receive that the transport has not taken yet.
#[derive(Debug)]
pub struct Deferred {
    record: u32,
    from: Option<u64>,
    tag: Option<(u64, u64)>,
    pieces: Pieces,
    multi: Option<u64>,
}

/// A message that the transport has not taken yet.
#[derive(Debug)]
pub struct Sending {
    record: u32,
    peer: PeerId,
    tag: Option<u64>,
    data: Option<u64>,
    pieces: Pieces,
    level: Level,
    /// `FI_MORE`
    more: bool,
}

/// Why a request was not handed to the transport.
enum Unposted {
    /// There is no room now.
    Full,
    /// There never will be.
    Refused(Errno),
}

/// When a send counts as complete.
fn level(flags: u64) -> Level {
    if flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE) != 0 {
        Level::Placed
    } else if flags & FI_TRANSMIT_COMPLETE != 0 {
        Level::Acknowledged
    } else {
        Level::Reusable
    }
}

/// Flags of a completion of a message.
fn kind(tagged: bool) -> u64 {
    if tagged { FI_TAGGED } else { FI_MSG }
}

impl Port {
    /// The endpoint's own flags or the call's, and whether a completion is requested.
    pub(super) fn call(&self, endpoint: u32, what: What, flags: Option<u64>) -> Result<(u64, bool), Errno> {
        let endpoint = self.ledger.endpoints.get(endpoint).ok_or(Errno(FI_EINVAL))?;
        let (bound, own) = match what {
            What::Recv | What::Multi => (endpoint.rx, endpoint.rx_flags),
            What::Send | What::Read | What::Write => (endpoint.tx, endpoint.tx_flags),
        };
        let flags = flags.unwrap_or(own);
        Ok((flags, bound.is_some_and(|bound| !bound.selective || flags & FI_COMPLETION != 0)))
    }

    /// The peer that an endpoint's vector has under a number.
    #[inline]
    pub(super) fn peer(&mut self, endpoint: u32, number: u64) -> Result<PeerId, Errno> {
        let vector = self.ledger.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
        self.names.peer(vector, number)
    }

    /// Sends a message and copies its payload before it returns, without a completion.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn inject(&mut self, out: &Outgoing, payload: &[u8]) -> Result<(), Errno> {
        let counted = self.ledger.endpoints.get(out.endpoint).is_some_and(|endpoint| endpoint.sends.is_some());
        if counted || !self.waiting.is_empty() {
            return self.submit(out, false, 0, Some(payload));
        }
        let peer = self.peer(out.endpoint, out.to)?;
        let Stage::Joined(transport) = &mut self.stage else { return Err(Errno(FI_EOPBADSTATE)) };
        let send = SendRequest {
            tag: out.tag,
            immediate: out.data,
            notify: Notify::Silent,
            cookie: SILENT,
            ..SendRequest::new(peer, &[])
        };
        match transport.inject(&send, payload) {
            Ok(_) => {
                // The caller may not come back for long.
                transport.push();
                Ok(())
            }
            Err(_) => self.submit(out, false, 0, Some(payload)),
        }
    }

    /// Sends a message; `payload`: it is copied at once (`FI_INJECT`), and the pieces don't count. Where the
    /// transport has no room, the provider keeps it and sends it in its turn: runtimes that are refused wait
    /// until there is room, which two that send to each other would do for ever.
    ///
    /// # Errors
    /// `FI_EINVAL` where there is no such peer, `FI_ECONNRESET` where it is lost; other errors are permanent.
    pub fn send(&mut self, out: &Outgoing, payload: Option<&[u8]>) -> Result<(), Errno> {
        let (flags, needs_event) = self.call(out.endpoint, What::Send, out.flags)?;
        self.pass_fence(flags)?;
        self.submit(out, needs_event, flags, payload)
    }

    fn submit(&mut self, out: &Outgoing, needs_event: bool, flags: u64, payload: Option<&[u8]>) -> Result<(), Errno> {
        let peer = self.peer(out.endpoint, out.to)?;
        let number = self.ledger.records.insert(Record {
            needs_event,
            ..Record::new(out.endpoint, What::Send, out.context, FI_SEND | kind(out.tag.is_some()))
        });
        let (level, more) = (level(flags), flags & FI_MORE != 0);
        let mut sending =
            Sending { record: number, peer, tag: out.tag, data: out.data, pieces: out.pieces, level, more };
        let first = !self.waiting.contains_key(&peer);
        let submitted = if first { self.start_send(&sending, payload) } else { Err(Unposted::Full) };
        match submitted {
            Ok(()) => Ok(()),
            Err(Unposted::Full) => {
                if let Some(payload) = payload {
                    let copy: Box<[u8]> = payload.into();
                    sending.pieces = Pieces::one(copy.as_ptr().addr() as u64, copy.len() as u64);
                    self.ledger.records.get_mut(number).expect("inserted above").copy = Some(copy);
                }
                self.waiting.entry(peer).or_default().push_back(sending);
                Ok(())
            }
            Err(Unposted::Refused(errno)) => {
                self.ledger.records.remove(number);
                Err(errno)
            }
        }
    }

    /// Hands a message to the transport.
    fn start_send(&mut self, sending: &Sending, payload: Option<&[u8]>) -> Result<(), Unposted> {
        if self.ledger.others >= self.others_max {
            return Err(Unposted::Full);
        }
        let Stage::Joined(transport) = &mut self.stage else { return Err(Unposted::Refused(Errno(FI_EOPBADSTATE))) };
        let segments = sending.pieces.segments(self.region);
        let send = SendRequest {
            peer: sending.peer,
            tag: sending.tag,
            immediate: sending.data,
            segments: if payload.is_some() { &[] } else { &segments[..sending.pieces.count] },
            level: sending.level,
            notify: Notify::Event,
            cookie: Cookie(sending.record.into()),
            more: sending.more,
        };
        let submitted = match payload {
            Some(payload) => transport.inject(&send, payload),
            None => transport.send(&send),
        };
        match submitted {
            Ok(operation) => {
                self.ledger.taken(sending.record, operation);
                if !sending.more {
                    transport.push();
                }
                Ok(())
            }
            // A payload that is too long to be injected goes from the copy.
            Err(error) if error.is_full() || payload.is_some() && refusal(error) == Errno(FI_EMSGSIZE) => {
                Err(Unposted::Full)
            }
            Err(error) => Err(Unposted::Refused(refusal(error))),
        }
    }

    /// Sends what waits, in order for each peer, as far as there is room.
    #[cold]
    pub(super) fn send_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|_, queue| {
            while let Some(sending) = queue.front() {
                match self.start_send(sending, None) {
                    Ok(()) => {}
                    Err(Unposted::Full) => break,
                    Err(Unposted::Refused(errno)) => self.fail(sending.record, errno),
                }
                queue.pop_front();
            }
            !queue.is_empty()
        });
        self.waiting = waiting;
    }

    /// Stores the id of an accepted request and sends it; drops the record of a refused one.
    pub(super) fn submitted(&mut self, number: u32, operation: Result<OpId, RequestError>) -> Result<(), Errno> {
        match operation {
            Ok(operation) => {
                self.ledger.taken(number, operation);
                if let Stage::Joined(transport) = &mut self.stage {
                    transport.push();
                }
                Ok(())
            }
            Err(error) => {
                self.ledger.records.remove(number);
                Err(refusal(error))
            }
        }
    }

    /// Posts a buffer. Where the transport has no room, the provider keeps it and posts it in its turn.
    ///
    /// # Errors
    /// `FI_EINVAL` where source or buffer are invalid; other errors are permanent.
    pub fn recv(&mut self, incoming: &Incoming) -> Result<(), Errno> {
        let (flags, needs_event) = self.call(incoming.endpoint, What::Recv, incoming.flags)?;
        let endpoint = self.ledger.endpoints.get(incoming.endpoint).ok_or(Errno(FI_EINVAL))?;
        let from = Some(incoming.from).filter(|from| endpoint.directed && *from != FI_ADDR_UNSPEC);
        if let Some(from) = from {
            self.names.peer(endpoint.vector, from)?;
        }
        let multi = match flags & FI_MULTI_RECV {
            0 => None,
            _ if incoming.pieces.count != 1 => return Err(Errno(FI_EINVAL)),
            _ => Some(endpoint.multi_bytes_min.clamp(1, incoming.pieces.len())),
        };
        let what = if multi.is_some() { What::Multi } else { What::Recv };
        let record = self.ledger.records.insert(Record {
            needs_event,
            address: incoming.pieces.list[0].address,
            ..Record::new(incoming.endpoint, what, incoming.context, FI_RECV | kind(incoming.tag.is_some()))
        });
        let deferred = Deferred { record, from, tag: incoming.tag, pieces: incoming.pieces, multi };
        // In order: one that waits goes before.
        if !self.deferred.is_empty() {
            self.deferred.push_back(deferred);
            return Ok(());
        }
        match self.post(&deferred) {
            Ok(()) => Ok(()),
            Err(Unposted::Full) => {
                self.deferred.push_back(deferred);
                Ok(())
            }
            Err(Unposted::Refused(errno)) => {
                self.ledger.records.remove(record);
                Err(errno)
            }
        }
    }

    fn selector(&self, endpoint: u32, from: Option<u64>, tag: Option<(u64, u64)>) -> Result<Selector, Errno> {
        let vector = self.ledger.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
        let source = from.map(|from| self.names.peer(vector, from)).transpose()?;
        let tag = tag.map_or(TagMatch::Untagged, |(tag, ignore)| TagMatch::Tagged { tag, ignore });
        Ok(Selector { source, tag })
    }

    fn post(&mut self, deferred: &Deferred) -> Result<(), Unposted> {
        let refused = Unposted::Refused;
        let endpoint = self.ledger.records.get(deferred.record).map(|record| record.endpoint);
        let endpoint = endpoint.ok_or(refused(Errno(FI_EINVAL)))?;
        let from = self.selector(endpoint, deferred.from, deferred.tag).map_err(refused)?;
        if self.ledger.receives >= self.receives_max {
            return Err(Unposted::Full);
        }
        let Stage::Joined(transport) = &mut self.stage else { return Err(Unposted::Full) };
        let segments = deferred.pieces.segments(self.region);
        let recv = RecvRequest {
            from,
            segments: &segments[..deferred.pieces.count],
            multi: deferred.multi,
            notify: Notify::Event,
            cookie: Cookie(deferred.record.into()),
        };
        match transport.recv(&recv) {
            Ok(operation) => {
                self.ledger.taken(deferred.record, operation);
                Ok(())
            }
            Err(error) if error.is_full() => Err(Unposted::Full),
            Err(error) => Err(refused(refusal(error))),
        }
    }

    /// Posts what waits, in order, as far as there is room.
    #[cold]
    pub(super) fn post_deferred(&mut self) {
        while let Some(deferred) = self.deferred.pop_front() {
            match self.post(&deferred) {
                Ok(()) => {}
                Err(Unposted::Full) => return self.deferred.push_front(deferred),
                Err(Unposted::Refused(errno)) => self.fail(deferred.record, errno),
            }
        }
    }

    /// Completes a request that was never submitted.
    fn fail(&mut self, number: u32, errno: Errno) {
        let Some(record) = self.ledger.records.remove(number) else { return };
        let released = if record.what == What::Multi { FI_MULTI_RECV } else { 0 };
        let entry = Entry { error: errno.0, ..Entry::new(record.context, record.flags | released) };
        self.ledger.push(record.endpoint, record.what, entry);
    }

    /// Looks for a message. The answer is a completion: the message, or the error `FI_ENOMSG`.
    ///
    /// # Errors
    /// `FI_EINVAL` where the source is none, `FI_EAGAIN` where a message can't be dropped now.
    pub fn probe(&mut self, incoming: &Incoming, probe: Probe) -> Result<(), Errno> {
        self.progress();
        let flags = FI_RECV | kind(incoming.tag.is_some());
        let missed = Entry { error: FI_ENOMSG, ..Entry::new(incoming.context, flags) };
        let directed = self.ledger.endpoints.get(incoming.endpoint).is_some_and(|endpoint| endpoint.directed);
        let from = Some(incoming.from).filter(|from| directed && *from != FI_ADDR_UNSPEC);
        let selector = self.selector(incoming.endpoint, from, incoming.tag)?;
        let Stage::Joined(transport) = &mut self.stage else { return Err(Errno(FI_EOPBADSTATE)) };
        let found = transport.probe(&selector);
        // A receive that waits for room came before this call, and takes the message when its turn comes.
        let found =
            found.filter(|found| !self.deferred.iter().any(|waiting| waiting.takes(found.peer, found.tag, self)));
        let Some(found) = found else {
            self.ledger.push(incoming.endpoint, What::Recv, missed);
            return Ok(());
        };
        let Stage::Joined(transport) = &mut self.stage else { return Err(Errno(FI_EOPBADSTATE)) };
        if probe != Probe::Peek
            && let Some((message, _)) = transport.claim(&selector)
        {
            self.claimed.push((incoming.context, message));
        }
        if probe == Probe::Discard {
            self.recv_claimed(&Incoming { pieces: Pieces::default(), ..*incoming }, true)?;
        }
        let vector = self.ledger.endpoints.get(incoming.endpoint).and_then(|endpoint| endpoint.vector);
        let with_data = found.immediate.map_or(0, |_| FI_REMOTE_CQ_DATA);
        let entry = Entry {
            len: found.bytes,
            data: found.immediate.unwrap_or(0),
            tag: found.tag.unwrap_or(0),
            source: self.names.number_of(vector, found.peer),
            ..Entry::new(incoming.context, flags | with_data)
        };
        self.ledger.push(incoming.endpoint, What::Recv, entry);
        Ok(())
    }

    /// Receives the message that was claimed with the same context; `silent`: it is dropped, without a
    /// completion.
    ///
    /// # Errors
    /// `FI_EINVAL` where none was claimed, `FI_EAGAIN` where there is no room now.
    pub fn recv_claimed(&mut self, incoming: &Incoming, silent: bool) -> Result<(), Errno> {
        let (_, needs_event) = self.call(incoming.endpoint, What::Recv, incoming.flags)?;
        let at = self.claimed.iter().position(|(context, _)| *context == incoming.context).ok_or(Errno(FI_EINVAL))?;
        let Stage::Joined(transport) = &mut self.stage else { return Err(Errno(FI_EOPBADSTATE)) };
        let segments = incoming.pieces.segments(self.region);
        let segments = &segments[..incoming.pieces.count];
        let message = self.claimed[at].1;
        if silent {
            // Its completion, a truncation where it had a payload, is not reported.
            let recv = RecvRequest {
                notify: Notify::Silent,
                cookie: SILENT,
                ..RecvRequest::new(Selector::ANY_UNTAGGED, segments)
            };
            transport.recv_claimed(message, &recv).map_err(refusal)?;
            self.claimed.swap_remove(at);
            return Ok(());
        }
        let number = self.ledger.records.insert(Record {
            needs_event,
            ..Record::new(incoming.endpoint, What::Recv, incoming.context, FI_RECV | kind(incoming.tag.is_some()))
        });
        let recv = RecvRequest { cookie: Cookie(number.into()), ..RecvRequest::new(Selector::ANY_UNTAGGED, segments) };
        let submitted = transport.recv_claimed(message, &recv);
        self.submitted(number, submitted)?;
        self.claimed.swap_remove(at);
        Ok(())
    }

    /// Cancels the oldest request of an endpoint with this context. If it was in time, a completion with the
    /// error `FI_ECANCELED` follows; else the request completes normally.
    ///
    /// # Errors
    /// `FI_EINVAL` where there is none.
    pub fn cancel(&mut self, endpoint: u32, context: u64) -> Result<(), Errno> {
        let needs_event = |record: &Record| record.endpoint == endpoint && record.context == context;
        let found = self.ledger.records.iter().find(|(_, record)| needs_event(record));
        let (number, operation) = found.map(|(number, record)| (number, record.operation)).ok_or(Errno(FI_EINVAL))?;
        match (operation, &mut self.stage) {
            (Some(operation), Stage::Joined(transport)) => {
                // Too late is no error: the request completes by itself.
                let _ = transport.cancel(operation);
            }
            _ => {
                self.deferred.retain(|deferred| deferred.record != number);
                for queue in self.waiting.values_mut() {
                    queue.retain(|sending| sending.record != number);
                }
                self.fail(number, Errno(FI_ECANCELED));
            }
        }
        Ok(())
    }
}

impl Deferred {
    /// Whether this receive would take a message.
    fn takes(&self, peer: PeerId, tag: Option<u64>, port: &Port) -> bool {
        let endpoint = port.ledger.records.get(self.record).map(|record| record.endpoint);
        let selector = endpoint.and_then(|endpoint| port.selector(endpoint, self.from, self.tag).ok());
        selector.is_some_and(|selector| {
            selector.source.is_none_or(|source| source == peer)
                && match (selector.tag, tag) {
                    (TagMatch::Untagged, None) => true,
                    (TagMatch::Tagged { tag: needs_event, ignore }, Some(tag)) => (needs_event ^ tag) & !ignore == 0,
                    _ => false,
                }
        })
    }
}
