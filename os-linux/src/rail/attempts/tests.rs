//! The rules by themselves: single rulings, and all states of two sides that dial, lose and give up.

use std::collections::{BTreeSet, VecDeque};

use super::*;

/// The sides' ranks.
const RANKS: [PeerId; 2] = [PeerId(3), PeerId(8)];
/// Dials that each side makes at most.
const DIALS: u32 = 3;
/// Times that each side gives its end up by itself.
const ABORTS: [u8; 2] = [2, 1];

fn dial(attempt: u32, answers: u32) -> Attempts {
    Attempts { attempt, answers }
}

// H-8, H-10
#[test]
fn single_rulings() {
    let judge = |history: History, theirs, own| history.judge(RANKS[0], RANKS[1], theirs, own);
    let judge_higher = |history: History, theirs, own| history.judge(RANKS[1], RANKS[0], theirs, own);
    let fresh = History::default();
    assert_eq!(judge(fresh, dial(1, 0), None), Ruling::Accept);
    // They cross.
    assert_eq!(judge(fresh, dial(1, 0), Some(1)), Ruling::Crossing);
    assert_eq!(judge_higher(fresh, dial(1, 0), Some(1)), Ruling::Accept);
    // It has accepted ours, and given it up since.
    assert_eq!(judge(fresh, dial(1, 1), Some(1)), Ruling::Accept);
    let seen = History { seen: 4, up_attempt: 0 };
    assert_eq!(judge(seen, dial(4, 0), None), Ruling::Old);
    assert_eq!(judge(seen, dial(5, 0), None), Ruling::Accept);
    // Ours was accepted, so a dial begun without notice of it was given up.
    let up_attempt = History { seen: 4, up_attempt: 6 };
    assert_eq!(judge(up_attempt, dial(5, 5), None), Ruling::Old);
    assert_eq!(judge(up_attempt, dial(5, 6), None), Ruling::Accept);
    assert_eq!(seen.dial(9), dial(9, 4));
}

/// The messages of a connection, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Proof(u32, u32),
    Accepted,
    Crossing,
    Refused,
    End,
}

