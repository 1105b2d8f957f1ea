//! Which messages came to which receives, as far as MPI decides it, whatever the timing was: of the messages
//! of one sender those that receives with the same selector take come to these in the order of sending. Two
//! runs of a programme that delivers everything must agree in this, however fast what went: with the short
//! way and without.

use std::collections::{BTreeMap, BTreeSet};

use rerail_core::endpoint::{Selector, TagMatch};

use super::ledger::{Ledger, Request, Submission};
use super::verdict::{Disorder, Verdict};

/// A selector that can be sorted: source, tag, mask.
type Wanted = (Option<u32>, Option<(u64, u64)>);

/// Receiver, sender, selector of the receives.
type Stream = (u32, u32, Wanted);

/// What came, by stream: the serial numbers of its messages, in the order of the receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    streams: BTreeMap<Stream, Vec<u32>>,
    /// Pairs that have given each other up: what was under way between them may have come or not.
    parted: BTreeSet<(u32, u32)>,
}

impl Deliveries {
    /// Those of a ledger.
    pub fn of(ledger: &Ledger) -> Self {
        let ranks = ledger.books.len() as u32;
        let mut deliveries = Deliveries::default();
        for rank in 0..ranks {
            let parted = (0..ranks).filter(|peer| ledger.is_parted(rank, *peer) || ledger.is_closed(rank, *peer));
            deliveries.parted.extend(parted.map(|peer| (rank, peer)));
            // A claim takes its message when it is made, not when the message is received.
            let posted = |entry: &&Request| match entry.submission {
                Submission::Receive { claimed: Some(claim), .. } => claim.at,
                _ => entry.submitted,
            };
            let mut requests: Vec<&Request> = ledger.book(rank).requests.iter().collect();
            requests.sort_by_key(posted);
            for entry in requests {
                let (Submission::Receive { from, .. } | Submission::Multi { from, .. }) = entry.submission else {
                    continue;
                };
                let mut parts = entry.parts.clone();
                parts.sort_by_key(|part| part.index);
                for part in parts {
                    let stream = (rank, part.name.source(), wanted(&from));
                    deliveries.streams.entry(stream).or_default().push(part.name.serial());
                }
            }
        }
        deliveries
    }

    /// How many messages came.
    pub fn len(&self) -> usize {
        self.streams.values().map(Vec::len).sum()
    }

    /// Whether none came.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// What is not as in another run of the same programme, or not in the order of sending.
    pub fn difference(&self, other: &Deliveries) -> Option<Verdict> {
        let streams: BTreeSet<&Stream> = self.streams.keys().chain(other.streams.keys()).collect();
        let found = streams.into_iter().find_map(|stream| {
            let (receiver, sender, _) = *stream;
            let pair = (receiver, sender);
            let of = |run: &Deliveries| run.streams.get(stream).cloned().unwrap_or_default();
            let (here, there) = (of(self), of(other));
            let unsorted = |serials: &[u32]| serials.windows(2).position(|two| two[0] >= two[1]).map(|at| at + 1);
            let is_parted = self.parted.contains(&pair) || other.parted.contains(&pair);
            let differs = (0..here.len().max(there.len())).find(|at| here.get(*at) != there.get(*at));
            let at = unsorted(&here).or(unsorted(&there)).or(differs.filter(|_| !is_parted))?;
            let (with, without) = (here.get(at).copied(), there.get(at).copied());
            Some(Disorder::Differs { receiver, sender, at: at as u32, with, without })
        });
        found.map(Verdict::Order)
    }
}

fn wanted(from: &Selector) -> Wanted {
    let tag = match from.tag {
        TagMatch::Untagged => None,
        TagMatch::Tagged { tag, ignore } => Some((tag & !ignore, ignore)),
    };
    (from.source.map(|source| source.0), tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliveries(serials: &[u32]) -> Deliveries {
        let streams = BTreeMap::from([((1, 0, (Some(0), Some((7, 0)))), serials.to_vec())]);
        Deliveries { streams, parted: BTreeSet::new() }
    }

    fn differs(one: &Deliveries, other: &Deliveries) -> Option<(u32, Option<u32>, Option<u32>)> {
        match one.difference(other) {
            Some(Verdict::Order(Disorder::Differs { receiver: 1, sender: 0, at, with, without })) => {
                Some((at, with, without))
            }
            None => None,
            other => panic!("{other:?}"),
        }
    }

    /// A message that is missing, or of another place in the order, is found on either side; between peers
    /// that parted only the order counts.
    #[test]
    fn different_deliveries_are_detected() {
        let whole = deliveries(&[0, 2, 3]);
        assert_eq!(differs(&whole, &whole), None);
        assert_eq!((whole.len(), whole.is_empty()), (3, false));
        assert_eq!(differs(&whole, &deliveries(&[0, 2])), Some((2, Some(3), None)));
        assert_eq!(differs(&deliveries(&[0, 2]), &whole), Some((2, None, Some(3))));
        assert_eq!(differs(&whole, &Deliveries::default()), Some((0, Some(0), None)));
        assert_eq!(differs(&whole, &deliveries(&[0, 3, 2])), Some((2, Some(3), Some(2))));
        assert_eq!(differs(&deliveries(&[0, 3, 2]), &deliveries(&[0, 3, 2])), Some((2, Some(2), Some(2))));
        let mut parted = deliveries(&[0, 2]);
        parted.parted.insert((1, 0));
        assert_eq!(differs(&whole, &parted), None);
        assert_eq!(differs(&parted, &deliveries(&[2, 0, 3])), Some((1, Some(2), Some(0))));
    }
}
