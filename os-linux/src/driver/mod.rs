//! The driver: one endpoint of the core, bound to this machine's rails, memory and clock.
//!
//! [`Transport`], an [`Engine`] with a clock and a place to sleep, is the whole interface of an embedder:
//! memory, requests, events, and three ways to drive it (polling, waiting, or inside a host's own event
//! loop). It starts no thread, installs no signal handler and keeps no global state; several can live in one
//! process.
//!
//! | file | holds |
//! |---|---|
//! | `engine` | the transport without clock and sleep: hosts with a time of their own, and the simulator, drive it |
//! | `contacts` | rails that are open before rank and job are known |
//! | `name` | names of 64 bytes, and how processes start from each other's names |
//! | `open` | opening rails, exchanging cards, joining a job |
//! | `rails` | the rails that the settings name |
//! | `verbs` | those over verbs devices |
//! | `domain_file` | the file through which processes of a host find their XRC domain |
//! | `card` | the line of text with a process's addresses |
//! | `request` | memory and requests, with the time as an argument |
//! | `submit` | the same, stamped with the clock |
//! | `policy` | policies and their knobs, changed at run time |
//! | `drive` | one round: poll rails, run timers, carry out actions |
//! | `pace` | when a round looks at everything |
//! | `queues` | completion queues; waiting for one request |
//! | `wait` | sleeping without losing a wake-up |
//! | `finish` | leaving in good order |
//! | `error` | the errors of each of these |
//! | `loss` | why a peer is lost, as text |

mod card;
mod contacts;
mod domain_file;
mod drive;
mod engine;
mod error;
mod finish;
mod loss;
mod name;
mod open;
mod pace;
mod policy;
mod queues;
mod rails;
mod request;
mod shortage;
mod slots;
mod submit;
mod verbs;
mod wait;

use std::fmt;
use std::time::Duration;

use rerail_core::config::Config;
use rerail_core::endpoint::{Event, ShortCompletion};
use rerail_core::ids::PeerId;
#[cfg(doc)]
use rerail_core::mem::Seg;
use rerail_core::time::Time;

use crate::bootstrap::Bootstrap;

pub use crate::memory::MemoryError;
pub use card::{Card, CardError};
pub use contacts::Contacts;
pub use engine::{Engine, EngineOpening, RailInfo};
pub use error::{RequestError, StartError, WaitError, WindowError};
pub use finish::{FinishError, Shutdown};
pub use loss::describe_fault;
pub use name::{NAME_BYTES, Name, NotAName};
pub use open::{Opening, Options};
pub use queues::{QueueError, QueueId, WaitForError};
pub use shortage::Shortage;
pub use wait::Woken;

use engine::PeerSet;
use pace::Pace;
use queues::Queues;
use wait::Waiter;

/// A message transport over all rails between this process and its peers.
///
/// # Driving it
/// There is no thread: messages move, and peers are answered, only in calls. [`progress`](Self::progress) is
/// one round; [`test`](Self::test) and [`wait_for`](Self::wait_for) drive too; [`wait`](Self::wait) only
/// sleeps. After a round take the events:
///
/// ```
/// use rerail_linux::driver::{StartError, Transport};
/// use rerail_core::endpoint::{Completion, Event};
///
/// /// Polls until one request is over.
/// fn until_completed(transport: &mut Transport) -> Completion {
///     loop {
///         transport.progress();
///         while let Some(event) = transport.poll_event() {
///             if let Event::Completed(completion) = event {
///                 return completion;
///             }
///         }
///     }
/// }
/// ```
///
/// To sleep instead of polling, call [`wait`](Self::wait) when a round brought nothing. A program with an
/// event loop of its own registers [`fd`](Self::fd) for reading; before it sleeps it calls [`arm`](Self::arm)
/// (and does not sleep if that reports work), afterwards [`disarm`](Self::disarm).
///
/// # Memory
/// Requests name memory by region: [`alloc`](Self::alloc) makes one, [`adopt`](Self::adopt) takes the
/// caller's. The memory that a request names is checked at submission. Until the request is over, its memory
/// belongs to it: reading a receive's buffer early shows some of the bytes, writing to a send's buffer sends
/// some of the new ones; neither harms anything else.
///
/// A host that uses pointers makes its whole address space one region, once
/// ([`adopt_address_space`](Self::adopt_address_space)), and names memory by [`Seg::at_address`]:
///
/// ```
/// # use rerail_linux::{Options, Settings, Transport, bootstrap::single::Single};
/// use rerail_linux::{PeerId, RecvRequest, Seg, Selector, SendRequest};
///
/// # let mut settings = Settings::default();
/// # settings.rails = vec![];
/// # let mut transport = Transport::start(Options { settings }, Box::new(Single::new()))?;
/// let (from, mut to) = (*b"hello", [0u8; 5]);
/// // SAFETY: both arrays are left alone until the requests on them are over.
/// let memory = unsafe { transport.adopt_address_space()? };
/// let into = [Seg::at_address(memory, to.as_mut_ptr(), to.len())];
/// let receive = transport.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &into))?;
/// let source = [Seg::at_address(memory, from.as_ptr().cast_mut(), from.len())];
/// transport.send(&SendRequest::new(PeerId(0), &source))?;
/// transport.wait_for(receive, None)?.result.map_err(|error| format!("{error:?}"))?;
/// assert_eq!(to, from);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # One request
/// [`wait_for`](Self::wait_for) sleeps until a request is over, [`test`](Self::test) checks once. Libraries
/// that share a transport open a [completion queue](Self::open_queue) each.
pub struct Transport {
    engine: Engine,
    waiter: Waiter,
    spin: Spin,
    pace: Pace,
    boot: Option<Box<dyn Bootstrap>>,
    /// `None` until the first queue is opened or the first request is waited for.
    queues: Option<Box<Queues>>,
    /// How long a step of it may take; `None`: as long as it takes.
    boot_limit: Option<Duration>,
}

