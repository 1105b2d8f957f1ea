//! Hostile packets with valid numbers: ids of live operations, acknowledgments of sent packets, the next
//! expected number, connections that are up or wait for a fence. Garbage only reaches the checks of such
//! numbers and no code behind them.

use super::garbage::{Input, hand_in};
use super::{Cluster, Flying};
use rerail_core::endpoint::LaneInfo;
use rerail_core::ids::{PeerId, RailId};
use rerail_core::rel::link::Pair;
use rerail_core::wire::*;

/// A number, in most cases as it is.
fn near(number: u32, by: u8) -> u32 {
    match by & 15 {
        10 => number.wrapping_add(1),
        11 => number.wrapping_sub(1),
        12 => number.wrapping_add(u32::from(by >> 4)),
        13 => number.wrapping_sub(u32::from(by >> 4)),
        14 => number.wrapping_add(64),
        15 => number.wrapping_add(1 << 31),
        _ => number,
    }
}

/// One such packet from rank 0 or 2 to rank 1.
pub(super) fn packet(cluster: &mut Cluster<'_>, input: &mut Input<'_>) {
    let from = if input.byte() & 1 == 0 { 0u32 } else { 2 };
    let rail = RailId(input.byte() % 3);
    let theirs = cluster.nodes[from as usize].endpoint.channel_info(PeerId(1));
    let endpoint = &mut cluster.nodes[1].endpoint;
    let (Some(channel), Some(theirs)) = (endpoint.channel_info(PeerId(from)), theirs) else { return };
    let (message_limit, block_limit) = theirs.limits;
    let Some(sub) = endpoint.subchannel_info(PeerId(from), rail) else { return };
    let Pair { mine, yours } = sub.connection;
    let live = endpoint.operations().count();
    let nth = endpoint.operations().nth(usize::from(input.byte()) % live.max(1));
    let operation = nth.map_or(1 << 32, |op| op.id.0.to_bits());
    let epoch = nth.map_or(0, |op| op.retry_epoch);
    let len = nth.map_or(0, |op| op.bytes);
    let by = input.byte();
    let (mut payload_bytes, mut key) =
        (0, RemoteKey { rail: sub.peer_rail, connection: yours as u16, ..RemoteKey::default() });
    (key.key, key.address) = (u64::from(by % 4), u64::from(input.byte()));
    let keys: RemoteKeys = std::iter::once(key).filter(|_| by & 16 == 0).collect();
    let body = match input.byte() % 12 {
        0 | 1 => Body::Resume(Resume { target: operation, epoch: near(u32::from(epoch) + 1, by) as u16 }),
        2 | 3 => {
            let of = if by & 64 == 0 { sub.waits_for } else { None }.unwrap_or(Pair { mine, yours });
            let (peer_connection, connection) = (near(of.mine, by), near(of.yours, input.byte()));
            let (ordered_beyond, unordered_beyond) = (input.byte().into(), input.byte().into());
            let (rail, peer_rail, answer) = (sub.peer_rail, rail.0, by & 32 == 0);
            Body::Fence(Fence {
                rail,
                peer_rail,
                connection,
                peer_connection,
                ordered_beyond,
                unordered_beyond,
                answer,
            })
        }
        4 => Body::AtomicReply(AtomicReply { operation, old: by.into() }),
        5 | 6 => Body::Fin(Fin {
            operation,
            count: near(1, by) as u16,
            refused: (by & 32 == 0).then_some(Refusal::BadAtomic),
            want_placed: by & 64 == 0,
            epoch: near(epoch.into(), input.byte()) as u16,
            placed_bytes: len,
        }),
        7 | 8 => {
            let granted_bytes = if by & 15 == 15 { u64::MAX } else { near(len as u32, by).into() };
            let epoch = near(u32::from(epoch) + u32::from(by & 32 != 0), input.byte()) as u16;
            Body::Cts(Cts { operation, target: input.byte().into(), granted_bytes, epoch, keys })
        }
        9 => {
            payload_bytes = u32::from(input.byte()) * 2;
            Body::Data(Data { operation, offset: near(u32::from(input.byte()) * 16, by).into() })
        }
        10 => match channel.peer_parameters {
            Some(peer_parameters) => Body::Connect(Connect {
                rail: sub.peer_rail,
                connection: near(yours, by),
                answer: by & 32 == 0,
                ..peer_parameters
            }),
            None => Body::Credit,
        },
        _ => Body::Ack(Ack { ordered_beyond: by.into(), unordered_beyond: input.byte().into() }),
    };
    // Up to what was sent and not acknowledged yet.
    let ack = |LaneInfo { acked, next, .. }: LaneInfo, byte: u8| {
        acked.add(u32::from(byte >> 4) % (next.distance_from(acked) + 1)).0
    };
    let (ordered, unordered, psn) = (input.byte(), input.byte(), input.byte());
    let common = Common {
        source: from,
        psn: body.lane().map_or(0, |_| near(channel.unordered.expected.0, psn)),
        ack_ordered: near(ack(channel.ordered, ordered), if ordered & 15 == 15 { psn } else { 0 }),
        ack_unordered: near(ack(channel.unordered, unordered), if unordered & 15 == 15 { psn } else { 0 }),
        message_limit,
        block_limit,
        payload_bytes,
        ack_now: psn & 16 == 0,
        refusing: psn & 32 == 0 && unordered & 1 == 0,
    };
    let Ok(header) = (Repr { common, body }).emit_vec() else { return };
    let payload = vec![0x5A; payload_bytes as usize];
    let flying = Flying { header: header.to_vec(), payload, placing: None, skip: false, write: None, short: None };
    hand_in(cluster, (from as usize, rail), flying, psn & 64 == 0);
}
