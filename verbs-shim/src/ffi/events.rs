//! Completion events, asynchronous events, and the descriptors that they come by. Nothing here waits: the
//! descriptors are made nonblocking.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

use rdma_core_sys::*;

use super::objects::untag;
use super::{Handle, check};

/// A completion event channel.
pub(crate) struct Channel(pub(super) NonNull<ibv_comp_channel>);

// SAFETY: a channel belongs to no thread, and libibverbs may be called from any.
unsafe impl Send for Channel {}

/// An asynchronous event, acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    /// `IBV_EVENT_*`.
    pub kind: ibv_event_type,
    /// Name of the object, or number of the port; 0 where it is about neither.
    pub about: u32,
}

impl Handle {
    /// Makes a channel whose descriptor does not block.
    pub(crate) fn create_channel(&self) -> io::Result<Channel> {
        // SAFETY: the context is open.
        let raw = unsafe { (self.functions.create_comp_channel)(self.context.as_ptr()) };
        let channel = Channel(NonNull::new(raw).ok_or_else(io::Error::last_os_error)?);
        match unblock(channel.fd()) {
            Ok(()) => Ok(channel),
            Err(error) => {
                self.destroy_channel(channel);
                Err(error)
            }
        }
    }

    /// No queue may use it any more.
    pub(crate) fn destroy_channel(&self, channel: Channel) {
        // SAFETY: the channel is live, and not used again. With queues left it fails and leaks the channel.
        unsafe { (self.functions.destroy_comp_channel)(channel.0.as_ptr()) };
    }

    /// The next completion event: the queue's name. It must be counted, for when the queue is destroyed.
    pub(crate) fn cq_event(&self, channel: &Channel) -> Option<u32> {
        let (mut cq, mut name) = (null_mut(), null_mut());
        // SAFETY: the channel is live; both places may be written.
        let found = unsafe { (self.functions.get_cq_event)(channel.0.as_ptr(), &mut cq, &mut name) };
        (found == 0).then(|| untag(name))
    }

    /// Makes reading asynchronous events return at once where there are none.
    pub(crate) fn unblock_events(&self) -> io::Result<()> {
        unblock(self.events_fd())
    }

    /// The next asynchronous event. `Err`: the device can't be queried any more.
    pub(crate) fn async_event(&self) -> io::Result<Option<RawEvent>> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open; there is room for one event.
        let found = check(unsafe { (self.functions.get_async_event)(self.context.as_ptr(), event.as_mut_ptr()) });
        match found {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: zeros were a value already, and the function has filled it.
        let mut event = unsafe { event.assume_init() };
        let kind = event.event_type;
        // SAFETY: which member of the union is filled follows from the kind (`ibv_get_async_event(3)`). An
        // object that an event names is not freed before the event is acknowledged, which follows; its name
        // was set at making.
        let about = unsafe {
            match kind {
                IBV_EVENT_CQ_ERR => untag((*event.element.cq).cq_context),
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_SQ_DRAINED
                | IBV_EVENT_QP_LAST_WQE_REACHED => untag((*event.element.qp).qp_context),
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => untag((*event.element.srq).srq_context),
                IBV_EVENT_PORT_ACTIVE
                | IBV_EVENT_PORT_ERR
                | IBV_EVENT_LID_CHANGE
                | IBV_EVENT_PKEY_CHANGE
                | IBV_EVENT_SM_CHANGE
                | IBV_EVENT_CLIENT_REREGISTER
                | IBV_EVENT_GID_CHANGE => event.element.port_num.unsigned_abs(),
                _ => 0,
            }
        };
        // SAFETY: an event that was read, acknowledged once.
        unsafe { (self.functions.ack_async_event)(&mut event) };
        Ok(Some(RawEvent { kind, about }))
    }

    /// Becomes readable with an asynchronous event.
    pub(crate) fn events_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context's own descriptor, open as long as the context is.
        unsafe { BorrowedFd::borrow_raw((&raw const (*self.context.as_ptr()).async_fd).read()) }
    }
}

impl Channel {
    /// Becomes readable with a completion event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's own descriptor, open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw((&raw const (*self.0.as_ptr()).fd).read()) }
    }
}

fn unblock(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an open descriptor; these commands take and give numbers.
    let done = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
