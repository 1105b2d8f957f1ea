//! The sequencing structures against slow, obvious oracles: one body for the property test and for the fuzz
//! target `reorder`.
//!
//! The oracles count in `u64` and never wrap; a number becomes a [`Seq`] only where it is handed to the code
//! under test. Half of the runs start just before the wrap. Each step is followed by a full comparison.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rerail_core::seq::{AckError, Claim, RecvWindow, Reorder, ReorderError, SentWindow, Seq};
use rerail_core::store::NONE;

/// Reads `data` as a window, a first number and a sequence of steps, and carries them out on both sides.
/// Panics where they disagree.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let window = 64 << (input.byte() % 3);
    // One turn of the wheel up, so that numbers before the first one are numbers too.
    let first = (1 << 32) + if input.byte() & 1 == 0 { 0 } else { (1 << 32) - u64::from(input.byte()) };
    let mut recv = Receiving::new(window, first);
    let mut queue = Queueing::new(window, first);
    let mut sent = Sending::new(window, first);
    while let Some(step) = input.next() {
        match step % 16 {
            0..=3 => recv.step(step, &mut input),
            4..=8 => queue.step(step - 4, &mut input),
            _ => sent.step(step - 9, &mut input),
        }
        recv.check();
        queue.check();
        sent.check();
    }
    queue.drain();
    sent.drain();
}

/// Bytes, zero without end.
struct Input<'d>(&'d [u8]);

impl Input<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// A number about `base`: mostly in the window, sometimes just outside, sometimes anywhere.
    fn near(&mut self, base: u64, window: u32) -> u64 {
        let byte = u64::from(self.byte());
        match byte {
            0..=127 => base + byte % u64::from(window),
            128..=191 => base + u64::from(self.byte()) % u64::from(window),
            192..=239 => base + u64::from(window) - 24 + (byte - 192),
            240..=249 => base - 1 - (byte - 240),
            250..=252 => base + (u64::from(self.byte()) << 23),
            _ => base - (u64::from(self.byte()) << 23),
        }
    }
}

fn seq(number: u64) -> Seq {
    Seq(number as u32)
}

/// Whether a number from anywhere reads as one before `base`: fewer than 2^31 steps below.
fn is_before(number: u64, base: u64) -> bool {
    number < base && base - number < 1 << 31
}

/// The receive window against a set of claimed and a set of received numbers.
struct Receiving {
    window: u32,
    bits: Vec<u64>,
    subject: RecvWindow,
    expected: u64,
    claimed: BTreeSet<u64>,
    received: BTreeSet<u64>,
}

impl Receiving {
    fn new(window: u32, first: u64) -> Self {
        let bits = vec![0; RecvWindow::words(window)];
        let subject = RecvWindow::starting_at(seq(first));
        Receiving { window, bits, subject, expected: first, claimed: BTreeSet::new(), received: BTreeSet::new() }
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 16 {
            0 => {
                // A run, so that what is received in reverse closes gaps of more than a word.
                let number = input.near(self.expected, self.window);
                for ahead in 0..=u64::from(step / 16) * 5 {
                    self.claim(number + ahead);
                }
            }
            1 => self.received(input.near(self.expected, self.window)),
            2 => {
                // What is claimed and not received, from the lowest or from the highest.
                let pending: Vec<u64> = self.claimed.difference(&self.received).copied().collect();
                let count = usize::from(step / 16) * 5 + 1;
                let low = input.byte() < 128;
                let chosen: Vec<u64> = if low {
                    pending.iter().copied().take(count).collect()
                } else {
                    pending.iter().rev().copied().take(count).collect()
                };
                for number in chosen {
                    self.received(number);
                }
            }
            _ => {
                let number = input.near(self.expected, self.window);
                let had = self.claimed.contains(&number) && !self.received.contains(&number);
                assert_eq!(self.subject.unclaim(&mut self.bits, self.window, seq(number)), had);
                if had {
                    self.claimed.remove(&number);
                }
            }
        }
    }

