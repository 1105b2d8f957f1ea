//! What posting and registering costs a process, seen from the other end.

use rerail_core::time::Nanos;
use rerail_verbs::contract::{QpKind, QpState, SendOp};

use super::fixture::{End, Pair, ends_of, ok, pair_with};
use crate::hca::{Fault, HcaOptions, HostCost};
use crate::net::{BusId, BusModel};
use crate::trace::Trace;

/// 2 ns per byte up to 1000 bytes, which is slower than the link.
const PIO: HostCost = HostCost {
    post_ns: 100,
    pio_bytes_max: 1000,
    pio_bytes_per_second: 500_000_000,
    register_ns: 0,
    register_page_ns: 0,
};

fn pair_that_costs(cost: HostCost) -> Pair {
    let options = HcaOptions { cost, ..HcaOptions::default() };
    pair_with(Trace::off(), options, BusModel { bytes_per_second: 4_000_000_000, ..BusModel::default() })
}

/// Two connections between the same processes; the first end sends on both at once. When the messages have
/// arrived.
fn arrivals(cost: HostCost, len: u32) -> ([u64; 2], Pair) {
    let pair = pair_that_costs(cost);
    let mut ends = [0, 1].map(|_| pair.ends(QpKind::Rc, |_| {}));
    for [a, b] in &mut ends {
        b.recv(1, 0, 4096);
        a.send(2, 0, len);
    }
    let mut came = [0; 2];
    while came.contains(&0) {
        let next = pair.fabric.borrow().next_event().expect("both arrive");
        pair.fabric.borrow_mut().advance(next);
        for ([_, b], came) in ends.iter_mut().zip(&mut came) {
            if !b.received().is_empty() {
                *came = next.0;
            }
        }
    }
    (came, pair)
}

#[test]
fn small_messages_of_a_process_go_one_behind_the_other() {
    let ([free, _], pair) = arrivals(HostCost::default(), 1000);
    let read_ns = 250;
    assert_eq!(pair.fabric.borrow().net().bus_busy(BusId(0)), Nanos(2 * read_ns), "fetched over the bus");
    let ([first, second], pair) = arrivals(PIO, 1000);
    // Carried over by the processor, and not fetched.
    assert_eq!((first, second), (free + 2100 - read_ns, free + 4200 - read_ns));
    assert_eq!(pair.fabric.borrow().net().bus_busy(BusId(0)), Nanos(0));
    assert_eq!([0, 1].map(|owner| pair.fabric.borrow_mut().take_spent_ns(owner)), [4200, 0]);
}

/// A message of several packets is on the wire while the processor carries over the rest of it.
#[test]
fn packets_go_as_they_are_carried_over() {
    let cost = HostCost { pio_bytes_max: 4096, ..PIO };
    let free_bus = HostCost::default();
    let ([last, _], _) = arrivals(free_bus, 1024);
    let ([whole, next], pair) = arrivals(cost, 4096);
    // 2 ns per byte; then the last packet's own time, of which its read over the bus (256 ns) is missing.
    assert_eq!((whole, next), (last + 100 + 8192 - 256, last + 200 + 16_384 - 256));
    assert_eq!(pair.fabric.borrow_mut().take_spent_ns(0), 16_584);
}

#[test]
fn large_messages_cost_a_post() {
    let ([free, next], _) = arrivals(HostCost::default(), 1001);
    let ([first, second], pair) = arrivals(PIO, 1001);
    // The link is what the second one waits for, as before.
    assert_eq!((first, second), (free + 100, next + 100));
    assert_eq!(pair.fabric.borrow_mut().take_spent_ns(0), 200);
}

/// Whatever its length, what a read brings does not come by programmed I/O.
#[test]
fn reads_cost_a_post() {
    let pair = pair_that_costs(PIO);
    let [mut a, b] = pair.ends(QpKind::Rc, |_| {});
    let from = b.remote(0);
    a.post(1, SendOp::Read { from }, 0, 500);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), pair.fabric.borrow_mut().take_spent_ns(0)), (vec![ok(1)], 100));
}

#[test]
fn registering_costs_by_pages_and_posts_wait_for_it() {
    let cost = HostCost { register_ns: 3_000, register_page_ns: 200, ..HostCost::default() };
    let pair = pair_that_costs(cost);
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    // The fixture's own memory: 64 pages.
    let own = 3_000 + 64 * 200;
    assert_eq!([0, 1].map(|owner| pair.fabric.borrow_mut().take_spent_ns(owner)), [own; 2]);
    pair.pass(Nanos(own));
    let took = |a: &mut End, b: &mut End| {
        let start = pair.now();
        b.recv(1, 0, 8);
        a.send(2, 0, 8);
        while b.received().is_empty() {
            let next = pair.fabric.borrow().next_event().expect("it arrives");
            pair.fabric.borrow_mut().advance(next);
        }
        pair.now() - start
    };
    let usual = took(&mut a, &mut b);
    pair.run_until_idle();
    let mut memory = vec![0; 4097];
    a.try_register(&mut memory).unwrap();
    assert_eq!(took(&mut a, &mut b), Nanos(usual.0 + 3_400));
    assert_eq!(pair.fabric.borrow_mut().take_spent_ns(0), 3_400);
    // What is refused costs nothing.
    pair.run_until_idle();
    pair.inject(Fault::Limit { hca: pair.hcas[0], qps: None, mrs: Some(0), cqs: None, registered_bytes: None });
    assert!(a.try_register(&mut memory).is_err());
    assert_eq!(pair.fabric.borrow_mut().take_spent_ns(0), 0);
}

/// What is posted and has not reached the HCA ends as all else does when the queue pair ends.
#[test]
fn a_doorbell_that_has_not_rung_is_no_work_of_a_queue_that_ended() {
    for state in [QpState::Error, QpState::Reset] {
        let pair = pair_that_costs(PIO);
        let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
        b.recv(1, 0, 4096);
        a.send(2, 0, 1000);
        pair.pass(Nanos(2_000));
        a.to(state);
        pair.run_until_idle();
        assert_eq!(a.sent().len(), usize::from(state == QpState::Error), "{state:?}");
        assert!(b.received().is_empty(), "{state:?}");
    }
}
