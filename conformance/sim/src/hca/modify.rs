//! Changing a queue pair (InfiniBand specification, 11.2.5.2): the table of the contract defines which
//! attributes, this defines which values, and what each step does.

use rerail_verbs::contract::{
    AddressVector, AsyncEvent, Kind, ModifyError, QpChange, QpId, QpInfo, QpKind, QpState, check_transition,
};

use super::core::{Cx, Hca};
use super::qp::first_psn;

impl Hca {
    pub fn modify_qp(&mut self, cx: &mut Cx<'_>, context: u32, id: QpId, change: &QpChange) -> Result<(), ModifyError> {
        let name = self.qp_named(context, id).ok_or(ModifyError::Unknown { what: Kind::Qp, name: id.0 })?;
        let Some(qp) = self.qps.get(name) else { return Ok(()) };
        let (kind, from) = (qp.kind, qp.state);
        check_transition(kind, from, change)?;
        self.check_values(qp.attributes.port, change)?;
        if let Some(address) = &change.address {
            self.search(cx, context, address).map_err(|code| ModifyError::System { code })?;
        }
        let to = change.state.unwrap_or(from);
        if to == QpState::Reset {
            self.empty(name);
        }
        let Some(qp) = self.qps.get_mut(name) else { return Ok(()) };
        match to {
            QpState::Reset => qp.attributes = QpChange::default(),
            _ => merge(&mut qp.attributes, change),
        }
        if to == QpState::Error {
            self.enter_error(cx, name);
            return Ok(());
        }
        qp.state = to;
        match (from, to) {
            (QpState::Init, QpState::Rtr) => {
                qp.responder.expected = first_psn(change.recv_psn.unwrap_or(0));
            }
            (QpState::Rtr, QpState::Rts) => {
                let first = first_psn(change.send_psn.unwrap_or(0));
                qp.requester.next_psn = first;
                qp.requester.acked = first;
            }
            (QpState::Rts, QpState::Sqd) => {
                qp.requester.draining = true;
                qp.requester.drain_reported = !change.drain_notify.unwrap_or(false);
                self.check_drained(cx, name);
            }
            (QpState::Sqd, QpState::Rts) => qp.requester.draining = false,
            // Requests before the failed one are complete, those behind were flushed: it starts over.
            (QpState::Sqe, QpState::Rts) => qp.requester.failing = None,
            _ => {}
        }
        if let Some(qp) = self.qps.get_mut(name) {
            qp.restore_retries();
        }
        self.ring(name);
        Ok(())
    }

    pub fn query_qp(&self, context: u32, id: QpId) -> Result<QpInfo, ModifyError> {
        let qp = self.qp_named(context, id).and_then(|qp| self.qps.get(qp));
        Ok(qp.ok_or(ModifyError::Unknown { what: Kind::Qp, name: id.0 })?.info())
    }

    /// A queue pair that drains may have finished.
    pub fn check_drained(&mut self, cx: &mut Cx<'_>, name: u32) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let requester = &mut qp.requester;
        if qp.state != QpState::Sqd || !requester.draining || requester.base < requester.begun {
            return;
        }
        requester.draining = false;
        if !std::mem::replace(&mut requester.drain_reported, true) {
            self.qp_event(cx, name, AsyncEvent::SqDrained);
        }
    }

    /// The values of a change. `port`: that of the queue pair so far.
    fn check_values(&self, port: Option<u8>, change: &QpChange) -> Result<(), ModifyError> {
        let check = |field, value: Option<u64>, min, max| match value {
            Some(value) if !(min..=max).contains(&value) => Err(ModifyError::OutOfRange { field, value, min, max }),
            _ => Ok(()),
        };
        let byte = |value: Option<u8>| value.map(u64::from);
        let word = |value: Option<u32>| value.map(u64::from);
        check("port", byte(change.port), 1, self.ports.len() as u64)?;
        let at = change.port.or(port).and_then(|number| self.port(number).ok());
        let pkeys = at.map_or(1, |port| port.pkeys.len() as u64);
        check("pkey_index", change.pkey_index.map(u64::from), 0, pkeys - 1)?;
        check("timeout", byte(change.timeout), 0, 31)?;
        check("retry_count", byte(change.retry_count), 0, 7)?;
        check("rnr_retry", byte(change.rnr_retry), 0, 7)?;
        check("rnr_timer", byte(change.rnr_timer), 0, 31)?;
        check("recv_psn", word(change.recv_psn), 0, 0xff_ffff)?;
        check("send_psn", word(change.send_psn), 0, 0xff_ffff)?;
        check("destination", word(change.destination), 0, 0xff_ffff)?;
        check("reads_open", byte(change.reads_open), 0, self.limits.reads_open.into())?;
        check("reads_served", byte(change.reads_served), 0, self.limits.reads_served.into())?;
        if let Some(mtu) = change.path_mtu {
            let max = self.mtu_bytes;
            let (value, legal) = (u64::from(mtu), mtu.is_power_of_two() && (256..=max).contains(&mtu));
            if !legal {
                return Err(ModifyError::OutOfRange { field: "path_mtu", value, min: 256, max: max.into() });
            }
        }
        if let Some(address) = &change.address {
            let own = change.port.or(port).unwrap_or(address.port);
            check("address.port", Some(address.port.into()), own.into(), own.into())?;
            self.check_address(address)?;
        }
        Ok(())
    }

