//! Large messages on a rail that both reads the peer's memory and carries packets at the speed of memory:
//! which is faster, the kernel's single copy by one processor or two copies by two, depends on where the
//! processes run, on what caches they share, and on how large messages are (shiba-2005, 2.3.3, has one
//! threshold for all). So both are measured: by channel and size class, messages use one protocol for a run,
//! and the protocol that took less time for its bytes gets the next run. The other one gets a run when its
//! expected cost is no more than a small part of the time spent since.
//!
//! What a message took is its time as if the channel were a queue with one server: from its match, or from
//! the end of the message before it, to the completion of its FIN's post, which is the first moment after the
//! copy that has a time of its own.
//!
//! Invariants: integers alone; bounded state by channel; the receiver chooses without a message from the peer
//! it answers RTS by a read or by a CTS without keys.

use super::Paths;
use super::measure::Stamp;
use crate::ids::RailId;
use crate::time::Time;

/// Messages of a run.
const RUN: u8 = 8;

/// The first runs of each way come before any choice, and only the last of them counts: the first one has a
/// ring's memory made, and caches filled.
const FIRST_RUNS: u8 = 2;

/// One part in 2^5 of the time is spent on runs of the way that is not the faster one.
const EXPLORE_SHIFT: u32 = 5;

/// Costs are no higher, 125 ms per MiB, and of no more messages is the sum kept: so that sums fit into 32
/// bits.
const TIME_PER_BYTE_MAX: u64 = 1 << 27;
const OVER_MAX: u8 = RUN;

/// Size classes: up to 16 KiB, 64 KiB, 256 KiB, 1 MiB, 4 MiB, more.
const CLASSES: usize = 6;

/// How the payload of an announced message comes over such a rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyBy {
    /// The receiver reads it.
    #[default]
    Read = 0,
    /// The sender sends it as DATA.
    Packets = 1,
}

impl CopyBy {
    const fn other(self) -> Self {
        match self {
            CopyBy::Read => CopyBy::Packets,
            CopyBy::Packets => CopyBy::Read,
        }
    }
}

/// What is measured of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    begun: Stamp,
    by: CopyBy,
    /// It is measured.
    is_on: bool,
}

/// Measurements of one protocol in a size class. Costs are in nanoseconds per MiB.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// 0: not measured.
    time_per_byte: u32,
    /// Runs that were measured, up to [`FIRST_RUNS`].
    runs: u8,
    /// Of complete messages that do not count in `time_per_byte` yet: the least cost above 0, the sum of all
    /// (each counts as twice the least at most), and their number.
    least: u32,
    sum: u32,
    over: u8,
    /// What the last one that took time took beyond that, in such parts: it counts as far as messages follow
    /// that took none.
    held: u8,
}

/// A size class of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    known: [Known; 2],
    /// Nanoseconds that may be spent on trying the other way.
    credit_ns: u32,
    /// Messages of the run that have begun, and their KiB.
    begun: u8,
    begun_kib: u32,
    by: CopyBy,
}

/// A channel's measurements of both protocols.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyChoices {
    classes: [Class; CLASSES],
    /// The last message was over then.
    last: Stamp,
}

const fn class_of(bytes: u64) -> usize {
    let above = bytes.saturating_sub(1) >> 14;
    let class = (u64::BITS - above.leading_zeros()).div_ceil(2) as usize;
    if class < CLASSES { class } else { CLASSES - 1 }
}

impl Class {
    /// The way of the next message. After a full run, decides anew.
    fn next(&mut self, bytes: u64) -> CopyBy {
        if self.begun >= RUN {
            self.decide();
        }
        self.begun += 1;
        self.begun_kib = self.begun_kib.saturating_add(kib(bytes));
        self.by
    }

