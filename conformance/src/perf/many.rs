//! All ranks with each other (`perf meet`, `perf all`), of which there may be more than processors: they wait
//! by [`Transport::wait_for`], which yields the processor and sleeps.
//!
//! `conformance/peers/mpi_bench.c` holds the same loops in MPI.

use rerail_core::endpoint::{RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::{OpId, PeerId};
use rerail_core::mem::Seg;
use rerail_linux::driver::Transport;

use crate::session::{Session, SessionError};

use super::batch::{Batches, Spread, measure};
use super::kernel::{Buffers, KernelError};

/// Tag of measured messages.
const DATA: u64 = 1 << 44;

/// The peer of a rank in a round: ranks in an order that the round draws, in pairs.
fn met(rank: u32, size: u32, round: u64) -> u32 {
    let mut order: Vec<u32> = (0..size).collect();
    let mut state = round.wrapping_mul(2).wrapping_add(1);
    for at in (1..size as usize).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, ((state >> 33) % (at as u64 + 1)) as usize);
    }
    let place = order.iter().position(|other| *other == rank);
    place.and_then(|place| order.get(place ^ 1)).copied().unwrap_or(rank)
}

struct End<'s> {
    transport: &'s mut Transport,
    buffers: Buffers,
    bytes: u64,
    open: Vec<OpId>,
}

impl End<'_> {
    fn recv(&mut self, from: u32, place: u64) -> Result<(), KernelError> {
        let segments = [Seg::new(self.buffers.incoming, place * self.bytes, self.bytes)];
        let from = Selector { source: Some(PeerId(from)), tag: TagMatch::Tagged { tag: DATA, ignore: 0 } };
        self.open.push(self.transport.recv(&RecvRequest::new(from, &segments)).map_err(SessionError::Request)?);
        Ok(())
    }

    fn send(&mut self, to: u32) -> Result<(), KernelError> {
        let segments = [Seg::new(self.buffers.outgoing, 0, self.bytes)];
        let send = SendRequest { tag: Some(DATA), ..SendRequest::new(PeerId(to), &segments) };
        self.open.push(self.transport.send(&send).map_err(SessionError::Request)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), KernelError> {
        for request in self.open.drain(..) {
            match self.transport.wait_for(request, None) {
                Ok(completion) if completion.result.is_ok() => {}
                _ => return Err(KernelError::PeerGone),
            }
        }
        Ok(())
    }
}

/// In each round, pairs are drawn anew, and the two exchange a message (`is_pairs`), or every rank sends one
/// to every other. The result is rank 0's: nanoseconds of a round.
pub fn rounds(
    session: &mut Session,
    is_pairs: bool,
    buffers: Buffers,
    bytes: u64,
    batches: Batches,
) -> Result<Option<Spread>, KernelError> {
    let (rank, size) = (session.rank(), session.size());
    let mut end = End { transport: session.transport_mut(), buffers, bytes, open: Vec::new() };
    let mut round = 0;
    measure(rank == 0, batches.batch, batches, || {
        for _ in 0..batches.batch {
            if is_pairs {
                let peer = met(rank, size, round);
                end.recv(peer, 0)?;
                end.send(peer)?;
            } else {
                for by in 1..size {
                    end.recv((rank + size - by) % size, by.into())?;
                }
                for by in 1..size {
                    end.send((rank + by) % size)?;
                }
            }
            end.finish()?;
            round += 1;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_each_round_ranks_meet_in_pairs() {
        let mut orders = std::collections::BTreeSet::new();
        for round in 0..50 {
            let peers: Vec<u32> = (0..8).map(|rank| met(rank, 8, round)).collect();
            for rank in 0..8 {
                assert_eq!(peers[peers[rank as usize] as usize], rank);
                assert_ne!(peers[rank as usize], rank);
            }
            orders.insert(peers);
        }
        assert!(orders.len() > 30, "{}", orders.len());
    }
}
