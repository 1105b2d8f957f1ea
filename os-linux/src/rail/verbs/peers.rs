//! The peers' addresses, 16 bytes each, and the secrets shared with them: in a job of thousands of processes
//! each has a table of them.

use std::collections::BTreeMap;

use rerail_core::ids::PeerId;
use rerail_verbs::Gid;
use rerail_verbs::contract::{AddressVector, GlobalRoute};

use super::address::Address;
use super::wire::PeerAddress;
use crate::auth::{Credentials, PublicKey, Secret};

/// Bytes per process of the job.
pub(super) const PEER_BYTES: u64 = (size_of::<Peer>() + size_of::<PairSecret>()) as u64;
/// So many more where the rail connects by XRC.
pub(super) const NODE_BYTES: u64 = size_of::<u32>() as u64;
/// No node.
const NO_NODE: u32 = u32::MAX;
/// No link.
pub(super) const NO_LINK: u32 = u32::MAX;
/// Routers that a datagram may pass on Ethernet.
const HOP_LIMIT: u8 = 64;

/// The table of all processes.
#[derive(Debug)]
pub(super) struct Peers {
    table: Vec<Peer>,
    /// By rank.
    secrets: Vec<PairSecret>,
    /// By rank, all zeros where none is needed; on Ethernet, where ports are addressed by it, and on
    /// InfiniBand where this port or the peer's takes nothing without a global route (V-10).
    gids: Vec<Gid>,
    /// This port takes nothing without.
    needs_global: bool,
    /// By rank, with XRC only: number of the node.
    nodes: Vec<u32>,
    /// XRC domains, by the number of their node.
    domains: BTreeMap<u64, u32>,
}

/// What this process and one other sign their set-up messages with (V-3). Computed when it is needed first.
#[derive(Clone, Debug)]
enum PairSecret {
    Unknown,
    Of(PublicKey),
    Known(Secret),
}

/// The entry of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Number of its queue pair for datagrams; 0: it was not announced.
    pub qp: u32,
    /// Which link leads there now, if one does.
    pub link: u32,
    /// The newest of its attempts to connect that was let in (V-6).
    pub seen: u32,
    lid: u16,
}

impl Peers {
    /// As many as there are processes. `needs_global`: the own port takes nothing without a global route.
    pub fn new(peers: u32, needs_global: bool) -> Self {
        let table = vec![Peer { qp: 0, link: NO_LINK, seen: 0, lid: 0 }; peers as usize];
        let secrets = vec![PairSecret::Unknown; peers as usize];
        Peers { table, secrets, gids: Vec::new(), needs_global, nodes: Vec::new(), domains: BTreeMap::new() }
    }

    /// Notes an address; `false`: no such rank.
    pub fn learn(&mut self, peer: PeerId, address: &Address) -> bool {
        let size = self.table.len();
        let Some(entry) = self.table.get_mut(peer.0 as usize) else { return false };
        (entry.qp, entry.lid) = (address.qp, address.lid);
        if address.ethernet || address.global || self.needs_global {
            self.gids.resize(size, Gid::default());
            self.gids[peer.0 as usize] = address.gid;
        }
        if let Some(domain) = address.domain {
            let next = self.domains.len() as u32;
            self.nodes.resize(size, NO_NODE);
            self.nodes[peer.0 as usize] = *self.domains.entry(domain).or_insert(next);
        }
        true
    }

    /// Notes a peer's key.
    pub fn trust(&mut self, peer: PeerId, key: PublicKey) {
        if let Some(secret) = self.secrets.get_mut(peer.0 as usize) {
            *secret = PairSecret::Of(key);
        }
    }

    /// What messages to and from a peer are signed with; `None`: its key is not known.
    pub fn secret(&mut self, peer: PeerId, own: &Credentials) -> Option<&Secret> {
        let secret = self.secrets.get_mut(peer.0 as usize)?;
        if let PairSecret::Of(key) = secret {
            *secret = PairSecret::Known(own.pair(key));
        }
        match secret {
            PairSecret::Known(secret) => Some(secret),
            PairSecret::Of(_) | PairSecret::Unknown => None,
        }
    }

    /// XRC: the node of a peer, by number. Processes of one node have one XRC domain.
    pub fn node(&self, peer: PeerId) -> Option<u32> {
        self.nodes.get(peer.0 as usize).copied().filter(|node| *node != NO_NODE)
    }

    /// Notes a peer's new address as the peer announced it (V-13). An address impossible on our kind of link
    /// is not noted.
    pub fn follow(&mut self, peer: PeerId, at: &PeerAddress, ethernet: bool) {
        let Some(entry) = self.table.get_mut(peer.0 as usize).filter(|_| ethernet == (at.lid == 0)) else { return };
        (entry.qp, entry.lid) = (at.qp, at.lid);
        if let Some(gid) = self.gids.get_mut(peer.0 as usize).filter(|gid| ethernet || **gid != Gid::default()) {
            *gid = Gid(at.gid);
        }
    }

    /// A port has another address: so have the peers that are behind it too, each with its path.
    pub fn moved(&mut self, before: &Address, after: &Address) {
        // All zeros: that one needs no GID; no port has this one.
        let is_behind = |gid: &&mut Gid| **gid == before.gid && before.gid != Gid::default();
        self.gids.iter_mut().filter(is_behind).for_each(|gid| *gid = after.gid);
        if before.ethernet {
            return;
        }
        let paths = |lmc: u8| (1u16 << lmc) - 1;
        let base = |lid: u16| lid & !paths(before.lmc);
        for entry in self.table.iter_mut().filter(|entry| entry.qp != 0 && base(entry.lid) == base(before.lid)) {
            entry.lid = after.lid & !paths(after.lmc) | entry.lid & paths(before.lmc.min(after.lmc));
        }
    }

