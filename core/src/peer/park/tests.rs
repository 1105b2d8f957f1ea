use super::*;
use crate::ids::PeerId;
use crate::rel::credit::Grants;
use std::collections::{HashMap, VecDeque};
use std::format;
use std::string::String;
use std::vec::Vec;

/// K-5: a channel goes on with the numbers that it had.
#[test]
fn a_parked_channel_keeps_its_numbers() {
    let first = Seq(u32::MAX - 1);
    let mut channel = Channel::new(PeerId(3), first, Grants::new(first, 8, 8), Time(0));
    channel.peer_parameters = Some(Connect { window: 64, first_number: 70, ..Connect::default() });
    channel.begin_receiving(Seq(70));
    channel.sent[ORDERED].skip(5);
    channel.sent[UNORDERED].skip(2);
    channel.received[ORDERED].skip(4);
    channel.reorder.skip(4);
    channel.grants.passed(4, 3);
    channel.allowance.update(78, 78);
    channel.allowance.use_messages(5);
    channel.allowance.acked(5);
    let parked = Parked::of(&channel, first, 9).unwrap();
    assert_eq!(parked.times, 1);
    let mut resumed = Channel::new(PeerId(3), first, Grants::new(first, 8, 8), Time(0));
    parked.resume(&mut resumed);
    assert_eq!(resumed.sent.map(|lane| lane.next()), channel.sent.map(|lane| lane.next()));
    assert_eq!(resumed.received, channel.received);
    assert_eq!(resumed.reorder, channel.reorder);
    assert_eq!(resumed.grants.limits(), channel.grants.limits());
    assert_eq!(resumed.allowance.messages_left(), channel.allowance.messages_left());
    assert_eq!(resumed.park.first_connection, 9);
    assert_eq!(Parked { times: 255, ..parked }.times, 255);
    resumed.park.times = 255;
    assert_eq!(Parked::of(&resumed, first, 9).unwrap().times, 255, "no CONNECT has announced it");
    resumed.park.is_announced = true;
    assert_eq!(Parked::of(&resumed, first, 9).unwrap().times, 1, "0 means never");
}

/// What travels on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Packet {
    /// How often its sender has parked.
    Connect(u8),
    Step(u32, u8),
    Message,
    /// The other end has been closed, or has failed.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Link {
    Down,
    Up,
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Open,
    Parking,
    Parked,
}

const RAILS: usize = 2;
/// Rail 0 is a ring: what is in it when an end is closed is lost for good.
const RING: usize = 0;

/// One side of a channel: the agreement, and what the endpoint does with its outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    park: Park,
    state: State,
    links: [Link; RAILS],
    is_after_park: [bool; RAILS],
    /// Messages that it has to send.
    queued: u8,
}

/// Two sides and what is under way to each, by rail; what may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    sides: [Side; 2],
    to: [[Vec<Packet>; RAILS]; 2],
    asks: u8,
    messages: u8,
    failures: u8,
    received: u8,
    has_lost: bool,
}

impl World {
    fn new() -> World {
        let side = Side {
            park: Park::none(0),
            state: State::Open,
            links: [Link::Ready; RAILS],
            is_after_park: [false; RAILS],
            queued: 0,
        };
        World {
            sides: [side.clone(), side],
            to: Default::default(),
            asks: 2,
            messages: 1,
            failures: 1,
            received: 0,
            has_lost: false,
        }
    }

    /// Whether all that a side was to send has arrived (and is acknowledged).
    fn is_idle(&self, side: usize) -> bool {
        self.sides[side].queued == 0 && self.to[1 - side].iter().all(|rail| !rail.contains(&Packet::Message))
    }

    /// What is under way to a side on a rail is lost; messages are sent again.
    fn lose(&mut self, side: usize, rail: usize) {
        let lost = self.to[side][rail].iter().filter(|&&packet| packet == Packet::Message).count();
        self.has_lost |= rail == RING && lost > 0;
        self.to[side][rail].clear();
        self.sides[1 - side].queued += lost as u8;
    }

    fn enter_parking(&mut self, side: usize) {
        let side = &mut self.sides[side];
        side.state = State::Parking;
        side.park.clear();
        side.is_after_park = [false; RAILS];
    }

