//! What runs on a rank, and what a workload sees of the simulation.
//!
//! One [`App`] per rank, made by a [`Workload`]. Apps submit through [`Cx::engine`] and receive completions
//! as events; checkers look at the simulation through a [`View`] only, between steps, and see every rank's
//! memory.

use rerail_core::endpoint::{Event, Usage};
use rerail_core::ids::PeerId;
use rerail_core::mem::RegionId;
use rerail_core::time::Time;
use rerail_linux::driver::MemoryError;

use super::admin::AdminNet;
use super::wires::Wires;
use super::{Engine, Phase, RankState};
use crate::hca::Objects;
use crate::rails;
use crate::rng::Rng;
use crate::scenario::VerbsSpec;
use crate::trace::Trace;

/// What one rank does.
pub trait App {
    /// The first call, at virtual time 0, in order of ranks: allocate memory, submit, set a timer.
    fn start(&mut self, cx: &mut Cx<'_>);
    /// The engine reports something. What is submitted here goes out when the call returns.
    fn event(&mut self, cx: &mut Cx<'_>, event: Event);
    /// The moment named by [`Cx::wake_at`] has come.
    fn timer(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }
    /// A datagram of the administrative network has come.
    fn datagram(&mut self, cx: &mut Cx<'_>, from: u32, bytes: &[u8]) {
        let _ = (cx, from, bytes);
    }
    /// The simulation's phase has changed: in [`Phase::Liveness`] an app submits nothing new of its own
    /// accord, and finishes.
    fn phase(&mut self, cx: &mut Cx<'_>, phase: Phase) {
        let _ = (cx, phase);
    }
    /// Whether all that this rank submitted is over and it will submit nothing more.
    fn is_done(&self) -> bool;
}

/// What all ranks of a job do together.
pub trait Workload {
    /// The app of a rank of `size`.
    fn app(&mut self, rank: u32, size: u32) -> Box<dyn App>;
    /// Whether it is to [`at_moment`](Self::at_moment) at once: called whenever something has happened,
    /// before time goes on.
    fn is_due(&self) -> bool {
        false
    }
    /// Looks at the simulation: after every `Limits::inspection_period` of virtual time, and at each
    /// [`Moment`]. `false` ends the run (a checker has seen what must not be).
    fn at_moment(&mut self, view: &View<'_>, moment: Moment) -> bool {
        let _ = (view, moment);
        true
    }
}

/// When a workload looks at the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// In between: every `Limits::inspection_period`.
    Between,
    /// The workload was due.
    Due,
    /// A rank's process was killed just now.
    Killed(u32),
    /// All faults have been healed; what follows is the liveness phase.
    Healed,
    /// Every app is done (or the bound is over); engines still have to rest.
    Done,
    /// The end: after `Limits::rest` of quiet, so that nothing may be in use any more.
    End,
}

/// What an app may use in a call.
pub struct Cx<'a> {
    /// Virtual time.
    pub now: Time,
    /// This rank.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// The phase.
    pub phase: Phase,
    /// The rank's transport.
    pub engine: &'a mut Engine,
    /// The rank's own stream of numbers.
    pub rng: &'a mut Rng,
    /// The simulation's trace.
    pub trace: &'a Trace,
    pub(super) admin: &'a mut AdminNet,
    pub(super) is_mapped: bool,
    pub(super) wake: &'a mut Option<Time>,
    pub(super) spent_ns: &'a mut u64,
}

impl Cx<'_> {
    /// Requests [`App::timer`] at a moment; a rank has one timer, the earliest requested moment counts.
    pub fn wake_at(&mut self, at: Time) {
        *self.wake = Some(self.wake.map_or(at, |set| set.min(at)));
    }

    /// Memory for payload: where the ranks of a host map each other's, memory that they may map.
    ///
    /// # Errors
    /// Those of `Transport::alloc_shared`.
    pub fn alloc(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        if self.is_mapped { self.engine.alloc_shared(bytes) } else { self.engine.alloc(bytes) }
    }

    /// As [`alloc`](Self::alloc), memory for windows.
    ///
    /// # Errors
    /// Those of `Transport::alloc_window`.
    pub fn alloc_window(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        if self.is_mapped { self.engine.alloc_window(bytes) } else { self.engine.alloc(bytes) }
    }

    /// Whether the ranks of a host map each other's memory.
    pub const fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// The rank computes for so long after this call: it polls nothing meanwhile.
    pub fn compute(&mut self, ns: u64) {
        *self.spent_ns = self.spent_ns.saturating_add(ns);
    }

    /// Sends a datagram over the administrative network; it arrives unless that network is cut or the
    /// receiver is dead.
    pub fn send_datagram(&mut self, to: u32, bytes: &[u8]) {
        self.admin.send(self.now, self.rank, to, bytes);
    }
}

/// A look at the simulation between two steps.
pub struct View<'a> {
    /// Virtual time.
    pub now: Time,
    /// The phase.
    pub phase: Phase,
    pub(super) ranks: &'a [RankState],
    pub(super) wires: &'a Wires,
}

impl View<'_> {
    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Bytes of a rank's memory; `None` where there are none such. A killed rank's memory stays to be looked
    /// at.
    pub fn peek(&self, rank: u32, region: RegionId, offset: u64, len: u64) -> Option<&[u8]> {
        let bytes = rails::region(self.engine(rank)?, region)?;
        bytes.get(usize::try_from(offset).ok()?..)?.get(..usize::try_from(len).ok()?)
    }

    /// A rank's transport, to look at.
    pub fn engine(&self, rank: u32) -> Option<&Engine> {
        self.ranks.get(rank as usize).map(|rank| &rank.engine)
    }

    /// How full every bounded table of a rank is.
    pub fn usage(&self, rank: u32) -> Option<Usage> {
        self.engine(rank).map(|engine| engine.endpoint().usage())
    }

    /// Whether a rank's process lives.
    pub fn is_alive(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|rank| rank.alive)
    }

    /// Whether a rank's app reports that it is done.
    pub fn is_done(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|rank| rank.app.is_done())
    }

    /// Objects of all devices (queue pairs, memory regions, ...) that exist now.
    pub fn device_objects(&self) -> usize {
        self.wires.objects()
    }

    /// Those of a rank's process, on all devices that it has opened.
    pub fn objects_of(&self, rank: u32) -> Objects {
        self.wires.objects_of(rank)
    }

    /// How rails over HCAs were made.
    pub fn verbs(&self) -> &VerbsSpec {
        self.wires.verbs()
    }

    /// The host of a rank.
    pub fn host_of(&self, rank: u32) -> u32 {
        self.wires.host_of(rank)
    }

    /// As a rank's id in the core.
    pub fn peer(rank: u32) -> PeerId {
        PeerId(rank)
    }
}
