//! The administrative network: reliable datagrams between ranks, slow, and apart from all rails.
//!
//! Stands for the launcher's management network (Ethernet beside the fabric), over which recovery can query
//! a process whose rails are all silent. In order per pair of ranks, never duplicated; lost only where it is
//! cut or an end is dead.

use std::collections::{BTreeMap, BTreeSet};

use rerail_core::time::Time;

/// A datagram that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// The network.
#[derive(Debug)]
pub struct AdminNet {
    latency_ns: u64,
    /// Under way, by arrival and order of sending.
    flying: BTreeMap<(Time, u64), Datagram>,
    sent: u64,
    lost: u64,
    /// Ranks that are cut off.
    cut: BTreeSet<u32>,
    all_cut: bool,
}

impl AdminNet {
    /// One with so much latency.
    pub fn new(latency_ns: u64) -> Self {
        AdminNet { latency_ns, flying: BTreeMap::new(), sent: 0, lost: 0, cut: BTreeSet::new(), all_cut: false }
    }

    /// Sends; a datagram from or to a rank that is cut off is lost.
    pub fn send(&mut self, now: Time, from: u32, to: u32, bytes: &[u8]) {
        if self.is_cut(from) || self.is_cut(to) {
            self.lost += 1;
            return;
        }
        let at = Time(now.0.saturating_add(self.latency_ns));
        self.flying.insert((at, self.sent), Datagram { from, to, bytes: bytes.to_vec() });
        self.sent += 1;
    }

    /// The next datagram that has come by `now`; what flies to or from a rank that is cut off is lost.
    pub fn receive(&mut self, now: Time) -> Option<Datagram> {
        loop {
            let entry = self.flying.first_entry().filter(|entry| entry.key().0 <= now)?;
            let datagram = entry.remove();
            if !self.is_cut(datagram.from) && !self.is_cut(datagram.to) {
                return Some(datagram);
            }
            self.lost += 1;
        }
    }

    /// When the next datagram comes.
    pub fn next_event(&self) -> Option<Time> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    /// Cuts a rank off, or all ranks (`None`); or ends that.
    pub fn set_cut(&mut self, rank: Option<u32>, cut: bool) {
        match (rank, cut) {
            (None, cut) => self.all_cut = cut,
            (Some(rank), true) => {
                self.cut.insert(rank);
            }
            (Some(rank), false) => {
                self.cut.remove(&rank);
            }
        }
    }

    /// No rank is cut off any more.
    pub fn heal(&mut self) {
        self.all_cut = false;
        self.cut.clear();
    }

    /// Datagrams lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn is_cut(&self, rank: u32) -> bool {
        self.all_cut || self.cut.contains(&rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(net: &mut AdminNet, now: u64) -> Vec<(u32, u32, Vec<u8>)> {
        std::iter::from_fn(|| net.receive(Time(now))).map(|it| (it.from, it.to, it.bytes)).collect()
    }

    #[test]
    fn datagrams_come_after_the_latency_in_order() {
        let mut net = AdminNet::new(100);
        net.send(Time(0), 1, 2, b"a");
        net.send(Time(0), 3, 2, b"b");
        net.send(Time(5), 1, 2, b"c");
        assert_eq!(net.next_event(), Some(Time(100)));
        assert_eq!(received(&mut net, 99), []);
        assert_eq!(received(&mut net, 100), [(1, 2, b"a".to_vec()), (3, 2, b"b".to_vec())]);
        assert_eq!(net.next_event(), Some(Time(105)));
        assert_eq!(received(&mut net, 200), [(1, 2, b"c".to_vec())]);
        assert_eq!((net.next_event(), net.lost()), (None, 0));
    }

    #[test]
    fn admin_net_cut_drops_sent_and_in_flight_messages() {
        let mut net = AdminNet::new(100);
        net.send(Time(0), 1, 2, b"flies");
        net.set_cut(Some(2), true);
        net.send(Time(1), 1, 2, b"to");
        net.send(Time(1), 2, 1, b"from");
        net.send(Time(1), 1, 3, b"beside");
        assert_eq!(received(&mut net, 500), [(1, 3, b"beside".to_vec())]);
        assert_eq!(net.lost(), 3);
        net.set_cut(None, true);
        net.send(Time(500), 1, 3, b"all");
        net.heal();
        net.send(Time(500), 1, 2, b"healed");
        assert_eq!(received(&mut net, 700), [(1, 2, b"healed".to_vec())]);
        assert_eq!(net.lost(), 4);
    }
}