    fn conclude(&mut self, side: usize, outcome: Outcome) {
        let at = &self.sides[side];
        let is_newer = (0..RAILS).any(|rail| at.is_after_park[rail] && at.links[rail] != Link::Down);
        match outcome {
            Outcome::Waits => {}
            Outcome::Parks if !is_newer => {
                for rail in 0..RAILS {
                    if core::mem::replace(&mut self.sides[side].links[rail], Link::Down) != Link::Down {
                        self.lose(side, rail);
                        self.to[1 - side][rail].push(Packet::End);
                    }
                }
                self.sides[side].state = State::Parked;
                let park = &mut self.sides[side].park;
                park.times += u8::from(park.times == 0 || park.is_announced);
            }
            Outcome::Parks if self.sides[side].park.withdraw() == Outcome::Waits => {}
            Outcome::Opens | Outcome::Parks => {
                self.sides[side].state = State::Open;
                self.sides[side].park.clear();
            }
        }
    }

    fn ended(&mut self, side: usize, rail: usize) {
        let at = &mut self.sides[side];
        at.links[rail] = Link::Down;
        if at.state == State::Parking {
            let has_ring = rail != RING && at.links[RING] != Link::Down;
            let outcome = at.park.ended(RailId(rail as u8), has_ring);
            self.conclude(side, outcome);
        }
    }

    fn arrive(&mut self, side: usize, rail: usize, packet: Packet) {
        let on = RailId(rail as u8);
        match packet {
            Packet::End => self.ended(side, rail),
            Packet::Message => self.received += 1,
            Packet::Connect(times) => {
                self.sides[side].links[rail] = Link::Ready;
                let has_parked = self.sides[side].park.has_parked(times);
                for other in (0..RAILS).filter(|&other| has_parked && other != rail) {
                    if self.sides[side].links[other] == Link::Ready {
                        self.lose(side, other);
                        self.to[1 - side][other].push(Packet::End);
                        self.ended(side, other);
                    }
                }
                if self.sides[side].state == State::Parking {
                    let outcome = self.sides[side].park.withdraw();
                    self.conclude(side, outcome);
                }
            }
            Packet::Step(request, code) => {
                let park = wire::Park { request, step: ParkStep::ALL[usize::from(code)] };
                let (state, is_idle) = (self.sides[side].state, self.is_idle(side));
                if park.step == ParkStep::Request && self.sides[side].park.is_new(request) {
                    let is_free = state == State::Parking || !self.sides[side].park.is_pending();
                    let agrees = is_idle && state != State::Parked && is_free;
                    if agrees && state == State::Open {
                        self.enter_parking(side);
                    }
                    let outcome = self.sides[side].park.requested(on, request, agrees);
                    if state == State::Parking {
                        self.conclude(side, outcome);
                    }
                } else if park.step != ParkStep::Request && state == State::Parking {
                    let outcome = self.sides[side].park.concluded(on, park);
                    self.conclude(side, outcome);
                }
            }
        }
    }

    /// A connection comes up at a side, or replaces one whose end it has not seen.
    fn came_up(&mut self, side: usize, rail: usize) {
        self.lose(side, rail);
        if self.sides[side].state == State::Parked {
            self.resume(side);
        }
        let at = &mut self.sides[side];
        let was_up = at.links[rail] != Link::Down;
        at.links[rail] = Link::Up;
        at.is_after_park[rail] = at.state == State::Parking;
        if was_up && at.state == State::Parking {
            let has_ring = rail != RING && at.links[RING] != Link::Down;
            let outcome = at.park.ended(RailId(rail as u8), has_ring);
            self.conclude(side, outcome);
        }
    }

    /// A parked channel begins, as `Parked` has it.
    fn resume(&mut self, side: usize) {
        let side = &mut self.sides[side];
        let Park { request, peer_request, times, their_times, .. } = side.park;
        side.park = Park { request, peer_request, times, their_times, ..Park::none(0) };
        side.state = State::Open;
    }

