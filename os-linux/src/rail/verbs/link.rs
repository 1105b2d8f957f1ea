//! A link: the connection to one peer, from the first message of its set-up to the destruction of
//! its queue pair.

use std::collections::{BTreeSet, VecDeque};

use rerail_core::endpoint::{PostKind, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::HEADER_BYTES_MAX;
use rerail_verbs::contract::{
    Access, AddressVector, AhId, Device, ModifyError, Qp, QpCaps, QpChange, QpInit, QpKind, QpState,
};

use super::VerbsRail;
use super::wire::{Nonce, SetupKind, SetupParameters};
use super::xrc::Halves;
use crate::rail::Piece;

/// One link.
#[derive(Debug)]
pub(super) struct Link {
    pub peer: PeerId,
    pub phase: Phase,
    pub ends: Ends,
    /// Own nonce.
    pub nonce: Nonce,
    /// The address handle of its set-up messages until it is established, and the handle's path (V-18).
    pub handle: Option<(AhId, AddressVector)>,
    /// Own attempt that it belongs to, where it was begun here.
    pub attempt: u32,
    /// The peer's nonce, once received.
    pub theirs: Option<Nonce>,
    /// Reads that the peer serves at once.
    pub reads_served: u8,
    /// The message to send, now and in repetitions; while it is due, the link is in `VerbsRail::due_links`.
    pub due_message: SetupKind,
    pub is_send_due: bool,
    /// The core requested it, so its failure is reported.
    pub dial_pending: bool,
    /// The core has requested it again while the old queue pair was closing.
    pub again: bool,
    /// It was reported up to the core.
    pub is_up_reported: bool,
    /// The peer has confirmed that it is established.
    pub confirmed: bool,
    /// The peer broke the protocol, or the core has finished with it: its messages are ignored.
    pub ignores_messages: bool,
    /// Requests that are with the device and will be reported.
    pub open: u32,
    /// The others.
    pub quiet: Quiet,
    /// RC: the queue pair will take no more receives.
    pub last_receive: bool,
    /// Posts that wait for a buffer, and the payload of all of them.
    pub waiting: VecDeque<Waiting>,
    pub pieces: VecDeque<Piece>,
    pub is_listed: bool,
    /// When its timer goes off; when its set-up is given up.
    pub due: Option<Time>,
    pub deadline: Time,
    /// When it was begun here.
    pub began: Time,
    /// The pause before the next repetition, and its initial value.
    pub pause: Nanos,
    pub first_pause: Nanos,
}

impl Link {
    /// A link in its first phase.
    pub fn new(peer: PeerId, ends: Ends, nonce: Nonce, due_message: SetupKind) -> Self {
        Link {
            peer,
            phase: Phase::Calling,
            ends,
            nonce,
            handle: None,
            attempt: 0,
            theirs: None,
            reads_served: 0,
            due_message,
            is_send_due: false,
            dial_pending: false,
            again: false,
            is_up_reported: false,
            confirmed: false,
            ignores_messages: false,
            open: 0,
            quiet: Quiet::default(),
            last_receive: false,
            waiting: VecDeque::new(),
            pieces: VecDeque::new(),
            is_listed: false,
            due: None,
            deadline: Time(0),
            began: Time(0),
            pause: Nanos(0),
            first_pause: Nanos(0),
        }
    }
}

/// Sends of a queue pair that make no completion unless they fail: a later one's completion reports them
/// too, as a queue pair works in order (InfiniBand specification, 10.8.5). The device's queue has room for
/// `max` of them beside the posts that the core counts (L-4).
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// Those not known to be done, and those of them behind the last that will be reported.
    pub open: u16,
    pub behind: u16,
    pub max: u16,
    /// Small sends so far, modulo 2^16.
    turn: u16,
    /// The polls before the last one.
    pub at: u32,
}

/// One of so many small sends is reported, so that the queue's places become free.
pub(super) const REPORTED: u16 = 16;
/// And of so many the first ones in a row, which measure what a post costs (P-1).
const MEASURED_OF: u16 = 512;
const MEASURED: u16 = 32;

impl Quiet {
    /// Whether the next small send may be one.
    #[inline]
    pub fn passes(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.turn % MEASURED_OF > MEASURED && !self.turn.is_multiple_of(REPORTED) && self.open < self.max
    }
}

/// The queue pairs of a link on this side.
#[derive(Debug)]
pub(super) enum Ends {
    /// A queue pair of its own, and the first PSN that it sends.
    Rc(Qp, u32),
    /// An initiator and a target, which others may share.
    Xrc(Halves),
}

impl Link {
    /// The peer whose messages on it are for the core; `None`: they are dropped.
    #[inline(always)]
    pub fn takes_messages(&self) -> Option<PeerId> {
        (self.is_up_reported && !self.ignores_messages).then_some(self.peer)
    }

