//! What can happen next, and what it leads to.

use rerail_core::rel::link::{Pair, State, Verdict};
use stateright::{Model, Property};

use crate::end::Place;
use crate::net::{Body, Packet, Side, X, Y, put};
use crate::state::{Case, ModelState, Mutant, RAILS, broken};
use crate::sweep::fingerprint;
use crate::transfer::{PARTS, Part};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// X sends what comes next in its script, over this rail.
    Post(usize),
    /// X writes a part of the put.
    Write { part: usize, rail: usize },
    /// X sends this round's FIN behind what it wrote over this rail.
    Fin(usize),
    /// `end` sends the oldest packet that waits for a rail.
    Send { end: usize, rail: usize },
    /// The next thing on its way over `rail` comes to `end`, or lands in its memory.
    Arrive { end: usize, rail: usize },
    /// The oldest payload that `end` is placing from `rail` is placed.
    Placed { end: usize, rail: usize },
    /// `end` receives the acknowledgment of all packets before this one.
    Acked { end: usize, before: u8 },
    /// `end` queries over `via` whether the peer's end of the connection lost on `rail` is dead.
    Fence { end: usize, rail: usize, via: usize },
    /// `end` dials, and has made a connection.
    Open { end: usize, rail: usize },
    /// `end` is notified of a connection that the peer has made; `late`: and left since.
    Join { end: usize, rail: usize, late: bool },
    /// `end` waits no longer for the peer's CONNECT.
    GiveUp { end: usize, rail: usize },
    /// `end` notices at last that the connection has died at the other end (a deadline, a probe).
    Notice { end: usize, rail: usize },
    /// The connection dies at `end`, of itself or because `end` notices that it has at the other.
    Die { end: usize, rail: usize },
}

impl Case {
    /// Whether this step is certain to be taken some day, though all faults have ended and no end
    /// notices anything by itself.
    pub fn is_sure(&self, model_state: &ModelState, action: Action) -> bool {
        match action {
            Action::Die { .. } | Action::Join { late: true, .. } => false,
            // What a dead end had sent may be lost from any point on.
            Action::Arrive { end, rail } => {
                model_state.rails[rail].alive(end).is_some_and(|conn| conn.sides[1 - end] == Side::Alive)
            }
            Action::Acked { .. } => (0..self.rails).any(|rail| model_state.is_consistent(rail)),
            Action::Open { end, rail } => model_state.rails[rail].pending(end, Side::Alive).is_none(),
            Action::GiveUp { end, rail } => {
                model_state.rails[rail].alive(end).is_some_and(|conn| conn.sides[1 - end] == Side::Dead)
            }
            _ => true,
        }
    }