    fn decide(&mut self) {
        self.known.iter_mut().for_each(Known::learn);
        let spent =
            (u64::from(self.known[self.by as usize].time_per_byte) * u64::from(self.begun_kib)) >> (10 + EXPLORE_SHIFT);
        self.credit_ns = self.credit_ns.saturating_add(u32::try_from(spent).unwrap_or(u32::MAX));
        let [read, packets] = self.known.map(|known| known.time_per_byte);
        let better = if read <= packets { CopyBy::Read } else { CopyBy::Packets };
        self.by = match self.known.map(|known| known.runs) {
            [read, packets] if read < FIRST_RUNS && read <= packets => CopyBy::Read,
            [_, packets] if packets < FIRST_RUNS => CopyBy::Packets,
            _ => {
                // What a run of this size is expected to take more; of equals, a part of what it takes.
                let more = read.abs_diff(packets).max(read.min(packets) >> 3);
                let cost = (u64::from(more) * u64::from(self.begun_kib)) >> 10;
                if self.by == better && u64::from(self.credit_ns) >= cost {
                    self.credit_ns -= cost as u32;
                    better.other()
                } else {
                    better
                }
            }
        };
        (self.begun, self.begun_kib) = (0, 0);
    }

    fn note(&mut self, by: CopyBy, took_ns: u64, bytes: u64) {
        let time_per_byte = u64::try_from((u128::from(took_ns) << 20) / u128::from(bytes.max(1))).unwrap_or(u64::MAX);
        self.known[by as usize].note(time_per_byte.min(TIME_PER_BYTE_MAX) as u32);
    }
}

/// Two ways of doing the same, measured as above: for the choices of a rail. The first is the one that is
/// tried first.
#[derive(Clone, Copy, Debug, Default)]
pub struct TwoMeasures {
    classes: [Class; CLASSES],
}

impl TwoMeasures {
    /// Whether a transfer of so many bytes is to use the first way.
    pub fn is_first(&mut self, bytes: u64) -> bool {
        self.classes[class_of(bytes)].next(bytes) == CopyBy::Read
    }

    /// What a transfer took.
    pub fn note(&mut self, is_first: bool, took_ns: u64, bytes: u64) {
        let by = if is_first { CopyBy::Read } else { CopyBy::Packets };
        self.classes[class_of(bytes)].note(by, took_ns, bytes);
    }
}

impl Known {
    /// Of messages that complete at the same time the first one has the time of all, the others have none.
    fn note(&mut self, time_per_byte: u32) {
        if time_per_byte > 0 && (self.least == 0 || time_per_byte < self.least) {
            self.least = time_per_byte;
        }
        match self.over {
            // Of more, the older ones fade.
            OVER_MAX => self.sum -= self.sum / u32::from(OVER_MAX),
            _ => self.over += 1,
        }
        // The time of a process that did not run measures its absence, not the protocol.
        let most = self.least * 2;
        let counts = match time_per_byte {
            0 if self.held > 0 => {
                self.held -= 1;
                most
            }
            0 => 0,
            _ => {
                self.held = (time_per_byte.saturating_sub(most) / most).min(u8::MAX.into()) as u8;
                time_per_byte.min(most)
            }
        };
        self.sum = (self.sum + counts).min(most * u32::from(self.over));
    }

    /// Updates the cost from complete messages, if there are enough, and not only the last ones of those that
    /// completed together.
    fn learn(&mut self) {
        let Known { time_per_byte, runs, least, sum, over, .. } = *self;
        if over >= RUN / 2 && (least > 0 || over == OVER_MAX) {
            let seen = (sum / u32::from(over)).max(1);
            let time_per_byte = if runs < FIRST_RUNS { seen } else { (time_per_byte + seen).div_ceil(2) };
            *self = Known { time_per_byte, runs: (runs + 1).min(FIRST_RUNS), ..Known::default() };
        }
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}

impl Paths<'_> {
    /// Whether a message of `bytes` is to be read, where its memory can be read over the rails of `readable`;
    /// and the measurement to make of it, if any.
    pub(crate) fn is_to_be_read(
        &mut self,
        now: Time,
        channel: u32,
        bytes: u64,
        readable: u64,
    ) -> (bool, Option<Measured>) {
        if readable == 0 || bytes == 0 {
            return (false, None);
        }
        let Some(rail) = self.copying_rail(channel) else { return (true, None) };
        debug_assert_eq!(readable, 1 << rail.0, "the only rail that is ready");
        let by = self.peer_mut(channel).copy_choices.classes[class_of(bytes)].next(bytes);
        (by == CopyBy::Read, Some(Measured { begun: Stamp::of(now), by, is_on: true }))
    }

