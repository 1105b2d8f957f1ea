//! Attributes of queue pairs and addresses, from the contract's form into the library's and back.

use std::ffi::c_int;

use rdma_core_sys::*;

use crate::Gid;
use crate::contract::{
    Access, AddressVector, Attr, Attrs, GlobalRoute, Limits, ModifyError, QpChange, QpKind, QpState,
};

/// Checks values against the widths of their fields and the device's limits.
pub(super) fn check_values(change: &QpChange, limits: &Limits) -> Result<(), ModifyError> {
    const BITS_24: u64 = (1 << 24) - 1;
    let check = |field, value: Option<u64>, min: u64, max: u64| match value {
        Some(value) if !(min..=max).contains(&value) => Err(ModifyError::OutOfRange { field, value, min, max }),
        _ => Ok(()),
    };
    check("port", change.port.map(u64::from), 1, limits.ports.into())?;
    check("address", change.address.map(|address| address.port.into()), 1, limits.ports.into())?;
    check("destination", change.destination.map(u64::from), 0, BITS_24)?;
    check("recv_psn", change.recv_psn.map(u64::from), 0, BITS_24)?;
    check("send_psn", change.send_psn.map(u64::from), 0, BITS_24)?;
    check("rnr_timer", change.rnr_timer.map(u64::from), 0, 31)?;
    check("timeout", change.timeout.map(u64::from), 0, 31)?;
    check("retry_count", change.retry_count.map(u64::from), 0, 7)?;
    check("rnr_retry", change.rnr_retry.map(u64::from), 0, 7)?;
    check("reads_open", change.reads_open.map(u64::from), 0, limits.reads_open.into())?;
    check("reads_served", change.reads_served.map(u64::from), 0, limits.reads_served.into())?;
    match change.path_mtu {
        Some(mtu) if mtu_code(mtu).is_none() => {
            Err(ModifyError::OutOfRange { field: "path_mtu", value: mtu.into(), min: 256, max: 4096 })
        }
        _ => Ok(()),
    }
}

/// A change as `ibv_modify_qp` takes it, with its mask.
pub(super) fn to_raw(change: &QpChange, to: QpState) -> (ibv_qp_attr, c_int) {
    let mut raw = ibv_qp_attr { qp_state: state_code(to), ..ibv_qp_attr::default() };
    let mask = change.attrs().iter().fold(IBV_QP_STATE, |mask, attr| mask | bit(attr));
    macro_rules! set {
        ($($field:ident = $value:expr;)*) => { $(if let Some(value) = $value { raw.$field = value; })* };
    }
    set! {
        cur_qp_state = change.current.map(state_code);
        en_sqd_async_notify = change.drain_notify.map(u8::from);
        qp_access_flags = change.access.map(access_bits);
        pkey_index = change.pkey_index;
        port_num = change.port;
        qkey = change.qkey;
        ah_attr = change.address.as_ref().map(address_to_raw);
        path_mtu = change.path_mtu.and_then(mtu_code);
        timeout = change.timeout;
        retry_cnt = change.retry_count;
        rnr_retry = change.rnr_retry;
        rq_psn = change.recv_psn;
        max_rd_atomic = change.reads_open;
        min_rnr_timer = change.rnr_timer;
        sq_psn = change.send_psn;
        max_dest_rd_atomic = change.reads_served;
        dest_qp_num = change.destination;
    }
    (raw, mask)
}

/// The device's values of the attributes that were set.
pub(super) fn from_raw(raw: &ibv_qp_attr, set: Attrs) -> QpChange {
    fn told<T>(set: Attrs, attr: Attr, value: T) -> Option<T> {
        set.contains(attr).then_some(value)
    }
    QpChange {
        state: None,
        current: None,
        drain_notify: None,
        access: told(set, Attr::Access, access(raw.qp_access_flags)),
        pkey_index: told(set, Attr::PkeyIndex, raw.pkey_index),
        port: told(set, Attr::Port, raw.port_num),
        qkey: told(set, Attr::Qkey, raw.qkey),
        address: told(set, Attr::AddressVector, address(&raw.ah_attr)),
        path_mtu: told(set, Attr::PathMtu, mtu_bytes(raw.path_mtu)).flatten(),
        timeout: told(set, Attr::Timeout, raw.timeout),
        retry_count: told(set, Attr::RetryCount, raw.retry_cnt),
        rnr_retry: told(set, Attr::RnrRetry, raw.rnr_retry),
        recv_psn: told(set, Attr::RecvPsn, raw.rq_psn),
        reads_open: told(set, Attr::ReadsOpen, raw.max_rd_atomic),
        rnr_timer: told(set, Attr::RnrTimer, raw.min_rnr_timer),
        send_psn: told(set, Attr::SendPsn, raw.sq_psn),
        reads_served: told(set, Attr::ReadsServed, raw.max_dest_rd_atomic),
        destination: told(set, Attr::DestinationQp, raw.dest_qp_num),
    }
}

/// All bits of a query.
pub(super) fn every_bit() -> c_int {
    Attr::ALL.into_iter().fold(IBV_QP_STATE | IBV_QP_CAP, |mask, attr| mask | bit(attr))
}

