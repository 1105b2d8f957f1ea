//! Random loads over wires that lose, delay and spoil packets, against the plain rules of a reliable
//! connection: all that was posted completes once and in order, messages arrive once, whole and in order,
//! atomics are done once.

use rerail_core::time::Nanos;
use rerail_verbs::contract::{CompletionKind, Device, Payload, QpKind, SendOp, SendWr};

use super::fixture::{End, Tuning, ends_of, ok, pair_with, poll};
use crate::hca::{Fault, HcaOptions};
use crate::net::{BusModel, PortId};
use crate::rng::Rng;
use crate::trace::Trace;

const OPS: u64 = 60;
/// Where receives go, what is read, what is counted, what is written; each op has a place of its own in the
/// first three.
const PLACE: u64 = 2048;
const READS: u64 = OPS * PLACE;
const COUNTER: u64 = 250_000;

fn run(seed: u64) -> (Vec<u64>, u64) {
    let mut rng = Rng::new(seed, "hca");
    let bus = BusModel { bytes_per_second: 800_000_000, half_duplex: true, ..BusModel::default() };
    let pair = pair_with(Trace::off(), HcaOptions::default(), bus);
    let reads_open = 1 + rng.below(4) as u8;
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| {
        *tuning = Tuning { retry_count: 7, rnr_retry: 7, mtu: 256, timeout: 6, ..*tuning };
        tuning.reads_open = reads_open;
    });
    for port in [0, 1].map(PortId) {
        let mut fabric = pair.fabric.borrow_mut();
        fabric.net_mut().set_loss(port, 30_000);
        fabric.inject(&Fault::Slow { port, extra: Nanos(rng.below(3) * 2_000) });
    }
    a.fill(0, &(0..READS).map(|i| (i * 7 / 5) as u8).collect::<Vec<_>>());
    b.fill(READS as usize, &[0x5a; PLACE as usize]);
    let (mut sends, mut adds, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    let mut posted = 0;
    while posted < OPS {
        let (id, len) = (posted, rng.below(PLACE) as u32);
        let here = id * PLACE;
        let op = match rng.below(4) {
            0 => {
                sends.push((id, len));
                SendOp::Send { immediate: Some(id as u32) }
            }
            1 => SendOp::Write { to: b.remote(READS + PLACE), immediate: None },
            2 => {
                reads.push((id, len));
                SendOp::Read { from: b.remote(READS) }
            }
            _ => {
                adds.push(id);
                SendOp::FetchAdd { at: b.remote(COUNTER), add: 1 }
            }
        };
        let len = if matches!(op, SendOp::FetchAdd { .. }) { 8 } else { len };
        // What is read goes behind everything that is sent.
        let to =
            if matches!(op, SendOp::Read { .. } | SendOp::FetchAdd { .. }) { READS + (id % 50) * PLACE } else { here };
        let sges = [a.sge(to, len)];
        let fence = rng.one_in(5);
        a.device.post_send(a.qp.id, &[SendWr { fence, ..SendWr::new(id, op, Payload::Memory(&sges)) }]).unwrap();
        posted += 1;
        if rng.one_in(3) {
            pair.pass(Nanos(rng.below(20_000)));
        }
    }
    // Receives come late: the sender has to wait for them now and then.
    for (i, _) in sends.iter().enumerate() {
        b.recv(i as u64, i as u64 * PLACE, PLACE as u32);
        pair.pass(Nanos(rng.below(30_000)));
    }
    pair.run_until_idle();
    let sent = a.sent();
    assert_eq!(ends_of(&sent), (0..OPS).map(ok).collect::<Vec<_>>(), "seed {seed}");
    let received = poll(&mut b.device, b.recv_cq);
    assert_eq!(received.len(), sends.len(), "seed {seed}");
    for (i, (completion, &(id, len))) in received.iter().zip(&sends).enumerate() {
        let seen = (completion.id, completion.bytes, completion.immediate, completion.kind);
        assert_eq!(seen, (i as u64, len, Some(id as u32), CompletionKind::Recv), "seed {seed}");
        let payload = b.bytes(i * PLACE as usize, len as usize);
        assert_eq!(payload, a.bytes((id * PLACE) as usize, len as usize), "seed {seed}, message {id}");
    }
    assert_eq!(b.word(COUNTER as usize), adds.len() as u64, "seed {seed}");
    check_answers(&a, &reads, &adds, seed);
    let lost = pair.fabric.borrow().net().stats().lost;
    (sent.iter().map(|completion| completion.id).collect(), lost)
}

/// The last reads and atomics of each place (others were written over) hold what they must.
fn check_answers(a: &End, reads: &[(u64, u32)], adds: &[u64], seed: u64) {
    let at = |id: u64| (READS + (id % 50) * PLACE) as usize;
    for &(id, len) in reads.iter().filter(|(id, _)| *id >= 10) {
        if !adds.iter().chain(reads.iter().map(|(id, _)| id)).any(|other| *other > id && at(*other) == at(id)) {
            assert_eq!(a.bytes(at(id), len as usize), vec![0x5a; len as usize], "seed {seed}, read {id}");
        }
    }
    for (before, &id) in adds.iter().enumerate().filter(|(_, id)| **id >= 10) {
        assert_eq!(a.word(at(id)), before as u64, "seed {seed}, atomic {id}");
    }
}

#[test]
fn a_reliable_connection_is_reliable() {
    let mut lost = 0;
    for seed in 0..150 {
        lost += run(seed).1;
    }
    assert!(lost > 1000, "{lost} packets lost: too quiet");
}
