//! Options against each other, against devices, and the memory that they need.

use super::*;

const LIMITS: Limits = Limits {
    ports: 1,
    qps: 100,
    queue_depth: 100,
    sges: 4,
    cqs: 1,
    cq_depth: 1000,
    mrs: 100,
    mr_bytes: 1 << 30,
    pds: 1,
    srqs: 4,
    srq_depth: 200,
    ahs: 100,
    reads_served: 4,
    reads_open: 4,
    inline_bytes: 64,
    atomics: false,
    xrc: false,
    iova: true,
};

#[test]
fn buffer_layout_holds_every_buffer_once() {
    let options = VerbsOptions { sends: 3, receives: 5, datagrams: 7, ..VerbsOptions::new(1000, 0) };
    let layout = options.layout();
    assert_eq!((layout.message % 64, layout.datagram % 64), (0, 0));
    assert!(layout.message >= u64::from(options.message_bytes()));
    assert_eq!(layout.bytes, 8 * layout.message + (7 + u64::from(DATAGRAM_SENDS)) * layout.datagram);
    assert_eq!(layout.sends, 5 * layout.message);
    assert_eq!(options.memory_bytes(), layout.bytes + 49 * 1000);
    assert_eq!(layout.cq_depth, 3 + 5 + 7 + DATAGRAM_SENDS);
    assert_eq!(options.receive_buffers(), [(options.message_bytes(), 5)], "by RC there is one queue");
}

fn with_sizes(sizes: &[u32]) -> VerbsOptions {
    let xrc = XrcOptions { sizes: SrqSizes::new(sizes), ..XrcOptions::new(3, [1, 2]) };
    assert!(xrc.sizes.is_some());
    VerbsOptions { xrc: Some(xrc), ..VerbsOptions::new(2, 0) }
}

/// V-17: several queues take no more than one did, each has as many buffers as the others, and every
/// completion has room.
#[test]
fn queues_of_all_sizes_share_one_budget() {
    let one = with_sizes(&[]);
    let message = one.layout().message;
    assert_eq!(one.receive_buffers(), [(one.message_bytes(), 128)]);
    let paper = VerbsOptions { xrc: Some(XrcOptions::new(3, [1, 2])), ..one.clone() };
    let buffers = paper.receive_buffers();
    let sizes: Vec<u32> = buffers.iter().map(|(bytes, _)| *bytes).collect();
    assert_eq!(sizes, [256, 512, 1024, 2048, 4096, 8192, paper.message_bytes()]);
    let (row, count) = (16_128 + message, buffers[0].1);
    assert!(buffers.iter().all(|(_, each)| *each == count));
    assert!(u64::from(count) * row <= 128 * message && u64::from(count + 1) * row > 128 * message);
    assert!(paper.memory_bytes() <= one.memory_bytes());
    assert_eq!(paper.layout().cq_depth, 64 + 7 * count + 64 + DATAGRAM_SENDS);
    let layout = paper.layout();
    let ends: Vec<u64> = layout.queues.iter().map(Queue::end).collect();
    assert!(layout.queues.iter().skip(1).zip(&ends).all(|(queue, end)| queue.at == *end));
    assert_eq!(layout.sends, ends[6]);
    let small = VerbsOptions { eager_bytes_max: 1024, segment_bytes: 1024, ..paper };
    let sizes: Vec<u32> = small.receive_buffers().iter().map(|(bytes, _)| *bytes).collect();
    assert_eq!(sizes, [256, 512, 1024, 1280], "those that are smaller than the longest message");
    assert_eq!(with_sizes(&[300]).layout().queues[0].stride, 320, "buffers start at cache lines");
}