    /// The rail that there is a choice on: the only one that is ready, if it reads as well as it carries
    /// packets.
    fn copying_rail(&self, channel: u32) -> Option<RailId> {
        let ready = self.ready(channel);
        let able = self.ready_with(channel, |caps| caps.read && caps.lossless);
        (ready.is_power_of_two() && able == ready).then(|| RailId(ready.trailing_zeros() as u8))
    }

    /// The FIN of a message of `bytes` that was received is with the peer: its measurement is over.
    pub(crate) fn note_received(&mut self, now: Time, channel: u32, bytes: u64, measured: &mut Measured) {
        if !core::mem::take(&mut measured.is_on) {
            return;
        }
        let copy_choices = &mut self.peer_mut(channel).copy_choices;
        let took = measured.begun.age(now).min(copy_choices.last.age(now));
        copy_choices.last = Stamp::of(now);
        copy_choices.classes[class_of(bytes)].note(measured.by, took.0, bytes);
    }

    /// How a message of so many bytes from a channel's peer would come, where there is a choice, and what
    /// either way was measured to take, in nanoseconds (0: not measured): by a read, by packets.
    pub(crate) fn copying(&self, channel: u32, bytes: u64) -> Option<(CopyBy, [u64; 2])> {
        self.copying_rail(channel)?;
        let class = &self.peer(channel).copy_choices.classes[class_of(bytes)];
        let takes = class.known.map(|known| u64::from(known.time_per_byte).saturating_mul(bytes) >> 20);
        Some((class.by, takes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_four_times_as_wide_each() {
        let firsts = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
        for (class, last) in firsts.into_iter().enumerate() {
            assert_eq!((class_of(last), class_of(last + 1)), (class, class + 1), "{last}");
        }
        assert_eq!((class_of(0), class_of(u64::MAX)), (0, CLASSES - 1));
    }

    /// Plays so many messages of 64 KiB, `depth` of them in flight at once; returns how many used each
    /// protocol.
    fn play(class: &mut Class, messages: usize, depth: usize, took_ns: [u64; 2]) -> [usize; 2] {
        let mut count = [0; 2];
        let mut in_flight = std::collections::VecDeque::new();
        for _ in 0..messages {
            let by = class.next(64 << 10);
            count[by as usize] += 1;
            in_flight.push_back(by);
            if in_flight.len() == depth {
                let by = in_flight.pop_front().unwrap();
                class.note(by, took_ns[by as usize], 64 << 10);
            }
        }
        count
    }

    /// The faster protocol gets nearly all messages; the others cost a small part of the time.
    #[test]
    fn faster_protocol_is_used_and_the_other_explored_in_budget() {
        for depth in [1, 3, 8, 64] {
            for (took, faster) in
                [([10_000, 20_000], 0), ([20_000, 8_000], 1), ([10_000, 200_000], 0), ([9_000, 10_000], 0)]
            {
                let mut class = Class::default();
                play(&mut class, 1_000, depth, took);
                let count = play(&mut class, 100_000, depth, took);
                let (spent, least) = (
                    count[0] as u64 * took[0] + count[1] as u64 * took[1],
                    100_000 * took[faster].min(took[1 - faster]),
                );
                assert!(spent < least + least / 20, "{took:?}, {depth} at once: {count:?}");
                assert!(count[1 - faster] > 0, "{took:?}, {depth} at once: the other way is never tried");
            }
        }
    }

    /// The faster protocol may become slower: this is detected within a few thousand messages.
    #[test]
    fn a_change_is_noticed() {
        for depth in [1, 8] {
            let mut class = Class::default();
            play(&mut class, 5_000, depth, [10_000, 20_000]);
            // The way that is in use becomes slower: at once.
            let count = play(&mut class, 1_000, depth, [40_000, 20_000]);
            assert!(count[1] > 800, "{count:?}");
            // The way that is not becomes faster: when it is tried.
            play(&mut class, 5_000, depth, [40_000, 20_000]);
            let count = play(&mut class, 5_000, depth, [5_000, 20_000]);
            assert!(count[0] > 4_000, "{count:?}");
        }
    }

    /// Some messages take as long as a process was not running: that changes nothing.
    #[test]
    fn suspension_time_does_not_change_the_choice() {
        let mut class = Class::default();
        let mut count = [0; 2];
        for n in 0..20_000u64 {
            let by = class.next(64 << 10);
            count[by as usize] += 1;
            let away = if n % 7 == 3 || n < 3 { 4_000_000 } else { 0 };
            class.note(by, [10_000, 6_000][by as usize] + away, 64 << 10);
        }
        assert!(count[1] > 18_000, "{count:?}");
    }

    /// The first messages of a way may take long, as those that have a ring's memory made: it is measured
    /// again before the choice.
    #[test]
    fn a_first_run_does_not_decide() {
        let mut class = Class::default();
        let mut count = [0; 2];
        for _ in 0..8 * 20 {
            let by = class.next(64 << 10);
            count[by as usize] += 1;
            let is_first = by == CopyBy::Packets && count[1] <= u32::from(RUN);
            class.note(by, if is_first { 60_000 } else { [7_000, 4_000][by as usize] }, 64 << 10);
        }
        assert!(count[1] > 8 * 16, "{count:?}");
    }

    /// Reads of one poll complete at the same time: what they took together counts.
    #[test]
    fn messages_completed_together_share_the_elapsed_time() {
        let mut class = Class::default();
        let (mut count, mut group) = ([0; 2], 0);
        for n in 0..20_000 {
            let by = class.next(64 << 10);
            count[by as usize] += 1;
            // Reads come alone or up to five at a time, the first with the time of all; packets are faster.
            let first = if group == 0 { [1, 5, 4][n % 3] } else { 0 };
            group = if first > 0 { first - 1 } else { group - 1 };
            let took = [7_000 * first as u64, 4_000][by as usize];
            class.note(by, took, 64 << 10);
        }
        assert!(count[1] > 18_000, "{count:?}");
    }

    /// A rail's choice is made in the same way.
    #[test]
    fn rail_selects_the_faster_copy_protocol() {
        for (took_ns, faster) in [([10_000, 20_000], true), ([20_000, 8_000], false)] {
            let (mut copy_choices, mut firsts) = (TwoMeasures::default(), 0);
            for n in 0..20_000 {
                let is_first = copy_choices.is_first(1 << 20);
                firsts += u32::from(is_first);
                assert!(n > 0 || is_first);
                copy_choices.note(is_first, took_ns[usize::from(!is_first)], 1 << 20);
            }
            assert_eq!(firsts > 19_000, faster, "{firsts}");
            assert!((1..20_000).contains(&firsts), "the other way is tried: {firsts}");
            assert!(copy_choices.is_first(20 << 10), "another size class has estimates of its own");
        }
    }

    /// Messages that take no time that the clock shows, or less than a KiB, decide nothing and divide by
    /// nothing.
    #[test]
    fn zero_time_measurement_changes_no_estimate() {
        let mut class = Class::default();
        for _ in 0..1_000 {
            let by = class.next(100);
            class.note(by, 0, 0);
        }
        assert_eq!(class.known.map(|known| known.time_per_byte), [1, 1]);
        assert_eq!(play(&mut class, 100, 1, [0, 0]).iter().sum::<usize>(), 100);
        let by = class.next(100);
        class.note(by, u64::MAX, u64::MAX);
        play(&mut class, 100, 1, [u64::MAX, 1]);
    }
}
