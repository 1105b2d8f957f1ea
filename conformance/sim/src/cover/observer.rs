//! What the packets of all ranks show of the paths that they take.

use std::collections::BTreeMap;

use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{Body, Kind, Lane, Packet, ParkStep, Repr};

use super::{Coverage, Path};

/// PSNs that are remembered of each lane: as many as the largest window of drawn simulations.
const REMEMBERED: usize = 1024;

/// Two ends that fail within this time have failed at once.
const AT_ONCE: Nanos = Nanos::from_micros(10);

/// One end of a subchannel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sub {
    /// Whose end.
    pub rank: u32,
    /// The rank to which it leads.
    pub peer: u32,
    /// The rank's rail.
    pub rail: u8,
}

impl Sub {
    const fn other_end(self) -> Sub {
        Sub { rank: self.peer, peer: self.rank, rail: self.rail }
    }
}

/// What was seen of one lane in one direction.
#[derive(Clone, Debug)]
struct LaneSeen {
    /// The PSN of the next packet that is not sent again; none was sent yet: `None`.
    next: Option<u32>,
    /// Rails of the last packets, by PSN.
    rails: Box<[u8; REMEMBERED]>,
    /// PSNs that came, one more than each, by PSN.
    came: Box<[u64; REMEMBERED]>,
}