    fn claim(&mut self, number: u64) {
        let in_window = number >= self.expected && number < self.expected + u64::from(self.window);
        let verdict = if is_before(number, self.expected) || self.claimed.contains(&number) {
            Claim::Duplicate
        } else if in_window {
            self.claimed.insert(number);
            Claim::New
        } else {
            Claim::Beyond
        };
        assert_eq!(self.subject.claim(&mut self.bits, self.window, seq(number)), verdict);
    }

    fn received(&mut self, number: u64) {
        let before = self.expected;
        if self.claimed.contains(&number) {
            self.received.insert(number);
        }
        while self.received.remove(&self.expected) {
            self.claimed.remove(&self.expected);
            self.expected += 1;
        }
        let moved = self.subject.received(&mut self.bits, self.window, seq(number));
        assert_eq!(u64::from(moved), self.expected - before);
    }

    fn check(&self) {
        assert_eq!(self.subject.expected(), seq(self.expected));
        let beyond =
            (0..64).filter(|i| self.received.contains(&(self.expected + 1 + i))).fold(0, |map, i| map | 1 << i);
        assert_eq!(self.subject.beyond(&self.bits, self.window), beyond);
        let ones: u32 = self.bits.iter().map(|word| word.count_ones()).sum();
        assert_eq!(ones as usize, self.claimed.len() + self.received.len());
    }
}

/// The out-of-order queue against a sorted map.
struct Queueing {
    window: u32,
    slots: Vec<u32>,
    subject: Reorder,
    esn: u64,
    waiting: BTreeMap<u64, u32>,
    values: u32,
}

impl Queueing {
    fn new(window: u32, first: u64) -> Self {
        let slots = vec![NONE; window as usize];
        Queueing {
            window,
            slots,
            subject: Reorder::starting_at(seq(first)),
            esn: first,
            waiting: BTreeMap::new(),
            values: 0,
        }
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 16 {
            0 => {
                for _ in 0..=step / 16 {
                    self.enqueue(input);
                }
            }
            1 => {
                for _ in 0..=step / 16 {
                    let due = self.waiting.remove(&self.esn);
                    self.esn += u64::from(due.is_some());
                    assert_eq!(self.subject.dequeue(&mut self.slots), due);
                }
            }
            2 => {
                let number = input.near(self.esn, self.window);
                assert_eq!(self.subject.search(&self.slots, seq(number)), self.waiting.get(&number).copied());
            }
            3 => {
                for _ in 0..=step / 16 {
                    if !self.waiting.contains_key(&self.esn) {
                        self.subject.advance(&self.slots);
                        self.esn += 1;
                    }
                }
            }
            _ => {
                if step >= 240 {
                    self.drain();
                }
            }
        }
    }

    fn enqueue(&mut self, input: &mut Input<'_>) {
        let number = input.near(self.esn, self.window);
        self.values += 1;
        let (of, esn, window) = (seq(number), seq(self.esn), self.window);
        let verdict = if is_before(number, self.esn) {
            Err(ReorderError::Old { seq: of, esn })
        } else if number < self.esn || number >= self.esn + u64::from(window) {
            Err(ReorderError::Beyond { seq: of, esn, window })
        } else if let Some(&value) = self.waiting.get(&number) {
            Err(ReorderError::Occupied { seq: of, value })
        } else {
            self.waiting.insert(number, self.values);
            Ok(())
        };
        assert_eq!(self.subject.enqueue(&mut self.slots, of, self.values), verdict);
    }

    fn drain(&mut self) {
        let mut seen = vec![];
        self.subject.drain(&mut self.slots, |seq, value| seen.push((seq, value)));
        let all: Vec<_> = self.waiting.iter().map(|(&number, &value)| (seq(number), value)).collect();
        assert_eq!(seen, all);
        self.waiting.clear();
    }

