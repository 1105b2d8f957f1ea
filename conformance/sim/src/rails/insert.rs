//! Forged packets between true ones: numbers of a lane with some that the endpoint behind never gave.
//!
//! A forged packet that took the number of a true one would displace it, and the channel would soon be dead.
//! So it has a number of its own: the endpoint's numbers go out shifted by the forged ones before them, and
//! acknowledgments come in shifted back. What was forged goes out again after its connection has died, as
//! everything with a number must.

use rerail_core::wire::Repr;

/// The forged packets of a lane.
#[derive(Clone, Debug, Default)]
pub struct Insertions {
    /// The first number of the endpoint's that was seen: all others are counted from it.
    base: Option<u32>,
    /// The endpoint's next number.
    next: u32,
    /// In the order of their numbers.
    forged: Vec<Forged>,
    /// What the peer has acknowledged, as it counts.
    acked: u32,
}

/// A forged packet.
#[derive(Clone, Debug)]
struct Forged {
    /// The endpoint's number that follows it.
    before: u32,
    repr: Repr,
    /// Its connection may have died before it arrived.
    is_lost: bool,
}

impl Insertions {
    /// A number of the endpoint's goes out: as what.
    pub fn outgoing(&mut self, psn: u32) -> u32 {
        let base = *self.base.get_or_insert(psn);
        let own = psn.wrapping_sub(base);
        if own > u32::MAX / 2 {
            return psn;
        }
        self.next = self.next.max(own + 1);
        let before = self.forged.partition_point(|forged| forged.before <= own);
        psn.wrapping_add(before as u32)
    }

    /// An acknowledgment comes in: as what the endpoint counts.
    pub fn incoming(&mut self, ack: u32) -> u32 {
        let Some(base) = self.base else { return ack };
        let acked = ack.wrapping_sub(base);
        if acked > u32::MAX / 2 {
            return ack;
        }
        self.acked = self.acked.max(acked);
        ack.wrapping_sub(self.before(acked))
    }

    /// Forged packets before a number, as the peer counts.
    fn before(&self, number: u32) -> u32 {
        let is_before = |(index, forged): (u32, &Forged)| forged.before.saturating_add(index) < number;
        (0..).zip(&self.forged).take_while(|it| is_before(*it)).count() as u32
    }

    /// Numbers a forged packet; `None`: the endpoint has not sent anything in this lane yet.
    pub fn insert(&mut self, mut repr: Repr) -> Option<Repr> {
        let base = self.base?;
        repr.common.psn = base.wrapping_add(self.next).wrapping_add(self.forged.len() as u32);
        self.forged.push(Forged { before: self.next, repr: repr.clone(), is_lost: false });
        Some(repr)
    }

    /// A connection has died.
    pub fn lose(&mut self) {
        let acked = self.before(self.acked) as usize;
        self.forged.iter_mut().skip(acked).for_each(|forged| forged.is_lost = true);
    }

    /// One that has to go out again.
    pub fn again(&mut self) -> Option<Repr> {
        let forged = self.forged.iter_mut().find(|forged| forged.is_lost)?;
        forged.is_lost = false;
        Some(forged.repr.clone())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.forged.len()
    }
}

#[cfg(test)]
mod tests {
    use rerail_core::wire::{Body, Common};

    use super::*;

    /// The numbers that go out are all different and without a gap, and an acknowledgment of them means what
    /// it meant.
    #[test]
    fn numbers_are_shifted_and_shifted_back() {
        let first = u32::MAX - 2;
        let mut lane = Insertions::default();
        let (mut went, mut own) = (Vec::new(), 0);
        assert!(lane.insert(Repr { common: Common::default(), body: Body::Credit }).is_none());
        for step in 0..20 {
            if step % 3 == 2 {
                let repr = lane.insert(Repr { common: Common::default(), body: Body::Credit }).unwrap();
                went.push((repr.common.psn, None));
            } else {
                went.push((lane.outgoing(first.wrapping_add(own)), Some(first.wrapping_add(own))));
                own += 1;
            }
        }
        for (at, (psn, own)) in went.iter().enumerate() {
            assert_eq!(*psn, first.wrapping_add(at as u32));
            if let Some(own) = own {
                assert_eq!(lane.outgoing(*own), *psn, "the same again, when it goes out again");
                assert_eq!(lane.incoming(*psn), *own, "all before it, and not itself");
            }
        }
        assert_eq!(lane.len(), 6);
        lane.lose();
        assert!(lane.again().is_none(), "all but the last are acknowledged, and that is true");
    }
}
