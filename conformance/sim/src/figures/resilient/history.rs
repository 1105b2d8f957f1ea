//! One recovery, read from a simulation's trace: when each end detected the fault, when the first packet went
//! out again, when the connection stood anew.
//!
//! All moments are those of the trace ([`crate::trace`]), which is written where rails are called and report;
//! nothing here or in the transport stops a time. A packet goes out again under its own number (F-5), so a
//! post whose lane and number its rank has posted to that peer before is a replay.

use std::collections::{BTreeSet, VecDeque};

use crate::figures::{Flight, Mark, Sort, Timeline};
use crate::trace::{Line, Subject};

/// What a rank's rail did or reported.
#[derive(Clone, Debug, PartialEq)]
enum What {
    /// A packet was handed to it. `text` describes it in the same words at both ends.
    Post {
        to: u32,
        text: String,
        again: bool,
    },
    /// A packet came.
    Taken {
        from: u32,
        text: String,
    },
    Up,
    Down,
    Connect,
    Abort,
}

#[derive(Clone, Debug, PartialEq)]
struct Event {
    at_us: f64,
    rank: u32,
    rail: String,
    what: What,
}

/// A simulation with one fault (and perhaps others before, that make it worse).
#[derive(Clone, Debug)]
pub(super) struct History {
    events: Vec<Event>,
    /// The last fault, in microseconds.
    fault_us: f64,
}

/// What a recovery took.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recovery {
    /// When the fault happened, in microseconds of virtual time.
    pub(super) fault_us: f64,
    /// When the first end reported that the connection is dead.
    pub(super) detected_us: f64,
    /// When the first packet went out again.
    pub(super) replayed_us: f64,
    /// When the failed rail stood again at both ends, if it did.
    pub(super) connected_us: Option<f64>,
    /// When the first payload came over it since.
    pub(super) payload_us: Option<f64>,
    /// A round trip before the fault, in microseconds: the mean of packets there and of packets back.
    pub(super) round_trip_us: f64,
    /// The failed rail's name.
    rail: String,
}

impl Recovery {
    /// The same with the first replay at this moment, of payload that is written: no trace shows when that
    /// comes.
    pub(super) fn replayed_at(self, replayed_us: f64) -> Recovery {
        Recovery { replayed_us, payload_us: None, ..self }
    }
}

fn microseconds(line: &Line) -> f64 {
    line.at.0 as f64 / 1000.0
}

/// Lane and number of a described packet.
fn number(text: &str) -> Option<&str> {
    let from = text.find('[')?;
    text[from..].find(']').map(|len| &text[from..=from + len])
}

/// The rank that a phrase names behind its first words, and what follows.
fn peer<'t>(text: &'t str, words: &str) -> Option<(u32, &'t str)> {
    let rest = text.strip_prefix(words)?;
    let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
    Some((rest[..end].parse().ok()?, rest[end..].trim_start_matches(": ")))
}

/// Whether a described packet brings payload of messages.
fn has_payload(text: &str) -> bool {
    ["EAGER", "AGGREGATE", "DATA", "PUT", "WRITE", "READ"].iter().any(|word| text.starts_with(word))
}

impl History {
    /// Reads a trace; `None` where no fault happened.
    pub(super) fn read(lines: &[Line]) -> Option<History> {
        let is_fault = |line: &&Line| line.subject == Subject::Cluster && line.what.starts_with("fault: ");
        let fault_us = microseconds(lines.iter().rfind(is_fault)?);
        let mut posted = BTreeSet::new();
        let mut events = Vec::new();
        for line in lines {
            let Subject::Rank(rank) = line.subject else { continue };
            let Some((rail, event_text)) = line.what.split_once(": ") else { continue };
            let Some(what) = Self::event_text(event_text, rank, &mut posted) else { continue };
            events.push(Event { at_us: microseconds(line), rank, rail: rail.to_owned(), what });
        }
        Some(History { events, fault_us })
    }