const fn bit(attr: Attr) -> c_int {
    match attr {
        Attr::CurrentState => IBV_QP_CUR_STATE,
        Attr::DrainNotify => IBV_QP_EN_SQD_ASYNC_NOTIFY,
        Attr::Access => IBV_QP_ACCESS_FLAGS,
        Attr::PkeyIndex => IBV_QP_PKEY_INDEX,
        Attr::Port => IBV_QP_PORT,
        Attr::Qkey => IBV_QP_QKEY,
        Attr::AddressVector => IBV_QP_AV,
        Attr::PathMtu => IBV_QP_PATH_MTU,
        Attr::Timeout => IBV_QP_TIMEOUT,
        Attr::RetryCount => IBV_QP_RETRY_CNT,
        Attr::RnrRetry => IBV_QP_RNR_RETRY,
        Attr::RecvPsn => IBV_QP_RQ_PSN,
        Attr::ReadsOpen => IBV_QP_MAX_QP_RD_ATOMIC,
        Attr::RnrTimer => IBV_QP_MIN_RNR_TIMER,
        Attr::SendPsn => IBV_QP_SQ_PSN,
        Attr::ReadsServed => IBV_QP_MAX_DEST_RD_ATOMIC,
        Attr::DestinationQp => IBV_QP_DEST_QPN,
    }
}

/// An address for a handle or a queue pair.
pub(super) fn address_to_raw(address: &AddressVector) -> ibv_ah_attr {
    let route = address.global.unwrap_or_default();
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: route.dgid.0 },
            flow_label: 0,
            sgid_index: route.source_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        },
        dlid: address.dlid,
        sl: address.service_level,
        src_path_bits: address.source_path_bits,
        static_rate: 0,
        is_global: address.global.is_some().into(),
        port_num: address.port,
    }
}

fn address(raw: &ibv_ah_attr) -> AddressVector {
    AddressVector {
        port: raw.port_num,
        dlid: raw.dlid,
        source_path_bits: raw.src_path_bits,
        service_level: raw.sl,
        global: (raw.is_global != 0).then_some(GlobalRoute {
            dgid: Gid(raw.grh.dgid.raw),
            source_index: raw.grh.sgid_index,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
        }),
    }
}

pub(super) fn access_bits(access: Access) -> u32 {
    let bit = |allowed: bool, bit| if allowed { bit } else { 0 };
    bit(access.local_write, IBV_ACCESS_LOCAL_WRITE)
        | bit(access.remote_write, IBV_ACCESS_REMOTE_WRITE)
        | bit(access.remote_read, IBV_ACCESS_REMOTE_READ)
        | bit(access.remote_atomic, IBV_ACCESS_REMOTE_ATOMIC)
}

fn access(bits: u32) -> Access {
    Access {
        local_write: bits & IBV_ACCESS_LOCAL_WRITE != 0,
        remote_write: bits & IBV_ACCESS_REMOTE_WRITE != 0,
        remote_read: bits & IBV_ACCESS_REMOTE_READ != 0,
        remote_atomic: bits & IBV_ACCESS_REMOTE_ATOMIC != 0,
        on_demand: false,
    }
}

fn mtu_code(bytes: u16) -> Option<ibv_mtu> {
    match bytes {
        256 => Some(IBV_MTU_256),
        512 => Some(IBV_MTU_512),
        1024 => Some(IBV_MTU_1024),
        2048 => Some(IBV_MTU_2048),
        4096 => Some(IBV_MTU_4096),
        _ => None,
    }
}

fn mtu_bytes(code: ibv_mtu) -> Option<u16> {
    [256, 512, 1024, 2048, 4096].into_iter().find(|bytes| mtu_code(*bytes) == Some(code))
}

pub(super) const fn kind_code(kind: QpKind) -> ibv_qp_type {
    match kind {
        QpKind::Rc => IBV_QPT_RC,
        QpKind::Ud => IBV_QPT_UD,
        QpKind::XrcInitiator => IBV_QPT_XRC_SEND,
        QpKind::XrcTarget => IBV_QPT_XRC_RECV,
    }
}

pub(super) const fn state_code(state: QpState) -> ibv_qp_state {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        QpState::Error => IBV_QPS_ERR,
    }
}

/// A number that is no state is taken for the one in which nothing works.
pub(super) fn state(code: ibv_qp_state) -> QpState {
    QpState::ALL.into_iter().find(|state| state_code(*state) == code).unwrap_or(QpState::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every attribute has a bit of its own, and a query returns the values set.
    #[test]
    fn what_is_set_comes_back() {
        let bits: std::collections::BTreeSet<_> = Attr::ALL.into_iter().map(bit).collect();
        assert_eq!(bits.len(), Attr::ALL.len());
        let route = GlobalRoute { dgid: Gid([7; 16]), source_index: 3, hop_limit: 64, traffic_class: 104 };
        let change = QpChange {
            state: None,
            current: None,
            drain_notify: None,
            access: Some(Access { remote_atomic: false, ..Access::ALL }),
            pkey_index: Some(1),
            port: Some(2),
            qkey: Some(3),
            address: Some(AddressVector {
                port: 2,
                dlid: 4,
                source_path_bits: 5,
                service_level: 6,
                global: Some(route),
            }),
            path_mtu: Some(2048),
            timeout: Some(7),
            retry_count: Some(6),
            rnr_retry: Some(5),
            recv_psn: Some(8),
            reads_open: Some(9),
            rnr_timer: Some(10),
            send_psn: Some(11),
            reads_served: Some(12),
            destination: Some(13),
        };
        let (raw, mask) = to_raw(&change, QpState::Rtr);
        assert_eq!(raw.qp_state, IBV_QPS_RTR);
        assert_eq!(mask, every_bit() & !IBV_QP_CAP & !IBV_QP_CUR_STATE & !IBV_QP_EN_SQD_ASYNC_NOTIFY);
        assert_eq!(from_raw(&raw, change.attrs()), change);
        assert_eq!(from_raw(&raw, Attrs::NONE), QpChange::default());
    }
}