    /// All that follows by itself: a step or a message is posted, something arrives, what is down is dialled.
    fn progress(&self) -> Vec<World> {
        let mut next = Vec::new();
        for side in 0..2 {
            let at = &self.sides[side];
            if at.state == State::Parked && at.queued > 0 {
                let mut world = self.clone();
                world.resume(side);
                next.push(world);
            }
            if at.park.is_asking() && !self.is_idle(side) {
                let mut world = self.clone();
                let outcome = world.sides[side].park.withdraw();
                world.conclude(side, outcome);
                next.push(world);
            } else if at.state != State::Parked
                && let Some((on, park)) = at.park.next()
            {
                let mut world = self.clone();
                let rails = on.map_or(0..RAILS, |rail| usize::from(rail.0)..usize::from(rail.0) + 1);
                let rail = rails.into_iter().find(|&rail| at.links[rail] == Link::Ready);
                if let Some(rail) = rail {
                    let code = park.step as u8;
                    world.to[1 - side][rail].push(Packet::Step(park.request, code));
                }
                let outcome = world.sides[side].park.posted(rail.map(|rail| RailId(rail as u8)));
                if at.state == State::Parking {
                    world.conclude(side, outcome);
                }
                next.push(world);
            } else if at.state == State::Open && at.queued > 0 {
                for rail in (0..RAILS).filter(|&rail| at.links[rail] == Link::Ready) {
                    let mut world = self.clone();
                    world.sides[side].queued -= 1;
                    world.to[1 - side][rail].push(Packet::Message);
                    next.push(world);
                }
            }
            for rail in 0..RAILS {
                if at.links[rail] != Link::Down && !self.to[side][rail].is_empty() {
                    let mut world = self.clone();
                    let packet = world.to[side][rail].remove(0);
                    world.arrive(side, rail, packet);
                    next.push(world);
                }
                // It was dialled before the channel began to be parked, or is now.
                if at.links[rail] == Link::Down && at.state != State::Parked {
                    let mut world = self.clone();
                    world.came_up(side, rail);
                    world.came_up(1 - side, rail);
                    for side in 0..2 {
                        if world.sides[side].links[rail] == Link::Up {
                            world.sides[side].park.is_announced = true;
                            let times = world.sides[side].park.times;
                            world.to[1 - side][rail].push(Packet::Connect(times));
                        }
                    }
                    next.push(world);
                }
            }
        }
        next
    }

    /// What users and networks do beside.
    fn changes(&self) -> Vec<World> {
        let mut next = Vec::new();
        for side in 0..2 {
            let at = &self.sides[side];
            let may_ask = at.state == State::Open
                && self.is_idle(side)
                && !at.park.is_pending()
                && at.links[1] == Link::Ready
                && at.links[0] != Link::Up;
            if self.asks > 0 && may_ask {
                let mut world = self.clone();
                world.asks -= 1;
                world.enter_parking(side);
                world.sides[side].park.ask(Time(0));
                next.push(world);
            }
            if self.messages > 0 {
                let mut world = self.clone();
                world.messages -= 1;
                world.sides[side].queued += 1;
                next.push(world);
            }
            // A ring fails with its process only.
            if self.failures > 0 && at.links[1] != Link::Down {
                let mut world = self.clone();
                world.failures -= 1;
                world.lose(side, 1);
                world.to[1 - side][1].push(Packet::End);
                world.ended(side, 1);
                next.push(world);
            }
        }
        next
    }
}

fn history(seen: &HashMap<World, Option<World>>, world: &World) -> String {
    let mut worlds = Vec::from([format!("{world:?}\n")]);
    let mut at = world;
    while let Some(Some(before)) = seen.get(at) {
        worlds.push(format!("{before:?}\n"));
        at = before;
    }
    worlds.reverse();
    worlds.concat()
}

/// K-2 to K-5, for all orders of requests, withdrawals, failures and new connections: each side ends parked
/// or open, each message is received once, and no ring is closed with a message in it.
#[test]
fn every_agreement_ends() {
    // Each with the one that it came from: breadth first, so that a failure has a shortest history.
    let mut seen = HashMap::from([(World::new(), None)]);
    let mut open = VecDeque::from([World::new()]);
    let mut ends = [0; 2];
    while let Some(world) = open.pop_front() {
        let progress = world.progress();
        if progress.is_empty() {
            let states = [0, 1].map(|side| world.sides[side].state);
            let is_over = matches!(states, [State::Open, State::Open] | [State::Parked, State::Parked]);
            if !is_over || world.received + world.messages != World::new().messages {
                panic!("{}", history(&seen, &world));
            }
            ends[usize::from(states[0] == State::Parked)] += 1;
        }
        for next in progress.into_iter().chain(world.changes()) {
            if next.has_lost {
                panic!("a message in a ring is lost\n{}{next:?}", history(&seen, &world));
            }
            if !seen.contains_key(&next) {
                seen.insert(next.clone(), Some(world.clone()));
                open.push_back(next);
            }
        }
    }
    assert!(ends[0] > 50 && ends[1] > 10 && seen.len() > 7_000, "{ends:?} of {}", seen.len());
}
