//! What must hold, whatever the interleaving.

use super::*;

#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Sender, receiver and number; travels as immediate data.
    pub(super) name: u64,
    pub(super) tag: Option<u64>,
    /// Unlike that of any other message of the pair, unless zero.
    pub(super) len: u64,
    /// It was cancelled before it was sent: it may never be received.
    pub(super) taken_back: bool,
}

/// A receive, a multi-receive, or a claim.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) from: Selector,
    pub(super) len: u64,
    pub(super) multi: bool,
    /// Names of what it got.
    pub(super) got: Vec<u64>,
    pub(super) cancelled: bool,
    /// Messages that it would have taken and that a younger receive had while this one was posted.
    pub(super) passed_by: Vec<u64>,
}

/// Byte `i` of message, window or put `name`.
pub(super) fn byte(name: u64, i: u64) -> u8 {
    let byte = (i.wrapping_mul(31) ^ (i >> 8).wrapping_mul(17)).wrapping_add(name.wrapping_mul(0x9E37) >> 3) as u8;
    if byte == CANARY { 0 } else { byte }
}

pub(super) fn bytes(name: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| byte(name, i)).collect()
}

/// Whether its success is not reported.
pub(super) fn is_mute(op: &Submitted) -> bool {
    op.notify == Notify::Silent
}

/// The rule of matching for one receive and one message (M-2 to M-4).
fn takes(from: &Selector, name: u64, tag: Option<u64>) -> bool {
    let tag_fits = match (from.tag, tag) {
        (TagMatch::Untagged, None) => true,
        (TagMatch::Tagged { tag: wanted, ignore }, Some(tag)) => (wanted ^ tag) & !ignore == 0,
        _ => false,
    };
    tag_fits && from.source.is_none_or(|source| u64::from(source.0) == name >> 32)
}

