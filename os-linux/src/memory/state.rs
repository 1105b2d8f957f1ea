//! The endpoint together with the mapping that its tables live in, and what is known of it without asking.
//!
//! A round that finds nothing should cost next to nothing, and most rounds of a waiting process find nothing. The
//! endpoint changes only by being called ([`Transport::arm`](crate::driver::Transport::arm) sleeps on it), so that it had
//! nothing to do, or to tell, holds until it is called in a way that may change it.
//!
//! Invariants: the endpoint is dropped before its region is unmapped, and no reference to the region leaves it; whoever
//! can change the endpoint has gone through [`DerefMut`], which forgets what is known.
#![allow(unsafe_code)]

use core::ops::{Deref, DerefMut};

use rerail_core::config::Config;
use rerail_core::endpoint::{Action, Endpoint, Event, StartError};
use rerail_core::rail::RailFacts;
use rerail_core::time::Time;

use super::{Mapping, MemoryError, region_of};

/// Actions taken at once.
pub(crate) const BATCH: usize = 16;
/// A deadline that never comes.
const NEVER: Time = Time(u64::MAX);

/// An endpoint that owns its memory.
pub(crate) struct Core {
    // Order matters: fields are dropped from the top.
    endpoint: Endpoint<'static>,
    /// What it has said since it was last changed.
    known: Known,
    _region: Mapping,
}

/// What an endpoint has said.
#[derive(Clone, Copy)]
struct Known {
    /// It wants nothing done.
    is_idle: bool,
    /// It has nothing to tell.
    is_silent: bool,
    /// Its next deadline, or a time before it.
    due: Time,
}

const NOTHING: Known = Known { is_idle: false, is_silent: false, due: Time(0) };

/// Why the core can't start.
#[derive(Debug)]
pub(crate) enum CoreError {
    Memory(MemoryError),
    Start(StartError),
}

impl Core {
    pub(crate) fn new(config: Config, rails: &[RailFacts], now: Time) -> Result<Self, CoreError> {
        let bytes = config.memory_bytes().map_err(|error| CoreError::Start(StartError::Config(error)))?;
        let region = Mapping::new(bytes).map_err(CoreError::Memory)?;
        // SAFETY: the mapping is `bytes` long or longer, page aligned, and lives in this struct until after the endpoint
        // is dropped; moving the struct does not move the mapping. Nothing else makes a reference to it. The lifetime
        // `'static` never leaves this file's private field: what the endpoint lends is bound to `&self` or `&mut self`.
        let tables = unsafe { &mut *region_of(&region, bytes) };
        let endpoint = Endpoint::new(config, rails, tables, now).map_err(CoreError::Start)?;
        Ok(Core { endpoint, known: NOTHING, _region: region })
    }

    /// Whether [`poll_actions`](Self::poll_actions) is known to find nothing. Where assertions are on, nothing is known: it is
    /// asked, and asserted.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.known.is_idle && !cfg!(debug_assertions)
    }

    /// As [`Endpoint::poll_actions`].
    #[inline]
    pub(crate) fn poll_actions(&mut self, now: Time, actions: &mut heapless::Vec<Action, BATCH>) -> usize {
        if self.known.is_idle {
            debug_assert_eq!(self.endpoint.poll_actions(now, actions), 0, "an endpoint changed by itself");
            actions.clear();
            return 0;
        }
        let count = self.endpoint.poll_actions(now, actions);
        // It may have ended a request on the way.
        self.known = Known { is_idle: count == 0, ..NOTHING };
        count
    }

    /// Whether [`poll_event`](Self::poll_event) is known to find nothing; as [`is_idle`](Self::is_idle).
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.known.is_silent && !cfg!(debug_assertions)
    }

    /// As [`Endpoint::poll_event`].
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if self.known.is_silent {
            debug_assert_eq!(self.endpoint.poll_event(), None, "an endpoint changed by itself");
            return None;
        }
        let event = self.endpoint.poll_event();
        match event {
            // A request's place is free, which somebody may have waited for.
            Some(_) => self.known = NOTHING,
            None => self.known.is_silent = true,
        }
        event
    }

    /// Whether its deadline has come.
    #[inline]
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        if self.known.due > now {
            return false;
        }
        self.known.due = self.endpoint.next_timeout().unwrap_or(NEVER);
        self.known.due <= now
    }
}

impl Deref for Core {
    type Target = Endpoint<'static>;

    fn deref(&self) -> &Self::Target {
        &self.endpoint
    }
}

impl DerefMut for Core {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.known = NOTHING;
        &mut self.endpoint
    }
}