/// A dial by `by`; messages in flight to the acceptor and to the dialler.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Connection {
    by: usize,
    attempt: u32,
    to_acceptor: VecDeque<Message>,
    to_dialler: VecDeque<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Link {
    Idle,
    /// Ours, by number.
    Dialling(u32),
    Crossed,
    /// Its owner and its number.
    Up(usize, u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Side {
    link: Link,
    history: History,
    dials: u32,
    aborts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    sides: [Side; 2],
    connections: Vec<Connection>,
}

impl State {
    fn new() -> Self {
        let side = Side { link: Link::Idle, history: History::default(), dials: 0, aborts: 0 };
        State { sides: [side.clone(), side], connections: Vec::new() }
    }

    fn connection(&mut self, by: usize, attempt: u32) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|it| it.by == by && it.attempt == attempt)
    }

    /// A side closes its end of a connection: messages on the way to it are lost, the other end is notified
    /// later.
    fn close(&mut self, at: usize, by: usize, attempt: u32) {
        let Some(it) = self.connection(by, attempt) else { return };
        let (out, inward) = match at == by {
            true => (&mut it.to_acceptor, &mut it.to_dialler),
            false => (&mut it.to_dialler, &mut it.to_acceptor),
        };
        inward.clear();
        out.push_back(Message::End);
    }

    fn close_link(&mut self, at: usize) {
        match std::mem::replace(&mut self.sides[at].link, Link::Idle) {
            Link::Dialling(attempt) => self.close(at, at, attempt),
            Link::Up(by, attempt) => self.close(at, by, attempt),
            Link::Idle | Link::Crossed => {}
        }
    }

    fn dial(&mut self, at: usize) {
        let side = &mut self.sides[at];
        side.dials += 1;
        let Attempts { attempt, answers } = side.history.dial(side.dials);
        side.link = Link::Dialling(attempt);
        let to_acceptor = VecDeque::from([Message::Proof(attempt, answers)]);
        self.connections.push(Connection { by: at, attempt, to_acceptor, to_dialler: VecDeque::new() });
    }

    /// The next message of a connection arrives.
    fn arrive(&mut self, index: usize, to_acceptor: bool) {
        let it = &mut self.connections[index];
        let (by, attempt) = (it.by, it.attempt);
        let queue = if to_acceptor { &mut it.to_acceptor } else { &mut it.to_dialler };
        let Some(message) = queue.pop_front() else { unreachable!("the caller has looked") };
        let is_over = message == Message::End || message == Message::Crossing || message == Message::Refused;
        if is_over && it.to_acceptor.is_empty() && it.to_dialler.is_empty() {
            // No further messages on it.
            self.connections.remove(index);
        }
        let at = if to_acceptor { 1 - by } else { by };
        let side = &mut self.sides[at];
        match message {
            Message::Proof(attempt, answers) => {
                let own = if let Link::Dialling(own) = side.link { Some(own) } else { None };
                let theirs = dial(attempt, answers);
                match side.history.judge(RANKS[at], RANKS[1 - at], theirs, own) {
                    Ruling::Accept => {
                        side.history.accepted(theirs);
                        self.close_link(at);
                        self.sides[at].link = Link::Up(by, attempt);
                        self.post(by, attempt, Message::Accepted);
                    }
                    Ruling::Crossing => self.post(by, attempt, Message::Crossing),
                    Ruling::Old => self.post(by, attempt, Message::Refused),
                }
            }
            // For a dial that was given up nothing comes: its words are dropped when it is closed.
            Message::Accepted => {
                side.history.was_up(attempt);
                side.link = Link::Up(by, attempt);
            }
            Message::Crossing => side.link = Link::Crossed,
            Message::Refused => side.link = Link::Idle,
            Message::End => {
                let here = [Link::Up(by, attempt), Link::Dialling(attempt)];
                if side.link == here[0] || (at == by && side.link == here[1]) {
                    side.link = Link::Idle;
                }
            }
        }
    }

    fn post(&mut self, by: usize, attempt: u32, message: Message) {
        if let Some(it) = self.connection(by, attempt) {
            // To a dialler that has closed its end nothing gets through.
            if !it.to_acceptor.contains(&Message::End) {
                it.to_dialler.push_back(message);
            }
        }
    }

    /// All that may happen next.
    fn next(&self) -> Vec<State> {
        let mut next = Vec::new();
        for (at, side) in self.sides.iter().enumerate() {
            if side.link == Link::Idle && side.dials < DIALS {
                let mut state = self.clone();
                state.dial(at);
                next.push(state);
            }
            if side.link != Link::Idle && side.aborts < ABORTS[at] {
                let mut state = self.clone();
                state.sides[at].aborts += 1;
                state.close_link(at);
                next.push(state);
            }
        }
        for (index, it) in self.connections.iter().enumerate() {
            for (to_acceptor, queue) in [(true, &it.to_acceptor), (false, &it.to_dialler)] {
                if !queue.is_empty() {
                    let mut state = self.clone();
                    state.arrive(index, to_acceptor);
                    next.push(state);
                }
            }
        }
        next
    }

    /// Nothing is pending.
    fn is_quiet(&self) -> bool {
        self.connections.iter().all(|it| it.to_acceptor.is_empty() && it.to_dialler.is_empty())
    }
}

/// H-8, H-10: in every interleaving of dials, messages, losses and requests, once nothing is pending, the
/// ends agree: the same connection is established on both, or neither has one and one of them that is free to
/// dial. Neither waits for a dial that was given up for it.
#[test]
fn every_interleaving() {
    let mut seen = BTreeSet::from([State::new()]);
    let mut left = vec![State::new()];
    let (mut quiet, mut standing) = (0, 0);
    while let Some(state) = left.pop() {
        if state.is_quiet() {
            quiet += 1;
            let [a, b] = [state.sides[0].link, state.sides[1].link];
            match (a, b) {
                (Link::Up(..), _) | (_, Link::Up(..)) => {
                    assert_eq!(a, b, "{state:?}");
                    standing += 1;
                }
                // A side ordered to give way waits for the other's dial: that one's owner, the lower rank,
                // has withdrawn it, by its own decision, and is free to dial, or out of dials here.
                (Link::Idle, Link::Crossed) => assert!(state.sides[0].aborts > 0, "{state:?}"),
                _ => assert_eq!((a, b), (Link::Idle, Link::Idle), "{state:?}"),
            }
            // Both give up only if one of them decided so; otherwise a connection is established.
            let aborts: u8 = state.sides.iter().map(|side| side.aborts).sum();
            let dials: u32 = state.sides.iter().map(|side| side.dials).sum();
            assert!(aborts > 0 || dials == 0 || a == b && matches!(a, Link::Up(..)), "{state:?}");
        }
        for next in state.next() {
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    // It has been through something.
    assert!(seen.len() > 10_000 && quiet > 100 && standing > 50, "{} {quiet} {standing}", seen.len());
}