    fn event_text(event_text: &str, rank: u32, posted: &mut BTreeSet<(u32, u32, String)>) -> Option<What> {
        if let Some((from, rest)) = peer(event_text, "from rank ") {
            let text = rest.split_once("; ").map_or(rest, |(text, _)| text).to_owned();
            return Some(What::Taken { from, text });
        }
        if let Some(rest) = event_text.strip_prefix("post ") {
            let (_, rest) = rest.split_once(' ')?;
            let (to, text) = peer(rest, "to rank ")?;
            let again = number(text).is_some_and(|number| !posted.insert((rank, to, number.to_owned())));
            return Some(What::Post { to, text: text.to_owned(), again });
        }
        match event_text {
            _ if event_text.starts_with("up to rank ") => Some(What::Up),
            _ if event_text.starts_with("down to rank ") => Some(What::Down),
            _ if event_text.starts_with("connect to rank ") => Some(What::Connect),
            _ if event_text.starts_with("abort rank ") => Some(What::Abort),
            _ => None,
        }
    }

    fn after(&self, from_us: f64) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.at_us >= from_us)
    }

    /// What the recovery took; `None` where no end noticed the fault, or nothing went out again.
    pub(super) fn recovery(&self) -> Option<Recovery> {
        let fault_us = self.fault_us;
        let down = self.after(fault_us).find(|event| event.what == What::Down)?;
        let (detected_us, rail) = (down.at_us, down.rail.clone());
        let again = |event: &&Event| matches!(event.what, What::Post { again: true, .. });
        let replayed_us = self.after(detected_us).find(again)?.at_us;
        let up = |rank: u32| {
            let up = |event: &&Event| event.rank == rank && event.rail == rail && event.what == What::Up;
            self.after(detected_us).find(up).map(|event| event.at_us)
        };
        let connected_us = up(0).zip(up(1)).map(|(one, other)| one.max(other));
        let payload_us = connected_us.and_then(|connected_us| {
            let brings = |event: &&Event| match &event.what {
                What::Taken { text, .. } => event.rail == rail && has_payload(text),
                _ => false,
            };
            self.after(connected_us).find(brings).map(|event| event.at_us)
        });
        let round_trip_us = self.one_way_us(0, &rail)? + self.one_way_us(1, &rail)?;
        Some(Recovery { fault_us, detected_us, replayed_us, connected_us, payload_us, round_trip_us, rail })
    }

    /// When unconfirmed writes begin anew: the first one that a rank posts once it has fresh keys for
    /// the round that it requested (F-7). Writes have no numbers, so with one message under way this is how
    /// their replay is known.
    pub(super) fn written_again_us(&self) -> Option<f64> {
        let resumes = |event: &&Event| matches!(&event.what, What::Post { text, .. } if text.starts_with("RESUME "));
        let resume = self.after(self.fault_us).find(resumes)?;
        let by = |event: &&Event| event.rank == resume.rank;
        let brings = |event: &&Event| matches!(&event.what, What::Taken { text, .. } if text.starts_with("CTS "));
        let keys = self.after(resume.at_us).filter(by).find(brings)?;
        let writes = |event: &&Event| matches!(&event.what, What::Post { text, .. } if text.starts_with("WRITE "));
        self.after(keys.at_us).filter(by).find(writes).map(|event| event.at_us)
    }

    /// Mean time from a packet's post to its coming, from a rank, over rails that stay, before the fault.
    fn one_way_us(&self, from: u32, failed: &str) -> Option<f64> {
        let flights = self.flights();
        let before = flights.iter().filter(|(event, taken)| {
            let (at_us, taken) = (event.at_us, taken.as_ref());
            event.rank == from && at_us > self.fault_us / 2.0 && taken.is_some_and(|at| *at < self.fault_us)
        });
        let of = |failed: Option<&str>| -> Vec<f64> {
            let flights = before.clone().filter(|(event, _)| failed.is_none_or(|failed| event.rail != failed));
            flights.filter_map(|(event, taken)| Some((*taken)? - event.at_us)).collect()
        };
        let others = of(Some(failed));
        let times = if others.is_empty() { of(None) } else { others };
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    /// Packets, each with the moment at which it came over the rail that it was given to.
    fn flights(&self) -> Vec<(&Event, Option<f64>)> {
        let mut flights: Vec<(&Event, Option<f64>)> = Vec::new();
        let mut open: std::collections::BTreeMap<(u32, &str, &str), VecDeque<usize>> = Default::default();
        for event in &self.events {
            match &event.what {
                What::Post { text, .. } => {
                    open.entry((event.rank, &event.rail, text)).or_default().push_back(flights.len());
                    flights.push((event, None));
                }
                What::Taken { from, text } => {
                    if let Some(index) = open.get_mut(&(*from, &*event.rail, &**text)).and_then(VecDeque::pop_front) {
                        flights[index].1 = Some(event.at_us);
                    }
                }
                _ => {}
            }
        }
        flights
    }

    /// The recovery as a picture: from a little before the fault to a little after the first replay, and from
    /// a little before the connection stands to the first payload over it.
    pub(super) fn timeline(&self, recovery: &Recovery) -> Timeline {
        let mut rails: Vec<&str> = self.events.iter().map(|event| &*event.rail).collect();
        rails.sort_unstable();
        rails.dedup();
        // The ranks' lanes of a rail beside each other, the failed rail below.
        rails.sort_by_key(|rail| *rail == recovery.rail);
        let lanes: Vec<(u32, &str)> = rails.iter().flat_map(|rail| [(0, *rail), (1, *rail)]).collect();
        let lane = |rank: u32, rail: &str| lanes.iter().position(|lane| *lane == (rank, rail));
        let margin = 2.0;
        let mut windows = vec![(recovery.fault_us - margin, recovery.replayed_us + 2.0 * margin)];
        if let Some((connected_us, payload_us)) = recovery.connected_us.zip(recovery.payload_us) {
            let up = |event: &&Event| event.what == What::Up && event.rail == recovery.rail;
            let from = self.after(recovery.detected_us).find(up).map_or(connected_us, |event| event.at_us) - margin;
            match windows[0].1 >= from {
                true => windows[0].1 = payload_us + margin,
                false => windows.push((from, payload_us + margin)),
            }
        }
        let shown = |at: f64| windows.iter().any(|(from, to)| (*from..=*to).contains(&at));
        let flights = self.flights().into_iter().filter_map(|(event, taken_us)| {
            let What::Post { to, text, again } = &event.what else { return None };
            let sort = match text {
                _ if *again => Sort::Replay,
                text if text.starts_with("FENCE") && text.contains(" answer") => Sort::Answer,
                text if text.starts_with("FENCE") => Sort::Fence,
                text if text.starts_with("CONNECT") => Sort::Connect,
                text if has_payload(text) => Sort::Payload,
                _ => Sort::Other,
            };
            let (from, to) = (lane(event.rank, &event.rail)?, lane(*to, &event.rail)?);
            let is_shown = shown(event.at_us) || taken_us.is_some_and(shown);
            is_shown.then_some(Flight { sort, from, to, sent_us: event.at_us, taken_us })
        });
        let mut marks = vec![
            Mark { lane: None, at_us: recovery.fault_us, name: "fault".into() },
            Mark { lane: None, at_us: recovery.replayed_us, name: "first replay".into() },
        ];
        marks.extend(recovery.payload_us.map(|at_us| Mark { lane: None, at_us, name: "payload".into() }));
        let event_text = self.after(recovery.fault_us).filter(|event| shown(event.at_us)).filter_map(|event| {
            let name = match event.what {
                What::Down => "down",
                What::Abort => "abort_pending",
                What::Connect => "dials",
                What::Up => "up",
                What::Post { .. } | What::Taken { .. } => return None,
            };
            Some(Mark { lane: lane(event.rank, &event.rail), at_us: event.at_us, name: name.into() })
        });
        marks.extend(event_text);
        Timeline {
            lanes: lanes.iter().map(|(rank, rail)| format!("rank {rank}, {rail}")).collect(),
            flights: flights.collect(),
            marks,
            windows,
        }
    }
}