#[test]
fn options_that_do_not_fit_are_named() {
    let good = VerbsOptions::new(2, 0);
    assert_eq!(good.check(&LIMITS), Ok(()));
    for (field, options) in [
        ("peers", VerbsOptions { peers: 0, ..good.clone() }),
        ("segment_bytes", VerbsOptions { segment_bytes: 0, ..good.clone() }),
        ("posts_max", VerbsOptions { posts_max: 101, ..good.clone() }),
        ("posts_max", VerbsOptions { posts_max: 1, ..good.clone() }),
        ("sends", VerbsOptions { sends: 0, ..good.clone() }),
        ("receives", VerbsOptions { receives: 201, ..good.clone() }),
        ("datagrams", VerbsOptions { datagrams: 0, ..good.clone() }),
        ("sends + receives + datagrams", VerbsOptions { sends: 1000, ..good.clone() }),
        ("memory_bytes", VerbsOptions { segment_bytes: 1 << 30, ..good.clone() }),
        ("reads", VerbsOptions { reads: 0, ..good.clone() }),
        ("ack_timeout", VerbsOptions { ack_timeout: 0, ..good.clone() }),
        ("retry_count", VerbsOptions { retry_count: 8, ..good.clone() }),
        ("rnr_timer", VerbsOptions { rnr_timer: 32, ..good.clone() }),
        ("sends", VerbsOptions { sends: 101, xrc: Some(XrcOptions::new(3, [1, 2])), ..good.clone() }),
        ("moderation.period_us", VerbsOptions { moderation: Moderation { count: 2, period_us: 0 }, ..good.clone() }),
        ("moderation.count", VerbsOptions { moderation: Moderation { count: 0, period_us: 2 }, ..good.clone() }),
        ("srq_sizes", with_sizes(&[255])),
        ("srq_sizes", with_sizes(&[512, 512])),
        ("srq_sizes", with_sizes(&[512, 256])),
        ("srq_sizes", with_sizes(&[good.message_bytes()])),
        ("shared receive queues", with_sizes(&[256, 257, 258, 259])),
        ("receives", VerbsOptions { receives: 1, ..with_sizes(&[256]) }),
        ("receives", VerbsOptions { receives: 203, ..with_sizes(&[256]) }),
        ("resend_first", VerbsOptions { resend_first: Nanos(0), ..good.clone() }),
        ("reopen_first", VerbsOptions { reopen_first: Nanos(0), ..good.clone() }),
    ] {
        match options.check(&LIMITS) {
            Err(VerbsError::Option { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

/// The rail's operations on payload memory have to be offered, by its transport, and no more.
#[test]
fn on_demand_registration_needs_all_operations_of_the_rail() {
    let reads = OnDemand { read: true, ..OnDemand::default() };
    let offers = Offers { on_demand: reads, on_demand_xrc: OnDemand::default(), moderation: None };
    let options = |on_demand| VerbsOptions { on_demand, ..VerbsOptions::new(2, 0) };
    for (on_demand, wanted) in [(OnDemandUse::Never, false), (OnDemandUse::WhereOffered, true)] {
        assert_eq!(options(on_demand).is_on_demand("a", &Offers::WHOLE), Ok(wanted));
        assert_eq!(options(on_demand).is_on_demand("a", &offers), Ok(false));
    }
    let always = options(OnDemandUse::Always);
    assert_eq!(always.is_on_demand("a", &Offers::WHOLE), Ok(true));
    let error = always.is_on_demand("mlx5_0", &offers).unwrap_err();
    assert_eq!(
        error.to_string(),
        "verbs rail: the device mlx5_0 lacks, for memory registered on demand and RC: remote writes \
         (verbs_on_demand is on; off or auto pins memory)"
    );
    assert_eq!(VerbsOptions { write: false, ..always.clone() }.is_on_demand("a", &offers), Ok(true));
    let xrc = VerbsOptions { write: false, xrc: Some(XrcOptions::new(3, [1, 2])), ..always.clone() };
    let error = xrc.is_on_demand("mlx5_0", &offers).unwrap_err();
    assert!(error.to_string().contains("and XRC: remote reads ("), "{error}");
    let error = always.is_on_demand("rxe0", &Offers::default()).unwrap_err();
    assert!(error.to_string().contains("rxe0 lacks") && error.to_string().contains("RC: registration on demand"));
}
