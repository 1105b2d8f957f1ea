//! One endpoint, and a peer that the test itself plays, packet by packet.

use super::*;
use crate::wire::{Body, Common, Connect, Lane, Repr};

/// The peer's number of our rail 0; each further rail has the next one.
pub(super) const PEER_RAIL: u8 = 5;

/// What the peer announces unless a test sets something else.
pub(super) const PEER_PARAMETERS: Connect = Connect {
    window: 64,
    eager_bytes_max: 1000,
    block_bytes: 64,
    requests_max: 2,
    rail: PEER_RAIL,
    connection: 1,
    first_number: 0,
    parked: 0,
    answer: false,
};

/// Rank 0, with the test as rank 1.
pub(super) struct Lone<'m> {
    pub(super) endpoint: Endpoint<'m>,
    pub(super) now: u64,
    /// The PSN of the peer's next packet, by lane.
    pub(super) psn: [u32; 2],
    /// The acknowledgments in every packet of the peer.
    pub(super) acks: [u32; 2],
    /// What every packet of the peer grants: messages, blocks.
    pub(super) limits: (u16, u16),
    /// Subchannels whose close the endpoint has requested.
    pub(super) closed: Vec<RailId>,
    /// Remote writes and reads that it posted.
    pub(super) transfers: u32,
    /// Rails of all posts, in order.
    pub(super) rails: Vec<RailId>,
    /// What they were, and the memory of their payloads.
    pub(super) posts: Vec<(RailId, PostKind, Vec<Seg>)>,
    /// Keys that it gave back to their rails.
    pub(super) given_back: Vec<(RailId, u64)>,
    /// Registrations that rails have not made yet, where [`slow`](Self::slow) is set.
    pub(super) requested: Vec<(OpId, RailId)>,
    /// Rails leave registrations for later.
    pub(super) slow: bool,
    /// Rails are not through with anything from now on.
    pub(super) busy: bool,
    /// Nor are these: bit per rail.
    pub(super) stuck: u64,
    /// Posts that rails have not completed, in order.
    pub(super) held: Vec<PostId>,
}

impl<'m> Lone<'m> {
    /// The subchannels are up, and no packet was sent.
    pub(super) fn up(region: &'m mut Region, config: &Config, rails: &[RailFacts]) -> Self {
        Lone::reached(region, config, rails, rails.len() as u8)
    }

    /// As [`up`](Self::up), but only the first `reaching` of the rails lead to the peer.
    pub(super) fn reached(region: &'m mut Region, config: &Config, rails: &[RailFacts], reaching: u8) -> Self {
        Lone::over(region, config, rails, u64::MAX >> (64 - reaching))
    }

