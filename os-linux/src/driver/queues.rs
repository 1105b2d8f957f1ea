//! Completion queues: several libraries of one process share a transport, and none takes another's events.
//!
//! The core has one stream of events. A completion belongs to the queue that its cookie names; an event about
//! a peer is reported in every queue. Where no queue was opened and no request is waited for by name, nothing
//! is set aside, and this file costs a comparison.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rerail_core::endpoint::{Completion, Event, Written};
use rerail_core::ids::{Cookie, OpId};

use super::{Clock, Transport, WaitError, Woken};

/// The processor is yielded so often before a wait becomes a sleep: then other processes have run, and none
/// of them was the one that is waited for. 4 to 64 make no difference to 8 ranks on 2 processors, fewer cost
/// them three times as much (`rerail perf meet --pairs 4`).
const YIELDS_BEFORE_SLEEP: u32 = 16;

/// Bits of a cookie below the number of its queue.
const VALUE_BITS: u32 = 56;

/// A completion queue of a transport, from [`Transport::open_queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueId(u8);

impl QueueId {
    /// Largest value that a cookie of a queue has room for.
    pub const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

    /// The cookie of a request whose completion goes to this queue. `None`: the value is above
    /// [`VALUE_MAX`](Self::VALUE_MAX).
    pub const fn cookie(self, value: u64) -> Option<Cookie> {
        if value > Self::VALUE_MAX { None } else { Some(Cookie((self.0 as u64) << VALUE_BITS | value)) }
    }

    /// The value in a cookie that [`cookie`](Self::cookie) made.
    pub const fn value(cookie: Cookie) -> u64 {
        cookie.0 & Self::VALUE_MAX
    }
}

/// Why there is no further completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// A queue must have room for at least one event.
    #[error("a completion queue needs room for at least 1 event, 0 were requested")]
    NoRoom,
    /// As many queues as cookies can name are open.
    #[error("{max} completion queues are open, and a transport has no more")]
    TooMany {
        /// The limit.
        max: usize,
    },
}

/// Why [`Transport::wait_for`] returns without a completion.
#[derive(Debug, thiserror::Error)]
pub enum WaitForError {
    /// The time is over; the request continues.
    #[error("the request was not complete in time, and goes on")]
    TimedOut,
    /// The request does not exist, or its last completion was taken before.
    #[error(
        "there is no request {}.{}: its completion was taken before, or this transport never had it",
        .0.0.index,
        .0.0.generation
    )]
    Unknown(OpId),
    /// Events of other requests wait, and there is no room to set more aside: take some first.
    #[error("{events} events of other requests wait and there is no room for more: take some first")]
    Full {
        /// Events that wait in the fullest queue.
        events: usize,
    },
    /// The system refuses to wait.
    #[error("{0}")]
    Wait(#[from] WaitError),
}

/// Events taken from the core for other queues.
pub(super) struct Queues {
    /// By number; the first is that of [`Transport::poll_event`].
    queues: Vec<Queue>,
}

struct Queue {
    events: VecDeque<Event>,
    events_max: usize,
}

impl Queue {
    fn new(events_max: usize) -> Self {
        Queue { events: VecDeque::with_capacity(events_max), events_max }
    }

    fn is_full(&self) -> bool {
        self.events.len() >= self.events_max
    }
}

impl Queues {
    fn new(events_max: usize) -> Self {
        Queues { queues: vec![Queue::new(events_max)] }
    }

    /// Which queue a cookie belongs to.
    fn of(&self, Cookie(cookie): Cookie) -> usize {
        let named = (cookie >> VALUE_BITS) as usize;
        if named < self.queues.len() { named } else { 0 }
    }

    /// Whether any event finds room wherever it may belong.
    fn has_room(&self) -> bool {
        !self.queues.iter().any(Queue::is_full)
    }

    fn put(&mut self, event: Event) {
        match &event {
            Event::Completed(Completion { cookie, .. }) | Event::Written(Written { cookie, .. }) => {
                let queue = self.of(*cookie);
                self.queues[queue].events.push_back(event);
            }
            _ => self.queues.iter_mut().for_each(|queue| queue.events.push_back(event)),
        }
    }

    /// Takes a request's oldest completion.
    fn take(&mut self, operation: OpId) -> Option<Completion> {
        self.queues.iter_mut().find_map(|queue| {
            let is_its = |event: &Event| matches!(event, Event::Completed(of) if of.operation == operation);
            let at = queue.events.iter().position(is_its)?;
            match queue.events.remove(at) {
                Some(Event::Completed(completion)) => Some(completion),
                _ => None,
            }
        })
    }
}