    /// Takes one step.
    pub fn step(&self, before: &ModelState, action: Action) -> ModelState {
        let mut model_state = before.clone();
        match action {
            Action::Post(rail) => {
                let body = self.script[usize::from(model_state.posted)];
                model_state.posted += 1;
                model_state.send_new(rail, X, body);
            }
            Action::Write { part, rail } => {
                model_state.sender.parts[part] = Part::On(rail as u8);
                model_state.put(rail, X, Packet::Write(part as u8));
            }
            Action::Fin(rail) => {
                if model_state.sender.count == 0 {
                    model_state.sender.count = match self.mutant {
                        Some(Mutant::RailsCountedOnce) => model_state.sender.rails().count() as u8,
                        _ => model_state.sender.fins_of_epoch(),
                    };
                }
                let body = Body::Fin { epoch: model_state.sender.epoch, count: model_state.sender.count };
                model_state.sender.fins[rail] = Some(model_state.send_new(rail, X, body));
            }
            Action::Send { end, rail } => {
                let psn = model_state.ends[end].sent.due().next().expect("one is due");
                let packet = model_state.ends[end].sent.get(psn).expect("it is due");
                packet.place = Place::Sent(rail as u8);
                let body = packet.body;
                model_state.put(rail, end, Packet::Sequenced { psn, body });
            }
            Action::Arrive { end, rail } => {
                let conn = model_state.rails[rail].alive_mut(end).expect("something comes over it");
                let packet = conn.to[end].remove(0);
                self.arrive(&mut model_state, rail, end, packet);
            }
            Action::Placed { end, rail } => {
                let psn = model_state.ends[end].received.placing[rail].trailing_zeros() as u8;
                model_state.ends[end].received.placing[rail] &= !(1 << psn);
                let body = model_state.ends[1 - end].sent.get(psn).expect("it is not acknowledged").body;
                self.effect(&mut model_state, end, psn, body);
            }
            Action::Acked { end, before } => model_state.ends[end].sent.ack(before),
            Action::Fence { end, rail, via } => {
                let lost = model_state.ends[end].links[rail].waits_for().expect("a fence is needed");
                model_state.put(via, end, fence(rail, lost, false));
            }
            Action::Open { end, rail } => {
                if !self.is_sure(before, action) {
                    model_state.races_left -= 1;
                }
                model_state.open(rail, end);
            }
            Action::Join { end, rail, late } => {
                model_state.races_left -= u8::from(late);
                let other = if late { Side::Dead } else { Side::Alive };
                let index = model_state.rails[rail].pending(end, other).expect("there is one");
                self.join(&mut model_state, rail, index, end);
                self.lost_without_fence(&mut model_state, rail, end);
            }
            Action::GiveUp { end, rail } => {
                if !self.is_sure(before, action) {
                    model_state.races_left -= 1;
                }
                let verdict = model_state.ends[end].links[rail].abort();
                self.follow(&mut model_state, rail, end, None, verdict);
            }
            Action::Die { end, rail } | Action::Notice { end, rail } => {
                model_state.deaths_left -= u8::from(matches!(action, Action::Die { .. }));
                model_state.rails[rail].kill(end);
                let verdict = model_state.ends[end].links[rail].down();
                self.follow(&mut model_state, rail, end, None, verdict);
            }
        }
        self.forget(&mut model_state);
        model_state
    }

    /// Forgets what makes no difference any more, so that states that differ only in that are one.
    fn forget(&self, model_state: &mut ModelState) {
        let ends = &model_state.ends;
        let windows = self.mutant != Some(Mutant::NoWindow);
        for rail in &mut model_state.rails {
            rail.drop_late(model_state.races_left > 0);
            for conn in &mut rail.conns {
                for (end, queue) in conn.to.iter_mut().enumerate() {
                    queue.retain(|packet| match *packet {
                        Packet::Connect(_) | Packet::Write(_) => true,
                        Packet::Sequenced { psn, .. } => !windows || ends[end].received.effects & 1 << psn == 0,
                        Packet::Fence { rail, mine, yours, answer } => {
                            let (own, peer) =
                                (&ends[end].links[usize::from(rail)], &ends[1 - end].links[usize::from(rail)]);
                            let of = Pair { mine: yours.into(), yours: mine.into() };
                            let requested =
                                !answer && peer.waits_for() == Some(Pair { mine: of.yours, yours: of.mine });
                            let over = own.pair().mine > of.mine
                                || own.pair().mine == of.mine && matches!(own.state(), State::Down | State::Connecting);
                            requested || !over || own.waits_for() == Some(of)
                        }
                    });
                }
            }
        }
    }

    fn arrive(&self, model_state: &mut ModelState, rail: usize, end: usize, packet: Packet) {
        match packet {
            Packet::Connect(number) => {
                let lost = model_state.ends[end].links[rail].waits_for();
                let verdict = model_state.ends[end].links[rail].connect(number.into());
                self.follow(model_state, rail, end, lost, verdict);
            }
            Packet::Fence { rail: about, mine, yours, answer } => {
                let about = usize::from(about);
                let link = &mut model_state.ends[end].links[about];
                let of = Pair { mine: yours.into(), yours: mine.into() };
                let lost = link.waits_for().or((link.pair() == of).then_some(of));
                let verdict = link.fence(of);
                self.follow(model_state, about, end, lost, verdict);
                if verdict.answer && !answer && model_state.ends[end].is_ready(rail) {
                    model_state.put(rail, end, fence(about, of, true));
                }
            }
            Packet::Sequenced { psn, body } => {
                let again = self.mutant == Some(Mutant::NoWindow) && matches!(body, Body::Fin { .. } | Body::Atomic);
                if !model_state.ends[end].received.claim(psn) && !again {
                    return;
                }
                if matches!(body, Body::Message(_)) {
                    model_state.ends[end].received.placing[rail] |= 1 << psn;
                } else {
                    self.effect(model_state, end, psn, body);
                }
            }
            Packet::Write(part) => {
                if model_state.receiver.done {
                    model_state.broken |= broken::LATE_WRITE;
                }
                model_state.receiver.landed |= 1 << part;
            }
        }
    }

