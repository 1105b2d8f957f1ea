//! An endpoint that the threads of a process share, where there is no operating system's lock to be had.

use spin::mutex::SpinMutex;

use crate::endpoint::Endpoint;

/// An endpoint behind a spin lock.
///
/// Any thread may submit. For whoever drives, the endpoint's contract holds across the lock: the actions of a
/// batch are carried out before any other call, so keep the lock from `poll_actions` until the batch is done.
/// Critical sections are short and never block; a host that has a better lock puts the endpoint behind that
/// one.
pub struct Shared<'m> {
    endpoint: SpinMutex<Endpoint<'m>>,
}

impl<'m> Shared<'m> {
    /// Behind a lock that nobody holds.
    pub const fn new(endpoint: Endpoint<'m>) -> Self {
        Shared { endpoint: SpinMutex::new(endpoint) }
    }

    /// Runs `with` on the endpoint, spinning until the lock is free. Don't call it again from inside.
    pub fn lock<R>(&self, with: impl FnOnce(&mut Endpoint<'m>) -> R) -> R {
        with(&mut self.endpoint.lock())
    }

    /// As [`lock`](Self::lock), but `None` at once where another thread holds the lock: a thread that would
    /// only drive can leave it to the one that does.
    pub fn try_lock<R>(&self, with: impl FnOnce(&mut Endpoint<'m>) -> R) -> Option<R> {
        self.endpoint.try_lock().map(|mut endpoint| with(&mut endpoint))
    }

    /// The endpoint, alone again.
    pub fn into_inner(self) -> Endpoint<'m> {
        self.endpoint.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::endpoint::harness::{Region, TCP};
    use crate::endpoint::{Completion, Event, OpError, RecvRequest, Selector};
    use crate::ids::{Cookie, PeerId};
    use crate::time::Time;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// Four threads submit and take back at once: every request completes exactly once.
    #[test]
    fn threads_share_an_endpoint() {
        let config = Config::new(PeerId(0), 1);
        let mut region = Region::of(&config);
        let endpoint = Endpoint::new(config, &[TCP], region.for_test(&config), Time(0)).unwrap();
        let shared = Shared::new(endpoint);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let shared = &shared;
                scope.spawn(move || {
                    for n in 0..200 {
                        let recv = RecvRequest {
                            cookie: Cookie(thread * 1000 + n),
                            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
                        };
                        let op = shared.lock(|endpoint| endpoint.recv(Time(0), &recv)).unwrap();
                        shared.lock(|endpoint| endpoint.cancel(op)).unwrap();
                    }
                });
            }
        });
        let mut endpoint = shared.into_inner();
        let told: Vec<_> = core::iter::from_fn(|| endpoint.poll_event())
            .map(|event| match event {
                Event::Completed(Completion { cookie, result: Err(OpError::Cancelled), .. }) => cookie.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told.len(), 800);
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>().len(), 800);
    }

    /// While one holds the lock, another does not wait for it.
    #[test]
    fn a_held_lock_is_not_waited_for() {
        let config = Config::new(PeerId(0), 1);
        let mut region = Region::of(&config);
        let endpoint = Endpoint::new(config, &[TCP], region.for_test(&config), Time(0)).unwrap();
        let shared = Shared::new(endpoint);
        shared.lock(|_| assert!(shared.try_lock(|_| ()).is_none()));
        assert!(shared.try_lock(|_| ()).is_some());
    }
}
