//! Payload reaches its place, no more and no less, without a detour where it is large.

use super::*;

#[test]
fn a_stream_of_segments_is_not_copied() {
    let mut cluster = Cluster::pair();
    let (count, bytes) = (64, 256 * 1024);
    for number in 0..count {
        cluster.hosts[0].send(PeerId(1), number, bytes, bytes);
        cluster.poll();
    }
    cluster.until(|hosts| hosts[1].sink.taken.len() == count as usize);
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..count).collect::<Vec<_>>());
    let copied = cluster.hosts[1].rail.scratch.copied_bytes;
    assert!(copied * 100 < count * bytes as u64, "{copied} bytes of {} went through staging", count * bytes as u64);
}

#[test]
fn segments_with_acknowledgments_among_them_are_not_copied_either() {
    let mut cluster = Cluster::pair();
    let (count, bytes) = (64, 256 * 1024);
    for number in 0..count {
        cluster.hosts[0].send(PeerId(1), number, if number % 3 == 2 { 0 } else { bytes }, bytes);
        cluster.poll();
    }
    cluster.until(|hosts| hosts[1].sink.taken.len() == count as usize);
    let copied = cluster.hosts[1].rail.scratch.copied_bytes;
    assert!(copied * 100 < count * bytes as u64, "{copied} bytes went through staging");
}

#[test]
fn small_packets_share_calls() {
    let mut cluster = Cluster::pair();
    for number in 0..500 {
        cluster.hosts[0].send(PeerId(1), number, 32, 32);
    }
    // All are in the socket by now, or nearly.
    let before = cluster.hosts[1].rail.counters().system_calls;
    cluster.until(|hosts| hosts[1].sink.taken.len() == 500);
    let calls = cluster.hosts[1].rail.counters().system_calls - before;
    assert!(calls < 50, "{calls} calls for 500 packets");
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..500).collect::<Vec<_>>());
}

#[test]
fn payload_beyond_the_tcp_placement_is_skipped() {
    let mut cluster = Cluster::pair();
    cluster.hosts[1].sink.plan = |number| match number % 4 {
        0 => Plan::Take { bytes: 1000, piece_bytes: 300 },
        1 => Plan::Take { bytes: 0, piece_bytes: 1 },
        2 => Plan::Discard,
        _ => TAKE_ALL,
    };
    let sizes = [500, 5_000, 50_000, 400_000];
    let mut number = 0;
    for bytes in sizes {
        for _ in 0..4 {
            cluster.hosts[0].send(PeerId(1), number, bytes, bytes);
            number += 1;
        }
    }
    cluster.until(|hosts| hosts[1].sink.taken.len() == 12 && hosts[1].sink.seen.len() == 16);
    let taken: Vec<(u64, usize)> = cluster.hosts[1].sink.taken.iter().map(|(_, n, bytes)| (*n, bytes.len())).collect();
    let expected = sizes
        .iter()
        .zip([0u64, 4, 8, 12])
        .flat_map(|(&bytes, first)| [(first, bytes.min(1000)), (first + 1, 0), (first + 3, bytes)]);
    assert_eq!(taken, expected.collect::<Vec<_>>());
    cluster.hosts[1].numbers_from(PeerId(0));
}

#[test]
fn placement_may_be_aborted_while_it_is_filled() {
    let mut cluster = Cluster::pair();
    cluster.hosts[1].sink.plan = |number| match number {
        0 => Plan::Aborted { after: 70_000 },
        1 => Plan::Aborted { after: 0 },
        _ => TAKE_ALL,
    };
    for number in 0..4 {
        cluster.hosts[0].send(PeerId(1), number, 300_000, 300_000);
    }
    cluster.until(|hosts| hosts[1].sink.taken.len() >= 2);
    assert_eq!(cluster.hosts[1].sink.seen.len(), 4);
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), [2, 3], "what is aborted is not reported as placed");
}

#[test]
fn packets_are_received_for_any_stream_fragmentation() {
    // One raw byte stream, delivered in cuts of every size around a header's.
    let mut stream = Vec::new();
    let sizes = [0usize, 5, 20_000, 0, 0, 17_000, 3, 16_384, 0, 33];
    for (number, &bytes) in sizes.iter().enumerate() {
        stream.extend_from_slice(&header(PeerId(9), number as u64, bytes));
        stream.extend_from_slice(&payload(number as u64, bytes));
    }
    for cut in [1usize, 2, 31, 32, 33, 47, 48, 49, 257, 16_000, 60_000] {
        let mut cluster = Cluster::new([options()]);
        let mut raw = Raw::authenticated(&mut cluster, 9, 0);
        // Single bytes for the first packets only: a call for each byte of all would be slow.
        let (fine, coarse) = stream.split_at(stream.len().min(cut * 200));
        for part in fine.chunks(cut).chain(coarse.chunks(4096)) {
            raw.write(part);
            cluster.poll();
        }
        cluster.until(|hosts| hosts[0].sink.taken.len() == sizes.len());
        let numbers = cluster.hosts[0].numbers_from(PeerId(9));
        assert_eq!(numbers, (0..sizes.len() as u64).collect::<Vec<_>>(), "cut {cut}");
    }
}