impl Default for LaneSeen {
    fn default() -> Self {
        LaneSeen { next: None, rails: Box::new([u8::MAX; REMEMBERED]), came: Box::new([0; REMEMBERED]) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Connections {
    is_up: bool,
    /// It failed, by the rail's word.
    failed_at: Option<Time>,
    /// One has failed before.
    has_failed: bool,
    /// The sender's first number and the number of its newest connection, from its CONNECT.
    connect_sent: Option<(u32, u32)>,
    /// A request to park was posted on it, and is not answered.
    parks: bool,
}

/// What a PARK does.
fn park_step(header: &[u8]) -> Option<ParkStep> {
    match Repr::parse(header) {
        Ok(Repr { body: Body::Park(park), .. }) => Some(park.step),
        _ => None,
    }
}

/// Watches a simulation.
#[derive(Debug, Default)]
pub struct Observer {
    coverage: Coverage,
    subs: BTreeMap<Sub, Connections>,
    /// By sender and receiver: both lanes.
    lanes: BTreeMap<(u32, u32), [LaneSeen; 2]>,
    /// Offsets at which puts began, by origin and its operation.
    puts: BTreeMap<(u32, u64), u64>,
    /// The newest round that was requested of the receiver of a message, by the receiver and its operation.
    epochs: BTreeMap<(u32, u64), u16>,
    /// Pairs of ranks without a rail, the first one's view.
    cut_off: BTreeMap<(u32, u32), ()>,
}

impl Observer {
    /// What was taken.
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// A path was taken that something else has seen.
    pub fn note(&mut self, path: Path) {
        self.coverage.note(path);
    }

    /// A connection stands.
    pub(super) fn up(&mut self, sub: Sub) {
        let entry = self.subs.entry(sub).or_default();
        (entry.is_up, entry.failed_at) = (true, None);
        entry.parks = false;
        if self.cut_off.remove(&(sub.rank, sub.peer)).is_some() {
            self.note(Path::Unreachable);
        }
    }

    /// A message has taken the short way.
    pub(super) fn short(&mut self, sub: Sub) {
        self.note(Path::ShortWay);
        let pair = Sub { rail: 0, ..sub }..=Sub { rail: u8::MAX, ..sub };
        let others = self.subs.range(pair).filter(|(other, _)| other.rail != sub.rail).map(|(_, state)| state);
        let (is_beside, is_after) =
            others.fold((false, false), |seen, other| (seen.0 | other.is_up, seen.1 | other.has_failed));
        if is_beside {
            self.note(Path::ShortBesideAnother);
        }
        if is_after {
            self.note(Path::ShortAfterAnother);
        }
    }

    /// The rank has ended a connection.
    pub(super) fn ended(&mut self, sub: Sub) {
        self.subs.entry(sub).or_default().is_up = false;
    }

    /// A rail has lost a connection.
    pub(super) fn down(&mut self, sub: Sub, now: Time) {
        let entry = self.subs.entry(sub).or_default();
        if !std::mem::take(&mut entry.is_up) {
            return;
        }
        (entry.failed_at, entry.has_failed) = (Some(now), true);
        if std::mem::take(&mut entry.parks) {
            self.note(Path::ParkFails);
        }
        let other = self.subs.get(&sub.other_end()).and_then(|end| end.failed_at);
        if other.is_some_and(|at| now - at <= AT_ONCE) && sub.rank != sub.peer {
            self.note(Path::BothEndsFail);
        }
        if self.rails_of(sub).all(|end| !end.is_up) {
            self.cut_off.insert((sub.rank, sub.peer), ());
        }
    }

    fn rails_of(&self, sub: Sub) -> impl Iterator<Item = &Connections> {
        let (first, last) = (Sub { rail: 0, ..sub }, Sub { rail: u8::MAX, ..sub });
        self.subs.range(first..=last).map(|(_, connections)| connections)
    }

    /// A process is killed.
    pub fn killed(&mut self, rank: u32) {
        if self.subs.iter().any(|(sub, end)| sub.rank == rank && sub.peer != rank && end.is_up) {
            self.note(Path::Killed);
        }
    }

    /// A packet is posted.
    pub(super) fn posted(&mut self, of: Sub, header: &[u8]) {
        let Ok(packet) = Packet::new_checked(header) else { return };
        let kind = packet.kind();
        let Some(lane) = kind.lane() else { return self.frame_posted(of, kind, header) };
        let psn = packet.common().psn;
        let seen = &mut self.lanes.entry((of.rank, of.peer)).or_default()[usize::from(lane == Lane::Unordered)];
        let place = psn as usize % REMEMBERED;
        let is_new = seen.next.is_none_or(|next| next == psn);
        if is_new {
            let wraps = psn == 0 && seen.next.is_some();
            seen.next = Some(psn.wrapping_add(1));
            seen.rails[place] = of.rail;
            if wraps {
                self.note(Path::PsnWraps);
            }
            if kind == Kind::Put {
                self.put_posted(of, header, false);
            } else if matches!(kind, Kind::Resume | Kind::Cts) {
                self.epoch_posted(header);
            }
            return;
        }
        if seen.rails[place] != of.rail {
            seen.rails[place] = of.rail;
            self.note(Path::OnAnotherRail);
        }
        match kind {
            Kind::Eager => self.note(Path::EagerReplayed),
            Kind::Aggregate => self.note(Path::AggregateReplayed),
            Kind::Rts => self.note(Path::RtsReplayed),
            Kind::Cts => self.note(Path::CtsReplayed),
            Kind::Fin => self.note(Path::FinReplayed),
            Kind::Atomic | Kind::Get => self.note(Path::AtomicReplayed),
            Kind::PutImmediate => self.note(Path::NoticeReplayed),
            Kind::AtomicReply => self.note(Path::ReplyReplayed),
            Kind::Put => self.put_posted(of, header, true),
            Kind::Resume => self.epoch_posted(header),
            Kind::Data => {
                if let Ok(Repr { body: Body::Data(data), .. }) = Repr::parse(header)
                    && data.offset > 0
                {
                    self.note(Path::DataReplayed);
                }
            }
            _ => {}
        }
    }

    fn put_posted(&mut self, of: Sub, header: &[u8], is_again: bool) {
        let Ok(Repr { body: Body::Put(put), .. }) = Repr::parse(header) else { return };
        let began = *self.puts.entry((of.rank, put.operation)).or_insert(put.offset);
        if is_again && put.offset > began {
            self.note(Path::PutSegmentReplayed);
        }
    }

    fn epoch_posted(&mut self, header: &[u8]) {
        match Repr::parse(header).map(|repr| repr.body) {
            Ok(Body::Resume(resume)) if resume.epoch > 1 => self.note(Path::ResumeAgain),
            Ok(Body::Resume(_)) => self.note(Path::Resume),
            Ok(Body::Cts(cts)) if cts.epoch > 0 && !cts.keys.is_empty() => self.note(Path::KeysRefreshed),
            _ => {}
        }
    }

    fn frame_posted(&mut self, of: Sub, kind: Kind, header: &[u8]) {
        match kind {
            Kind::Credit => self.note(Path::CreditAlone),
            Kind::Fence => {
                let Ok(Repr { body: Body::Fence(fence), .. }) = Repr::parse(header) else { return };
                if fence.answer {
                    self.note(Path::FenceAnswered);
                } else if self.rails_of(of).filter(|end| !end.is_up).count() >= 2 {
                    self.note(Path::FenceTwoDown);
                }
            }
            Kind::Connect => {
                let Ok(Repr { body: Body::Connect(connect), .. }) = Repr::parse(header) else { return };
                let entry = self.subs.entry(of).or_default();
                entry.connect_sent = Some((connect.first_number, connect.connection));
                if connect.parked > 0 {
                    self.note(Path::Resumed);
                }
                let behind = connect.connection.wrapping_sub(connect.first_number);
                if behind >= 1 << 30 {
                    self.note(Path::LateCaller);
                } else if connect.connection < connect.first_number {
                    self.note(Path::ConnectionWraps);
                }
            }
            Kind::Park => match park_step(header) {
                Some(ParkStep::Request) => {
                    let crosses = self.subs.get(&of.other_end()).is_some_and(|end| end.parks);
                    self.subs.entry(of).or_default().parks = true;
                    if crosses {
                        self.note(Path::ParkCrosses);
                    }
                }
                Some(ParkStep::Agree) => self.note(Path::Parked),
                Some(ParkStep::Decline) => self.note(Path::ParkDeclined),
                Some(ParkStep::Withdraw) => self.note(Path::ParkWithdrawn),
                None => {}
            },
            Kind::Ack => {
                if let Ok(Repr { body: Body::Ack(ack), .. }) = Repr::parse(header)
                    && ack.ordered_beyond | ack.unordered_beyond != 0
                {
                    self.note(Path::ReceivedBeyond);
                }
            }
            _ => {}
        }
    }

    /// A packet comes.
    pub(super) fn arrived(&mut self, at: Sub, header: &[u8]) {
        let Ok(packet) = Packet::new_checked(header) else { return };
        let kind = packet.kind();
        let Some(lane) = kind.lane() else {
            match kind {
                Kind::Fence => self.fence_arrived(at, header),
                Kind::Park if matches!(park_step(header), Some(ParkStep::Agree | ParkStep::Decline)) => {
                    self.subs.entry(at).or_default().parks = false;
                }
                _ => {}
            }
            return;
        };
        let psn = packet.common().psn;
        let seen = &mut self.lanes.entry((at.peer, at.rank)).or_default()[usize::from(lane == Lane::Unordered)];
        let name = u64::from(psn) + 1;
        let is_again = std::mem::replace(&mut seen.came[psn as usize % REMEMBERED], name) == name;
        match kind {
            Kind::Resume | Kind::Fin => self.epoch_arrived(at, header),
            Kind::Atomic if is_again => self.note(Path::DuplicateAtomic),
            Kind::Put if is_again => self.note(Path::DuplicatePut),
            Kind::Eager | Kind::Rts | Kind::Aggregate if is_again => self.note(Path::DuplicateMessage),
            _ => {}
        }
    }

    fn epoch_arrived(&mut self, at: Sub, header: &[u8]) {
        match Repr::parse(header).map(|repr| repr.body) {
            Ok(Body::Resume(resume)) => {
                let newest = self.epochs.entry((at.rank, resume.target)).or_default();
                *newest = (*newest).max(resume.epoch);
            }
            Ok(Body::Fin(fin)) => {
                if fin.refused.is_some() {
                    self.note(Path::Refused);
                }
                if self.epochs.get(&(at.rank, fin.operation)).is_some_and(|newest| fin.epoch < *newest) {
                    self.note(Path::FinOfOldRound);
                }
            }
            _ => {}
        }
    }

    fn fence_arrived(&mut self, at: Sub, header: &[u8]) {
        let Ok(Repr { body: Body::Fence(fence), .. }) = Repr::parse(header) else { return };
        let here = Sub { rail: fence.peer_rail, ..at };
        let newest = self.subs.get(&here).and_then(|end| end.connect_sent).map(|(_, connection)| connection);
        if newest.is_some_and(|newest| (1..=1 << 30).contains(&newest.wrapping_sub(fence.peer_connection))) {
            self.note(Path::FenceOfOld);
        }
    }
}