    /// A packet takes effect.
    fn effect(&self, model_state: &mut ModelState, end: usize, psn: u8, body: Body) {
        if model_state.ends[end].received.receive(psn) {
            model_state.broken |= broken::TWICE;
        }
        let (receiver, sender) = (&mut model_state.receiver, &mut model_state.sender);
        match body {
            Body::Message(number) => {
                if !model_state.delivered.message(number) {
                    model_state.broken |= broken::DISORDER;
                }
            }
            Body::Atomic => model_state.delivered.atomics += 1,
            Body::Fin { epoch, count } => {
                let counts = match self.mutant {
                    Some(Mutant::NoEpochs) => true,
                    Some(Mutant::OldFin) => epoch <= receiver.epoch,
                    _ => epoch == receiver.epoch,
                };
                if receiver.done || !counts {
                    return;
                }
                receiver.fins += 1;
                if receiver.fins == count {
                    receiver.done = true;
                    if receiver.landed != (1 << PARTS) - 1 {
                        model_state.broken |= broken::INCOMPLETE;
                    }
                    model_state.ends[end].sent.push(Body::Done, Place::Due);
                }
            }
            Body::Resume(epoch) => {
                if receiver.done || epoch <= receiver.epoch {
                    return;
                }
                receiver.epoch = epoch;
                if self.mutant != Some(Mutant::NoEpochs) {
                    receiver.fins = 0;
                }
                model_state.ends[end].sent.push(Body::Cts(epoch), Place::Due);
            }
            Body::Cts(epoch) => {
                if sender.done || epoch != sender.epoch + 1 {
                    return;
                }
                sender.epoch = epoch;
                sender.count = 0;
                let acked = model_state.ends[end].sent.acked();
                for part in &mut sender.parts {
                    *part = match *part {
                        Part::Fenced => Part::Unwritten,
                        Part::Unconfirmed(_) if self.mutant == Some(Mutant::RestartUnfenced) => Part::Unwritten,
                        Part::Unconfirmed(rail) if sender.fins[usize::from(rail)].is_some_and(|psn| psn < acked) => {
                            Part::Landed
                        }
                        other => other,
                    };
                }
                sender.fins = [None; RAILS];
            }
            Body::Done => sender.done = true,
        }
    }

    /// Applies the verdict of the table. `lost`: the connection that is safe, if the verdict declares one
    /// safe.
    fn follow(&self, model_state: &mut ModelState, rail: usize, end: usize, lost: Option<Pair>, verdict: Verdict) {
        if verdict.abort && self.mutant != Some(Mutant::SeverLate) {
            model_state.rails[rail].kill(end);
        }
        if verdict.lost {
            self.lose(model_state, rail, end);
            self.lost_without_fence(model_state, rail, end);
        }
        if verdict.safe {
            let lost = lost.expect("only what is lost becomes safe");
            self.free(model_state, rail, end, lost);
        }
    }

    /// The bugs that don't wait for the fence.
    fn lost_without_fence(&self, model_state: &mut ModelState, rail: usize, end: usize) {
        let Some(lost) = model_state.ends[end].links[rail].waits_for() else { return };
        match self.mutant {
            Some(Mutant::NoFence) => self.free(model_state, rail, end, lost),
            Some(Mutant::ReleaseOnDown) if end == X => self.restart(model_state, rail),
            _ => {}
        }
    }

