//! What can happen next, and what it leads to.

use rerail_core::rel::link::{Pair, State, Verdict};
use stateright::{Model, Property};

use crate::end::Place;
use crate::net::{Body, Packet, Side, X, Y, put};
use crate::state::{Case, Mutant, RAILS, World, broken};
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
    pub fn is_sure(&self, world: &World, action: Action) -> bool {
        match action {
            Action::Die { .. } | Action::Join { late: true, .. } => false,
            // What a dead end had sent may be lost from any point on.
            Action::Arrive { end, rail } => {
                world.rails[rail].alive(end).is_some_and(|conn| conn.sides[1 - end] == Side::Alive)
            }
            Action::Acked { .. } => (0..self.rails).any(|rail| world.is_together(rail)),
            Action::Open { end, rail } => world.rails[rail].pending(end, Side::Alive).is_none(),
            Action::GiveUp { end, rail } => {
                world.rails[rail].alive(end).is_some_and(|conn| conn.sides[1 - end] == Side::Dead)
            }
            _ => true,
        }
    }

    /// Takes one step.
    pub fn step(&self, before: &World, action: Action) -> World {
        let mut world = before.clone();
        match action {
            Action::Post(rail) => {
                let body = self.script[usize::from(world.posted)];
                world.posted += 1;
                world.send_new(rail, X, body);
            }
            Action::Write { part, rail } => {
                world.sender.parts[part] = Part::On(rail as u8);
                world.put(rail, X, Packet::Write(part as u8));
            }
            Action::Fin(rail) => {
                if world.sender.count == 0 {
                    world.sender.count = match self.mutant {
                        Some(Mutant::RailsCountedOnce) => world.sender.rails().count() as u8,
                        _ => world.sender.fins_of_round(),
                    };
                }
                let body = Body::Fin { round: world.sender.round, count: world.sender.count };
                world.sender.fins[rail] = Some(world.send_new(rail, X, body));
            }
            Action::Send { end, rail } => {
                let psn = world.ends[end].sent.due().next().expect("one is due");
                let packet = world.ends[end].sent.get(psn).expect("it is due");
                packet.place = Place::Sent(rail as u8);
                let body = packet.body;
                world.put(rail, end, Packet::Sequenced { psn, body });
            }
            Action::Arrive { end, rail } => {
                let conn = world.rails[rail].alive_mut(end).expect("something comes over it");
                let packet = conn.to[end].remove(0);
                self.arrive(&mut world, rail, end, packet);
            }
            Action::Placed { end, rail } => {
                let psn = world.ends[end].received.placing[rail].trailing_zeros() as u8;
                world.ends[end].received.placing[rail] &= !(1 << psn);
                let body = world.ends[1 - end].sent.get(psn).expect("it is not acknowledged").body;
                self.effect(&mut world, end, psn, body);
            }
            Action::Acked { end, before } => world.ends[end].sent.ack(before),
            Action::Fence { end, rail, via } => {
                let lost = world.ends[end].links[rail].waits_for().expect("a fence is needed");
                world.put(via, end, fence(rail, lost, false));
            }
            Action::Open { end, rail } => {
                if !self.is_sure(before, action) {
                    world.whims_left -= 1;
                }
                world.open(rail, end);
            }
            Action::Join { end, rail, late } => {
                world.whims_left -= u8::from(late);
                let other = if late { Side::Dead } else { Side::Alive };
                let index = world.rails[rail].pending(end, other).expect("there is one");
                self.join(&mut world, rail, index, end);
                self.lost_without_fence(&mut world, rail, end);
            }
            Action::GiveUp { end, rail } => {
                if !self.is_sure(before, action) {
                    world.whims_left -= 1;
                }
                let verdict = world.ends[end].links[rail].abort();
                self.follow(&mut world, rail, end, None, verdict);
            }
            Action::Die { end, rail } | Action::Notice { end, rail } => {
                world.deaths_left -= u8::from(matches!(action, Action::Die { .. }));
                world.rails[rail].kill(end);
                let verdict = world.ends[end].links[rail].down();
                self.follow(&mut world, rail, end, None, verdict);
            }
        }
        self.forget(&mut world);
        world
    }

    /// Forgets what makes no difference any more, so that states that differ only in that are one.
    fn forget(&self, world: &mut World) {
        let ends = &world.ends;
        let windows = self.mutant != Some(Mutant::NoWindow);
        for rail in &mut world.rails {
            rail.tidy(world.whims_left > 0);
            for conn in &mut rail.conns {
                for (end, queue) in conn.to.iter_mut().enumerate() {
                    queue.retain(|packet| match *packet {
                        Packet::Connect(_) | Packet::Write(_) => true,
                        Packet::Sequenced { psn, .. } => !windows || ends[end].received.effects & 1 << psn == 0,
                        Packet::Fence { rail, mine, yours, answer } => {
                            let (own, peer) =
                                (&ends[end].links[usize::from(rail)], &ends[1 - end].links[usize::from(rail)]);
                            let of = Pair { mine: yours.into(), yours: mine.into() };
                            let asked = !answer && peer.waits_for() == Some(Pair { mine: of.yours, yours: of.mine });
                            let over = own.pair().mine > of.mine
                                || own.pair().mine == of.mine && matches!(own.state(), State::Down | State::Connecting);
                            asked || !over || own.waits_for() == Some(of)
                        }
                    });
                }
            }
        }
    }

    fn arrive(&self, world: &mut World, rail: usize, end: usize, packet: Packet) {
        match packet {
            Packet::Connect(number) => {
                let lost = world.ends[end].links[rail].waits_for();
                let verdict = world.ends[end].links[rail].connect(number.into());
                self.follow(world, rail, end, lost, verdict);
            }
            Packet::Fence { rail: about, mine, yours, answer } => {
                let about = usize::from(about);
                let link = &mut world.ends[end].links[about];
                let of = Pair { mine: yours.into(), yours: mine.into() };
                let lost = link.waits_for().or((link.pair() == of).then_some(of));
                let verdict = link.fence(of);
                self.follow(world, about, end, lost, verdict);
                if verdict.answer && !answer && world.ends[end].is_ready(rail) {
                    world.put(rail, end, fence(about, of, true));
                }
            }
            Packet::Sequenced { psn, body } => {
                let again = self.mutant == Some(Mutant::NoWindow) && matches!(body, Body::Fin { .. } | Body::Atomic);
                if !world.ends[end].received.claim(psn) && !again {
                    return;
                }
                if matches!(body, Body::Message(_)) {
                    world.ends[end].received.placing[rail] |= 1 << psn;
                } else {
                    self.effect(world, end, psn, body);
                }
            }
            Packet::Write(part) => {
                if world.receiver.done {
                    world.broken |= broken::LATE_WRITE;
                }
                world.receiver.landed |= 1 << part;
            }
        }
    }

    /// A packet takes effect.
    fn effect(&self, world: &mut World, end: usize, psn: u8, body: Body) {
        if world.ends[end].received.receive(psn) {
            world.broken |= broken::TWICE;
        }
        let (receiver, sender) = (&mut world.receiver, &mut world.sender);
        match body {
            Body::Message(number) => {
                if !world.delivered.message(number) {
                    world.broken |= broken::DISORDER;
                }
            }
            Body::Atomic => world.delivered.atomics += 1,
            Body::Fin { round, count } => {
                let counts = match self.mutant {
                    Some(Mutant::NoRounds) => true,
                    Some(Mutant::OldFin) => round <= receiver.round,
                    _ => round == receiver.round,
                };
                if receiver.done || !counts {
                    return;
                }
                receiver.fins += 1;
                if receiver.fins == count {
                    receiver.done = true;
                    if receiver.landed != (1 << PARTS) - 1 {
                        world.broken |= broken::INCOMPLETE;
                    }
                    world.ends[end].sent.push(Body::Done, Place::Due);
                }
            }
            Body::Resume(round) => {
                if receiver.done || round <= receiver.round {
                    return;
                }
                receiver.round = round;
                if self.mutant != Some(Mutant::NoRounds) {
                    receiver.fins = 0;
                }
                world.ends[end].sent.push(Body::Cts(round), Place::Due);
            }
            Body::Cts(round) => {
                if sender.done || round != sender.round + 1 {
                    return;
                }
                sender.round = round;
                sender.count = 0;
                let acked = world.ends[end].sent.acked();
                for part in &mut sender.parts {
                    *part = match *part {
                        Part::Fenced => Part::Unwritten,
                        Part::Doubt(_) if self.mutant == Some(Mutant::RestartUnfenced) => Part::Unwritten,
                        Part::Doubt(rail) if sender.fins[usize::from(rail)].is_some_and(|psn| psn < acked) => {
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
    fn follow(&self, world: &mut World, rail: usize, end: usize, lost: Option<Pair>, verdict: Verdict) {
        if verdict.abort && self.mutant != Some(Mutant::SeverLate) {
            world.rails[rail].kill(end);
        }
        if verdict.lost {
            self.lose(world, rail, end);
            self.lost_without_fence(world, rail, end);
        }
        if verdict.safe {
            let lost = lost.expect("only what is lost becomes safe");
            self.free(world, rail, end, lost);
        }
    }

    /// The bugs that don't wait for the fence.
    fn lost_without_fence(&self, world: &mut World, rail: usize, end: usize) {
        let Some(lost) = world.ends[end].links[rail].waits_for() else { return };
        match self.mutant {
            Some(Mutant::NoFence) => self.free(world, rail, end, lost),
            Some(Mutant::ReleaseOnDown) if end == X => self.restart(world, rail),
            _ => {}
        }
    }

    /// What was lost may go out again.
    fn free(&self, world: &mut World, rail: usize, end: usize, lost: Pair) {
        let lives =
            |conn: &crate::net::Conn| u32::from(conn.numbers[end]) == lost.mine && conn.sides[1 - end] == Side::Alive;
        if world.rails[rail].conns.iter().any(lives) {
            world.broken |= broken::EARLY;
        }
        for packet in world.ends[end].sent.all_mut() {
            if packet.place == Place::Lost(rail as u8) {
                packet.place = Place::Due;
            }
        }
        if end == X {
            self.restart(world, rail);
        }
    }

    /// What was written over `rail` and is unconfirmed is to be written again, in a new round.
    fn restart(&self, world: &mut World, rail: usize) {
        let doubt = Part::Doubt(rail as u8);
        let fin = world.sender.fins[rail].take();
        if world.sender.done || !world.sender.parts.contains(&doubt) {
            return;
        }
        let sent = &mut world.ends[X].sent;
        let landed = fin.is_some_and(|psn| psn < sent.acked());
        for part in world.sender.parts.iter_mut().filter(|part| **part == doubt) {
            *part = if landed { Part::Landed } else { Part::Fenced };
        }
        if landed {
            return;
        }
        let resume = Body::Resume(world.sender.round + 1);
        match fin.and_then(|psn| sent.get(psn)) {
            Some(fin) if self.mutant != Some(Mutant::ResumeBeside) => fin.body = resume,
            _ => {
                sent.push(resume, Place::Due);
            }
        }
    }
}

impl World {
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
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken != 0 {
            return;
        }
        let sender = &world.sender;
        let writing = self.put && !sender.done;
        for rail in world.ends[X].ready() {
            if usize::from(world.posted) < self.script.len() {
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
            let own = &world.ends[end];
            if own.sent.due().next().is_some() {
                actions.extend(own.ready().map(|rail| Action::Send { end, rail }));
            }
            self.actions_of_acks(world, end, actions);
            for rail in 0..self.rails {
                self.actions_of_link(world, end, rail, actions);
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        // Of a state and its mirror image, one stands for both.
        let next = self.step(last, action);
        let mirrored = next.mirrored();
        Some(if self.rails == 1 || fingerprint(&next) <= fingerprint(&mirrored) { next } else { mirrored })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(broken::ALL[0].1, |_, world: &World| world.broken & broken::ALL[0].0 == 0),
            Property::always(broken::ALL[1].1, |_, world: &World| world.broken & broken::ALL[1].0 == 0),
            Property::always(broken::ALL[2].1, |_, world: &World| world.broken & broken::ALL[2].0 == 0),
            Property::always(broken::ALL[3].1, |_, world: &World| world.broken & broken::ALL[3].0 == 0),
            Property::always(broken::ALL[4].1, |_, world: &World| world.broken & broken::ALL[4].0 == 0),
        ]
    }
}

impl Case {
    /// Acknowledgments are true at any time, and a late one states what an early one would have. One that
    /// comes while it changes nothing is as good as one that comes later: so it comes just before it decides
    /// whether a packet goes out again or a part is unconfirmed, or at the end.
    fn actions_of_acks(&self, world: &World, end: usize, actions: &mut Vec<Action>) {
        let (sent, expected) = (&world.ends[end].sent, world.ends[1 - end].received.expected());
        if sent.acked() == expected || world.ends[end].ready().next().is_none() {
            return;
        }
        let fins = (0..RAILS).filter_map(|rail| {
            let doubt = end == X && world.sender.parts.contains(&Part::Doubt(rail as u8));
            world.sender.fins[rail].filter(|&psn| doubt && psn >= sent.acked())
        });
        let mut news = fins.chain(sent.due()).map(|psn| psn + 1).fold(0_u32, |news, before| news | 1 << before);
        let posted = end != X || usize::from(world.posted) == self.script.len();
        if sent.next() == expected && posted {
            news |= 1 << expected;
        }
        for before in (0..=expected).filter(|before| news & 1 << before != 0) {
            actions.push(Action::Acked { end, before });
        }
    }

    fn actions_of_link(&self, world: &World, end: usize, rail: usize, actions: &mut Vec<Action>) {
        let whim = world.whims_left > 0;
        let own = &world.ends[end];
        let state = own.links[rail].state();
        let links = &world.rails[rail];
        if let Some(conn) = links.alive(end) {
            if !conn.to[end].is_empty() {
                actions.push(Action::Arrive { end, rail });
            }
            if self.notices && conn.sides[1 - end] == Side::Dead {
                actions.push(Action::Notice { end, rail });
            }
            if world.deaths_left > 0 {
                actions.push(Action::Die { end, rail });
            }
        }
        if own.received.placing[rail] != 0 {
            actions.push(Action::Placed { end, rail });
        }
        if let Some(lost) = own.links[rail].waits_for() {
            // Those on their way, and the answers to them; what a dead end has sent may never arrive.
            let ask = fence(rail, lost, false);
            let answer = fence(rail, Pair { mine: lost.yours, yours: lost.mine }, true);
            let queues = |to: usize| {
                world
                    .rails
                    .iter()
                    .flat_map(|rail| &rail.conns)
                    .filter(move |conn| conn.sides[1 - to] == Side::Alive)
                    .flat_map(move |conn| &conn.to[to])
            };
            let asked = queues(1 - end).filter(|packet| **packet == ask).count();
            let answered = queues(end).filter(|packet| **packet == answer).count();
            if asked + answered < self.fences {
                actions.extend(own.ready().map(|via| Action::Fence { end, rail, via }));
            }
        }
        let made = links.pending(end, Side::Alive).is_some();
        let opens = self.mends || !(0..self.rails).any(|rail| world.is_together(rail));
        if opens && state == State::Down && (!made || whim) && links.alive(end).is_none() {
            actions.push(Action::Open { end, rail });
        }
        if made {
            actions.push(Action::Join { end, rail, late: false });
        }
        if whim && links.pending(end, Side::Dead).is_some() {
            actions.push(Action::Join { end, rail, late: true });
        }
        let action = Action::GiveUp { end, rail };
        if state == State::Up && (whim || self.is_sure(world, action)) {
            actions.push(action);
        }
    }
}
