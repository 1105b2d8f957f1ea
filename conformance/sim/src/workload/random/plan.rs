//! The programme of a random simulation: every message with the selector that will receive it, every
//! one-sided request.
//!
//! It is free of deadlocks by construction. Messages belong to turns; a rank posts all receives of a turn at
//! once, before it waits for any of them, and goes on to the next turn when they are over, while senders send
//! turn after turn. Tags carry the turn, so nothing of a later turn can take a receive of an earlier one.
//! Untagged messages, which have no tags, are received by what is posted at the very start. A selector takes
//! messages of its class only, and there are as many receives with it as messages, so whichever message a
//! receive gets, the others find theirs.

use std::collections::BTreeMap;

use rerail_core::endpoint::{Level, Selector, TagMatch};
use rerail_core::ids::PeerId;

use crate::check::Arena;
use crate::rng::Rng;

/// Where the sort of a class stands in its tag, and its turn.
const SORT_BIT: u32 = 32;
const TURN_BIT: u32 = 40;
/// Added to the sort of classes that are claimed; the others have less, and more than none.
const SORT_CLAIMED: u64 = 4;

/// A buffer consists of so many pieces at most.
pub const PIECES_MAX: u8 = 3;

/// All tags of the classes of a turn that are not received by claiming.
pub fn posted_tags(turn: u32) -> impl Iterator<Item = TagMatch> {
    let of_sort = move |sort| u64::from(turn) << TURN_BIT | sort << SORT_BIT;
    (1..=SORT_CLAIMED).map(move |sort| TagMatch::Tagged { tag: of_sort(sort), ignore: (1 << SORT_BIT) - 1 })
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub source: u32,
    pub destination: u32,
    pub len: u64,
    pub tag: Option<u64>,
    /// Its name travels as immediate data.
    pub immediate: bool,
    pub level: Level,
    /// Handed over with its bytes, which are copied at once.
    pub inject: bool,
    /// Nothing is special about it: small, of one piece, reported by an event.
    pub plain: bool,
}

/// How the messages of a class are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// By receives posted at their turn.
    Posted,
    /// By receives posted at the start.
    AtStart,
    /// By one multi-receive posted at the start.
    Multi,
    /// By probing for them and claiming them.
    Claimed,
}

/// Messages that one selector takes.
#[derive(Clone, Debug)]
pub struct Class {
    pub destination: u32,
    pub turn: u32,
    pub selector: Selector,
    pub manner: Manner,
    /// Its messages.
    pub members: Vec<usize>,
    /// Bytes of a receive's buffer.
    pub capacity: u64,
    /// Its receives are of one piece, reported by events: some of its messages are plain.
    pub plain: bool,
    /// Its receives are posted some time after the others of their turn, when messages may have come.
    pub late: bool,
}

/// A one-sided request, or one that only its own rank sees.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A put into a slot that is this rank's to write.
    Put { target: u32, slot: u32 },
    /// A get from a slot that no other rank writes.
    Get { target: u32, slot: u32 },
    /// An atomic on a cell.
    Atomic { target: u32, cell: u32 },
    /// A flush.
    Flush { target: u32 },
    /// An access that must be refused.
    Forbidden { target: u32, what: Forbidden },
    /// An access to the target's temporary window, which may be gone.
    Temporary { target: u32 },
    /// This rank's temporary window is withdrawn.
    Withdraw,
    /// A receive that nothing comes for, taken back at once.
    Vain,
    /// One of the posted receives is taken back, and posted again.
    Retract,
}

/// Why an access must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// A put, a get and an atomic with a key that no window has.
    PutWithoutWindow,
    GetWithoutWindow,
    AtomicWithoutWindow,
    /// A put, a get and an atomic behind the window's end.
    PutBeyond,
    GetBeyond,
    AtomicBeyond,
    /// A put that begins in the window and is longer than what is left of it.
    PutTooLong,
    /// A put and an atomic to a window that can only be read, a get from one that can only be written.
    PutReadOnly,
    AtomicReadOnly,
    GetWriteOnly,
}

/// All of them.
const FORBIDDEN: [Forbidden; 10] = [
    Forbidden::PutWithoutWindow,
    Forbidden::GetWithoutWindow,
    Forbidden::AtomicWithoutWindow,
    Forbidden::PutBeyond,
    Forbidden::GetBeyond,
    Forbidden::AtomicBeyond,
    Forbidden::PutTooLong,
    Forbidden::PutReadOnly,
    Forbidden::AtomicReadOnly,
    Forbidden::GetWriteOnly,
];