    /// What was lost may go out again.
    fn free(&self, model_state: &mut ModelState, rail: usize, end: usize, lost: Pair) {
        let lives =
            |conn: &crate::net::Conn| u32::from(conn.numbers[end]) == lost.mine && conn.sides[1 - end] == Side::Alive;
        if model_state.rails[rail].conns.iter().any(lives) {
            model_state.broken |= broken::EARLY;
        }
        for packet in model_state.ends[end].sent.all_mut() {
            if packet.place == Place::Lost(rail as u8) {
                packet.place = Place::Due;
            }
        }
        if end == X {
            self.restart(model_state, rail);
        }
    }

    /// What was written over `rail` and is unconfirmed is to be written again, in a new round.
    fn restart(&self, model_state: &mut ModelState, rail: usize) {
        let unconfirmed = Part::Unconfirmed(rail as u8);
        let fin = model_state.sender.fins[rail].take();
        if model_state.sender.done || !model_state.sender.parts.contains(&unconfirmed) {
            return;
        }
        let sent = &mut model_state.ends[X].sent;
        let landed = fin.is_some_and(|psn| psn < sent.acked());
        for part in model_state.sender.parts.iter_mut().filter(|part| **part == unconfirmed) {
            *part = if landed { Part::Landed } else { Part::Fenced };
        }
        if landed {
            return;
        }
        let resume = Body::Resume(model_state.sender.epoch + 1);
        match fin.and_then(|psn| sent.get(psn)) {
            Some(fin) if self.mutant != Some(Mutant::ResumeBeside) => fin.body = resume,
            _ => {
                sent.push(resume, Place::Due);
            }
        }
    }
}

impl ModelState {
    /// Numbers a packet and sends it.
    fn send_new(&mut self, rail: usize, end: usize, body: Body) -> u8 {
        let psn = self.ends[end].sent.push(body, Place::Sent(rail as u8));
        self.put(rail, end, Packet::Sequenced { psn, body });
        psn
    }

    /// Sends over the connection that lives at `end`; to an end that is dead, nothing comes.
    fn put(&mut self, rail: usize, end: usize, packet: Packet) {
        let conn = self.rails[rail].alive_mut(end).expect("an end that is ready has a connection");
        if conn.sides[1 - end] != Side::Dead {
            put(&mut conn.to[1 - end], packet);
        }
    }
}

/// FENCE about `pair` of `rail`.
fn fence(rail: usize, pair: Pair, answer: bool) -> Packet {
    Packet::Fence { rail: rail as u8, mine: pair.mine as u8, yours: pair.yours as u8, answer }
}

impl Model for Case {
    type State = ModelState;
    type Action = Action;

    fn init_states(&self) -> Vec<ModelState> {
        vec![self.start()]
    }

    fn actions(&self, model_state: &ModelState, actions: &mut Vec<Action>) {
        if model_state.broken != 0 {
            return;
        }
        let sender = &model_state.sender;
        let writing = self.put && !sender.done;
        for rail in model_state.ends[X].ready() {
            if usize::from(model_state.posted) < self.script.len() {
                actions.push(Action::Post(rail));
            }
            if writing && sender.count == 0 {
                // The parts are alike: they are written in order.
                let part = sender.parts.iter().position(|part| *part == Part::Unwritten);
                actions.extend(part.map(|part| Action::Write { part, rail }));
            }
            if writing
                && !sender.parts.contains(&Part::Unwritten)
                && sender.parts.contains(&Part::On(rail as u8))
                && sender.fins[rail].is_none()
            {
                actions.push(Action::Fin(rail));
            }
        }
        for end in [X, Y] {
            let own = &model_state.ends[end];
            if own.sent.due().next().is_some() {
                actions.extend(own.ready().map(|rail| Action::Send { end, rail }));
            }
            self.actions_of_acks(model_state, end, actions);
            for rail in 0..self.rails {
                self.actions_of_link(model_state, end, rail, actions);
            }
        }
    }

