//! The next event as a `Future`, for any executor: no thread, no allocation, no executor of our own.
//!
//! The executor's part is one function: whether the transport's descriptor is readable, and if not, whose
//! task wakes when it is. `os-linux/examples/event_loop_tokio.rs` has it for tokio.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rerail_core::endpoint::Event;

use super::{Transport, WaitError};

/// Rounds of one poll, after which other tasks have their turn.
const ROUNDS_MAX: u32 = 64;

/// Why the next event did not come.
#[derive(Debug, thiserror::Error)]
pub enum NextEventError {
    /// The transport can't prepare to sleep.
    #[error("{0}")]
    Wait(#[from] WaitError),
    /// The executor can't watch the transport's descriptor.
    #[error("the executor can't watch the transport's descriptor: {0}")]
    Executor(#[source] io::Error),
}

/// The next event of a transport: see [`Transport::next_event`].
#[derive(Debug)]
pub struct NextEvent<'t, R> {
    transport: &'t mut Transport,
    is_readable: R,
}

impl Transport {
    /// The next event as a future, which drives the transport whenever it is polled. `is_readable` is ready
    /// when [`fd`](Self::fd) is readable, and else arranges for the task to be woken then; being ready too
    /// often is allowed. It is called after [`arm`](Self::arm), and forgets an earlier readiness before it
    /// looks. A future may be dropped at any time; no event is lost.
    ///
    /// # Errors
    /// [`NextEventError`].
    ///
    /// ```no_run
    /// # use rerail_linux::{Event, Transport};
    /// # use std::task::{Context, Poll};
    /// # type Ready = Poll<std::io::Result<()>>;
    /// # async fn f(transport: &mut Transport, executor: impl Fn(&mut Context<'_>) -> Ready) {
    /// match transport.next_event(|context| executor(context)).await {
    ///     Ok(Event::Completed(completion)) => println!("{:?}", completion.result),
    ///     other => println!("{other:?}"),
    /// }
    /// # }
    /// ```
    pub fn next_event<R>(&mut self, is_readable: R) -> NextEvent<'_, R>
    where
        R: FnMut(&mut Context<'_>) -> Poll<io::Result<()>> + Unpin,
    {
        NextEvent { transport: self, is_readable }
    }
}

impl<R> Future for NextEvent<'_, R>
where
    R: FnMut(&mut Context<'_>) -> Poll<io::Result<()>> + Unpin,
{
    type Output = Result<Event, NextEventError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { transport, is_readable } = self.get_mut();
        for _ in 0..ROUNDS_MAX {
            transport.progress();
            if let Some(event) = transport.poll_event() {
                return Poll::Ready(Ok(event));
            }
            if !transport.arm()? {
                continue;
            }
            match is_readable(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(readable) => readable.map_err(NextEventError::Executor)?,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
