//! Bandwidth over time: messages of one size, so many always under way, for so many seconds.
//!
//! Only complete requests count: sends with a reported completion (of large messages: the other side has
//! every byte) and receives. Samples are taken where the clock has passed the next interval; their rates are
//! over the time that has really passed. So the sum over all samples is the total moved.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::kernel::{Buffers, Kernel, KernelError, Pair};
use super::rails::{RailLine, Rails, render};
use crate::cli::{Measure, PerfArgs};
use crate::exit::Failure;
use crate::output::{Align, Table, bold, json, rate, write_stdout};
use crate::session::{Path, Session, Ticket};

/// Message size without `--sizes`.
const BYTES: u64 = 1 << 20;
/// Most memory each way.
const BUFFER_BYTES: u64 = 256 << 20;

/// The bandwidth of one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its end, in seconds since the start.
    pub at: f64,
    /// Bytes per second of completed sends.
    pub sent: f64,
    /// Bytes per second of completed receives.
    pub received: f64,
    /// Bytes per second that each rail was given, from rail 1 on (rail 0 is the process itself).
    pub by_rail: Vec<f64>,
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// `bandwidth` or `bidirectional`.
    pub measure: String,
    /// The policy of large messages.
    pub policy: String,
    /// The way.
    pub path: Path,
    /// Bytes of a message.
    pub bytes: u64,
    /// Messages under way, each way.
    pub window: u64,
    /// When it started, in nanoseconds since 1970: others' doings can be laid beside it.
    pub started_unix_ns: u64,
    /// From start to end, everything that was sent being through.
    pub seconds: f64,
    /// Bytes per second over all that time, both ways together.
    pub bytes_per_second: f64,
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// What each rail did.
    pub rails: Vec<RailLine>,
}

impl Steady {
    /// As JSON, or as a table.
    pub fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json { json(self) } else { write_stdout(&self.render()) }
    }

    fn render(&self) -> String {
        let mut table = Table::new(&[
            ("second", Align::Right),
            ("sent MB/s", Align::Right),
            ("received MB/s", Align::Right),
            ("given to rails MB/s", Align::Left),
        ]);
        for sample in &self.samples {
            let rails: Vec<String> = sample.by_rail.iter().map(|&given| rate(given)).collect();
            table.row([format!("{:.2}", sample.at), rate(sample.sent), rate(sample.received), rails.join(" + ")]);
        }
        let Steady { measure, policy, path, bytes, window, seconds, .. } = self;
        let title = format!("{measure} over {path} by {policy}, messages of {bytes} B, {window} under way");
        let sum = format!("{} MB/s in {seconds:.2} s", rate(self.bytes_per_second));
        format!("{}\n{}\n{sum}\n\n{}", bold(&title), table.render(), render(&self.rails))
    }
}

/// Measures between two ranks that call it at the same time with the same arguments.
pub fn measure(args: &PerfArgs, session: &mut Session, pair: Pair) -> Result<Steady, Failure> {
    let bytes = args.sizes.first().copied().unwrap_or(BYTES);
    let stride = bytes.next_multiple_of(64).max(64);
    // Each message under way has memory of its own.
    let window = args.window.min(BUFFER_BYTES / stride).max(1);
    let buffers = Buffers { verify: args.verify, ..Buffers::allocate(session, stride * window, args.mapped)? };
    let both = args.measure == Measure::Bidirectional;
    let first = session.rank() == pair.first;
    let plan = Plan {
        bytes,
        window,
        sends: first || both,
        receives: !first || both,
        time: Duration::from_secs(args.seconds.unwrap_or(1)),
        interval: Duration::from_millis(args.interval),
    };
    let rails = Rails::since_now(session);
    let started_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut kernel = Kernel::new(session, pair, buffers);
    let run = kernel.steady(&plan).map_err(|error| super::failure(session, bytes, error))?;
    let peer = 1 - session.rank();
    let policy = session.transport().endpoint().class_policy(rerail_core::endpoint::MessageClass::Large).striping;
    Ok(Steady {
        measure: if both { "bidirectional" } else { "bandwidth" }.to_owned(),
        policy: policy.name().to_owned(),
        path: session.path(peer),
        bytes,
        window,
        started_unix_ns,
        seconds: run.seconds,
        bytes_per_second: (run.sent + run.received) as f64 / run.seconds.max(1e-9),
        samples: run.samples,
        rails: rails.lines(session),
    })
}

/// What one side does.
struct Plan {
    bytes: u64,
    window: u64,
    sends: bool,
    receives: bool,
    time: Duration,
    interval: Duration,
}

/// What came of it.
struct Run {
    seconds: f64,
    /// Bytes.
    sent: u64,
    received: u64,
    samples: Vec<Sample>,
}

/// A message under way, and the number of its memory and of itself.
struct Flight {
    ticket: Ticket,
    slot: u64,
    number: u64,
}

/// One direction, seen from one end.
#[derive(Default)]
struct Direction {
    flights: Vec<Flight>,
    /// Messages begun, and messages through.
    begun: u64,
    done: u64,
}

