//! Where a rank's memory lies: windows, receive and send buffers, and how they are taken and given back.

use rerail_core::endpoint::{Access, Notify, Window};
use rerail_core::ids::CounterId;
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::time::Time;

use super::super::plan::{ALONE, CHAIN, CONSTANT, PIECES_MAX, Plan, SCRATCH_BYTES, SUM, Step, WINDOWS};
use super::{Player, SENDS_MAX, WindowSort};
use crate::check::{Arena, BLANK, COUNTED, Content, Corruption, Damage, Extent, Ledger, Rule, Scar, Verdict};
use crate::cluster::Cx;
use crate::cover::Path;
use crate::rails;

/// A rank's memory.
pub struct Memory {
    pub window: RegionId,
    pub receive: (RegionId, Arena),
    pub send: (RegionId, Arena),
    /// The temporary window's.
    pub temporary: Option<RegionId>,
    /// What that held when its window was withdrawn: no peer writes there any more.
    pub withdrawn: Option<Vec<u8>>,
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
    /// In send memory.
    Send,
    /// In receive memory: a receive of a turn.
    Turn,
    /// All others.
    Receive,
    /// A claimed message that found no room beside these.
    Claimed,
}

impl Zone {
    const fn index(self) -> usize {
        match self {
            Zone::Send | Zone::Turn => 0,
            Zone::Receive => 1,
            Zone::Claimed => 2,
        }
    }
}

/// The list of what peers may map changes at one event in so many.
const OFFERS_CHANGE_ONE_IN: u64 = 20;

/// Bytes of a temporary window.
pub const TEMPORARY_BYTES: u64 = 3000;

impl Player {
    /// Memory, windows, and what the windows hold at first.
    pub(super) fn lay_out(&mut self, cx: &mut Cx<'_>) {
        let shared = &mut *self.shared.borrow_mut();
        let plan = &shared.plan;
        // A claimed message that found no room would wait for the receives that have it, and these for what
        // its sender sends behind it. So would a receive of a turn, posted between others.
        let (turns, others) = plan.receive_bytes(self.rank);
        let claimed = Arena::bytes_for(plan.claimed_bytes_max(self.rank));
        let zones = [turns, others, claimed].map(|bytes| bytes.next_multiple_of(64));
        let bytes = [plan.window_bytes(), zones.iter().sum(), send_bytes(plan, self.rank)];
        let [window, receive, send] = bytes.map(|bytes| bytes as usize);
        let (Ok(window), Ok(receive), Ok(send)) = (cx.alloc_window(window), cx.alloc(receive), cx.alloc(send)) else {
            panic!("the machine has no {bytes:?} bytes for a rank");
        };
        for slot in 0..plan.slots.len() as u32 {
            let content = first_content(self.rank, slot);
            let at = plan.slot_at(slot) as usize;
            let memory = cx.engine.bytes_mut(window).expect("just made");
            content.fill(0, &mut memory[at..at + plan.slots[slot as usize] as usize]);
        }
        let access = Access { read: true, write: true, atomic: true };
        let at = MemRef { region: window, offset: 0 };
        let mut window_of = Window::new(at, plan.window_bytes(), access, WindowSort::All.key(self.rank));
        // At some ranks puts with immediate data count, too: on the counter that requests share.
        if let Some(last) = cx.engine.config().counters_max.checked_sub(1).filter(|_| self.rank % 3 == 1) {
            (window_of.written, window_of.cookie) = (Notify::Both(CounterId(last)), COUNTED);
            shared.ledger.count_notices(self.rank, last);
        }
        cx.engine.expose(&window_of).expect("a table for windows");
        let receive = (receive, Arena::with_zones(cx.engine.bytes_mut(receive).expect("just made"), &zones));
        let send = (send, Arena::new(cx.engine.bytes_mut(send).expect("just made")));
        let temporary = cx.engine.config().windows_max >= WINDOWS;
        let temporary = temporary.then(|| cx.alloc_window(TEMPORARY_BYTES as usize).ok()).flatten();
        if let Some(temporary) = temporary {
            let can = |read, write| Access { read, write, atomic: false };
            let at = |offset| MemRef { region: window, offset };
            let constant = plan.slots[CONSTANT as usize];
            let all = Access { read: true, write: true, atomic: true };
            let in_temporary = MemRef { region: temporary, offset: 0 };
            for (at, len, access, sort) in [
                (at(plan.slot_at(CONSTANT)), constant, can(true, false), WindowSort::ReadOnly),
                (at(plan.scratch_at()), SCRATCH_BYTES, can(false, true), WindowSort::WriteOnly),
                (in_temporary, TEMPORARY_BYTES, all, WindowSort::Temporary),
            ] {
                let key = sort.key(self.rank);
                let id = cx.engine.expose(&Window::new(at, len, access, key)).expect("a table for windows");
                if sort == WindowSort::Temporary {
                    self.temporary = Some(id);
                }
            }
        }
        shared.ranks[self.rank as usize] = Some(Memory { window, receive, send, temporary, withdrawn: None });
    }