#[cfg(test)]
mod tests {
    use rerail_core::time::Time;

    use super::*;

    fn lines(text: &[(u64, Subject, &str)]) -> Vec<Line> {
        text.iter()
            .map(|(us, subject, what)| Line { at: Time(us * 1000), subject: *subject, what: (*what).to_owned() })
            .collect()
    }

    /// A rail fails with two packets on their way; the other end is queried, answers, and one of them goes
    /// out again.
    fn trace() -> Vec<Line> {
        let (a, b) = (Subject::Rank(0), Subject::Rank(1));
        lines(&[
            (60, a, "v1: post 1 to rank 1: EAGER 8 bytes, op 0:1 [Ordered 1] acks 0/0"),
            (64, b, "v1: from rank 0: EAGER 8 bytes, op 0:1 [Ordered 1] acks 0/0; taken"),
            (70, b, "v1: post 2 to rank 0: ACK beyond 0 0 acks 2/0"),
            (76, a, "v1: from rank 1: ACK beyond 0 0 acks 2/0; taken"),
            (99, a, "v0: post 3 to rank 1: EAGER 8 bytes, op 0:2 [Ordered 2] acks 0/0"),
            (100, Subject::Cluster, "fault: qp-error rank0.hca0"),
            (103, a, "v0: down to rank 1: Device { code: 5 }"),
            (103, a, "v1: post 4 to rank 1: FENCE rail 0 connection 1 (1) acks 0/0"),
            (107, b, "v1: from rank 0: FENCE rail 0 connection 1 (1) acks 0/0; taken"),
            (107, b, "v0: abort rank 0"),
            (108, b, "v1: post 5 to rank 0: FENCE rail 0 connection 1 (1) answer acks 2/0"),
            (112, a, "v1: from rank 1: FENCE rail 0 connection 1 (1) answer acks 2/0; taken"),
            (113, a, "v1: post 6 to rank 1: EAGER 8 bytes, op 0:2 [Ordered 2] acks 0/0"),
            (150, a, "v0: up to rank 1"),
            (152, b, "v0: up to rank 0"),
            (160, a, "v0: post 7 to rank 1: EAGER 8 bytes, op 0:3 [Ordered 3] acks 0/0"),
            (164, b, "v0: from rank 0: EAGER 8 bytes, op 0:3 [Ordered 3] acks 0/0; taken"),
        ])
    }