impl Step {
    /// Whose window it is about.
    pub const fn target(self) -> Option<u32> {
        match self {
            Step::Put { target, .. }
            | Step::Get { target, .. }
            | Step::Atomic { target, .. }
            | Step::Flush { target }
            | Step::Forbidden { target, .. }
            | Step::Temporary { target } => Some(target),
            Step::Withdraw | Step::Vain | Step::Retract => None,
        }
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub size: u32,
    pub messages: Vec<Planned>,
    pub classes: Vec<Class>,
    /// By rank: its sends, in their order.
    pub sends: Vec<Vec<usize>>,
    pub turns: u32,
    /// By rank: its other requests.
    pub steps: Vec<Vec<Step>>,
    /// Bytes of each slot of a window.
    pub slots: Vec<u64>,
}

/// What a plan is drawn with.
#[derive(Clone, Copy, Debug)]
pub struct LoadParameters {
    pub size: u32,
    pub messages: u64,
    pub bytes_max: u64,
    /// Of a hundred messages so many may be of any length up to `bytes_max`; the others are of an eager
    /// length mostly.
    pub large_percent: u64,
    /// Of a hundred messages so many are plain.
    pub plain_percent: u64,
    /// Half of the receives that take more than one sender or tag are posted late.
    pub late: bool,
    /// Receives that a rank may have posted at once.
    pub receives_max: usize,
    pub eager_bytes_max: u64,
    /// There is room for copies of injected messages.
    pub inject: bool,
    pub one_sided: bool,
    /// A rank that lies.
    pub liar: Option<u32>,
    /// Ranks have room for [`WINDOWS`] windows.
    pub windows: bool,
}

/// Windows of a rank: all of its slots and cells; the constant slot to be read alone; scratch memory to be
/// written alone; a temporary one.
pub const WINDOWS: u32 = 4;

/// Bytes behind the slots of a window that is not checked: what is too long begins there.
pub const SCRATCH_BYTES: u64 = 4096;

/// Receives posted at the start of a rank, at most.
pub const AT_START_MAX: usize = 4;

/// Cells of a window: a sum, a chain, and one of each origin.
pub const SUM: u32 = 0;
pub const CHAIN: u32 = 1;
pub const ALONE: u32 = 2;

/// The slot that no rank writes.
pub const CONSTANT: u32 = 0;

impl Plan {
    /// `plain` is a stream of its own: without plain messages and late receives a plan is what it was without
    /// it.
    pub fn draw(load_parameters: LoadParameters, rng: &mut Rng, plain: &mut Rng) -> Plan {
        let LoadParameters { size, .. } = load_parameters;
        let mut plan = Plan {
            size,
            messages: Vec::new(),
            classes: Vec::new(),
            sends: vec![Vec::new(); size as usize],
            turns: 1,
            steps: vec![Vec::new(); size as usize],
            // Of several packets some, where rails have short ones.
            slots: (0..=size)
                .map(|_| if rng.one_in(3) { rng.within(1, 40_000) } else { rng.within(1, 1500) })
                .collect(),
        };
        let mut classes = BTreeMap::new();
        let mut posted = vec![0usize; size as usize];
        let mut at_start = vec![0usize; size as usize];
        let multi: Vec<bool> = (0..size).map(|_| rng.one_in(2)).collect();
        let mut turn = 0;
        for _ in 0..load_parameters.messages {
            let source = rng.below(size.into()) as u32;
            let destination = rng.below(size.into()) as u32;
            let untagged = rng.one_in(8) && at_start[destination as usize] < AT_START_MAX;
            if !untagged && posted[destination as usize] >= load_parameters.receives_max {
                turn += 1;
                posted.fill(0);
            }
            plan.message(load_parameters, rng, (source, destination, turn), untagged, &multi, &mut classes);
            match untagged {
                true => at_start[destination as usize] += 1,
                false => posted[destination as usize] += 1,
            }
        }
        plan.turns = turn + 1;
        plan.make_plain(load_parameters, plain);
        for class in &mut plan.classes {
            let lens = class.members.iter().map(|index| plan.messages[*index].len);
            class.capacity = match class.manner {
                Manner::Multi => lens.sum(),
                // What is claimed gets the room that it was found to need.
                Manner::Claimed => lens.max().unwrap_or(0),
                // Some receives are too short, and report it. Where several are, the bytes that fit
                // distinguish their messages.
                _ if rng.one_in(12) && (class.members.len() == 1 || lens.clone().min() >= Some(16)) => {
                    lens.max().unwrap_or(0) / 2
                }
                _ => lens.max().unwrap_or(0),
            };
        }
        if load_parameters.one_sided {
            plan.one_sided(load_parameters, rng);
        }
        plan
    }

