//! A port's turn taking: queue pairs with something to send stand in a ring, and each gives one packet in its
//! turn, so that they share the port packet by packet, as long as the net has room.

use super::body::{AckCode, Alarm, Body, Header, Load, Packet, Timer};
use super::core::{Cx, Hca};
use super::qp::{PSN_MASK, Qp};
use crate::net::{Frame, PortId};

/// A packet that is ready, and how it goes.
pub(super) struct Outgoing {
    pub psn: u64,
    pub load: Load,
    /// Bytes that come from memory.
    pub read_bytes: u32,
    /// First of its message.
    pub first: bool,
    /// An acknowledgment: it passes what waits.
    pub control: bool,
}

impl Hca {
    /// A queue pair may have something to send: it gets into the ring, and the port is served at the end of
    /// this entry.
    pub fn ring(&mut self, name: u32) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let port = qp.port();
        let idle = qp.requester.next.0 >= qp.requester.end() && qp.responder.replies.is_empty();
        let Some(place) = usize::from(port).checked_sub(1).and_then(|index| self.ports.get_mut(index)) else { return };
        if qp.in_ring || idle {
            return;
        }
        qp.in_ring = true;
        place.ring.push_back(name);
        self.rung.insert(port);
    }

    /// Serves a port's ring until it is empty or the net has no room.
    pub fn serve(&mut self, cx: &mut Cx<'_>, port: u8) {
        loop {
            let place = &mut self.ports[usize::from(port) - 1];
            if let Some(frame) = place.stalled.take() {
                if let Err(frame) = cx.net.send(cx.now, frame) {
                    place.stalled = Some(frame);
                    return;
                }
                continue;
            }
            let Some(name) = place.ring.pop_front() else { return };
            let Some(qp) = self.qps.get_mut(name) else { continue };
            let answer_first = !qp.answered_last;
            let mut outgoing = None;
            for answer in [answer_first, !answer_first] {
                outgoing = if answer { self.next_answer(cx, name) } else { self.next_request(cx, name) };
                if outgoing.is_some() {
                    break;
                }
            }
            // Making the packet may have ended the queue pair's work, or the queue pair.
            let Some(qp) = self.qps.get_mut(name) else { continue };
            let Some(outgoing) = outgoing else {
                qp.in_ring = false;
                continue;
            };
            qp.answered_last = matches!(outgoing.load, Load::ReadResponse { .. } | Load::AtomicResponse { .. });
            let datagram = matches!(outgoing.load, Load::Datagram(_));
            let frame = self.frame(cx, name, outgoing);
            let place = &mut self.ports[usize::from(port) - 1];
            place.ring.push_back(name);
            place.stalled = frame;
            if datagram {
                self.retire(cx, name);
            }
        }
    }

    /// A packet as a frame of the queue pair's port.
    pub fn frame(&self, cx: &Cx<'_>, name: u32, outgoing: Outgoing) -> Option<Frame<Body>> {
        let qp = self.qps.get(name)?;
        let from = self.port_id(qp)?;
        let Outgoing { psn, load, read_bytes, first, control } = outgoing;
        let (address, destination) = match (&load, qp.requester.at(qp.requester.next.0.wrapping_sub(1))) {
            (Load::Datagram(_), Some(work)) => {
                let datagram = work.datagram?;
                (datagram.address, datagram.qp)
            }
            _ => (qp.attributes.address?, qp.attributes.destination?),
        };
        let (base, lmc) = cx.net.lid(from);
        let source_lid = base | u16::from(address.source_path_bits) & ((1 << lmc) - 1);
        let wire_bytes = load.wire_bytes();
        let psn = (psn & PSN_MASK) as u32;
        let head = Header { source_lid, source_qp: qp.number, destination, psn, pkey: self.pkey_of(qp) };
        let body = Body::Ib(Box::new(Packet { head, load }));
        Some(Frame { from, dlid: address.dlid, wire_bytes, read_bytes, control, first, body })
    }

    /// Sends an acknowledgment, unless a fault loses it.
    pub fn acknowledge(&mut self, cx: &mut Cx<'_>, name: u32, psn: u64, code: AckCode) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let port = usize::from(qp.port()) - 1;
        if code == AckCode::Ok {
            let of_port = self.ports.get_mut(port).map(|port| &mut port.faults.lose_acks);
            for left in [Some(&mut qp.faults.lose_acks), of_port].into_iter().flatten() {
                if *left > 0 {
                    *left -= 1;
                    return;
                }
            }
        }
        let outgoing = Outgoing { psn, load: Load::Ack(code), read_bytes: 0, first: false, control: true };
        if let Some(frame) = self.frame(cx, name, outgoing) {
            // Control frames are never refused.
            let _ = cx.net.send(cx.now, frame);
        }
    }

    /// The port of the net that a queue pair sends from.
    pub fn port_id(&self, qp: &Qp) -> Option<PortId> {
        self.ports.get(usize::from(qp.port()).checked_sub(1)?).map(|port| port.id)
    }

    /// Sets an alarm for the earliest of the times that a requester waits for. One alarm is in the heap as a
    /// rule: one that goes off too early sets the next.
    pub fn set_alarm(&mut self, cx: &mut Cx<'_>, name: u32) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let Some(due) =
            [qp.requester.deadline, qp.requester.rnr_until, qp.requester.doorbell].into_iter().flatten().min()
        else {
            return;
        };
        if qp.alarm.is_some_and(|alarm| alarm <= due) {
            return;
        }
        qp.alarm = Some(due);
        let what = Alarm::Qp { qp: name, life: qp.life };
        cx.net.at(due, Body::Timer(Timer { hca: self.id.0, what }));
    }
}
