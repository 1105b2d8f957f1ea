//! Awaiting completions and events, and demanding their contents.

use rerail_verbs::contract::{AsyncEvent, Completion, CompletionKind, CqId, QpState, Status};

use super::Bed;
use super::queue::Queue;
use crate::failure::{Check, same, wrong};
use crate::testbed::End;

impl Bed<'_> {
    /// The oldest completion, if there is one now.
    pub(crate) fn take(&mut self, end: End, cq: CqId) -> Check<Option<Completion>> {
        let mut out = Vec::new();
        let count = self.device(end).poll_cq(cq, 1, &mut out)?;
        same("completions counted and completions written", count, out.len())?;
        if count > 1 {
            return Err(wrong("a poll for one completion", "one at most", count));
        }
        Ok(out.pop())
    }

    /// The next completion.
    pub(crate) fn next(&mut self, end: End, cq: CqId) -> Check<Completion> {
        self.wait(|| format!("a completion at {end:?}"), |bed| bed.take(end, cq))
    }

    /// The next completion is of this request, with this status.
    pub(crate) fn ended(&mut self, end: End, cq: CqId, id: u64, status: Status) -> Check<Completion> {
        let awaited = || format!("the completion of request {id} at {end:?} with {status}");
        let came = self.wait(awaited, |bed| bed.take(end, cq))?;
        if came.id != id || came.status != status {
            let expected = format!("request {id}: {status}");
            return Err(wrong(
                format!("completion at {end:?}"),
                expected,
                format!("request {}: {}", came.id, came.status),
            ));
        }
        Ok(came)
    }

    /// The next completion of the send queue is a success of this request.
    pub(crate) fn sent(&mut self, queue: Queue, id: u64) -> Check<Completion> {
        self.send_ended(queue, id, Status::Success)
    }

    /// The next completion of the send queue is of this request, with this status.
    pub(crate) fn send_ended(&mut self, queue: Queue, id: u64, status: Status) -> Check<Completion> {
        let came = self.ended(queue.end, queue.send_cq()?, id, status)?;
        same(format!("queue pair number of the completion of send {id}"), came.qp, queue.number)?;
        Ok(came)
    }

    /// The next completion of the receive queue is a success of this request, filled by a send of so many
    /// bytes.
    pub(crate) fn received(&mut self, queue: Queue, id: u64, bytes: usize) -> Check<Completion> {
        let came = self.recv_ended(queue, id, Status::Success)?;
        same(format!("kind of the completion of receive {id}"), came.kind, CompletionKind::Recv)?;
        same(format!("bytes of receive {id}"), came.bytes as usize, bytes)?;
        Ok(came)
    }

    /// The next completion of the receive queue is of this request, with this status.
    pub(crate) fn recv_ended(&mut self, queue: Queue, id: u64, status: Status) -> Check<Completion> {
        let came = self.ended(queue.end, queue.recv_cq()?, id, status)?;
        same(format!("queue pair number of the completion of receive {id}"), came.qp, queue.number)?;
        Ok(came)
    }

    /// When all has happened that is under way, there is no completion of a send.
    pub(crate) fn no_more_sent(&mut self, queue: Queue) -> Check {
        self.nothing(queue.end, queue.send_cq()?)
    }

    /// When all has happened that is under way, there is no completion of a receive.
    pub(crate) fn no_more_received(&mut self, queue: Queue) -> Check {
        self.nothing(queue.end, queue.recv_cq()?)
    }

    /// When all has happened that is under way, the queue is empty.
    pub(crate) fn nothing(&mut self, end: End, cq: CqId) -> Check {
        self.run_until_idle();
        match self.take(end, cq)? {
            None => Ok(()),
            Some(came) => {
                let came = format!("request {}: {}", came.id, came.status);
                Err(wrong(format!("completion queue at {end:?}"), "no completion", came))
            }
        }
    }

    /// The queue pair is in this state now.
    pub(crate) fn in_state(&mut self, queue: Queue, state: QpState) -> Check {
        same(format!("state of the queue pair at {:?}", queue.end), self.query(queue)?.state, state)
    }

    /// The queue pair comes to this state.
    pub(crate) fn comes_to(&mut self, queue: Queue, state: QpState) -> Check {
        let awaited = || format!("state {state} of the queue pair at {:?}", queue.end);
        self.wait(awaited, |bed| Ok((bed.query(queue)?.state == state).then_some(())))
    }

    /// This asynchronous event comes, or has come. Others are kept for later.
    pub(crate) fn event(&mut self, end: End, event: AsyncEvent) -> Check {
        self.wait(
            || format!("{event:?} at {end:?}"),
            |bed| {
                bed.gather(end);
                let kept = &mut bed.events[end as usize];
                let found = kept.iter().position(|kept| *kept == event);
                Ok(found.map(|at| {
                    kept.remove(at);
                }))
            },
        )
    }

    /// When all has happened that is under way, this event has not come (once more).
    pub(crate) fn no_event(&mut self, end: End, event: AsyncEvent) -> Check {
        self.run_until_idle();
        self.gather(end);
        if self.events[end as usize].contains(&event) {
            return Err(wrong(format!("asynchronous events at {end:?}"), format!("no {event:?}"), "one"));
        }
        Ok(())
    }

    fn gather(&mut self, end: End) {
        while let Some(event) = self.testbed.device(end).async_event() {
            self.events[end as usize].push(event);
        }
    }

    /// The next completion event is of this queue.
    pub(crate) fn notified(&mut self, end: End, cq: CqId) -> Check {
        let came = self.wait(|| format!("a completion event at {end:?}"), |bed| Ok(bed.device(end).cq_event()))?;
        same("queue of the completion event", came, cq)
    }

    /// When all has happened that is under way, there is no completion event.
    pub(crate) fn not_notified(&mut self, end: End) -> Check {
        self.run_until_idle();
        same(format!("completion event at {end:?}"), self.device(end).cq_event(), None)
    }
}
