//! The driver: one endpoint of the core, bound to this machine's rails, memory and clock.
//!
//! [`Transport`] is the whole interface of an embedder: memory, requests, events, and three ways to drive it
//! (polling, waiting, or in the program's event loop). It starts no thread, installs no signal handler and
//! keeps no global state; several can live in one process. It reads the system's clock, or, as a
//! `Transport<VirtualTime>`, a time that its owner sets: so the simulator drives it in virtual time.
//!
//! | file | holds |
//! |---|---|
//! | `clock` | where a transport reads the time |
//! | `request` | memory and requests |
//! | `at_once` | small messages over rails that can lose, sent in the call and received in one |
//! | `express` | the short way of small messages |
//! | `engine` | rails, core and memory, without a clock |
//! | `drive` | one round: poll rails, run timers, carry out actions |
//! | `round_timer` | when a round looks at everything |
//! | `turns` | which rails it polls, by the paper's policies |
//! | `inspect` | rank, rails, deadlines: to look at |
//! | `policy` | policies and their settings, changed at run time |
//! | `queues` | completion queues; waiting for one request |
//! | `wait` | sleeping without losing a wake-up |
//! | `open` | opening rails, exchanging address records, joining a job |
//! | `future` | the next event as a `Future` |
//! | `finish` | leaving in good order |
//! | `contacts` | rails that are open before rank and job are known |
//! | `name` | names of 64 bytes, and how processes start from each other's names |
//! | `named` | peers inserted and removed by name |
//! | `record` | the line of text with a process's addresses |
//! | `rails` | the rails that the settings name |
//! | `verbs` | those over verbs devices |
//! | `domain_file` | the file through which processes of a host find their XRC domain |
//! | `budget` | the most memory that it takes, and its limit |
//! | `error` | the errors of each of these |
//! | `loss` | why a peer is lost, as text |

mod at_once;
mod budget;
mod clock;
mod contacts;
mod direct;
mod domain_file;
mod drive;
mod engine;
mod error;
mod express;
mod finish;
mod future;
mod inspect;
mod loss;
mod name;
mod named;
mod open;
mod policy;
mod queues;
mod rails;
mod record;
mod request;
mod round_timer;
mod slots;
mod turns;
mod verbs;
mod wait;

use std::time::Duration;

use rerail_core::endpoint::{Event, ShortCompletion};
#[cfg(doc)]
use rerail_core::mem::Seg;

use crate::bootstrap::{BootError, Bootstrap};
use crate::rail::shm::Front;

pub use crate::memory::MemoryError;
pub use budget::{JobShape, MemoryItem, MemoryNeed, OverBudget};
pub use clock::{Clock, System, VirtualTime};
pub use contacts::Contacts;
pub use error::{InsertError, RemoveError, RequestError, StartError, WaitError, WindowError};
pub use finish::{FinishError, Shutdown};
pub use future::{NextEvent, NextEventError};
pub use inspect::{RailInfo, Shortage};
pub use loss::describe_fault;
pub use name::{NAME_BYTES, Name, NotAName};
pub use open::{Opening, Options};
pub use queues::{QueueError, QueueId, WaitForError};
pub use record::{AddressRecord, AddressRecordError};
pub use wait::Woken;

use clock::Spin;
use engine::Engine;
use express::Look;
use queues::Queues;
use round_timer::RoundTimer;
use turns::Turns;

/// The longest sleep of a barrier between two looks at the launcher's channel.
const BARRIER_SLEEP: Duration = Duration::from_micros(200);

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
/// # Threads
/// A transport is `Send`: a thread may have one of its own (by names, or several in a job), which is the
/// fastest way, as nothing is shared; a lock makes one transport serve several. A future of the next event is
/// [`next_event`](Self::next_event).
///
/// # Memory
/// Requests name memory by region: [`alloc`](Self::alloc) makes one, [`adopt`](Self::adopt) takes the
/// caller's. The memory that a request names is checked at submission. Until the request is over, its memory
/// belongs to it: reading a receive's buffer early shows some of the bytes, writing to a send's buffer sends
/// some of the new ones; neither harms anything else.
///
/// An embedder that uses pointers makes its whole address space one region, once
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
/// # Time
/// A `Transport` reads the system's clock. A simulator with its own time opens a
/// `Transport<VirtualTime>` over its own rails ([`Opening::with_clock`]), which has no way to sleep and makes
/// [whole rounds](Self::round):
///
/// ```
/// use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
/// use rerail_core::{config::Config, ids::PeerId, mem::Seg, time::Time};
/// use rerail_linux::{driver::{Opening, VirtualTime}, rail::loopback::Loopback};
///
/// let config = Config { rails_max: 1, ..Config::new(PeerId(0), 1) };
/// let rails: Vec<Box<dyn rerail_linux::rail::Rail>> = vec![Box::new(Loopback::new(PeerId(0)))];
/// let mut opening = Opening::with_clock(config, "here".into(), rails, VirtualTime::default())?;
/// let address_record = opening.address_record().to_owned();
/// opening.learn(PeerId(0), &address_record)?;
/// let mut transport = opening.join()?;
///
/// let region = transport.alloc(4096)?;
/// transport.bytes_mut(region).unwrap()[..5].copy_from_slice(b"hello");
/// transport.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[Seg::new(region, 64, 5)]))?;
/// transport.send(&SendRequest::new(PeerId(0), &[Seg::new(region, 0, 5)]))?;
/// let mut completed = 0;
/// for now in 1.. {
///     transport.set_time(Time(now));
///     transport.round();
///     while let Some(event) = transport.poll_event() {
///         completed += u32::from(matches!(event, Event::Completed(_)));
///     }
///     if completed == 2 {
///         break;
///     }
/// }
/// assert_eq!(&transport.bytes(region).unwrap()[64..69], b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # One request
/// [`wait_for`](Self::wait_for) polls, then sleeps, until a request is over, [`test`](Self::test) checks
/// once. Libraries that share a transport open a [completion queue](Self::open_queue) each.
#[repr(C)]
pub struct Transport<C: Clock = System> {
    // What each call reads beside the engine comes first, in one cache line.
    /// `None` until the first queue is opened or the first request is waited for.
    queues: Option<Box<Queues>>,
    spin: Spin,
    round_timer: RoundTimer,
    turns: Turns,
    engine: Engine,
    clock: C,
}