    #[test]
    fn a_recovery_is_read_from_a_trace() {
        let history = History::read(&trace()).expect("a fault");
        let recovery = history.recovery().expect("a recovery");
        assert_eq!((recovery.fault_us, recovery.detected_us, recovery.replayed_us), (100.0, 103.0, 113.0));
        assert_eq!((recovery.connected_us, recovery.payload_us), (Some(152.0), Some(164.0)));
        assert_eq!(recovery.round_trip_us, 10.0);
        let timeline = history.timeline(&recovery);
        assert_eq!(timeline.lanes, ["rank 0, v1", "rank 1, v1", "rank 0, v0", "rank 1, v0"]);
        assert_eq!(timeline.windows, [(98.0, 117.0), (148.0, 166.0)]);
        let sorts: Vec<Sort> = timeline.flights.iter().map(|flight| flight.sort).collect();
        assert_eq!(sorts, [Sort::Payload, Sort::Fence, Sort::Answer, Sort::Replay, Sort::Payload]);
        assert_eq!(timeline.flights[0].taken_us, None);
    }

    #[test]
    fn writes_begin_anew_with_fresh_keys() {
        let (a, b) = (Subject::Rank(0), Subject::Rank(1));
        let history = History::read(&lines(&[
            (90, a, "v1: post 1 to rank 1: WRITE 16384 bytes, key 5"),
            (100, Subject::Cluster, "fault: qp-error rank0.hca0"),
            (102, a, "v0: from rank 1: CTS op 0:1, op 1:1, 65536 bytes [Unordered 1] acks 0/0; taken"),
            (103, a, "v0: post 2 to rank 1: WRITE 16384 bytes, key 5"),
            (105, a, "v0: post 3 to rank 1: RESUME 1 round 1 [Unordered 4] acks 0/0"),
            (106, a, "v0: post 4 to rank 1: WRITE 16384 bytes, key 5"),
            (108, b, "v0: from rank 0: CTS op 1:7, op 0:7, 65536 bytes [Unordered 9] acks 0/0; taken"),
            (109, b, "v0: post 5 to rank 0: WRITE 16384 bytes, key 6"),
            (112, a, "v0: from rank 1: CTS op 0:1, op 1:1, 65536 bytes [Unordered 2] acks 0/0; taken"),
            (113, a, "v0: post 6 to rank 1: WRITE 16384 bytes, key 7"),
        ]));
        assert_eq!(history.expect("a fault").written_again_us(), Some(113.0));
    }

    #[test]
    fn trace_without_retransmission_gives_no_recovery_time() {
        let all = trace();
        let without_faults: Vec<Line> = all.iter().filter(|line| line.subject != Subject::Cluster).cloned().collect();
        assert!(History::read(&without_faults).is_none());
        let unnoticed = History::read(&all[..6]).expect("a fault");
        assert_eq!(unnoticed.recovery(), None);
        let unrepeated = History::read(&all[..12]).expect("a fault");
        assert_eq!(unrepeated.recovery(), None);
    }
}
