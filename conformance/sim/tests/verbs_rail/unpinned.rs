//! Payload memory that is not pinned.

use rerail_core::ids::PeerId;
use rerail_linux::auth::Secret;
use rerail_linux::rail::verbs::{OnDemandUse, VerbsOptions};
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::{HcaOptions, HostCost};
use rerail_verbs::{Offers, OnDemand};

use crate::cluster::{Cluster, options};

const COST: HostCost =
    HostCost { post_ns: 0, pio_bytes_max: 0, pio_bytes_per_second: 0, register_ns: 500, register_page_ns: 100 };

/// A write from memory to memory of two processes: bytes that it has pinned at both, and what registering for
/// the peer has kept its processor.
fn pinned_by(on_demand: OnDemandUse, offers: Offers) -> ([u64; 2], u64) {
    let options = VerbsOptions { on_demand, ..options(2) };
    let hca = HcaOptions { cost: COST, offers, ..HcaOptions::default() };
    let mut cluster = Cluster::with([options.clone(), options], |_| Secret::new([7; 32]), hca);
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    let pinned =
        |cluster: &Cluster, host: usize| cluster.fabric.borrow().objects(cluster.hosts[host].hca).registered_bytes;
    let slabs = [pinned(&cluster, 0), pinned(&cluster, 1)];
    cluster.fabric.borrow_mut().take_spent_ns(1);
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = cluster.hosts[1].register(piece, true).unwrap();
    let took = cluster.fabric.borrow_mut().take_spent_ns(1);
    let id = cluster.hosts[0].write(PeerId(1), key, 3, 4096, 4096);
    let more = [0, 1].map(|host| pinned(&cluster, host) - slabs[host]);
    cluster.until(|cluster| cluster.hosts[0].is_done(id));
    cluster.hosts[1].rail.deregister(key);
    (more, took)
}

/// Nothing but the rail's own buffers is pinned, and registering costs no pages; else all is as it was.
#[test]
fn payload_is_not_pinned() {
    let reads_only = OnDemand { write: false, ..OnDemand::WHOLE };
    let less = Offers { on_demand: reads_only, ..Offers::WHOLE };
    for (on_demand, offers, pinned) in [
        (OnDemandUse::Always, Offers::WHOLE, false),
        (OnDemandUse::WhereOffered, Offers::WHOLE, false),
        (OnDemandUse::WhereOffered, less, true),
        (OnDemandUse::Never, Offers::WHOLE, true),
    ] {
        let wanted = if pinned { ([4096; 2], 600) } else { ([0; 2], 500) };
        assert_eq!(pinned_by(on_demand, offers), wanted, "{on_demand:?}");
    }
}