const _: () = assert!(std::mem::offset_of!(Transport, round_timer) + RoundTimer::HOT_BYTES <= 64);

impl Transport {
    /// The board of the job that this transport was started with: a host publishes its own keys, passes a
    /// [`barrier`](Self::barrier) with all other ranks, and reads their keys. `None`: there is no launcher
    /// (steps of [`Opening`], names).
    pub fn bootstrap(&mut self) -> Option<&mut dyn Bootstrap> {
        match &mut self.clock.boot {
            Some(boot) => Some(&mut **boot),
            None => None,
        }
    }

    /// Waits until every rank of the job is here, at most `limit` (`None`: as long as it takes), and drives
    /// the transport meanwhile. Events wait to be taken. Keys that ranks put on the board before can be read
    /// after it.
    ///
    /// # Errors
    /// Those of the launcher's channel (B-1), after which it can no longer be used; messages still flow.
    /// [`BootError::NoJob`] where [`bootstrap`](Self::bootstrap) is `None`.
    pub fn barrier(&mut self, limit: Option<Duration>) -> Result<(), BootError> {
        let mut boot = self.clock.boot.take().ok_or(BootError::NoJob)?;
        let passed = boot.barrier(limit, &mut || {
            if self.progress() == 0 {
                // The launcher's answer wakes no one; where the system refuses to wait, this polls.
                let _ = self.wait(Some(BARRIER_SLEEP));
            }
        });
        self.clock.boot = Some(boot);
        passed
    }

    /// An unguessable random number for [`Window::key`](rerail_core::endpoint::Window::key).
    ///
    /// # Errors
    /// Where the kernel gives no random bytes.
    pub fn random_key(&self) -> std::io::Result<u64> {
        Ok(u64::from_le_bytes(crate::random::random()?))
    }

    /// Drives the transport, without waiting: a [`round`](Self::round), or a look at shared memory while
    /// nothing else is due. Returns how many things happened. After `Settings::spin_polls` calls in a row
    /// without any, each further one yields the processor, because there may be more processes than
    /// processors; after fewer where another process ran when it was yielded last.
    pub fn progress(&mut self) -> usize {
        if self.round_timer.is_forced() {
            return self.go_on(0);
        }
        // Whatever is rare is a function of its own: so few registers are saved.
        match self.engine.look() {
            Look::Ready(front) => self.take(front),
            Look::Slow => self.take_more(0),
            Look::Empty => self.pass(),
            Look::Others => self.look_at_others(),
        }
    }

    /// Nothing has come: all rings are empty.
    #[inline(always)]
    fn pass(&mut self) -> usize {
        let spin = &mut self.spin;
        if self.round_timer.is_past() || spin.yields() {
            return self.go_on(0);
        }
        spin.idle_rounds += 1;
        // Looks in quick succession take the line of the next message away from its sender.
        std::hint::spin_loop();
        0
    }

    /// The ring that had the last message is empty: looks at some of the others.
    #[inline(never)]
    fn look_at_others(&mut self) -> usize {
        match self.engine.look_in_turn() {
            Look::Ready(front) => self.take(front),
            Look::Slow => self.take_more(0),
            Look::Empty => self.pass(),
            Look::Others if self.round_timer.is_past() || self.spin.yields() => self.go_on(0),
            Look::Others => 0,
        }
    }