    /// The key of the partition that a queue pair is in; 0: in none.
    pub fn pkey_of(&self, qp: &super::qp::Qp) -> u16 {
        let port = self.ports.get(usize::from(qp.attributes.port.unwrap_or(1)).wrapping_sub(1));
        let key = port.and_then(|port| port.pkeys.get(usize::from(qp.attributes.pkey_index.unwrap_or(0))));
        key.copied().unwrap_or(0)
    }

    /// The values of an address, but for its port.
    pub fn check_address(&self, address: &AddressVector) -> Result<(), ModifyError> {
        let check = |field, value: u64, min: u64, max: u64| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(ModifyError::OutOfRange { field, value, min, max }),
        };
        check("address.dlid", address.dlid.into(), 1, UNICAST_LID_MAX)?;
        // LMC has 3 bits; which paths there are from a port is the subnet manager's business, and changes.
        check("address.source_path_bits", address.source_path_bits.into(), 0, 127)?;
        check("address.service_level", address.service_level.into(), 0, 15)?;
        if let (Some(global), Ok(port)) = (&address.global, self.port(address.port)) {
            let max = port.gids.len() as u64 - 1;
            check("address.global.source_index", global.source_index.into(), 0, max)?;
        }
        Ok(())
    }
}

/// Whether two keys are of one partition, and one of them of a full member (InfiniBand specification,
/// 10.9.3).
pub(super) fn are_one_partition(a: u16, b: u16) -> bool {
    a & 0x7fff == b & 0x7fff && a & 0x7fff != 0 && (a | b) & 0x8000 != 0
}

/// The greatest LID of one port (InfiniBand specification, 4.1.3).
const UNICAST_LID_MAX: u64 = 0xbfff;

/// Takes over what a change names.
fn merge(into: &mut QpChange, change: &QpChange) {
    let QpChange { state: _, current: _, drain_notify, access, pkey_index, port, qkey, address, .. } = *change;
    let QpChange { path_mtu, timeout, retry_count, rnr_retry, recv_psn, reads_open, rnr_timer, .. } = *change;
    let QpChange { send_psn, reads_served, destination, .. } = *change;
    into.drain_notify = drain_notify.or(into.drain_notify);
    into.access = access.or(into.access);
    into.pkey_index = pkey_index.or(into.pkey_index);
    into.port = port.or(into.port);
    into.qkey = qkey.or(into.qkey);
    into.address = address.or(into.address);
    into.path_mtu = path_mtu.or(into.path_mtu);
    into.timeout = timeout.or(into.timeout);
    into.retry_count = retry_count.or(into.retry_count);
    into.rnr_retry = rnr_retry.or(into.rnr_retry);
    into.recv_psn = recv_psn.or(into.recv_psn);
    into.reads_open = reads_open.or(into.reads_open);
    into.rnr_timer = rnr_timer.or(into.rnr_timer);
    into.send_psn = send_psn.or(into.send_psn);
    into.reads_served = reads_served.or(into.reads_served);
    into.destination = destination.or(into.destination);
}

impl super::qp::Qp {
    /// After progress, and when the limits change, all retries are left.
    pub fn restore_retries(&mut self) {
        self.requester.retries_left = self.attributes.retry_count.unwrap_or(0);
        self.requester.rnr_left = self.attributes.rnr_retry.unwrap_or(0);
    }

    /// The port that it sends from.
    pub fn port(&self) -> u8 {
        match self.kind {
            QpKind::Ud => self.attributes.port.unwrap_or(1),
            _ => self.attributes.address.map(|address| address.port).or(self.attributes.port).unwrap_or(1),
        }
    }
}
