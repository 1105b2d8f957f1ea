//! Unreliable datagrams (InfiniBand specification, 9.8.3): one packet each, no acknowledgment; what can't be
//! taken is dropped without a word.

use rerail_verbs::contract::{Completion, GlobalRoute, QpKind, Status};

use super::body::{Body, DatagramLoad, GRH_BYTES, Header, Landing, Place};
use super::core::{Cx, Hca};
use super::flush::receive_completion;
use super::memory::Touch;
use super::object::cut;
use super::qp::{Arrived, Message, MessageKind, Qp};

impl Hca {
    /// A datagram has come for a queue pair.
    pub fn on_datagram(&mut self, cx: &mut Cx<'_>, name: u32, head: &Header, load: DatagramLoad) {
        let Some(qp) = self.qps.get(name) else { return };
        if qp.kind != QpKind::Ud || !qp.receives() || qp.attributes.qkey != Some(load.qkey) {
            return;
        }
        let (srq, number, life, port) = (qp.srq, qp.number, qp.life, usize::from(qp.port()) - 1);
        let pd = srq.and_then(|srq| self.srqs.get(srq)).map(|srq| srq.pd).or(qp.pd).unwrap_or(0);
        let work = match srq {
            Some(srq) => self.take_shared(cx, srq),
            None => self.qps.get_mut(name).and_then(|qp| qp.responder.queue.pop_front()),
        };
        let Some(work) = work else { return };
        let len = GRH_BYTES as u64 + load.data.len() as u64;
        // Without a global route the first 40 bytes of the receive stay as they are.
        let (skip, data) = match load.global {
            Some(header) => (0, [&header[..], &load.data].concat()),
            None => (GRH_BYTES as u64, load.data),
        };
        let pieces = cut(&work.sges, skip, len - skip);
        let fits = len <= work.capacity();
        if !fits || !self.check_list(pd, &pieces, Touch::LocalWrite) {
            let status = if fits { Status::LocalProtection } else { Status::LocalLength };
            if let Some(qp) = self.qps.get_mut(name) {
                qp.responder.message = Some(Message { got: 0, kind: MessageKind::Send { work } });
            }
            self.fail_receive(cx, name, status);
            return;
        }
        let Some(qp) = self.qps.get_mut(name) else { return };
        qp.responder.requests += 1;
        let completion = Completion {
            bytes: len as u32,
            immediate: load.immediate,
            source_qp: head.source_qp,
            source_lid: head.source_lid,
            global: load.global.is_some(),
            ..receive_completion(number, work.id)
        };
        let (after, solicited) = (qp.responder.requests, load.solicited);
        qp.responder.arrived.push_back(Arrived { work, completion, solicited, after });
        let landing = Landing { qp: name, life, place: Place::Receive { pd, pieces }, data };
        if let Some(port) = self.ports.get(port) {
            let bytes = (landing.data.len() as u32).max(1);
            cx.net.write_memory(cx.now, port.id, bytes, Body::Landing(Box::new(landing)));
        }
    }

    /// A global route header (8.3): version 6, the length behind it, next header 0x1b, hop limit, both GIDs.
    pub fn global_header(&self, qp: &Qp, global: &GlobalRoute, bytes: usize) -> [u8; GRH_BYTES] {
        // Behind it: BTH, DETH, payload padded to words, ICRC.
        let behind = (12 + 8 + bytes.next_multiple_of(4) + 4) as u16;
        let mut header = [0; GRH_BYTES];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&behind.to_be_bytes());
        header[6..8].copy_from_slice(&[0x1b, global.hop_limit]);
        let port = self.ports.get(usize::from(qp.port()) - 1);
        if let Some(source) = port.and_then(|port| port.gids.get(usize::from(global.source_index))) {
            header[8..24].copy_from_slice(&source.0);
        }
        header[24..40].copy_from_slice(&global.dgid.0);
        header
    }
}