    #[inline(always)]
    fn take(&mut self, front: Front) -> usize {
        let core = &self.engine.core;
        if core.one_waits() {
            self.take_one::<true>(front)
        } else if core.has_plain_receives() {
            self.take_one::<false>(front)
        } else {
            self.take_other()
        }
    }

    /// No plain receive is posted.
    #[inline(never)]
    fn take_other(&mut self) -> usize {
        let done = self.engine.take_others();
        self.taken(done)
    }

    #[inline(never)]
    fn take_one<const ONE: bool>(&mut self, front: Front) -> usize {
        let done = self.engine.take_message::<ONE>(front);
        self.taken(done)
    }

    #[inline(always)]
    fn taken(&mut self, done: usize) -> usize {
        self.spin.idle_rounds = 0;
        if self.round_timer.is_calm() { done } else { self.take_more(done) }
    }

    /// Messages were taken in calls before, too: more may wait, and now and then the other rings have a turn.
    #[inline(never)]
    fn take_more(&mut self, mut done: usize) -> usize {
        if done > 0 {
            done += self.engine.more();
            if self.round_timer.may_go_on() {
                return done;
            }
        }
        done += self.engine.rest();
        self.go_on(done)
    }

    /// The rest of a call of [`progress`](Self::progress) in which `done` things have happened: a whole round
    /// where one is due, and the processor for others.
    #[inline(never)]
    fn go_on(&mut self, mut done: usize) -> usize {
        if self.clock.waiter.is_armed() {
            self.disarm();
        }
        if self.round_timer.is_due() {
            done += self.whole_round();
        }
        let spin = &mut self.spin;
        if done > 0 {
            spin.idle_rounds = 0;
        } else if !spin.yields() {
            spin.idle_rounds += 1;
            std::hint::spin_loop();
        } else {
            let is_shared = self.round_timer.is_long(rustix::thread::sched_yield);
            spin.yielded(is_shared);
        }
        done
    }

    fn whole_round(&mut self) -> usize {
        let now = self.round_timer.read(|| self.clock.now());
        // Submitted requests are sent before the rails are polled: their receivers wait for them, while the
        // rails are polled all the time.
        let mut done = self.engine.carry_out(now);
        done += self.round_in_turn(now);
        self.round_timer.whole(now, self.engine.others_moved);
        self.clock.waiter.note_round(&self.engine.rails);
        done
    }
}

impl<C: Clock> Transport<C> {
    /// One whole round of driving: takes the events of all rails, runs timers that are due, carries out what
    /// follows; returns the number of things done. [`progress`](Transport::progress) decides itself when one
    /// is due.
    pub fn round(&mut self) -> usize {
        self.engine.round(self.clock.now())
    }

    /// Sends submitted requests without polling the rails; a [`round`](Self::round) does it too. For hosts
    /// whose next call after a request may come late.
    #[inline]
    pub fn push(&mut self) -> usize {
        if self.engine.core.has_actions() { self.engine.carry_out(self.clock.now()) } else { 0 }
    }

    /// The next completion of the express path: a small message that was sent or received without special
    /// cases. Cheaper than an event; completions not taken here are returned by
    /// [`poll_event`](Self::poll_event). `None` as soon as there are [completion queues](Self::open_queue):
    /// it might be another queue's.
    #[inline]
    pub fn poll_short(&mut self) -> Option<&ShortCompletion> {
        if self.queues.is_some() { None } else { self.engine.core.poll_short() }
    }

    /// As [`poll_short`](Self::poll_short), all of them, oldest first: a slice of the core's own list,
    /// without a copy.
    #[inline]
    pub fn poll_shorts(&mut self) -> &[ShortCompletion] {
        if self.queues.is_some() { &[] } else { self.engine.core.poll_shorts() }
    }

    /// Takes the next events, at most as many as there are places, in the order in which
    /// [`poll_event`](Self::poll_event) returns them; returns how many. Further places keep what they hold.
    ///
    /// ```
    /// # use rerail_linux::driver::Transport;
    /// use rerail_core::endpoint::Event;
    ///
    /// fn completed(transport: &mut Transport) -> usize {
    ///     let mut events = [None; 64];
    ///     let count = transport.poll_events(&mut events);
    ///     events[..count].iter().flatten().filter(|event| matches!(event, Event::Completed(_))).count()
    /// }
    /// ```
    pub fn poll_events(&mut self, events: &mut [Option<Event>]) -> usize {
        let mut count = 0;
        for place in events {
            let Some(event) = self.poll_event() else { break };
            *place = Some(event);
            count += 1;
        }
        count
    }

    /// The next event for the caller. Take events after each round: completed requests keep their place in
    /// the core's tables until their event is taken.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.queues.is_some() { self.take_of(0) } else { self.engine.poll_event() }
    }

    /// Whether there is an event to take: for [`poll_event`](Self::poll_event), or one that has just come for
    /// a completion queue.
    pub fn has_event(&mut self) -> bool {
        self.has_backlog() || self.has_new_event()
    }
}

#[cfg(test)]
mod tests;