impl Kernel<'_> {
    fn steady(&mut self, plan: &Plan) -> Result<Run, KernelError> {
        let (mut out, mut into) = (Direction::default(), Direction::default());
        if plan.receives {
            for slot in 0..plan.window {
                self.begin_receive(&mut into, plan.bytes, slot)?;
            }
        }
        let peer = self.peer();
        let mut ending = plan.receives.then(|| self.session.listen(peer)).transpose()?;
        self.meet()?;
        let start = Instant::now();
        let mut sampler = Sampler::new(self.session, plan.interval);
        if plan.sends {
            for slot in 0..plan.window {
                self.begin_send(&mut out, plan.bytes, slot)?;
            }
        }
        // A side that sends nothing has nothing to announce at the end.
        let mut end_sent = !plan.sends;
        let mut expected = (!plan.receives).then_some(0);
        while !end_sent || expected.is_none_or(|expected| into.done < expected) {
            self.session.step()?;
            for flight in self.landed(&mut into)? {
                self.check_slot(plan.bytes, &flight)?;
                self.begin_receive(&mut into, plan.bytes, flight.slot)?;
            }
            for flight in self.landed(&mut out)? {
                if start.elapsed() < plan.time {
                    self.begin_send(&mut out, plan.bytes, flight.slot)?;
                }
            }
            if !end_sent && out.flights.is_empty() {
                // How many they were: the other side takes the rest of its receives back.
                self.session.send_text(peer, &out.begun.to_le_bytes())?;
                end_sent = true;
            }
            if ending.is_some_and(|ending| self.session.received(&ending)) {
                let received = ending.take().map(|ending| self.session.receive_text_now(ending)).transpose()?.flatten();
                let count = received.and_then(|text| text.try_into().ok()).ok_or(KernelError::PeerGone)?;
                expected = Some(u64::from_le_bytes(count));
            }
            sampler.sample(self.session, start.elapsed(), plan.bytes, (out.done, into.done));
        }
        let seconds = start.elapsed().as_secs_f64();
        for flight in into.flights.drain(..) {
            // The rail delivers nothing for it any more, so the cancel can't be too late.
            let _ = self.session.cancel(&flight.ticket);
            let _ = self.session.wait(flight.ticket)?;
        }
        self.meet()?;
        Ok(Run { seconds, sent: out.done * plan.bytes, received: into.done * plan.bytes, samples: sampler.samples })
    }

    fn begin_send(&mut self, out: &mut Direction, bytes: u64, slot: u64) -> Result<(), KernelError> {
        let ticket = self.send_from(bytes, slot, out.begun)?;
        out.flights.push(Flight { ticket, slot, number: out.begun });
        out.begun += 1;
        Ok(())
    }

    fn begin_receive(&mut self, into: &mut Direction, bytes: u64, slot: u64) -> Result<(), KernelError> {
        let ticket = self.recv(bytes, slot)?;
        into.flights.push(Flight { ticket, slot, number: into.begun });
        into.begun += 1;
        Ok(())
    }

    fn check_slot(&self, bytes: u64, flight: &Flight) -> Result<(), KernelError> {
        self.check_at(bytes, flight.slot, flight.number)
    }

    /// Complete messages, taken from those in flight.
    fn landed(&mut self, direction: &mut Direction) -> Result<Vec<Flight>, KernelError> {
        let over: Vec<Flight> =
            direction.flights.extract_if(.., |flight| self.session.is_over(&flight.ticket)).collect();
        for flight in &over {
            self.wait(flight.ticket)?;
        }
        direction.done += over.len() as u64;
        Ok(over)
    }
}

/// Takes samples as time goes by.
struct Sampler {
    interval: Duration,
    rails: Rails,
    /// At the last sample: time, messages sent and received, bytes given to rails.
    at: Duration,
    done: (u64, u64),
    given: Vec<u64>,
    samples: Vec<Sample>,
}

impl Sampler {
    fn new(session: &Session, interval: Duration) -> Sampler {
        let rails = Rails::since_now(session);
        let given = rails.bytes(session);
        Sampler { interval, rails, at: Duration::ZERO, done: (0, 0), given, samples: Vec::new() }
    }

    fn sample(&mut self, session: &Session, now: Duration, bytes: u64, done: (u64, u64)) {
        let passed = now - self.at;
        if passed < self.interval {
            return;
        }
        let rate = |count: u64| count as f64 / passed.as_secs_f64();
        let given = self.rails.bytes(session);
        // Rail 0 is the process itself.
        let by_rail = given.iter().zip(&self.given).skip(1).map(|(now, before)| rate(now - before)).collect();
        self.samples.push(Sample {
            at: now.as_secs_f64(),
            sent: rate((done.0 - self.done.0) * bytes),
            received: rate((done.1 - self.done.1) * bytes),
            by_rail,
        });
        (self.at, self.done, self.given) = (now, done, given);
    }
}
