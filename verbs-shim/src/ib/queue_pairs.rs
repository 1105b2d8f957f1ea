//! Changing and querying queue pairs and shared receive queues.

use rdma_core_sys::{IBV_QP_CAP, IBV_QP_STATE};

use super::attributes::{check_values, state, to_raw};
use super::names::Entry;
use super::{Handle, IbDevice, QpEntry, modify_error};
use crate::contract::{Access, Attrs, CqId, Kind, ModifyError, QpChange, QpId, QpKind, QpState, check_transition};
use crate::ffi::completion;

/// Its sends and receives that may be open: not every driver reports the rounded-up sizes at making (rxe).
pub(super) fn depths(handle: &Handle, entry: &QpEntry) -> (u32, u32) {
    let reported =
        handle.query_qp(&entry.raw, IBV_QP_CAP).map_or((0, 0), |attr| (attr.cap.max_send_wr, attr.cap.max_recv_wr));
    (reported.0.max(entry.init.caps.send_depth), reported.1.max(entry.init.caps.recv_depth))
}

impl IbDevice {
    pub(super) fn qp(&self, qp: QpId) -> Result<&QpEntry, ModifyError> {
        self.qps.get(qp.0).ok_or(ModifyError::Unknown { what: Kind::Qp, name: qp.0 })
    }

    /// The state that the device reports.
    pub(super) fn state_now(&self, entry: &QpEntry) -> Result<QpState, ModifyError> {
        if self.gone {
            return Err(ModifyError::DeviceGone);
        }
        let attr = self.handle.query_qp(&entry.raw, IBV_QP_STATE).map_err(modify_error)?;
        Ok(state(attr.qp_state))
    }

    /// The state as last set is trusted if the change is legal from it: a query takes as long as the change
    /// itself. The state of XRC targets is queried, as others change it too; a change without a state starts
    /// from the current one.
    pub(super) fn change_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), ModifyError> {
        let entry = self.qp(qp)?;
        if self.gone {
            return Err(ModifyError::DeviceGone);
        }
        let estimated = entry.state;
        let mut refused = None;
        if entry.init.kind != QpKind::XrcTarget && change.state.is_some() {
            match self.change_from(qp, estimated, change) {
                // It may have gone on by itself.
                Err(why @ (ModifyError::Transition(_) | ModifyError::System { code: libc::EINVAL })) => {
                    refused = Some(why)
                }
                other => return other,
            }
        }
        let from = self.state_now(self.qp(qp)?)?;
        match refused {
            Some(why) if from == estimated => Err(why),
            _ => self.change_from(qp, from, change),
        }
    }

    fn change_from(&mut self, qp: QpId, from: QpState, change: &QpChange) -> Result<(), ModifyError> {
        let entry = self.qp(qp)?;
        check_transition(entry.init.kind, from, change)?;
        check_values(change, &self.limits)?;
        let to = change.state.unwrap_or(from);
        if (from, to) == (QpState::Reset, QpState::Error) {
            self.init_before_error(entry)?;
        }
        self.apply(entry, change, to)?;
        let (number, send_cq, recv_cq) = (entry.number, entry.init.send_cq, entry.init.recv_cq);
        if let Some(entry) = self.qps.get_mut(qp.0) {
            entry.state = to;
            entry.set = if to == QpState::Reset { Attrs::NONE } else { entry.set | change.attrs() };
        }
        if to == QpState::Reset {
            self.sweep(number, send_cq, recv_cq);
        }
        Ok(())
    }

    /// From RESET, Linux lets a queue pair go to INIT only (`ib_modify_qp_is_ok`); the specification lets it
    /// go to ERR from every state (10.3.1). So it goes by way of INIT, with values that are never used.
    fn init_before_error(&self, entry: &QpEntry) -> Result<(), ModifyError> {
        let plain = QpChange { pkey_index: Some(0), port: Some(1), ..QpChange::default() };
        let init = match entry.init.kind {
            QpKind::Ud => QpChange { qkey: Some(0), ..plain },
            _ => QpChange { access: Some(Access::default()), ..plain },
        };
        self.apply(entry, &init, QpState::Init)
    }

    fn apply(&self, entry: &QpEntry, change: &QpChange, to: QpState) -> Result<(), ModifyError> {
        let (mut raw, mask) = to_raw(change, to);
        self.handle.modify_qp(&entry.raw, &mut raw, mask).map_err(modify_error)
    }

    /// Takes the completions of a queue pair that is gone or was reset out of its queues. Some providers do
    /// it themselves; rxe leaves them there, and a completion would name a queue pair that is no more, or is
    /// another one.
    pub(super) fn sweep(&mut self, number: u32, send_cq: Option<CqId>, recv_cq: Option<CqId>) {
        let both = [send_cq, recv_cq.filter(|recv_cq| send_cq != Some(*recv_cq))];
        for cq in both.into_iter().flatten() {
            let Some(Entry { raw, known }) = self.cqs.get_mut(cq.0) else { continue };
            while let Ok(taken @ [_, ..]) = self.scratch.poll(raw, usize::MAX) {
                known.kept.extend(taken.iter().map(completion));
            }
            known.kept.retain(|completion| completion.qp != number);
            known.refresh();
        }
    }
}