impl Transport {
    /// The completion of a request, if it is over, before all other events; these keep their order. Drives
    /// the transport one round. Of a multi-receive, the next message.
    pub fn test(&mut self, operation: OpId) -> Option<Completion> {
        self.progress();
        self.completion_of(operation)
    }

    /// Drives the transport until a request is over, at most for `timeout` (`None`: as long as it takes): it
    /// polls, yields the processor as [`progress`](Transport::progress) does, then sleeps. Returns the
    /// completion before all other events; these keep their order. Set aside are as many of them as there are
    /// `operations` in the settings, or as the queue has room for that they belong to.
    ///
    /// # Errors
    /// [`WaitForError`]: nothing is lost, and the request continues if it exists.
    pub fn wait_for(&mut self, operation: OpId, timeout: Option<Duration>) -> Result<Completion, WaitForError> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut yields = 0;
        loop {
            if let Some(completion) = self.test(operation) {
                return Ok(completion);
            }
            yields = if self.spin.yields() { yields + 1 } else { 0 };
            if let Some(queues) = self.queues.as_ref().filter(|queues| !queues.has_room()) {
                let events = queues.queues.iter().map(|queue| queue.events.len()).max().unwrap_or(0);
                return Err(WaitForError::Full { events });
            }
            if !self.engine.core.is_open(operation) {
                return Err(WaitForError::Unknown(operation));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(WaitForError::TimedOut);
            }
            if yields < YIELDS_BEFORE_SLEEP {
                continue;
            }
            if self.arm_past_backlog()? {
                // The caller handles signals; this continues.
                let _: Woken = self.sleep_until_ready(left)?;
            }
        }
    }
}

impl<C: Clock> Transport<C> {
    /// Opens a completion queue with room for `events_max` events, for a library that shares this transport
    /// with others. Completions of requests, and puts into windows, with a [cookie of the
    /// queue](QueueId::cookie) come by [`poll_queue`](Self::poll_queue), and so does all that concerns peers;
    /// everything else comes by [`poll_event`](Self::poll_event), or was for the queue before it was opened.
    /// A queue that is full holds up the events of the others until some are taken. The memory is taken here,
    /// beside the budget of the settings.
    ///
    /// # Errors
    /// [`QueueError`]; no queue was opened then.
    pub fn open_queue(&mut self, events_max: usize) -> Result<QueueId, QueueError> {
        if events_max == 0 {
            return Err(QueueError::NoRoom);
        }
        let queues = &mut self.queues().queues;
        match u8::try_from(queues.len()) {
            Ok(number) => {
                queues.push(Queue::new(events_max));
                Ok(QueueId(number))
            }
            Err(_) => Err(QueueError::TooMany { max: usize::from(u8::MAX) }),
        }
    }

    /// The next event of a queue.
    pub fn poll_queue(&mut self, QueueId(queue): QueueId) -> Option<Event> {
        self.take_of(usize::from(queue))
    }

    fn queues(&mut self) -> &mut Queues {
        let events_max = self.config().operations_max as usize;
        self.queues.get_or_insert_with(|| Box::new(Queues::new(events_max.max(1))))
    }

    /// Sorts events into the queues as long as there is room for any. `true`: there were some.
    fn sort_events(&mut self) -> bool {
        let mut is_any = false;
        let Some(queues) = &mut self.queues else { return is_any };
        while queues.has_room() {
            match self.engine.poll_event() {
                Some(event) => queues.put(event),
                None => break,
            }
            is_any = true;
        }
        is_any
    }

    fn completion_of(&mut self, operation: OpId) -> Option<Completion> {
        self.queues();
        self.sort_events();
        self.queues.as_mut()?.take(operation)
    }

    #[cold]
    pub(super) fn take_of(&mut self, queue: usize) -> Option<Event> {
        let taken = self.queues.as_mut()?.queues.get_mut(queue)?.events.pop_front();
        if taken.is_some() {
            return taken;
        }
        self.sort_events();
        self.queues.as_mut()?.queues.get_mut(queue)?.events.pop_front()
    }

    /// Whether an event has come since events were sorted last, for any queue: it prevents sleep.
    pub(super) fn has_new_event(&mut self) -> bool {
        if self.queues.is_none() { self.engine.has_event() } else { self.sort_events() }
    }

    /// Whether events of [`poll_event`](Self::poll_event) were set aside, or a caller waits. Events of other
    /// queues prevent sleep only once, when they come.
    pub(super) fn has_backlog(&self) -> bool {
        let first = self.queues.as_ref().and_then(|queues| queues.queues.first());
        first.is_some_and(|queue| !queue.events.is_empty())
            || self.engine.scratch.reports.named.as_ref().is_some_and(|named| named.has_caller())
    }
}