    fn check(&self) {
        assert_eq!(self.subject.esn(), seq(self.esn));
        assert_eq!(self.subject.len() as usize, self.waiting.len());
        assert_eq!(self.slots.iter().filter(|&&slot| slot != NONE).count(), self.waiting.len());
    }
}

/// The sent window against a queue of numbers with the handle, or `None` once it came back.
struct Sending {
    window: u32,
    slots: Vec<u32>,
    subject: SentWindow,
    held: VecDeque<(u64, Option<u32>)>,
    acked: u64,
    next: u64,
    handles: u32,
}

impl Sending {
    fn new(window: u32, first: u64) -> Self {
        let slots = vec![NONE; window as usize];
        let subject = SentWindow::starting_at(seq(first));
        Sending { window, slots, subject, held: VecDeque::new(), acked: first, next: first, handles: 0 }
    }

    fn oldest(&self) -> u64 {
        self.held.front().map_or(self.next, |&(number, _)| number)
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 16 {
            0 | 1 => {
                for _ in 0..=step / 8 {
                    self.push();
                }
            }
            2 => {
                let number = input.near(self.acked, self.window);
                let verdict = if number >= self.acked && number <= self.next {
                    let distance = number - self.acked;
                    self.acked = number;
                    Ok(distance as u32)
                } else if is_before(number, self.acked) {
                    Ok(0)
                } else {
                    Err(AckError { named: seq(number), next: seq(self.next) })
                };
                assert_eq!(self.subject.ack(seq(number)), verdict);
            }
            3 | 4 => {
                for _ in 0..=step / 8 {
                    self.pop();
                }
            }
            _ => {
                let number = input.near(self.oldest(), self.window);
                let handle = self.held.iter().find(|&&(of, _)| of == number).and_then(|&(_, handle)| handle);
                assert_eq!(self.subject.get(&self.slots, seq(number)), handle);
            }
        }
    }

    fn push(&mut self) {
        self.handles += 1;
        let fits = self.held.len() < self.window as usize;
        assert_eq!(self.subject.has_room(self.window), fits);
        let verdict = if fits {
            self.held.push_back((self.next, Some(self.handles)));
            self.next += 1;
            Ok(seq(self.next - 1))
        } else {
            Err(self.handles)
        };
        assert_eq!(self.subject.push(&mut self.slots, self.handles), verdict);
    }

    fn pop(&mut self) {
        let mut oldest = None;
        while let Some(&(number, handle)) = self.held.front().filter(|&&(number, _)| number < self.acked) {
            self.held.pop_front();
            if let Some(handle) = handle {
                oldest = Some((seq(number), handle));
                break;
            }
        }
        assert_eq!(self.subject.pop_acked(&mut self.slots), oldest);
    }

    fn drain(&mut self) {
        let mut seen = vec![];
        self.subject.drain(&mut self.slots, |seq, handle| seen.push((seq, handle)));
        let all: Vec<_> = self.held.drain(..).filter_map(|(number, handle)| Some((seq(number), handle?))).collect();
        assert_eq!(seen, all);
        self.acked = self.next;
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.subject.oldest(), seq(self.oldest()));
        assert_eq!(self.subject.acked(), seq(self.acked));
        assert_eq!(self.subject.next(), seq(self.next));
        assert_eq!(self.subject.len() as usize, self.held.len());
        let held = self.held.iter().filter_map(|&(number, handle)| Some((seq(number), handle?)));
        let mut from = self.subject.oldest();
        for (seq, handle) in held {
            assert_eq!(self.subject.next_held(&self.slots, from), Some((seq, handle)));
            from = seq.next();
        }
        assert_eq!(self.subject.next_held(&self.slots, from), None);
        let taken = self.slots.iter().filter(|&&slot| slot != NONE).count();
        assert_eq!(taken, self.held.iter().filter(|(_, handle)| handle.is_some()).count());
    }
}
