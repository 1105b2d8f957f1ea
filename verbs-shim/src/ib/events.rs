//! Events, and the descriptors to wait on.

use std::io;
use std::os::fd::OwnedFd;

use rdma_core_sys::*;
use rustix::event::epoll;

use super::IbDevice;
use super::removal::Removal;
use crate::contract::{AsyncEvent, CqId, QpId, SrqId};
use crate::ffi::{Channel, Handle, RawEvent};

/// One descriptor for both sorts of events, and for the device's removal.
pub(super) fn wait_for(handle: &Handle, channel: &Channel, removal: Option<&Removal>) -> io::Result<OwnedFd> {
    let wait = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [handle.events_fd(), channel.fd()].into_iter().chain(removal.map(Removal::fd)) {
        epoll::add(&wait, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(wait)
}

impl IbDevice {
    pub(super) fn next_async_event(&mut self) -> Option<AsyncEvent> {
        if !self.gone && self.removal.as_mut().is_some_and(Removal::happened) {
            self.gone = true;
            return Some(AsyncEvent::DeviceFatal);
        }
        loop {
            let RawEvent { kind, about } = match self.handle.async_event() {
                Ok(Some(event)) => event,
                Ok(None) => {
                    self.event_timer.left = self.event_timer.pause;
                    return None;
                }
                // The kernel has closed the other end: the device is gone. Reported once.
                Err(_) if self.gone => return None,
                Err(_) => RawEvent { kind: IBV_EVENT_DEVICE_FATAL, about: 0 },
            };
            let qp = |make: fn(QpId) -> AsyncEvent| self.qps.get(about).map(|_| make(QpId(about)));
            let srq = |make: fn(SrqId) -> AsyncEvent| self.srqs.get(about).map(|_| make(SrqId(about)));
            let port = u8::try_from(about).unwrap_or(0);
            let event = match kind {
                IBV_EVENT_CQ_ERR => self.cqs.get_mut(about).map(|entry| {
                    entry.broken = true;
                    entry.refresh();
                    AsyncEvent::CqError(CqId(about))
                }),
                IBV_EVENT_QP_FATAL => qp(AsyncEvent::QpFatal),
                IBV_EVENT_QP_REQ_ERR => qp(AsyncEvent::QpRequestError),
                IBV_EVENT_QP_ACCESS_ERR => qp(AsyncEvent::QpAccessError),
                IBV_EVENT_COMM_EST => qp(AsyncEvent::CommEstablished),
                IBV_EVENT_SQ_DRAINED => qp(AsyncEvent::SqDrained),
                IBV_EVENT_QP_LAST_WQE_REACHED => qp(AsyncEvent::QpLastWqe),
                IBV_EVENT_SRQ_LIMIT_REACHED => srq(AsyncEvent::SrqLimit),
                IBV_EVENT_SRQ_ERR => srq(AsyncEvent::SrqError),
                IBV_EVENT_PORT_ACTIVE => Some(AsyncEvent::PortActive(port)),
                IBV_EVENT_PORT_ERR => Some(AsyncEvent::PortError(port)),
                IBV_EVENT_LID_CHANGE => Some(AsyncEvent::LidChange(port)),
                IBV_EVENT_PKEY_CHANGE => Some(AsyncEvent::PkeyChange(port)),
                IBV_EVENT_GID_CHANGE => Some(AsyncEvent::GidChange(port)),
                IBV_EVENT_SM_CHANGE => Some(AsyncEvent::ManagerChange(port)),
                IBV_EVENT_CLIENT_REREGISTER => Some(AsyncEvent::Reregister(port)),
                IBV_EVENT_DEVICE_FATAL => {
                    self.gone = true;
                    Some(AsyncEvent::DeviceFatal)
                }
                other => Some(AsyncEvent::Other(other)),
            };
            // An event of an object that has just been destroyed names nothing: the next one.
            if event.is_some() {
                return event;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::IbDevice;
    use crate::contract::{CqInit, Device};
    use crate::tests::{open, script};

    /// A queue is destroyed when as many events were acknowledged as came, in 32 bits, or the library waits
    /// for ever.
    #[test]
    fn more_events_than_32_bits_count_are_acknowledged_modulo_those() {
        let mut device = IbDevice::new(open("rxe9")).unwrap();
        let cq = device.create_cq(&CqInit { depth: 1 }).unwrap();
        device.cqs.get_mut(cq.0).unwrap().events = u32::MAX;
        script(|script| script.cq_events.extend([cq.0; 3]));
        while device.cq_event().is_some() {}
        device.destroy_cq(cq).unwrap();
        assert_eq!(script(|script| script.cq_events_acknowledged), 2);
    }
}