    /// Now and then memory without use comes or goes, so that the list of what peers may map is another one.
    pub(super) fn change_offers(&mut self, cx: &mut Cx<'_>) {
        if cx.is_mapped() && self.offer_draws.one_in(OFFERS_CHANGE_ONE_IN) {
            self.unused = match self.unused.take() {
                Some(region) => cx.engine.free(region).err().map(|_| region),
                None => cx.alloc(TEMPORARY_BYTES as usize).ok(),
            };
        }
    }

    /// Ends the exposure of the temporary window, and keeps what it holds. False: not now, something is being
    /// placed there.
    pub(super) fn withdraw(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(window) = self.temporary else { return true };
        if cx.engine.deregister(window).is_err() {
            cx.trace.took(Path::WindowWithdrawn);
            return false;
        }
        self.temporary = None;
        let shared = &mut *self.shared.borrow_mut();
        let in_flight = shared.temporary.get(&self.rank).is_some_and(|count| *count > 0);
        if in_flight {
            cx.trace.took(Path::WindowWithdrawn);
        }
        if let Some(memory) = shared.ranks[self.rank as usize].as_mut() {
            memory.withdrawn = memory.temporary.and_then(|region| Some(cx.engine.bytes(region).ok()?.to_vec()));
        }
        true
    }

    /// A buffer; `None`: no room now.
    fn take(&mut self, cx: &mut Cx<'_>, zone: Zone, len: u64, owner: u32) -> Option<Extent> {
        let skew = if zone == Zone::Claimed { 0 } else { cx.rng.below(8) };
        let shared = &mut *self.shared.borrow_mut();
        let memory = shared.ranks[self.rank as usize].as_mut()?;
        let (region, arena) = if zone == Zone::Send { &mut memory.send } else { &mut memory.receive };
        match arena.take(rails::region(cx.engine, *region)?, zone.index(), len, skew, owner) {
            Ok(extent) => extent,
            Err(scar) => {
                late_write(&mut shared.ledger, self.rank, cx.now, scar);
                self.failed = true;
                None
            }
        }
    }

    pub(super) fn give_back(&mut self, cx: &mut Cx<'_>, receiving: bool, extents: &[Extent]) {
        let shared = &mut *self.shared.borrow_mut();
        let Some(memory) = shared.ranks[self.rank as usize].as_mut() else { return };
        let (region, arena) = if receiving { &mut memory.receive } else { &mut memory.send };
        for extent in extents {
            let Some(bytes) = rails::region_mut(cx.engine, *region) else { return };
            if let Err(scar) = arena.give_back(bytes, *extent, cx.now) {
                late_write(&mut shared.ledger, self.rank, cx.now, scar);
                self.failed = true;
            }
        }
    }

    pub(super) fn region(&self, receiving: bool) -> RegionId {
        let shared = self.shared.borrow();
        let memory = shared.ranks[self.rank as usize].as_ref().expect("laid out at the start");
        if receiving { memory.receive.0 } else { memory.send.0 }
    }