    /// Its halves; `None` with RC.
    pub fn halves(&self) -> Option<&Halves> {
        if let Ends::Xrc(halves) = &self.ends { Some(halves) } else { None }
    }

    /// Its halves; `None` with RC.
    pub fn halves_mut(&mut self) -> Option<&mut Halves> {
        if let Ends::Xrc(halves) = &mut self.ends { Some(halves) } else { None }
    }

    /// Whether its end is reported to the core.
    pub fn has_started(&self) -> bool {
        match self.phase {
            Phase::Up => true,
            Phase::Calling | Phase::Called => self.dial_pending,
            Phase::Closing | Phase::Failing(_) => false,
        }
    }

    /// Its initiator.
    pub fn initiator(&self) -> Option<u32> {
        self.halves()?.out
    }
}

/// How far a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Our request is sent; the queue pair is in INIT.
    Calling,
    /// We have answered a request; the queue pair is in RTR.
    Called,
    /// The subchannel is established; RTS.
    Up,
    /// The core has finished with it, the last posts are being sent; RTS.
    Closing,
    /// In ERR: requests and receives come back. Then it is destroyed, and the fault, if any, is reported to
    /// the core.
    Failing(Option<RailFault>),
}

/// A post that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub id: PostId,
    pub kind: PostKind,
    pub header: heapless::Vec<u8, HEADER_BYTES_MAX>,
    /// How many of `Link::pieces` are its payload.
    pub pieces: usize,
    /// See [`Outgoing::extent`](crate::rail::Outgoing).
    pub extent: usize,
}

/// All links. Their numbers are used again.
#[derive(Debug, Default)]
pub(super) struct Links {
    slots: Vec<Option<Link>>,
    free: Vec<u32>,
    /// Every link's timer.
    timers: BTreeSet<(Time, u32)>,
}

impl Links {
    pub fn insert(&mut self, link: Link) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[index as usize] = Some(link);
        index
    }

    pub fn remove(&mut self, index: u32) -> Option<Link> {
        let link = self.slots.get_mut(index as usize)?.take()?;
        if let Some(due) = link.due {
            self.timers.remove(&(due, index));
        }
        self.free.push(index);
        Some(link)
    }

    pub fn get(&self, index: u32) -> Option<&Link> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// The halves of a link; `None` with RC.
    pub fn halves(&self, index: u32) -> Option<&Halves> {
        self.get(index)?.halves()
    }

    pub fn halves_mut(&mut self, index: u32) -> Option<&mut Halves> {
        self.get_mut(index)?.halves_mut()
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// How many of them have a target (XRC).
    pub fn targets(&self) -> u32 {
        let has_one = |link: &&Link| link.halves().is_some_and(|halves| halves.into.is_some());
        self.slots.iter().flatten().filter(has_one).count() as u32
    }

    /// How many of them keep an address handle.
    pub fn handles(&self) -> u32 {
        self.slots.iter().flatten().filter(|link| link.handle.is_some()).count() as u32
    }

    /// All numbers in use.
    pub fn numbers(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|index| self.get(*index).is_some()).collect()
    }

    /// The number of a link, the long way.
    pub fn find(&self, is_it: impl Fn(&Link) -> bool) -> Option<u32> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(&is_it)).map(|index| index as u32)
    }

    /// Sets a link's timer, or clears it.
    pub fn set_timer(&mut self, index: u32, due: Option<Time>) {
        let Some(link) = self.slots.get_mut(index as usize).and_then(Option::as_mut) else { return };
        if let Some(old) = std::mem::replace(&mut link.due, due) {
            self.timers.remove(&(old, index));
        }
        if let Some(due) = due {
            self.timers.insert((due, index));
        }
    }

    /// The earliest timer.
    pub fn next_timer(&self) -> Option<(Time, u32)> {
        self.timers.first().copied()
    }
}

impl<D: Device> VerbsRail<D> {
    /// A connected queue pair in INIT.
    pub(super) fn make_qp(&mut self) -> Result<Qp, RailFault> {
        let (pd, cq) = (Some(self.objects.pd), Some(self.objects.cq));
        let depth = self.options.posts_max.saturating_add(self.quiet_per_link());
        let (srq, caps) = (self.objects.srqs.last().map(|srq| srq.id), self.sender_caps(depth));
        self.make(&QpInit { pd, send_cq: cq, recv_cq: cq, srq, caps, ..QpInit::of(QpKind::Rc) })
    }

    /// Sends of one queue pair that may be with the device and are not reported.
    pub(super) fn quiet_per_link(&self) -> u16 {
        let room = self.port.send_depth_max.saturating_sub(self.options.posts_max.into());
        (2 * REPORTED).min(u16::try_from(room).unwrap_or(u16::MAX))
    }