    fn message(
        &mut self,
        load_parameters: LoadParameters,
        rng: &mut Rng,
        (source, destination, turn): (u32, u32, u32),
        untagged: bool,
        multi: &[bool],
        classes: &mut BTreeMap<(u32, u32, u64, Option<u32>), usize>,
    ) {
        let sort = if rng.below(100) < load_parameters.large_percent { 9 } else { rng.below(10) };
        let len = match sort {
            0 => 0,
            1..=4 => rng.below(64),
            5..=7 => rng.below(load_parameters.eager_bytes_max + 2),
            8 => rng.below(load_parameters.bytes_max / 8 + 1),
            _ => rng.below(load_parameters.bytes_max + 1),
        };
        // A multi-receive is given back when less than a byte is free: messages of no bytes would come too
        // late for it.
        let len = if untagged { len.clamp(1, 2000) } else { len };
        // A message of the liar's, which may be one too many, must not take the receive of another rank's.
        let of = (rng.one_in(2) || load_parameters.liar.is_some()).then_some(source);
        let manner = match (untagged, multi[destination as usize]) {
            (true, true) => Manner::Multi,
            (true, false) => Manner::AtStart,
            (false, _) if rng.one_in(10) => Manner::Claimed,
            (false, _) => Manner::Posted,
        };
        // Turn, sort of class, group, and low bits which a mask may leave open.
        let masked = !untagged && rng.one_in(3);
        let sort =
            1 + u64::from(of.is_some()) + 2 * u64::from(masked) + SORT_CLAIMED * u64::from(manner == Manner::Claimed);
        let group = of.map_or(0, |of| u64::from(of) + 1) << 8 | rng.below(2) << 4;
        let wanted = u64::from(turn) << TURN_BIT | sort << SORT_BIT | group;
        let (tag, ignore, of) = match untagged {
            true => (None, 0, of.filter(|_| load_parameters.liar.is_some())),
            false if masked => (Some(wanted | rng.below(16)), 15, of),
            false => (Some(wanted), 0, of),
        };
        let class_key = (destination, if untagged { 0 } else { turn }, if untagged { 0 } else { wanted }, of);
        let selector = Selector {
            source: of.map(PeerId),
            tag: tag.map_or(TagMatch::Untagged, |_| TagMatch::Tagged { tag: wanted, ignore }),
        };
        let index = self.messages.len();
        let new = self.classes.len();
        let class = *classes.entry(class_key).or_insert(new);
        if class == new {
            let turn = class_key.1;
            self.classes.push(Class {
                destination,
                turn,
                selector,
                manner,
                members: Vec::new(),
                capacity: 0,
                plain: false,
                late: false,
            });
        }
        self.classes[class].members.push(index);
        let level = *rng
            .pick(&[Level::Reusable, Level::Reusable, Level::Acknowledged, Level::Placed])
            .unwrap_or(&Level::Reusable);
        let inject = rng.one_in(6) && load_parameters.inject && len <= load_parameters.eager_bytes_max;
        // What is received by probing is looked for by name.
        let immediate = len < 8 || untagged || !rng.one_in(3);
        self.messages.push(Planned { source, destination, len, tag, immediate, level, inject, plain: false });
        self.sends[source as usize].push(index);
    }

    /// Makes some messages such as MPI libraries send most, and posts some wildcards late.
    fn make_plain(&mut self, load_parameters: LoadParameters, rng: &mut Rng) {
        for class in &mut self.classes {
            for index in &class.members {
                if rng.below(100) >= load_parameters.plain_percent {
                    continue;
                }
                let message = &mut self.messages[*index];
                let most = *rng.pick(&[0, 8, 40, 41, 168, 169, 1000]).unwrap_or(&8);
                let len = if rng.one_in(2) { most } else { rng.below(most + 1) };
                // As for the others: a multi-receive takes no message of no bytes, and a name needs 8.
                message.len = len.min(load_parameters.eager_bytes_max).max(u64::from(message.tag.is_none()));
                message.immediate |= message.len < 8;
                message.level = Level::Reusable;
                message.inject = false;
                message.plain = true;
                class.plain = true;
            }
            let is_exact = |tag| matches!(tag, TagMatch::Tagged { ignore: 0, .. });
            let takes_several = class.selector.source.is_none() || !is_exact(class.selector.tag);
            class.late = load_parameters.late && class.manner == Manner::Posted && takes_several && rng.one_in(2);
        }
    }

