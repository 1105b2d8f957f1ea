//! More ranks than channels, over the system's own sockets and rings (K-1 to K-6).

use std::collections::VecDeque;

use rerail_core::config::Config;
use rerail_core::endpoint::{Completion, Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::mem::Seg;

use super::cluster::{Cluster, Fabric, on_fabrics, pattern, rails, small};

on_fabrics! {
    more_ranks_than_channels_meet: Shm Tcp TwoTcp;
}

const RANKS: u32 = 12;
const CHANNELS: u32 = 4;

/// Every rank sends every other a small, an eager and a large message; each has a third of the channels that
/// it would need.
fn more_ranks_than_channels_meet(fabric: Fabric) {
    let few = |rank, size| Config { channels_max: CHANNELS, ..small(rank, size) };
    let mut cluster = Cluster::with(RANKS, |rank| rails(rank, RANKS, fabric), few);
    for bytes in [8, 64 << 10, 1 << 20] {
        exchange(&mut cluster, bytes);
    }
    let (parked, resumed) = cluster.transports.iter().fold((0, 0), |(parked, resumed), transport| {
        let stats = transport.stats();
        (parked + stats.parked, resumed + stats.resumed)
    });
    assert!(parked > 0 && resumed > 0, "{parked} parked, {resumed} resumed");
}

fn exchange(cluster: &mut Cluster, bytes: u64) {
    let mut regions = Vec::new();
    let mut sends: Vec<VecDeque<u32>> = Vec::new();
    for rank in 0..RANKS {
        let transport = cluster.at(rank as usize);
        let region = transport.alloc((RANKS as usize + 1) * bytes as usize).unwrap();
        transport.bytes_mut(region).unwrap()[..bytes as usize].copy_from_slice(&pattern(bytes as usize, rank as u8));
        for from in (0..RANKS).filter(|from| *from != rank) {
            let to = [Seg::new(region, u64::from(from + 1) * bytes, bytes)];
            let from = Selector { source: Some(PeerId(from)), ..Selector::tagged(bytes) };
            transport.recv(&RecvRequest::new(from, &to)).unwrap();
        }
        regions.push(region);
        sends.push((1..RANKS).map(|step| (rank + step) % RANKS).collect());
    }
    let mut left = 2 * RANKS * (RANKS - 1);
    cluster.until("all messages arrive", |cluster| {
        for rank in 0..RANKS as usize {
            while let Some(&to) = sends[rank].front() {
                let message = [Seg::new(regions[rank], 0, bytes)];
                let send = SendRequest { tag: Some(bytes), ..SendRequest::new(PeerId(to), &message) };
                match cluster.at(rank).send(&send) {
                    Ok(_) => sends[rank].pop_front(),
                    Err(error) if error.is_full() => break,
                    Err(error) => panic!("rank {rank} to {to}: {error}"),
                };
            }
            for event in cluster.events[rank].drain(..) {
                match event {
                    Event::Completed(Completion { result, .. }) => {
                        result.unwrap();
                        left -= 1;
                    }
                    Event::PeerUp { .. } => {}
                    other => panic!("rank {rank}: {other:?}"),
                }
            }
        }
        left == 0
    });
    for rank in 0..RANKS {
        let all = cluster.at(rank as usize).bytes(regions[rank as usize]).unwrap();
        for from in (0..RANKS).filter(|from| *from != rank) {
            let at = (from as usize + 1) * bytes as usize;
            assert!(all[at..][..bytes as usize] == pattern(bytes as usize, from as u8), "{from} to {rank}");
        }
    }
}
