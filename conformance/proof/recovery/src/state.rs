//! Both ends and all between them: one state of the model, and what can be broken in it.

use crate::end::{End, Place};
use crate::net::{Body, Packet, Rail, Side, X, Y};
use crate::transfer::{Delivered, Part, Receiver, Sender};

/// The most rails that a case has.
pub const RAILS: usize = 2;

/// A bug on purpose: each must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// What was lost is sent again without an answer of the peer.
    NoFence,
    /// The put starts over, on other rails, when the sender's own end is dead.
    ReleaseOnDown,
    /// A side that receives that the peer's end is dead answers that its own is, and ends it later.
    SeverLate,
    /// The receiver counts all FINs, whatever their round, and keeps the count when a round begins.
    NoEpochs,
    /// The receiver counts FINs of the rounds before its own.
    OldFin,
    /// RESUME is a packet of its own, and the FIN that was lost goes out again as it was.
    ResumeBeside,
    /// A claim outlives the rail that was to place the payload.
    ClaimKept,
    /// A FIN that comes again is taken again: there is no window.
    NoWindow,
    /// A dead connection and a living one of the same rail count as one FIN.
    RailsCountedOnce,
    /// The sender takes a CTS for writing at once what is unconfirmed, fenced or not.
    RestartUnfenced,
}

/// What is checked, how far.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// 1 or 2.
    pub rails: usize,
    /// No connection stands at the start.
    pub cold: bool,
    /// Whether there is a put.
    pub put: bool,
    /// What X sends beside it, in order.
    pub script: &'static [Body],
    /// Ends of connections that die of themselves.
    pub deaths: u8,
    /// What happens though it need not: both ends make a connection at once; an end is notified of one that
    /// is over; an end gives up one that is being set up.
    pub races: u8,
    /// Whether a rail is opened while another stands. If not, fewer interleavings are seen, and rails may
    /// stay down.
    pub repairs: bool,
    /// Whether an end notices, at some time, that its connection has died at the other end. If not, it must
    /// get along without.
    pub notices: bool,
    /// FENCEs of one link on their way at once.
    pub fences: usize,
    /// The bug.
    pub mutant: Option<Mutant>,
}

/// A rule that was broken, as a bit.
pub mod broken {
    /// A write landed, or a payload was placed, in a buffer that its owner had back.
    pub const LATE_WRITE: u8 = 1;
    /// A packet took effect twice.
    pub const TWICE: u8 = 2;
    /// Something was freed to go out again while the peer's end of the lost connection lived.
    pub const EARLY: u8 = 4;
    /// Ordered messages were delivered out of order.
    pub const DISORDER: u8 = 8;
    /// A buffer was given back before all of the put had landed.
    pub const INCOMPLETE: u8 = 16;
    /// All of them with their names.
    pub const ALL: [(u8, &str); 5] = [
        (LATE_WRITE, "nothing lands in a buffer that its owner has back"),
        (TWICE, "no packet takes effect twice"),
        (EARLY, "nothing goes out again before both ends are dead"),
        (DISORDER, "ordered messages are delivered in order"),
        (INCOMPLETE, "a buffer is given back only when all has landed"),
    ];
}

/// Two ordered messages and an atomic.
pub const SCRIPT: [Body; 3] = [Body::Message(0), Body::Atomic, Body::Message(1)];

impl Case {
    /// A put over two rails that stand, and one death.
    pub const PUT: Case = Case {
        name: "put, 1 death",
        rails: 2,
        cold: false,
        put: true,
        script: &[],
        deaths: 1,
        races: 0,
        repairs: true,
        notices: false,
        fences: 1,
        mutant: None,
    };

    /// Messages and an atomic over two rails that stand, and two deaths.
    pub const MESSAGES: Case =
        Case { name: "messages and atomic, 2 deaths", put: false, script: &SCRIPT, deaths: 2, ..Case::PUT };

