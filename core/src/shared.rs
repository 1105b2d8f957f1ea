//! An endpoint that the threads of a process share, where no operating system provides a lock.

use spin::mutex::SpinMutex;

use crate::endpoint::Endpoint;

/// An endpoint behind a spin lock.
///
/// Any thread may submit. For the driver the endpoint's contract holds across the lock: it carries out the
/// actions of a batch before any other call, so keep the lock from `poll_actions` until the batch is done.
/// Critical sections are short and never block; a host that has a better lock puts the endpoint behind that
/// one.
pub struct Shared<'m> {
    endpoint: SpinMutex<Endpoint<'m>>,
}

impl<'m> Shared<'m> {
    /// Behind a lock that is free.
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
