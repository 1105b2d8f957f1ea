//! The HCA keeps the wires busy, and adds nothing to them.

use rerail_core::time::Time;
use rerail_verbs::contract::{QpKind, SendOp};

use super::fixture::{ends_of, ok, pair_with};
use crate::hca::HcaOptions;
use crate::hca::qp::Qp;
use crate::net::BusModel;
use crate::trace::Trace;

/// 64 writes of 64 KiB over a link of 1 GB/s: every packet of 2048 bytes takes 2072 bytes of it (BTH, and
/// what the link adds), the first of a message 16 more (RETH).
#[test]
fn a_window_of_writes_fills_the_link() {
    let pair = pair_with(Trace::off(), HcaOptions::default(), BusModel::default());
    let [mut a, b] = pair.ends(QpKind::Rc, |tuning| (tuning.mtu, tuning.timeout) = (2048, 14));
    for id in 0..64 {
        a.post(id, SendOp::Write { to: b.remote(0), immediate: None }, 0, 65_536);
    }
    let mut sent = Vec::new();
    let mut end = Time(0);
    while sent.len() < 64 {
        end = pair.fabric.borrow().next_event().unwrap();
        pair.fabric.borrow_mut().advance(end);
        sent.extend(a.sent());
    }
    assert_eq!(ends_of(&sent), (0..64).map(ok).collect::<Vec<_>>());
    let wire = 64 * (32 * 2072 + 16);
    // Beside that, one way there and the acknowledgment's way back.
    assert!((wire..wire + 10_000).contains(&end.0), "{end:?} against {wire}");
}

/// What an idle queue pair costs the simulator: simulations have many.
#[test]
fn a_queue_pair_is_not_large() {
    let bytes = std::mem::size_of::<Qp>();
    assert!(bytes <= 1024, "{bytes} bytes");
}