    /// One that was announced.
    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&Peer> {
        self.table.get(peer.0 as usize).filter(|entry| entry.qp != 0)
    }

    pub fn get_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.table.get_mut(peer.0 as usize).filter(|entry| entry.qp != 0)
    }

    /// The way there from a path of a local port: each side's packets come from the LID that it is addressed
    /// by, as connections demand (InfiniBand specification, 9.6.1.2).
    pub fn vector(&self, peer: PeerId, port: u8, path: u8, source_index: u8) -> Option<AddressVector> {
        let entry = self.get(peer)?;
        let gid = self.gids.get(peer.0 as usize).filter(|gid| **gid != Gid::default());
        let global = gid.map(|&dgid| GlobalRoute { dgid, source_index, hop_limit: HOP_LIMIT, traffic_class: 0 });
        Some(AddressVector { port, dlid: entry.lid, source_path_bits: path, service_level: 0, global })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_16_bytes_and_has_a_gid_on_ethernet_only() {
        assert_eq!(PEER_BYTES, 16 + 33);
        let gid = Gid([7; 16]);
        let mut peers = Peers::new(4, false);
        let address = Address { ethernet: false, global: false, lid: 3, lmc: 0, qp: 9, gid, domain: None };
        assert!(peers.learn(PeerId(1), &address) && !peers.learn(PeerId(4), &address));
        let address_vector = AddressVector { port: 2, dlid: 3, source_path_bits: 1, ..AddressVector::default() };
        assert_eq!(peers.vector(PeerId(1), 2, 1, 0), Some(address_vector));
        assert!(peers.get(PeerId(0)).is_none() && peers.vector(PeerId(0), 2, 1, 0).is_none());
        // It has moved, or announces an impossible address.
        peers.follow(PeerId(1), &PeerAddress { qp: 10, lid: 4, gid: [0; 16] }, false);
        peers.follow(PeerId(1), &PeerAddress { qp: 11, lid: 0, gid: [0; 16] }, false);
        assert_eq!(peers.vector(PeerId(1), 2, 1, 0).unwrap().dlid, 4);
        assert_eq!(peers.get(PeerId(1)).unwrap().qp, 10);
        // It is behind our port, on the second of its two paths, and the port moves.
        peers.follow(PeerId(1), &PeerAddress { qp: 10, lid: 9, gid: [0; 16] }, false);
        let before = Address { lid: 8, lmc: 1, qp: 0, ..address };
        peers.moved(&Address { lid: 6, ..before }, &before);
        assert_eq!(peers.get(PeerId(1)).unwrap().lid, 9);
        peers.moved(&before, &Address { lid: 20, ..before });
        assert_eq!(peers.get(PeerId(1)).unwrap().lid, 21);
        peers.follow(PeerId(1), &PeerAddress { qp: 10, lid: 4, gid: [0; 16] }, false);
        assert!(peers.learn(PeerId(3), &Address { global: true, ..address }));
        // A port that had no GID gets one: no peer that needs no route has one by that.
        peers.moved(&Address { gid: Gid::default(), lid: 20, ..before }, &Address { lid: 24, ..before });
        assert_eq!(peers.vector(PeerId(1), 2, 1, 0).unwrap().global, None);
        assert!(peers.learn(PeerId(2), &Address { ethernet: true, lid: 0, ..address }));
        let route = peers.vector(PeerId(2), 2, 0, 5).unwrap().global.unwrap();
        assert_eq!((route.dgid, route.source_index), (gid, 5));
    }

    /// V-10: one side that needs it is enough, and both sides agree.
    #[test]
    fn global_route_is_used_if_either_port_needs_it() {
        let address = |global, last| {
            let mut gid = Gid([7; 16]);
            gid.0[15] = last;
            Address { ethernet: false, global, lid: 3, lmc: 0, qp: 9, gid, domain: None }
        };
        for own in [false, true] {
            let mut peers = Peers::new(4, own);
            for (rank, global) in [(0, own), (1, false), (2, true)] {
                assert!(peers.learn(PeerId(rank), &address(global, rank as u8)));
            }
            let route = |peers: &Peers, rank| peers.vector(PeerId(rank), 1, 0, 0).unwrap().global.map(|it| it.dgid);
            assert_eq!(route(&peers, 1), own.then_some(address(false, 1).gid));
            assert_eq!(route(&peers, 2), Some(address(true, 2).gid));
            // They are elsewhere: that a GID comes along makes no route of it where none is needed.
            for rank in [1, 2] {
                peers.follow(PeerId(rank), &PeerAddress { qp: 9, lid: 5, gid: [9; 16] }, false);
            }
            assert_eq!((route(&peers, 1), route(&peers, 2)), (own.then_some(Gid([9; 16])), Some(Gid([9; 16]))));
            let before = Address { lid: 5, gid: Gid([9; 16]), ..address(own, 0) };
            peers.moved(&before, &Address { lid: 6, gid: Gid([8; 16]), ..before });
            assert_eq!((route(&peers, 1), route(&peers, 2)), (own.then_some(Gid([8; 16])), Some(Gid([8; 16]))));
        }
    }

    #[test]
    fn processes_of_one_domain_are_one_node() {
        let mut peers = Peers::new(5, false);
        for (rank, domain) in [(0, Some(7)), (1, Some(9)), (2, None), (3, Some(7))] {
            assert!(peers.learn(
                PeerId(rank),
                &Address { ethernet: false, global: false, lid: 3, lmc: 0, qp: 9, gid: Gid([7; 16]), domain }
            ));
        }
        let nodes = [0, 1, 2, 3, 4].map(|rank| peers.node(PeerId(rank)));
        assert_eq!(nodes, [Some(0), Some(1), None, Some(0), None]);
    }
}
