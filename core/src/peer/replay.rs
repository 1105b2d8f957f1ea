//! What is to be sent again after a connection died (F-5, F-6), and how far a replay has come.

use crate::seq::Seq;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// Pending: bit per lane, and [`READS`].
    pending: u8,
    /// Where the scan for lost packets continues in each lane.
    at: [Seq; 2],
    /// Payloads that wait for their copy: their rail died during the placement (F-6).
    pub aborted_placements: u16,
}

/// In [`Replay::pending`], beside the bits of the lanes: remote reads.
const READS: u8 = 1 << 2;

impl Replay {
    /// Nothing to replay.
    pub(crate) const fn none(first: Seq) -> Replay {
        Replay { pending: 0, at: [first; 2], aborted_placements: 0 }
    }

    /// Whether anything is to be sent again.
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending != 0
    }

    /// Whether a lane has packets to be looked at.
    pub(crate) const fn has_lane(&self, lane: usize) -> bool {
        self.pending >> lane & 1 == 1
    }

    /// Looks at a lane's packets from `oldest` on.
    pub(crate) const fn begin(&mut self, lane: usize, oldest: Seq) {
        self.at[lane] = oldest;
        self.pending |= 1 << lane;
    }

    /// Where to continue; packets before `oldest` have been acknowledged and are gone.
    pub(crate) fn position(&self, lane: usize, oldest: Seq) -> Seq {
        if self.at[lane].is_before(oldest) { oldest } else { self.at[lane] }
    }

    /// Continues there.
    pub(crate) const fn set_position(&mut self, lane: usize, psn: Seq) {
        self.at[lane] = psn;
    }

    /// A lane has no further packet.
    pub(crate) const fn end(&mut self, lane: usize) {
        self.pending &= !(1 << lane);
    }

    /// Whether remote reads may have to be repeated.
    pub(crate) const fn has_reads(&self) -> bool {
        self.pending & READS != 0
    }

    pub(crate) const fn begin_reads(&mut self) {
        self.pending |= READS;
    }

    pub(crate) const fn end_reads(&mut self) {
        self.pending &= !READS;
    }

    /// The channel is over.
    pub(crate) const fn cancel(&mut self) {
        (self.pending, self.aborted_placements) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_reads_are_separate() {
        let mut replay = Replay::none(Seq(5));
        assert!(!replay.is_pending());
        replay.begin(1, Seq(7));
        replay.begin_reads();
        assert!(!replay.has_lane(0) && replay.has_lane(1) && replay.has_reads());
        replay.set_position(1, Seq(9));
        assert_eq!((replay.position(1, Seq(8)), replay.position(1, Seq(12))), (Seq(9), Seq(12)));
        replay.end(1);
        assert!(replay.is_pending());
        replay.end_reads();
        assert!(!replay.is_pending());
        replay.begin(0, Seq(0));
        replay.aborted_placements = 1;
        replay.cancel();
        assert_eq!(replay, Replay { at: [Seq(0), Seq(9)], ..Replay::none(Seq(0)) });
    }
}