    fn next_state(&self, last: &ModelState, action: Action) -> Option<ModelState> {
        // Of a state and its mirror image, one stands for both.
        let next = self.step(last, action);
        let mirrored = next.mirrored();
        Some(if self.rails == 1 || fingerprint(&next) <= fingerprint(&mirrored) { next } else { mirrored })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(broken::ALL[0].1, |_, model_state: &ModelState| {
                model_state.broken & broken::ALL[0].0 == 0
            }),
            Property::always(broken::ALL[1].1, |_, model_state: &ModelState| {
                model_state.broken & broken::ALL[1].0 == 0
            }),
            Property::always(broken::ALL[2].1, |_, model_state: &ModelState| {
                model_state.broken & broken::ALL[2].0 == 0
            }),
            Property::always(broken::ALL[3].1, |_, model_state: &ModelState| {
                model_state.broken & broken::ALL[3].0 == 0
            }),
            Property::always(broken::ALL[4].1, |_, model_state: &ModelState| {
                model_state.broken & broken::ALL[4].0 == 0
            }),
        ]
    }
}

impl Case {
    /// Acknowledgments are true at any time, and a late one states what an early one would have. One that
    /// comes while it changes nothing is as good as one that comes later: so it comes just before it decides
    /// whether a packet goes out again or a part is unconfirmed, or at the end.
    fn actions_of_acks(&self, model_state: &ModelState, end: usize, actions: &mut Vec<Action>) {
        let (sent, expected) = (&model_state.ends[end].sent, model_state.ends[1 - end].received.expected());
        if sent.acked() == expected || model_state.ends[end].ready().next().is_none() {
            return;
        }
        let fins = (0..RAILS).filter_map(|rail| {
            let unconfirmed = end == X && model_state.sender.parts.contains(&Part::Unconfirmed(rail as u8));
            model_state.sender.fins[rail].filter(|&psn| unconfirmed && psn >= sent.acked())
        });
        let mut numbers =
            fins.chain(sent.due()).map(|psn| psn + 1).fold(0_u32, |numbers, before| numbers | 1 << before);
        let posted = end != X || usize::from(model_state.posted) == self.script.len();
        if sent.next() == expected && posted {
            numbers |= 1 << expected;
        }
        for before in (0..=expected).filter(|before| numbers & 1 << before != 0) {
            actions.push(Action::Acked { end, before });
        }
    }

    fn actions_of_link(&self, model_state: &ModelState, end: usize, rail: usize, actions: &mut Vec<Action>) {
        let may_race = model_state.races_left > 0;
        let own = &model_state.ends[end];
        let state = own.links[rail].state();
        let links = &model_state.rails[rail];
        if let Some(conn) = links.alive(end) {
            if !conn.to[end].is_empty() {
                actions.push(Action::Arrive { end, rail });
            }
            if self.notices && conn.sides[1 - end] == Side::Dead {
                actions.push(Action::Notice { end, rail });
            }
            if model_state.deaths_left > 0 {
                actions.push(Action::Die { end, rail });
            }
        }
        if own.received.placing[rail] != 0 {
            actions.push(Action::Placed { end, rail });
        }
        if let Some(lost) = own.links[rail].waits_for() {
            // Those on their way, and the answers to them; what a dead end has sent may never arrive.
            let request = fence(rail, lost, false);
            let answer = fence(rail, Pair { mine: lost.yours, yours: lost.mine }, true);
            let queues = |to: usize| {
                model_state
                    .rails
                    .iter()
                    .flat_map(|rail| &rail.conns)
                    .filter(move |conn| conn.sides[1 - to] == Side::Alive)
                    .flat_map(move |conn| &conn.to[to])
            };
            let requested = queues(1 - end).filter(|packet| **packet == request).count();
            let answered = queues(end).filter(|packet| **packet == answer).count();
            if requested + answered < self.fences {
                actions.extend(own.ready().map(|via| Action::Fence { end, rail, via }));
            }
        }
        let made = links.pending(end, Side::Alive).is_some();
        let opens = self.repairs || !(0..self.rails).any(|rail| model_state.is_consistent(rail));
        if opens && state == State::Down && (!made || may_race) && links.alive(end).is_none() {
            actions.push(Action::Open { end, rail });
        }
        if made {
            actions.push(Action::Join { end, rail, late: false });
        }
        if may_race && links.pending(end, Side::Dead).is_some() {
            actions.push(Action::Join { end, rail, late: true });
        }
        let action = Action::GiveUp { end, rail };
        if state == State::Up && (may_race || self.is_sure(model_state, action)) {
            actions.push(action);
        }
    }
}
