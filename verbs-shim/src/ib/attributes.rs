//! Attributes of queue pairs and addresses, from the contract's form into the library's and back.

use std::convert::identity;
use std::ffi::c_int;

use rdma_core_sys::*;

use crate::Gid;
use crate::contract::{
    Access, AddressVector, Attr, Attrs, GlobalRoute, Limits, ModifyError, QpChange, QpKind, QpState,
};
use crate::port::mtu_bytes;

/// Checks values against the widths of their fields and the device's limits.
pub(super) fn check_values(change: &QpChange, limits: &Limits) -> Result<(), ModifyError> {
    const BITS_24: u32 = (1 << 24) - 1;
    let check = |field, value: Option<u64>, min: u64, max: u64| match value {
        Some(value) if !(min..=max).contains(&value) => Err(ModifyError::OutOfRange { field, value, min, max }),
        _ => Ok(()),
    };
    macro_rules! within {
        ($($field:ident: $min:literal, $max:expr;)*) => {
            $(check(stringify!($field), change.$field.map(u64::from), $min, u64::from($max))?;)*
        };
    }
    within! { port: 1, limits.ports; }
    check("address", change.address.map(|address| address.port.into()), 1, limits.ports.into())?;
    within! {
        destination: 0, BITS_24;
        recv_psn: 0, BITS_24;
        send_psn: 0, BITS_24;
        rnr_timer: 0, 31u8;
        timeout: 0, 31u8;
        retry_count: 0, 7u8;
        rnr_retry: 0, 7u8;
        reads_open: 0, limits.reads_open;
        reads_served: 0, limits.reads_served;
    }
    match change.path_mtu {
        Some(mtu) if mtu_code(mtu).is_none() => {
            Err(ModifyError::OutOfRange { field: "path_mtu", value: mtu.into(), min: 256, max: 4096 })
        }
        _ => Ok(()),
    }
}

/// The attributes that are set and queried, in both forms: the attribute with its field in the contract and
/// in the library, and how a value gets from the one to the other and back.
macro_rules! both_forms {
    ($($attr:ident: $field:ident, $raw:ident, $to_raw:expr, $from_raw:expr;)*) => {
        /// A change as `ibv_modify_qp` takes it, with its mask.
        pub(super) fn to_raw(change: &QpChange, to: QpState) -> (ibv_qp_attr, c_int) {
            let mut raw = ibv_qp_attr { qp_state: state_code(to), ..ibv_qp_attr::default() };
            raw.cur_qp_state = change.current.map_or(0, state_code);
            raw.en_sqd_async_notify = change.drain_notify.map_or(0, u8::from);
            $(raw.$raw = change.$field.map_or(raw.$raw, $to_raw);)*
            (raw, IBV_QP_STATE | change.attrs().mask())
        }

        /// The device's values of the attributes that were set.
        pub(super) fn from_raw(raw: &ibv_qp_attr, set: Attrs) -> QpChange {
            let mut change = QpChange::default();
            $(if set.contains(Attr::$attr) {
                change.$field = $from_raw(raw.$raw).into();
            })*
            change
        }
    };
}

both_forms! {
    Access: access, qp_access_flags, access_bits, access;
    PkeyIndex: pkey_index, pkey_index, identity, identity;
    Port: port, port_num, identity, identity;
    Qkey: qkey, qkey, identity, identity;
    AddressVector: address, ah_attr, |address| address_to_raw(&address), address;
    PathMtu: path_mtu, path_mtu, |bytes| mtu_code(bytes).unwrap_or_default(), mtu_bytes;
    Timeout: timeout, timeout, identity, identity;
    RetryCount: retry_count, retry_cnt, identity, identity;
    RnrRetry: rnr_retry, rnr_retry, identity, identity;
    RecvPsn: recv_psn, rq_psn, identity, identity;
    ReadsOpen: reads_open, max_rd_atomic, identity, identity;
    RnrTimer: rnr_timer, min_rnr_timer, identity, identity;
    SendPsn: send_psn, sq_psn, identity, identity;
    ReadsServed: reads_served, max_dest_rd_atomic, identity, identity;
    DestinationQp: destination, dest_qp_num, identity, identity;
}

/// All bits of a query.
pub(super) fn every_bit() -> c_int {
    IBV_QP_STATE | IBV_QP_CAP | Attrs::of(&Attr::ALL).mask()
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

fn address(raw: ibv_ah_attr) -> AddressVector {
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
    (IBV_MTU_256..=IBV_MTU_4096).find(|code| mtu_bytes(*code) == Some(bytes))
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

    /// A set of attributes is a mask of the library's.
    #[test]
    fn attributes_have_the_bits_of_the_library() {
        let bits = [
            (Attr::CurrentState, IBV_QP_CUR_STATE),
            (Attr::DrainNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY),
            (Attr::Access, IBV_QP_ACCESS_FLAGS),
            (Attr::PkeyIndex, IBV_QP_PKEY_INDEX),
            (Attr::Port, IBV_QP_PORT),
            (Attr::Qkey, IBV_QP_QKEY),
            (Attr::AddressVector, IBV_QP_AV),
            (Attr::PathMtu, IBV_QP_PATH_MTU),
            (Attr::Timeout, IBV_QP_TIMEOUT),
            (Attr::RetryCount, IBV_QP_RETRY_CNT),
            (Attr::RnrRetry, IBV_QP_RNR_RETRY),
            (Attr::RecvPsn, IBV_QP_RQ_PSN),
            (Attr::ReadsOpen, IBV_QP_MAX_QP_RD_ATOMIC),
            (Attr::RnrTimer, IBV_QP_MIN_RNR_TIMER),
            (Attr::SendPsn, IBV_QP_SQ_PSN),
            (Attr::ReadsServed, IBV_QP_MAX_DEST_RD_ATOMIC),
            (Attr::DestinationQp, IBV_QP_DEST_QPN),
        ];
        assert_eq!(bits.map(|(attr, _)| attr), Attr::ALL);
        for (attr, bit) in bits {
            assert_eq!(Attrs::of(&[attr]).mask(), bit, "{attr:?}");
        }
    }

    /// A query returns the values set.
    #[test]
    fn queue_pair_attributes_round_trip() {
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