    fn one_sided(&mut self, load_parameters: LoadParameters, rng: &mut Rng) {
        for rank in 0..self.size {
            let count = rng.below(load_parameters.messages / u64::from(self.size).max(1) / 2 + 4);
            let withdrawn_at = if load_parameters.windows { rng.below(count + 4) } else { u64::MAX };
            for at in 0..count {
                if at == withdrawn_at {
                    self.steps[rank as usize].push(Step::Withdraw);
                }
                let target = rng.below(self.size.into()) as u32;
                let own = rank + 1;
                let step = match rng.below(16) {
                    0..=3 => {
                        // One on top of the other, and read: what is executed twice shows.
                        for _ in 0..rng.below(4) {
                            self.steps[rank as usize].push(Step::Put { target, slot: own });
                        }
                        Step::Get { target, slot: own }
                    }
                    4 => Step::Get { target, slot: CONSTANT },
                    5 | 6 => Step::Get { target, slot: own },
                    7 | 8 => {
                        let cell = *rng.pick(&[SUM, SUM, CHAIN, ALONE + rank]).unwrap_or(&SUM);
                        // What it adds to a sum would be its word alone.
                        let cell = if load_parameters.liar == Some(rank) { ALONE + rank } else { cell };
                        Step::Atomic { target, cell }
                    }
                    9 => Step::Flush { target },
                    10 | 11 => {
                        let kinds = if load_parameters.windows { &FORBIDDEN[..] } else { &FORBIDDEN[..7] };
                        Step::Forbidden { target, what: *rng.pick(kinds).unwrap_or(&Forbidden::PutBeyond) }
                    }
                    12 | 13 if load_parameters.windows => Step::Temporary { target },
                    14 => Step::Retract,
                    _ => Step::Vain,
                };
                self.steps[rank as usize].push(step);
            }
        }
    }

    /// Bytes before the slots of a window: the cells.
    pub fn cells_bytes(&self) -> u64 {
        u64::from(ALONE + self.size) * 8
    }

    /// Where a slot of a window lies.
    pub fn slot_at(&self, slot: u32) -> u64 {
        let before: u64 = self.slots[..slot as usize].iter().map(|bytes| bytes.next_multiple_of(64)).sum();
        self.cells_bytes().next_multiple_of(64) + before
    }

    /// Where the memory begins that is not checked.
    pub fn scratch_at(&self) -> u64 {
        self.slot_at(self.slots.len() as u32 - 1) + self.slots.last().map_or(0, |bytes| bytes.next_multiple_of(64))
    }

    /// Bytes of a window.
    pub fn window_bytes(&self) -> u64 {
        self.scratch_at() + SCRATCH_BYTES
    }

    /// The largest message that a rank receives by claiming it.
    pub fn claimed_bytes_max(&self, rank: u32) -> u64 {
        let claimed = self.classes.iter().filter(|class| class.destination == rank && class.manner == Manner::Claimed);
        claimed.map(|class| class.capacity).max().unwrap_or(0)
    }

    /// Bytes of buffers that a rank needs at once, with room for guards and gaps: for the receives of turns,
    /// and for all others.
    pub fn receive_bytes(&self, rank: u32) -> (u64, u64) {
        let mut by_turn = BTreeMap::new();
        let mut always = 0;
        for class in self.classes.iter().filter(|class| class.destination == rank) {
            // So many are in the most pieces.
            let guards = u64::from(PIECES_MAX) * Arena::bytes_for(0);
            let count = if class.manner == Manner::Multi { 1 } else { class.members.len() as u64 };
            let bytes = (class.capacity + guards) * count;
            match class.manner {
                Manner::Posted => *by_turn.entry(class.turn).or_insert(0) += bytes,
                _ => always += bytes,
            }
        }
        // Twice, because a receive that is posted again leaves holes; all turns, where a lost peer ends their
        // order.
        let (turns, most): (u64, u64) = (by_turn.values().sum(), by_turn.values().max().copied().unwrap_or(0));
        (2 * turns.min(most + (1 << 16)), always + 4096)
    }
}