    /// As [`up`](Self::up), but only these of the rails lead to the peer; bit per rail.
    pub(super) fn over(region: &'m mut Region, config: &Config, rails: &[RailFacts], mask: u64) -> Self {
        let mut endpoint = Endpoint::new(*config, rails, region.take(config), Time(0)).unwrap();
        endpoint.add_peer(PeerId(1), mask).unwrap();
        for rail in (0..rails.len() as u8).filter(|rail| mask >> rail & 1 == 1) {
            endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(1), rail: RailId(rail) });
        }
        let limits = (32, 64);
        Lone {
            endpoint,
            now: 0,
            psn: [0; 2],
            acks: [0; 2],
            limits,
            closed: Vec::new(),
            transfers: 0,
            rails: Vec::new(),
            posts: Vec::new(),
            given_back: Vec::new(),
            requested: Vec::new(),
            slow: false,
            busy: false,
            stuck: 0,
            held: Vec::new(),
        }
    }

    /// The first packets have gone both ways.
    pub(super) fn connected(region: &'m mut Region, config: &Config, rails: &[RailFacts]) -> Self {
        let mut lone = Lone::up(region, config, rails);
        for rail in 0..rails.len() as u8 {
            let connect = Body::Connect(Connect { rail: PEER_RAIL + rail, ..PEER_PARAMETERS });
            assert_eq!(lone.feed_on(rail, connect, 0, |_| {}), Arrival::Done);
        }
        assert_eq!(lone.sent().len(), rails.len());
        assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerUp { peer: PeerId(1) }));
        lone
    }

    /// The peer's next packet comes on rail 0.
    pub(super) fn feed(&mut self, body: Body, payload_bytes: u32) -> Arrival {
        self.feed_on(0, body, payload_bytes, |_| {})
    }

    /// The peer's next packet, changed by the test, comes.
    pub(super) fn feed_on(
        &mut self,
        rail: u8,
        body: Body,
        payload_bytes: u32,
        change: impl FnOnce(&mut Common),
    ) -> Arrival {
        let lane = body.lane().map(|lane| usize::from(lane == Lane::Unordered));
        let mut common = Common {
            source: 1,
            psn: lane.map_or(0, |lane| self.psn[lane]),
            ack_ordered: self.acks[0],
            ack_unordered: self.acks[1],
            message_limit: self.limits.0,
            block_limit: self.limits.1,
            payload_bytes,
            ..Common::default()
        };
        if let Some(lane) = lane {
            self.psn[lane] += 1;
        }
        change(&mut common);
        let header = Repr { common, body }.emit_vec().unwrap();
        self.endpoint.handle_arrival(Time(self.now), PeerId(1), RailId(rail), &header)
    }

    /// The payload of a packet is where it was to go.
    pub(super) fn place(&mut self, arrival: Arrival) {
        let Arrival::Place { id, .. } = arrival else { panic!("no place: {arrival:?}") };
        self.endpoint.handle_placed(Time(self.now), id, &|at, bytes| panic!("{} bytes at {at:?}", bytes.len()));
    }

    /// The payload of an aggregate is where it was to go: the blocks of the pool, in order.
    pub(super) fn place_bytes(&mut self, arrival: Arrival, payload: &[u8]) {
        let Arrival::Place { id, memory } = arrival else { panic!("no place: {arrival:?}") };
        let (mut pool, mut rest) = (BTreeMap::new(), payload);
        for seg in self.endpoint.segments(memory) {
            let (now, later) = rest.split_at(seg.len as usize);
            pool.extend((seg.at.offset..).zip(now.iter().copied()));
            rest = later;
        }
        assert!(rest.is_empty(), "{} bytes are placed nowhere", rest.len());
        self.endpoint.handle_placed(Time(self.now), id, &|at, bytes| {
            for (offset, byte) in (at.offset..).zip(bytes) {
                *byte = pool[&offset];
            }
        });
    }

    /// The packets that the endpoint sends now. Rails complete them at once, unless they are busy.
    pub(super) fn sent(&mut self) -> Vec<Repr> {
        let (mut packets, mut actions) = (Vec::new(), heapless::Vec::new());
        while self.endpoint.poll_actions(Time(self.now), &mut actions) > 0 {
            for action in actions.drain(..) {
                match action {
                    Action::Post(post) => {
                        self.rails.push(post.rail);
                        let memory = self.endpoint.segments(post.payload).collect();
                        self.posts.push((post.rail, post.kind, memory));
                        match post.kind {
                            PostKind::Send => packets.push(Repr::parse(&post.header).unwrap()),
                            PostKind::Write { .. } | PostKind::Read { .. } => self.transfers += 1,
                        }
                        if !self.busy && self.stuck >> post.rail.0 & 1 == 0 {
                            self.endpoint.handle_completion(Time(self.now), post.id, PostStatus::Done);
                        } else {
                            self.held.push(post.id);
                        }
                    }
                    Action::Register { operation, rail, .. } if self.slow => self.requested.push((operation, rail)),
                    Action::Register { operation, rail, .. } => {
                        let key = Ok(crate::wire::RemoteKey { rail: 0, connection: 0, key: 1, address: 2 });
                        self.endpoint.handle_registered(operation, rail, key);
                    }
                    Action::Disconnect { rail, .. } | Action::Abort { rail, .. } => self.closed.push(rail),
                    Action::Atomic(atomic) => self.endpoint.handle_atomic(atomic.operation, 0),
                    Action::Deregister { rail, key } => self.given_back.push((rail, key.key)),
                    Action::Copy { .. } | Action::Pack { .. } | Action::Connect { .. } => {}
                }
            }
        }
        packets
    }

    /// As [`sent`](Self::sent), and there must be one packet.
    pub(super) fn sent_one(&mut self) -> Repr {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    /// What has completed, by cookie.
    pub(super) fn completed(&mut self) -> BTreeMap<u64, Result<Done, OpError>> {
        let mut out = BTreeMap::new();
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Completed(completion) = event {
                assert!(out.insert(completion.cookie.0, completion.result).is_none(), "reported twice: {completion:?}");
            }
        }
        out
    }

    /// The rule that the peer broke, which has cost it the channel.
    pub(super) fn offence(&mut self) -> ProtocolError {
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::PeerLost { peer: PeerId(1), why } = event
                && let LossReason::Protocol(error) = why.reason
            {
                return error;
            }
        }
        panic!("the peer is not given up");
    }

    /// Submits a message of `len` bytes.
    pub(super) fn send(&mut self, cookie: u64, len: u64) {
        let send = SendRequest { cookie: Cookie(cookie), segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
        self.endpoint.send(Time(self.now), &send).unwrap();
    }

    /// Posts a receive of `len` bytes.
    pub(super) fn recv(&mut self, cookie: u64, len: u64) {
        let recv = RecvRequest {
            cookie: Cookie(cookie),
            segments: &seg(5000 * cookie, len),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        self.endpoint.recv(Time(self.now), &recv).unwrap();
    }
}