    /// Sizes of a queue pair that sends, for so many requests.
    pub(super) fn sender_caps(&self, requests: u16) -> QpCaps {
        QpCaps {
            send_depth: requests.into(),
            send_sges: self.port.sges as u32,
            inline_bytes: self.port.inline_bytes as u32,
            ..QpCaps::default()
        }
    }

    /// Makes a connected queue pair and takes it to INIT.
    pub(super) fn make(&mut self, init: &QpInit) -> Result<Qp, RailFault> {
        let qp = self.device.create_qp(init).map_err(|why| {
            tracing::debug!(rail = %self.options.name, %why, "no queue pair");
            super::codes::of_create(&why)
        })?;
        self.initialised(qp)
    }

    /// Takes a connected queue pair that was just made to INIT; destroys it where that fails.
    fn initialised(&mut self, qp: Qp) -> Result<Qp, RailFault> {
        // It may take less inline than the device seemed to.
        self.port.inline_bytes = self.port.inline_bytes.min(self.device.limits().inline_bytes as usize);
        let access = Access { remote_write: self.options.write, remote_read: self.options.read, ..Access::LOCAL };
        let change = QpChange {
            pkey_index: Some(self.port.partition.index),
            port: Some(self.port.number),
            access: Some(access),
            ..QpChange::to(QpState::Init)
        };
        match self.device.modify_qp(qp.id, &change) {
            Ok(()) => Ok(qp),
            Err(why) => {
                let _ = self.device.destroy_qp(qp.id);
                Err(super::codes::of_modify(&why))
            }
        }
    }

    /// Ready to receive from the peer's end.
    pub(super) fn ready_to_receive(&mut self, qp: Qp, peer: PeerId, theirs: &SetupParameters) -> Result<(), RailFault> {
        let change = QpChange {
            reads_served: Some(self.port.reads_served),
            rnr_timer: Some(self.options.rnr_timer),
            ..self.reached(peer, theirs.mtu, theirs.qp, theirs.psn)?
        };
        self.modify(qp, &change)
    }

    /// The change to RTR, for packets from a peer's queue pair, which begin with a PSN.
    pub(super) fn reached(&self, peer: PeerId, mtu: u16, number: u32, psn: u32) -> Result<QpChange, RailFault> {
        Ok(QpChange {
            address: Some(self.address_vector(peer).ok_or(RailFault::Refused)?),
            path_mtu: Some(self.port.mtu.min(mtu)),
            destination: Some(number),
            recv_psn: Some(psn),
            ..QpChange::to(QpState::Rtr)
        })
    }

    /// Ready to send. A receiver without buffers is slow, not dead: RNR is retried without end (7).
    pub(super) fn ready_to_send(&mut self, qp: Qp, psn: u32, reads_served: u8) -> Result<(), RailFault> {
        let change = QpChange {
            timeout: Some(self.options.ack_timeout),
            retry_count: Some(self.options.retry_count),
            rnr_retry: Some(7),
            send_psn: Some(psn),
            reads_open: Some(self.port.reads_open.min(reads_served)),
            ..QpChange::to(QpState::Rts)
        };
        self.modify(qp, &change)
    }

    pub(super) fn modify(&mut self, qp: Qp, change: &QpChange) -> Result<(), RailFault> {
        if let Some(why) = change.address.as_ref().and_then(|address_vector| self.blocked_by(address_vector)) {
            return Err(why);
        }
        let changed = self.device.modify_qp(qp.id, change).map_err(|why: ModifyError| {
            tracing::debug!(rail = %self.options.name, %why, "queue pair not changed");
            super::codes::of_modify(&why)
        });
        if let Some(address_vector) = &change.address {
            self.note_search(address_vector, changed);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        let qp = Qp { id: rerail_verbs::contract::QpId(1), number: 2 };
        Link::new(PeerId(0), Ends::Rc(qp, 0), [0; 32], SetupKind::Ready { answers: [0; 32], target: 0 })
    }

    #[test]
    fn timers_follow_their_links() {
        let mut links = Links::default();
        let (a, b) = (links.insert(link()), links.insert(link()));
        links.set_timer(a, Some(Time(5)));
        links.set_timer(b, Some(Time(3)));
        assert_eq!(links.next_timer(), Some((Time(3), b)));
        links.set_timer(b, Some(Time(9)));
        assert_eq!(links.next_timer(), Some((Time(5), a)));
        assert!(links.remove(a).is_some() && links.remove(a).is_none());
        assert_eq!((links.next_timer(), links.numbers()), (Some((Time(9), b)), vec![b]));
        links.set_timer(b, None);
        assert_eq!((links.next_timer(), links.insert(link())), (None, a));
    }
}
