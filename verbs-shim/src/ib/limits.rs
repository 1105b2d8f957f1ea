//! The limits of a device, in the contract's form.

use rdma_core_sys::{IBV_ATOMIC_NONE, IBV_DEVICE_XRC, IBV_QPT_RC, ibv_device_attr, ibv_qp_cap};

use crate::contract::Limits;
use crate::ffi::{Channel, Handle, QpParts};

/// The inline lengths tried, longest first: verbs has no attribute for the limit.
const INLINE_TRIED: [u32; 9] = [1024, 512, 256, 220, 128, 92, 64, 32, 16];

pub(super) fn limits(handle: &Handle, channel: &Channel, attr: &ibv_device_attr) -> Limits {
    // Limits are signed in C. No device has a negative one; from a driver it would mean "none of these".
    let limit = |value: i32| u32::try_from(value).unwrap_or(0);
    let narrow = |value: i32| u8::try_from(limit(value).min(255)).unwrap_or(u8::MAX);
    let srqs = limit(attr.max_srq);
    // One number for sends, reads and receives: the least of them; 0 means that the driver gives no value.
    let reported = [attr.max_sge, attr.max_sge_rd, if srqs > 0 { attr.max_srq_sge } else { 0 }];
    let sges = reported.into_iter().map(limit).filter(|sges| *sges > 0).min().unwrap_or(1);
    Limits {
        ports: attr.phys_port_cnt,
        qps: limit(attr.max_qp),
        queue_depth: limit(attr.max_qp_wr),
        sges,
        cqs: limit(attr.max_cq),
        cq_depth: limit(attr.max_cqe),
        mrs: limit(attr.max_mr),
        mr_bytes: attr.max_mr_size,
        pds: limit(attr.max_pd),
        srqs,
        srq_depth: limit(attr.max_srq_wr),
        ahs: limit(attr.max_ah),
        reads_served: narrow(attr.max_qp_rd_atom),
        reads_open: narrow(attr.max_qp_init_rd_atom),
        inline_bytes: inline_bytes(handle, channel),
        atomics: attr.atomic_cap != IBV_ATOMIC_NONE,
        xrc: attr.device_cap_flags & IBV_DEVICE_XRC != 0,
        // Memory has its own address. Providers write small receives to the address in the request, by the
        // processor and as a pointer: data inside the completion (mlx5 by default, hns where it is configured
        // so). Others look keys up by addresses of the process alone (hfi1, qib: rdmavt).
        iova: false,
    }
}

/// Tries queue pairs until the device makes one, and estimates its inline length: some take any length and
/// give less, or nothing (rdmavt, pvrdma; hns clamps). Where not even that can be made, none.
fn inline_bytes(handle: &Handle, channel: &Channel) -> u32 {
    let (Ok(pd), Ok(cq)) = (handle.alloc_pd(), handle.create_cq(1, channel, 0)) else { return 0 };
    let given = |bytes: u32| {
        let caps =
            ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: bytes };
        let parts = QpParts {
            kind: IBV_QPT_RC,
            pd: Some(&pd),
            send_cq: Some(&cq),
            recv_cq: Some(&cq),
            srq: None,
            domain: None,
            caps,
            signal_all: false,
            name: 0,
        };
        let (qp, given, _) = handle.create_qp(&parts).ok()?;
        handle.destroy(qp).ok().map(|()| bytes.min(given.max_inline_data))
    };
    let found = INLINE_TRIED.into_iter().find_map(given).unwrap_or(0);
    // Errors are ignored; the kernel releases the rest with the device.
    let _ = (handle.destroy(cq), handle.destroy(pd));
    found
}