    /// Buffers of `len` bytes in all, in one piece or more.
    pub(super) fn pieces(&mut self, cx: &mut Cx<'_>, zone: Zone, len: u64, one: bool) -> Option<Vec<Extent>> {
        let owner = self.shared.borrow().ledger.next_request(self.rank);
        let most = u64::from(cx.engine.config().segments_max.min(PIECES_MAX));
        let count = if one || len < 2 { 1 } else { 1 + cx.rng.below(most) };
        let (mut extents, mut left) = (Vec::new(), len);
        for index in 0..count {
            let part = if index + 1 == count { left } else { cx.rng.below(left + 1) };
            match self.take(cx, zone, part, owner) {
                Some(extent) => extents.push(extent),
                None => {
                    self.give_back(cx, zone != Zone::Send, &extents);
                    return None;
                }
            }
            left -= part;
        }
        Some(extents)
    }

    pub(super) fn segs(&self, receiving: bool, extents: &[Extent]) -> Vec<Seg> {
        let region = self.region(receiving);
        extents.iter().map(|extent| Seg::new(region, extent.offset, extent.len)).collect()
    }

    pub(super) fn fill(&self, cx: &mut Cx<'_>, extents: &[Extent], content: Content) {
        let region = self.region(false);
        let Some(bytes) = rails::region_mut(cx.engine, region) else { return };
        let mut offset = 0;
        for extent in extents {
            content.fill(offset, &mut bytes[extent.range()]);
            offset += extent.len;
        }
    }

    pub(super) fn blank(&self, cx: &mut Cx<'_>, extents: &[Extent]) {
        let region = self.region(true);
        if let Some(bytes) = rails::region_mut(cx.engine, region) {
            extents.iter().for_each(|extent| bytes[extent.range()].fill(BLANK));
        }
    }
}

/// Enters what windows hold at first. Before any rank begins, because the first may request memory of the
/// last.
pub fn open_windows(plan: &Plan, ledger: &mut Ledger) {
    for rank in 0..plan.size {
        for slot in 0..plan.slots.len() as u32 {
            ledger.slots().open(rank, slot, first_content(rank, slot));
        }
        for cell in 0..ALONE + plan.size {
            let rule = match cell {
                SUM => Rule::Sum,
                CHAIN => Rule::Chain,
                _ => Rule::Alone,
            };
            ledger.cells().open(rank, cell, rule, 0);
        }
    }
}

/// What a slot holds at first.
fn first_content(rank: u32, slot: u32) -> Content {
    Content(u64::from(rank) << 32 | u64::from(slot) | 1 << 63)
}

/// Bytes of buffers for what a rank sends and puts: as much as can be under way at once, with holes between,
/// or all of it, where that is less (most of these bytes would never be used, and poisoning them took a third
/// of a simulation's time).
fn send_bytes(plan: &Plan, rank: u32) -> u64 {
    let most = plan.messages.iter().map(|message| message.len).chain(plan.slots.iter().copied()).max().unwrap_or(0);
    let at_once = (most + 1024) * (SENDS_MAX as u64 + 1) * 2;
    let sends = plan.sends[rank as usize].iter().map(|index| plan.messages[*index].len);
    let puts = plan.steps[rank as usize].iter().map(|step| match *step {
        Step::Put { slot, .. } => plan.slots[slot as usize],
        Step::Temporary { .. } => TEMPORARY_BYTES,
        Step::Forbidden { .. } => 2 * SCRATCH_BYTES,
        _ => 32,
    });
    let all = sends.chain(puts).map(|len| len + 1024).sum();
    at_once.min(all) + (1 << 16)
}

fn late_write(ledger: &mut Ledger, rank: u32, at: Time, scar: Scar) {
    ledger.find(Verdict::Corruption(Corruption { rank, at, damage: Damage::LateWrite(scar) }));
}
