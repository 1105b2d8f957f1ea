//! One-sided operations beside the messages, one at a time: a put that is read back and compared, and an
//! addition of one to a number, which must find all additions before it done once.

use rerail_core::endpoint::{Access, AtomicRequest, GetRequest, Level, PutRequest, Remote, Window};
use rerail_core::ids::PeerId;
use rerail_core::mem::{RegionId, Seg};
use rerail_core::wire::{AtomicKind, AtomicType};

use super::super::kernel::KernelError;
use super::{gone, report::Side};
use crate::exchange::describe;
use crate::exchange::pattern::{self, Key, mix};
use crate::exit::Failure;
use crate::session::{Session, SessionError, Ticket};

/// Bytes of a put, in turn.
const SIZES: [u64; 4] = [8, 4000, 64 << 10, 300_000];
/// Position of the number in a window, behind all puts.
const CELL: u64 = 320 << 10;
/// Bytes of a window.
const WINDOW_BYTES: u64 = CELL + 8;
/// The key of each rank's window, the rank added.
const WINDOW: u64 = 0x6d69_7865_6400_0000;
/// In the key of payloads.
const PUT: u64 = 1 << 43;

/// The pending operation.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(Ticket),
    Get(Ticket),
    Add(Ticket),
}

/// One-sided operations of one side.
pub(super) struct Accesses {
    /// What the other side puts into and counts in.
    window: RegionId,
    /// What is put from, and read back into.
    local: RegionId,
    step: Option<Step>,
    rounds: u64,
}

impl Accesses {
    /// Opens this side's window. The other side's is open behind the next barrier.
    pub(super) fn prepare(session: &mut Session) -> Result<Accesses, Failure> {
        let (window, local) = (session.alloc(WINDOW_BYTES)?, session.alloc(2 * CELL)?);
        session.bytes_mut(Seg::new(window, 0, WINDOW_BYTES)).fill(0);
        let whole = Seg::new(window, 0, WINDOW_BYTES);
        let access = Access { read: true, write: true, atomic: true };
        session.expose(&Window::new(whole.at, whole.len, access, WINDOW + u64::from(session.rank())))?;
        Ok(Accesses { window, local, step: None, rounds: 0 })
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.step.is_none()
    }

    fn bytes(&self) -> u64 {
        SIZES[(mix(self.rounds) % SIZES.len() as u64) as usize]
    }

    fn key(&self, session: &Session) -> Key {
        let source = session.rank();
        Key { seed: 0, source, target: 1 - source, tag: PUT, number: self.rounds }
    }

    /// Takes the next step where the one before is complete, and begins another round while `is_on`.
    pub(super) fn go_on(&mut self, session: &mut Session, side: &mut Side, is_on: bool) -> Result<(), KernelError> {
        let peer = PeerId(1 - session.rank());
        let to = Remote { peer, window: WINDOW + u64::from(peer.0), offset: 0 };
        let here = Seg::new(self.local, 0, self.bytes());
        let back = Seg::new(self.local, CELL, self.bytes());
        let Some(step) = self.step else {
            if is_on {
                pattern::fill(&self.key(session), 0, session.bytes_mut(here));
                let put = PutRequest { level: Level::Placed, segments: &[here], ..PutRequest::new(to, &[]) };
                self.step = Some(Step::Put(session.put(put)?));
            }
            return Ok(());
        };
        let (Step::Put(ticket) | Step::Get(ticket) | Step::Add(ticket)) = step;
        let Some(outcome) = session.take(&ticket) else { return Ok(()) };
        let done = gone(outcome)?;
        self.step = match step {
            Step::Put(_) => {
                session.bytes_mut(back).fill(0);
                Some(Step::Get(session.get(GetRequest::new(to, &[back]))?))
            }
            Step::Get(_) => {
                if let Some(difference) = pattern::compare(&self.key(session), 0, session.bytes(back)) {
                    let what = format!("put {} of {} B, read back: {}", self.rounds, here.len, describe(&difference));
                    side.wrong(|side| &mut side.different, what);
                }
                side.puts += 1;
                let at = Remote { offset: CELL, ..to };
                let (kind, data_type) = (AtomicKind::Add, AtomicType::U64);
                Some(Step::Add(session.atomic(AtomicRequest::new(at, kind, data_type, 1))?))
            }
            Step::Add(_) => {
                if done.old > side.adds {
                    side.wrong(|side| &mut side.duplicated, format!("addition {} found {}", side.adds, done.old));
                } else if done.old < side.adds {
                    side.wrong(|side| &mut side.lost, format!("addition {} found {}", side.adds, done.old));
                }
                side.adds = done.old + 1;
                self.rounds += 1;
                None
            }
        };
        Ok(())
    }

    /// The other side's additions, as counted at this side. Call it after the last of them.
    pub(super) fn wait_all(&self, session: &Session, side: &mut Side) -> Result<(), SessionError> {
        let bytes: [u8; 8] = session.bytes(Seg::new(self.window, CELL, 8)).try_into().unwrap_or_default();
        side.added_here = u64::from_le_bytes(bytes);
        Ok(())
    }
}
