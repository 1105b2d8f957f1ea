//! One-sided requests of peers: checked against windows, served or refused (rules ).

use super::tables::{op_queue, op_rma};
use super::{Endpoint, ProtocolError};
use crate::api::action::Arrival;
use crate::ids::RailId;
use crate::mem::{MemRef, Seg};
use crate::op::{Control, Op, OpKind, Queue};
use crate::peer::{Place, PlaceTo, UNORDERED};
use crate::seq::Seq;
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;
use crate::wire::{self, Common, Refusal};

impl Endpoint<'_> {
    /// The window memory that a request names.
    fn window(
        &self,
        key: u64,
        offset: u64,
        len: u64,
        allowed: impl Fn(&super::Access) -> bool,
    ) -> Result<(u32, MemRef), Refusal> {
        let at = self.t.window_by_key(key).map_err(|_| Refusal::NoWindow)?;
        let index = self.t.windows_by_key[at];
        let window = self.t.windows.at(index);
        if !allowed(&window.access) {
            return Err(Refusal::NoAccess);
        }
        if offset.checked_add(len).is_none_or(|end| end > window.seg.len) {
            return Err(Refusal::OutOfRange);
        }
        Ok((index, MemRef { offset: window.seg.at.offset + offset, ..window.seg.at }))
    }

    pub(super) fn arrive_put(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        common: &Common,
        put: &wire::Put,
    ) -> Result<Arrival, ProtocolError> {
        let (psn, len) = (Seq(common.psn), u64::from(common.payload_bytes));
        match self.window(put.window, put.offset, len, |access| access.write) {
            Ok((window, at)) if len > 0 => {
                self.t.windows.at_mut(window).users += 1;
                let place = Place::new(PlaceTo::Window { window, at }, len, UNORDERED, common);
                Ok(self.open_place(channel, rail, place))
            }
            Ok(_) => {
                self.received(now, channel, UNORDERED, psn, 0, common.ack_now);
                Ok(Arrival::Done)
            }
            Err(why) => {
                self.received(now, channel, UNORDERED, psn, common.payload_bytes, common.ack_now);
                self.refuse_put(channel, put.operation, why)?;
                Ok(Arrival::Discard)
            }
        }
    }

    /// The end of a put with immediate data: all other packets of the put were acknowledged before it was
    /// sent.
    pub(super) fn arrive_put_immediate(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        common: &Common,
        put: &wire::PutImmediate,
    ) -> Result<Arrival, ProtocolError> {
        let (psn, len) = (Seq(common.psn), u64::from(common.payload_bytes));
        if len != 0 && len != put.bytes {
            return Err(ProtocolError::TooLong { bytes: len }); // W-31
        }
        self.admit(channel)?;
        let found = self.window(put.window, put.offset, put.bytes, |access| access.write);
        let Some((window, at)) = self.use_window(channel, put.operation, found) else {
            self.received(now, channel, UNORDERED, psn, common.payload_bytes, common.ack_now);
            return Ok(Arrival::Discard);
        };
        let op = self.new_op(Op {
            channel,
            peer: self.channel(channel).peer,
            cookie: self.t.windows.at(window).cookie,
            remote: put.operation,
            remote_offset: put.offset,
            operand: put.window,
            len: put.bytes,
            immediate: Some(put.immediate),
            window,
            ..Op::new(OpKind::ServePut)
        });
        // Its event is not that of a request.
        self.op_mut(op).parent = op;
        if len == 0 {
            self.received(now, channel, UNORDERED, psn, 0, common.ack_now);
            self.report_put(op);
            return Ok(Arrival::Done);
        }
        self.t.set_segments(op, &[Seg { at, len }]);
        self.op_mut(op).places += 1;
        Ok(self.open_place(channel, rail, Place::new(PlaceTo::Op(op), len, UNORDERED, common)))
    }

    /// Refuses an admitted request of the peer.
    fn refuse(&mut self, channel: u32, operation: u64, why: Refusal) {
        let refusal = Op::new(OpKind::ServeRefusal);
        let op = self.new_op(Op { channel, remote: operation, refusal: Some(why), ..refusal });
        self.send_control(op, Control::Fin);
    }

    /// Refuses a put of the peer: once, for any number of its segments. Only the window limits the puts of a
    /// peer, so if more refusals are in progress than have slots, the peer is given up.
    fn refuse_put(&mut self, channel: u32, operation: u64, why: Refusal) -> Result<(), ProtocolError> {
        let refusals = self.channel(channel).requests.refusals;
        let mut known = refusals.head();
        while known != NONE {
            if self.op(known).remote == operation {
                return Ok(());
            }
            known = refusals.next(&mut By(&mut self.t.ops, op_rma), known);
        }
        if self.refusals >= self.config.refusals_max() {
            return Err(ProtocolError::Credit);
        }
        self.refusals += 1;
        let refusal = Op::new(OpKind::RefusePut);
        let op = self.new_op(Op { channel, remote: operation, refusal: Some(why), ..refusal });
        let slot = self.t.channels.at_mut(channel);
        slot.requests.refuse();
        slot.express_budget.stop_sending();
        slot.requests.refusals.push_back(&mut By(&mut self.t.ops, op_rma), op);
        self.send_control(op, Control::Fin);
        Ok(())
    }

    /// An admitted get, atomic or put with immediate data uses its window from now on; if it can't, it is
    /// refused.
    fn use_window(
        &mut self,
        channel: u32,
        operation: u64,
        found: Result<(u32, MemRef), Refusal>,
    ) -> Option<(u32, MemRef)> {
        match found {
            Ok((window, _)) => self.t.windows.at_mut(window).users += 1,
            Err(why) => self.refuse(channel, operation, why),
        }
        found.ok()
    }

    /// Room to serve one more request of the peer.
    fn admit(&mut self, channel: u32) -> Result<(), ProtocolError> {
        let slot = self.t.channels.at_mut(channel);
        let is_admitted = self.t.ops.room() > 0 && slot.requests.admit(self.config.requests_per_peer);
        if is_admitted { Ok(()) } else { Err(ProtocolError::Credit) }
    }

    pub(super) fn arrive_get(&mut self, channel: u32, get: &wire::Get) -> Result<(), ProtocolError> {
        self.admit(channel)?;
        let found = self.window(get.window, get.offset, get.bytes, |access| access.read);
        let Some((window, at)) = self.use_window(channel, get.operation, found) else { return Ok(()) };
        let op = self.new_op(Op {
            channel,
            remote: get.operation,
            len: get.bytes,
            granted: get.bytes,
            window,
            ..Op::new(OpKind::ServeGet)
        });
        self.t.set_segments(op, &[Seg { at, len: get.bytes }]);
        self.t.enqueue(op, Queue::Bulk);
        self.activate(channel);
        Ok(())
    }

    pub(super) fn arrive_atomic(&mut self, channel: u32, atomic: &wire::Atomic) -> Result<(), ProtocolError> {
        self.admit(channel)?;
        let bytes = atomic.data_type.bytes();
        let found = if atomic.data_type.allows(atomic.kind) {
            let found = self.window(atomic.window, atomic.offset, bytes, |access| access.atomic);
            found.and_then(|(_, at)| if at.offset.is_multiple_of(bytes) { found } else { Err(Refusal::BadAtomic) })
        } else {
            Err(Refusal::BadAtomic)
        };
        let Some((window, at)) = self.use_window(channel, atomic.operation, found) else { return Ok(()) };
        let op = self.new_op(Op {
            channel,
            remote: atomic.operation,
            atomic_kind: atomic.kind,
            atomic_type: atomic.data_type,
            operand: atomic.operand,
            compare: atomic.compare,
            window,
            queued: Queue::Atomics,
            ..Op::new(OpKind::ServeAtomic)
        });
        self.t.set_segments(op, &[Seg { at, len: bytes }]);
        self.atomics.push_back(&mut By(&mut self.t.ops, op_queue), op);
        self.hot.may_have_work = true;
        Ok(())
    }
}