    /// What is checked: each goes through all its states.
    pub const ALL: [Case; 11] = [
        Case::PUT,
        Case { name: "put, 1 death, FENCE twice", fences: 2, ..Case::PUT },
        Case { name: "put, 2 deaths", deaths: 2, ..Case::PUT },
        Case { name: "put, 1 death, 1 race", races: 1, notices: true, ..Case::PUT },
        Case { name: "put, 1 rail, 3 deaths", rails: 1, deaths: 3, ..Case::PUT },
        Case { name: "put, 1 rail, 2 deaths, 1 race", rails: 1, deaths: 2, races: 1, notices: true, ..Case::PUT },
        Case { name: "put and message, 1 death", script: &[Body::Message(0)], ..Case::PUT },
        Case { name: "put, messages and atomic, 1 rail, 1 death", rails: 1, script: &SCRIPT, ..Case::PUT },
        Case::MESSAGES,
        Case {
            name: "cold, message, 1 death, 1 race",
            cold: true,
            deaths: 1,
            races: 1,
            notices: true,
            script: &[Body::Message(0)],
            ..Case::MESSAGES
        },
        Case {
            name: "cold, messages and atomic, 1 rail, 2 deaths, 2 races",
            rails: 1,
            cold: true,
            races: 2,
            notices: true,
            ..Case::MESSAGES
        },
    ];
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelState {
    /// X and Y.
    pub ends: [End; 2],
    /// What is between them.
    pub rails: [Rail; RAILS],
    /// X's side of the put.
    pub sender: Sender,
    /// Y's side of the put.
    pub receiver: Receiver,
    /// What else Y has.
    pub delivered: Delivered,
    /// How much of the script has been sent.
    pub posted: u8,
    /// See [`Case::deaths`].
    pub deaths_left: u8,
    /// See [`Case::races`].
    pub races_left: u8,
    /// Bits of [`broken`].
    pub broken: u8,
}

impl Case {
    /// The initial state.
    pub fn start(&self) -> ModelState {
        let mut model_state = ModelState {
            ends: Default::default(),
            rails: Default::default(),
            sender: Sender::default(),
            receiver: Receiver::default(),
            delivered: Delivered::default(),
            posted: 0,
            deaths_left: self.deaths,
            races_left: self.races,
            broken: 0,
        };
        if !self.cold {
            for rail in 0..self.rails {
                model_state.open(rail, X);
                let index = model_state.rails[rail].pending(Y, Side::Alive).expect("X has made one");
                self.join(&mut model_state, rail, index, Y);
                for end in [X, Y] {
                    model_state.rails[rail].alive_mut(end).expect("it stands").to[end].clear();
                    assert!(!model_state.ends[end].links[rail].connect(1).safe);
                }
            }
        }
        model_state
    }

    /// `end` is notified of the connection at `index`. What it had before is over, of which it was not
    /// notified.
    pub fn join(&self, model_state: &mut ModelState, rail: usize, index: usize, end: usize) {
        model_state.rails[rail].kill(end);
        let verdict = model_state.ends[end].links[rail].up();
        let number = model_state.ends[end].links[rail].pair().mine as u8;
        model_state.rails[rail].join(index, end, number);
        if verdict.lost {
            self.lose(model_state, rail, end);
        }
    }

    /// What `end` had on its way over the connection is lost; what was being placed from it never will be.
    pub fn lose(&self, model_state: &mut ModelState, rail: usize, end: usize) {
        let own = &mut model_state.ends[end];
        if self.mutant == Some(Mutant::ClaimKept) {
            own.received.placing[rail] = 0;
        } else {
            own.received.abort_rail(rail);
        }
        for packet in own.sent.all_mut() {
            if packet.place == Place::Sent(rail as u8) {
                packet.place = Place::Lost(rail as u8);
            }
        }
        if end == X {
            for part in model_state.sender.parts.iter_mut().filter(|part| **part == Part::On(rail as u8)) {
                *part = Part::Unconfirmed(rail as u8);
            }
        }
    }

    /// Whether all is done, and the two ends are together again.
    pub fn is_complete(&self, model_state: &ModelState) -> bool {
        let count = |is_searched: fn(&Body) -> bool| self.script.iter().filter(|body| is_searched(body)).count();
        let beside = usize::from(model_state.posted) == self.script.len()
            && usize::from(model_state.delivered.messages) == count(|body| matches!(body, Body::Message(_)))
            && usize::from(model_state.delivered.atomics) == count(|body| matches!(body, Body::Atomic));
        let put = !self.put || (model_state.sender.done && model_state.receiver.done);
        let acked = model_state.ends.iter().all(|end| end.sent.is_empty());
        beside && put && acked && (!self.repairs || (0..self.rails).all(|rail| model_state.is_consistent(rail)))
    }
}

impl ModelState {
    /// Whether both ends of a rail are ready on one and the same connection.
    pub fn is_consistent(&self, rail: usize) -> bool {
        self.ends.iter().all(|end| end.is_ready(rail))
            && self.rails[rail].alive(X).is_some_and(|conn| conn.sides[Y] == Side::Alive)
    }

    /// `end` makes a connection, having dialled before.
    pub fn open(&mut self, rail: usize, end: usize) {
        let link = &mut self.ends[end].links[rail];
        link.dial();
        let verdict = link.up();
        assert!(!verdict.lost, "an end that has a connection makes none");
        let number = link.pair().mine as u8;
        self.rails[rail].open(end, number);
    }

    /// The same state with its rails the other way round: nothing that can happen depends on which is which.
    pub fn mirrored(&self) -> ModelState {
        let mut model_state = self.clone();
        model_state.rails.swap(0, 1);
        let other = |rail: u8| 1 - rail;
        for end in &mut model_state.ends {
            end.links.swap(0, 1);
            end.received.placing.swap(0, 1);
            for packet in end.sent.all_mut() {
                match &mut packet.place {
                    Place::Due => {}
                    Place::Sent(rail) | Place::Lost(rail) => *rail = other(*rail),
                }
            }
        }
        for queue in model_state.rails.iter_mut().flat_map(|rail| &mut rail.conns).flat_map(|conn| &mut conn.to) {
            for packet in queue {
                if let Packet::Fence { rail, .. } = packet {
                    *rail = other(*rail);
                }
            }
        }
        model_state.sender.fins.swap(0, 1);
        for part in &mut model_state.sender.parts {
            match part {
                Part::On(rail) | Part::Unconfirmed(rail) => *rail = other(*rail),
                Part::Unwritten | Part::Fenced | Part::Landed => {}
            }
        }
        model_state
    }
}