/// When polling gives the processor to others.
struct Spin {
    /// Rounds without result in a row.
    idle_rounds: u32,
    /// After so many, every further one yields.
    idle_rounds_max: u32,
}

impl Transport {
    /// This process's rank.
    pub fn rank(&self) -> PeerId {
        self.engine.rank()
    }

    /// Processes in the job, this one included.
    pub fn size(&self) -> u32 {
        self.engine.size()
    }

    /// The core's sizes and knobs, as this transport runs with them.
    pub fn config(&self) -> &Config {
        self.engine.config()
    }

    /// The board of the job that this transport was started with: a host publishes its own keys, fences, and
    /// reads the others' keys. A fence does not drive the transport, so agree with all ranks when one is due.
    /// `None`: there is no launcher (steps of [`Opening`], names).
    pub fn bootstrap(&mut self) -> Option<&mut dyn Bootstrap> {
        match &mut self.boot {
            Some(boot) => Some(&mut **boot),
            None => None,
        }
    }

    /// An unguessable random number for [`Window::key`](rerail_core::endpoint::Window::key).
    ///
    /// # Errors
    /// Where the kernel gives no random bytes.
    pub fn random_key(&self) -> std::io::Result<u64> {
        Ok(u64::from_le_bytes(crate::random::random()?))
    }

    /// The rails, in the order of their numbers.
    pub fn rails(&self) -> impl Iterator<Item = RailInfo<'_>> {
        self.engine.rails()
    }

    /// Drives the transport one round, without waiting; returns how many things happened. After
    /// `Settings::spin_polls` rounds in a row without any, each further one yields the processor, because
    /// there may be more processes than processors.
    pub fn progress(&mut self) -> usize {
        if self.waiter.is_armed() {
            self.disarm();
        }
        let mut done = 0;
        if !self.pace.is_forced() {
            done = self.engine.news(self.pace.last);
            if done > 0 {
                if self.spin.idle_rounds == 0 {
                    done += self.engine.more(self.pace.last);
                }
                if self.pace.may_go_on(done) {
                    self.spin.idle_rounds = 0;
                    return done;
                }
                done += self.engine.rest(self.pace.last);
            }
        }
        if self.pace.is_due() {
            done += self.whole_round();
        }
        if done > 0 {
            self.spin.idle_rounds = 0;
        } else if self.spin.idle_rounds < self.spin.idle_rounds_max {
            self.spin.idle_rounds += 1;
        } else {
            rustix::thread::sched_yield();
        }
        done
    }

    fn whole_round(&mut self) -> usize {
        let now = now();
        // Submitted requests are sent before the rails are polled: their receivers wait for them, while the
        // rails are polled all the time.
        let done = self.engine.carry_out(now) + self.engine.round(now);
        self.pace.whole(now, self.engine.others_moved());
        done
    }

    /// A request was submitted that can't take the express path. It is sent at once, unless its rail is busy:
    /// requests that collect until the rail is free are sent together (newmadeleine-2007, 2).
    fn submitted(&mut self, now: Time, peer: PeerId) {
        if self.engine.endpoint().is_unused(peer) {
            self.engine.carry_out(now);
        }
        self.pace.busy(now);
    }

    /// The next completion of the express path: see [`Engine::poll_short`]. `None` as soon as there are
    /// [completion queues](Self::open_queue): it might be another queue's.
    #[inline]
    pub fn poll_short(&mut self) -> Option<&ShortCompletion> {
        if self.queues.is_some() { None } else { self.engine.poll_short() }
    }

    /// Sends submitted requests without polling the rails; [`progress`](Self::progress) does it too. For
    /// hosts whose next call after a request may come late.
    pub fn push(&mut self) -> usize {
        if self.engine.endpoint().is_active() { self.engine.carry_out(now()) } else { 0 }
    }

    /// The next event for the caller. Take events after each round: completed requests keep their place in
    /// the core's tables until their event is taken.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.queues.is_some() { self.take_of(0) } else { self.engine.poll_event() }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.describe("Transport", f)
    }
}

/// The system's monotonic clock.
fn now() -> Time {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative: the clock counts up from the machine's start.
    Time((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

#[cfg(test)]
mod tests;
