//! Optional features of devices: on-demand paging, relaxed ordering, moderation of completion queues.

use rdma_core_sys::*;

use super::device::{registered, registered_as};
use super::fake::objects::{reset, script};
use super::fake::{machine, set};
use super::open;
use crate::contract::*;
use crate::{IbDevice, Moderation, Offers, OnDemand};

const ALL: u32 = IBV_ODP_SUPPORT_SEND
    | IBV_ODP_SUPPORT_RECV
    | IBV_ODP_SUPPORT_WRITE
    | IBV_ODP_SUPPORT_READ
    | IBV_ODP_SUPPORT_SRQ_RECV;

fn device(name: &str, on_demand: u32) -> IbDevice {
    reset();
    set(|machine| machine.on_demand = on_demand);
    IbDevice::new(open(name)).unwrap()
}

#[test]
fn on_demand_registration_is_used_if_offered() {
    let flags = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_RELAXED_ORDERING;
    let on_demand = Access { on_demand: true, ..Access::LOCAL };
    let mut device = device("mlx9_0", ALL);
    let xrc = OnDemand { write: true, ..OnDemand::default() };
    assert_eq!((device.offers().on_demand, device.offers().on_demand_xrc), (OnDemand::WHOLE, xrc));
    device.set_relaxed_ordering(true);
    assert_eq!(registered_as(&mut device, on_demand).unwrap() & flags, flags);
    // One by one: the rail's own buffers are pinned.
    assert_eq!(registered(&mut device) & flags, IBV_ACCESS_RELAXED_ORDERING);
    device.set_relaxed_ordering(false);
    assert_eq!(registered(&mut device) & flags, 0);
    drop(device);
    let device = self::device("mlx9_0", ALL & !IBV_ODP_SUPPORT_SEND & !IBV_ODP_SUPPORT_READ);
    let missing_features: Vec<_> = device.offers().on_demand.missing_features(&OnDemand::WHOLE).collect();
    assert_eq!(missing_features, ["sends", "remote reads"]);
    assert_eq!(device.offers().on_demand.missing_features(&OnDemand { write: true, ..OnDemand::default() }).count(), 0);
    set(|machine| machine.on_demand = 0);
}

#[test]
fn completion_queues_are_moderated_as_far_as_is_offered() {
    let mut device = device("mlx9_0", 0);
    let cq = device.create_cq(&CqInit { depth: 8 }).unwrap();
    device.moderate_cq(cq, Moderation { count: 128, period_us: 16 }).unwrap();
    assert_eq!(script(|script| script.moderated.take()), Some((128, 16)));
    for (count, period_us, field, value, max) in [(129, 0, "count", 129, 128), (0, 17, "period_us", 17, 16)] {
        let refused = device.moderate_cq(cq, Moderation { count, period_us });
        assert_eq!(refused, Err(ModifyError::OutOfRange { field, value, min: 0, max }));
    }
    device.destroy_cq(cq).unwrap();
    let gone = device.moderate_cq(cq, Moderation { count: 1, period_us: 1 });
    assert_eq!(gone, Err(ModifyError::Unknown { what: Kind::Cq, name: cq.0 }));
    assert_eq!(script(|script| script.moderated), None);
}

/// A library or a driver that is too old for the query offers nothing, and reports that.
#[test]
fn unoffered_feature_is_refused_with_its_name() {
    let mut device = device("rxe9", ALL);
    assert_eq!((device.offers(), machine().on_demand), (Offers::default(), ALL));
    let on_demand = Access { on_demand: true, ..Access::LOCAL };
    assert_eq!(registered_as(&mut device, on_demand), Err(RegisterError::NoOnDemand));
    let cq = device.create_cq(&CqInit { depth: 8 }).unwrap();
    let refused = device.moderate_cq(cq, Moderation { count: 4, period_us: 0 });
    assert_eq!(refused, Err(ModifyError::OutOfRange { field: "count", value: 4, min: 0, max: 0 }));
    // Its default is no moderation.
    device.moderate_cq(cq, Moderation { count: 0, period_us: 0 }).unwrap();
    assert_eq!(script(|script| script.moderated), None);
}