impl Program<'_> {
    fn check(&self, holds: bool, why: impl FnOnce() -> std::string::String) {
        if !holds {
            self.fail(&why());
        }
    }

    pub(super) fn has_received(&self, rank: usize, name: u64) -> bool {
        self.receives[rank].iter().any(|receive| receive.got.contains(&name))
    }

    fn message(&self, name: u64) -> &Message {
        let pair = &self.messages[(name >> 32) as usize][(name >> 16 & 0xFFFF) as usize];
        let message = &pair[(name & 0xFFFF) as usize];
        self.check(!message.taken_back, || format!("message {name:x} was cancelled and came"));
        message
    }

    pub(super) fn reported(&mut self, rank: usize, event: Event) {
        let Event::Completed(completion) = event else {
            if let Event::PeerLost { peer, .. } | Event::PeerClosed { peer } = event {
                let lost = matches!(event, Event::PeerLost { .. });
                self.ends.push((rank, peer.0 as usize, lost));
            }
            return;
        };
        let n = completion.cookie.0 as usize;
        let op = self.submitted[rank][n].clone();
        self.check(op.ended.is_none(), || format!("rank {rank}: reported twice: {op:?} {completion:?}"));
        self.check(completion.operation == op.id, || format!("rank {rank}: another's id: {op:?} {completion:?}"));
        if let Ok(_) | Err(OpError::Truncated { .. }) = completion.result {
            self.check(!op.cancelled || matches!(op.what, What::Multi { .. }), || {
                format!("cancelled and done: {op:?}")
            });
        }
        if completion.last {
            self.submitted[rank][n].ended = Some(completion.result);
        } else {
            self.check(matches!(op.what, What::Multi { .. }), || format!("not the last: {op:?}"));
        }
        let well = completion.result.is_ok();
        self.check(!(is_mute(&op) && well), || format!("reported though silent: {op:?}"));
        if well && matches!(op.notify, Notify::Both(_)) {
            self.counted[rank] += 1;
        }
        if let Err(error) = completion.result {
            self.check_error(rank, &op, error);
        }
        match op.what {
            What::Recv { receive } => self.check_received(rank, receive, &op, completion.result),
            What::Multi { receive } => self.check_part(rank, receive, &op, &completion),
            What::Put { to, at, bad } if well => {
                self.check(!bad, || format!("a bad put went well: {op:?}"));
                self.check_put(rank, n, to, at);
            }
            What::Get { from, at, bad } if well => {
                self.check(!bad, || format!("a bad get went well: {op:?}"));
                let data = self.cluster.nodes[rank].read(&op.segments);
                let good = data.iter().zip(at..).all(|(&got, i)| got == byte(from as u64, i));
                self.check(good, || format!("wrong bytes: {op:?}"));
            }
            What::Atomic { to, counter } if well => {
                let old = completion.result.expect("well").old;
                self.olds.entry((to, counter)).or_default().push(old);
            }
            What::Flush { ref before } if well => {
                for &earlier in before {
                    let op = self.submitted[rank][earlier].clone();
                    self.check(op.ended.is_some() || is_mute(&op), || format!("flushed before {op:?}"));
                    if let What::Put { to, at, bad: false } = op.what
                        && op.ended.is_none_or(|result| result.is_ok())
                    {
                        self.check_put(rank, earlier, to, at);
                    }
                }
            }
            _ => {}
        }
        if completion.last {
            self.release(rank, &op.segments);
        }
    }

    fn check_error(&self, rank: usize, op: &Submitted, error: OpError) {
        let fair = match error {
            OpError::Cancelled => op.cancelled,
            OpError::Truncated { .. } => matches!(op.what, What::Recv { .. } | What::Multi { .. }),
            OpError::Refused { .. } => matches!(op.what, What::Put { bad: true, .. } | What::Get { bad: true, .. }),
            // A caller that dials a peer that has lost it already gets a BYE (G-10).
            OpError::PeerLost { peer, .. } | OpError::PeerClosed { peer } => {
                self.is_cut(rank, peer.0 as usize) && op.peer.is_none_or(|bound| bound == peer.0 as usize)
            }
            OpError::Registration { .. } => false,
        };
        self.check(fair, || format!("rank {rank}: {error:?} for {op:?}"));
    }

    /// The message of a length from a source, to identify what a truncated receive got.
    fn name_of(&self, rank: usize, peer: PeerId, sent: u64) -> u64 {
        let pair = &self.messages[peer.0 as usize][rank];
        let found = pair.iter().find(|message| message.len == sent && !message.taken_back);
        found.unwrap_or_else(|| self.fail(&format!("rank {rank}: no message of {sent} bytes"))).name
    }

    /// A receive has got `name`: it fits, no other receive has it, and the ones it overtakes are noted.
    fn match_up(&mut self, rank: usize, receive: usize, name: u64) {
        let message = self.message(name).clone();
        let what = &self.receives[rank][receive];
        self.check(takes(&what.from, name, message.tag), || format!("{what:?} got {message:?}"));
        let expected = !what.multi && !what.got.is_empty();
        self.check(!expected || what.got[0] == name, || format!("{what:?} got {message:?}, not what was found"));
        if !expected {
            let again = self.has_received(rank, name);
            self.check(!again, || format!("received twice: {message:?}"));
            self.receives[rank][receive].got.push(name);
        }
        for older in &mut self.receives[rank][..receive] {
            if !older.multi && !older.cancelled && older.got.is_empty() && takes(&older.from, name, message.tag) {
                older.passed_by.push(name);
            }
        }
    }

    fn check_received(&mut self, rank: usize, receive: usize, op: &Submitted, result: Result<Done, OpError>) {
        let (name, bytes) = match result {
            Ok(done) => (done.immediate.expect("named"), done.bytes),
            Err(OpError::Truncated { sent, capacity, peer, .. }) => {
                self.check(capacity == self.receives[rank][receive].len, || format!("capacity {capacity}: {op:?}"));
                (self.name_of(rank, peer, sent), capacity)
            }
            Err(_) => {
                self.receives[rank][receive].got.clear();
                return;
            }
        };
        let len = self.message(name).len;
        self.check(result.is_err() || bytes == len, || format!("{bytes} bytes of {len}: {op:?}"));
        self.match_up(rank, receive, name);
        let data = self.cluster.nodes[rank].read(&op.segments);
        let (got, rest) = data.split_at(bytes as usize);
        let good = got.iter().zip(0..).all(|(&got, i)| got == byte(name, i));
        self.check(good && rest.iter().all(|&b| b == 0), || format!("wrong bytes of {name:x}: {op:?}"));
    }

    fn check_part(&mut self, rank: usize, receive: usize, op: &Submitted, completion: &Completion) {
        let (name, offset, bytes) = match completion.result {
            Ok(Done { immediate: Some(name), offset, bytes, .. }) => (name, offset, bytes),
            Err(OpError::Truncated { sent, capacity, peer, .. }) => (self.name_of(rank, peer, sent), 0, capacity),
            Ok(done) => {
                return self.check(done.released && done.bytes == 0 && completion.last, || format!("{completion:?}"));
            }
            Err(_) => return,
        };
        if let Ok(done) = completion.result {
            self.check(done.released == completion.last, || format!("released or not: {completion:?}"));
        }
        self.match_up(rank, receive, name);
        let at = op.segments[0].at.offset + offset;
        let inside = offset + bytes <= op.segments[0].len;
        self.check(inside, || format!("a part beyond the buffer: {completion:?}"));
        let good = self.memory(rank, at, bytes).iter().zip(0..).all(|(&got, i)| got == byte(name, i));
        self.check(good, || format!("wrong bytes of {name:x}: {op:?}"));
        self.memory(rank, at, bytes).fill(CANARY);
    }

    fn check_put(&mut self, rank: usize, n: usize, to: usize, at: u64) {
        let len: u64 = self.submitted[rank][n].segments.iter().map(|seg| seg.len).sum();
        let name = n as u64 + 7 * rank as u64;
        let good = self.memory(to, at, len).iter().zip(0..).all(|(&got, i)| got == byte(name, i));
        self.check(good, || format!("a put is done and not there: {:?}", self.submitted[rank][n]));
    }

    /// MPI's rule of order, from both sides (M-1).
    pub(super) fn check_matching(&self) {
        for rank in 0..self.ranks {
            let receives = &self.receives[rank];
            for (order, receive) in receives.iter().enumerate() {
                // Parts of one multi-receive come in the order of sending, for each sender.
                let passed = receive.got.is_empty() && receive.cancelled && !receive.passed_by.is_empty();
                self.check(!passed, || format!("rank {rank}, receive {order}: passed by {receive:?}"));
                for &late in &receive.got {
                    for early in &self.messages[(late >> 32) as usize][rank][..(late & 0xFFFF) as usize] {
                        if early.taken_back || !takes(&receive.from, early.name, early.tag) {
                            continue;
                        }
                        let by = receives.iter().position(|other| other.got.contains(&early.name));
                        let in_order = by.is_none_or(|by| by <= order) && (by.is_some() || self.cluster.faulty);
                        self.check(in_order, || {
                            format!("rank {rank}: receive {order} got {late:x}, receive {by:?} {:x}", early.name)
                        });
                    }
                }
            }
        }
    }

    pub(super) fn check_atomics(&mut self) {
        for to in 0..self.ranks {
            for counter in 0..COUNTERS {
                let mut olds = self.olds.remove(&(to, counter)).unwrap_or_default();
                olds.sort_unstable();
                let memory = self.memory(to, 8 * counter, 8).try_into().expect("8 bytes");
                let sum = u64::from_le_bytes(memory);
                let distinct =
                    olds.windows(2).all(|pair| pair[0] < pair[1]) && olds.last().is_none_or(|&old| old < sum);
                let all = olds.len() as u64 == sum || self.cluster.faulty;
                self.check(distinct && all, || format!("sum {sum} of {olds:?}"));
            }
        }
    }

    /// Nothing is under way, nothing is held.
    pub(super) fn check_leaks(&self) {
        for (rank, node) in self.cluster.nodes.iter().enumerate() {
            let e = &node.endpoint;
            let check = |holds, why| self.check(holds, || format!("rank {rank}: {why}"));
            check(e.is_quiet(None), "not quiet");
            let (usage, leak) = (e.usage(), e.usage().leak());
            self.check(leak.is_none(), || format!("rank {rank}: {leak:?} leaks"));
            check(usage.windows.used == 1 && usage.channels.used as usize <= self.ranks, "windows or channels");
            check(is_idle(e), "operations leak");
            let inconsistency = e.inconsistency();
            self.check(inconsistency.is_none(), || format!("rank {rank}: {inconsistency:?}"));
            check(e.counter(CounterId(0)) == Some(self.counted[rank]), "the counter");
        }
        let registered = self.cluster.registered();
        self.check(registered == 0, || format!("{registered} registrations leak"));
        for &(rank, seg) in &self.canaries {
            let memory = &self.cluster.nodes[rank].memory[0][seg.at.offset as usize..][..seg.len as usize];
            self.check(memory.iter().all(|&b| b == CANARY), || format!("rank {rank}: {seg:?} was touched afterwards"));
        }
    }

    /// All peers are left: every channel that was, has ended once.
    pub(super) fn check_end(&self) {
        for (rank, node) in self.cluster.nodes.iter().enumerate() {
            self.check(has_no_channel(&node.endpoint), || format!("rank {rank}: channels leak"));
            let usage = node.endpoint.usage();
            let left = usage.leak().is_some() || usage.channels.used != 0 || usage.windows.used != 1;
            self.check(!left, || format!("rank {rank}: left behind: {usage:?}"));
            for peer in 0..self.ranks {
                let ends: Vec<_> = self.ends.iter().filter(|end| (end.0, end.1) == (rank, peer)).collect();
                let lost = ends.iter().any(|end| end.2);
                let fair = ends.len() <= 1 && (!lost || self.is_cut(rank, peer));
                self.check(fair, || format!("rank {rank}: ends of peer {peer}: {ends:?}"));
            }
        }
    }
}
