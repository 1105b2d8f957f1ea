//! The history of one message, read from a trace: every line that concerns it, found by following what it is
//! called from its submission on: its identity, the operations at both ends, the posts that carry it, the
//! places that it fills.

use std::collections::BTreeSet;

use super::{Line, Subject};

/// What a line calls something that belongs to one message only. Posts, places and keys are names of one
/// rank's.
type Name<'a> = (Option<u32>, &'a str, &'a str);

/// The lines of a trace that concern the message `id` (as the workload numbered it), in their order. Faults
/// and other lines of the simulation between the first and the last of them are part of it.
pub fn message_history(lines: &[Line], id: u64) -> Vec<&Line> {
    let id = format!("{id:x}");
    let mut names: BTreeSet<Name<'_>> = BTreeSet::from([(None, "msg", id.as_str())]);
    let mut picked = vec![false; lines.len()];
    // A later line may bring a name by which an earlier one (a registration before its RTS) is known: until
    // nothing is new.
    loop {
        let known = names.len();
        for (picked, line) in picked.iter_mut().zip(lines) {
            let mut here = names_in(line).peekable();
            if here.peek().is_some() && names_in(line).any(|name| names.contains(&name)) {
                *picked = true;
                names.extend(here);
            }
        }
        if known == names.len() {
            break;
        }
    }
    let first = picked.iter().position(|picked| *picked);
    let last = picked.iter().rposition(|picked| *picked);
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let during = |(index, line): &(usize, &Line)| {
        picked[*index] || ((first..=last).contains(index) && line.subject == Subject::Cluster)
    };
    lines.iter().enumerate().filter(during).map(|(_, line)| line).collect()
}

/// The names in a line: `msg X`, `op R:X` for the operation X of rank R, `post X`, `place X`, `key X`.
fn names_in(line: &Line) -> impl Iterator<Item = Name<'_>> {
    let rank = match line.subject {
        Subject::Rank(rank) => Some(rank),
        _ => None,
    };
    let words = || line.what.split([' ', ',', ';']).filter(|word| !word.is_empty());
    words().zip(words().skip(1)).filter_map(move |(sort, value)| {
        let value = value.strip_suffix(':').unwrap_or(value);
        match sort {
            "msg" | "op" => Some((None, sort, value)),
            "post" | "place" | "key" => Some((rank, sort, value)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerail_core::time::Time;

    fn lines(text: &[(u64, Subject, &str)]) -> Vec<Line> {
        text.iter()
            .map(|(at, subject, what)| Line { at: Time(*at), subject: *subject, what: (*what).to_owned() })
            .collect()
    }

    /// A rendezvous is followed from submission to completion, over both ranks, with the fault on the way; a
    /// message beside it is left out.
    #[test]
    fn rendezvous_trace_is_complete_and_excludes_others() {
        let (a, b, c) = (Subject::Rank(0), Subject::Rank(1), Subject::Rank(2));
        let trace = lines(&[
            (1, Subject::Cluster, "before it all"),
            (2, a, "send msg 2a to rank 1, op 0:7"),
            (3, a, "hca0: post 5 to rank 1: RTS op 0:7, msg 2a [Ordered 3] acks 0/0"),
            (4, a, "hca0: post 6 to rank 1: EAGER 10 bytes, op 0:8, msg 2b [Ordered 4] acks 0/0"),
            (5, b, "hca0: from rank 0: RTS op 0:7, msg 2a [Ordered 3] acks 0/0; taken"),
            (6, b, "hca0: post 9 to rank 0: CTS op 0:7, op 1:7, 4096 bytes [Unordered 0] acks 4/0"),
            (7, Subject::Cluster, "port 3 is down"),
            (8, a, "hca0: post 7 to rank 1: DATA op 1:7 at 0, 4096 bytes [Unordered 0] acks 0/0"),
            (9, c, "hca0: post 7 to rank 1: DATA op 1:9 at 0, 4096 bytes [Unordered 0] acks 0/0"),
            (10, b, "hca0: from rank 0: DATA op 1:7 at 0, 4096 bytes [Unordered 0] acks 0/0; 4096 bytes to place 77"),
            (11, b, "hca0: place 77 filled"),
            (12, b, "hca0: place 770 filled"),
            (12, b, "hca0: post 7 is over: Done"),
            (13, a, "hca0: post 7 is over: Done"),
        ]);
        let reported: Vec<u64> = message_history(&trace, 0x2a).iter().map(|line| line.at.0).collect();
        assert_eq!(reported, [2, 3, 5, 6, 7, 8, 10, 11, 13]);
        assert!(message_history(&trace, 0x2).is_empty(), "2 is not the name of a message here");
    }
}
