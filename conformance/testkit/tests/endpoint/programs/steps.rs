//! What programs are made of, and how a step is submitted.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Send { to: usize, tag: Option<u64>, len: u64, level: Level, notify: Notify, inject: bool },
    Recv { from: Selector, len: u64, notify: Notify, probe: bool },
    Multi { from: Selector, len: u64, min: u64 },
    Claim { from: Selector },
    Put { to: usize, len: u64, notify: Notify, bad: bool },
    Get { from: usize, len: u64, bad: bool },
    Atomic { to: usize, counter: u64 },
    Flush { to: usize },
    Cancel,
}

const LENS: [u64; 10] = [0, 1, 40, 52, 300, 1000, 1010, 1500, 3000, 6000];

impl Program<'_> {
    pub(super) fn write_steps(&mut self) {
        for rank in 0..self.ranks {
            for _ in 0..5 + self.rng.below(40) {
                let step = self.step();
                self.steps[rank].push(step);
            }
        }
    }

    fn len(&mut self) -> u64 {
        if self.rng.one_in(25) { 40_000 } else { LENS[self.rng.below(10) as usize] }
    }

    fn selector(&mut self) -> Selector {
        let source = (!self.rng.one_in(3)).then(|| PeerId(self.rng.below(self.ranks as u64) as u32));
        let ignore = [0, 0, 1, u64::MAX][self.rng.below(4) as usize];
        let tag = match self.rng.below(4) {
            0 => TagMatch::Untagged,
            _ => TagMatch::Tagged { tag: self.rng.below(4), ignore },
        };
        Selector { source, tag }
    }

    fn step(&mut self) -> Step {
        let peer = self.rng.below(self.ranks as u64) as usize;
        let rng = &mut self.rng;
        let notify = match rng.below(8) {
            0 => Notify::Silent,
            1 | 2 => Notify::Both(CounterId(0)),
            _ => Notify::Event,
        };
        let notify_used = if notify == Notify::Silent { Notify::Event } else { notify };
        let level = [Level::Reusable, Level::Reusable, Level::Acknowledged, Level::Placed][rng.below(4) as usize];
        let tag = (!rng.one_in(4)).then(|| rng.below(4));
        let bad = rng.one_in(8);
        match rng.below(24) {
            0..=7 => Step::Send { to: peer, tag, len: self.len(), level, notify, inject: false },
            8 => Step::Send { to: peer, tag, len: self.len(), level, notify, inject: true },
            9..=13 => Step::Recv { from: self.selector(), len: self.len() + 30, notify: notify_used, probe: bad },
            14 => {
                let len = 1 + self.len();
                Step::Multi { from: self.selector(), len, min: 1 + self.rng.below(len.div_ceil(2)) }
            }
            15 => Step::Claim { from: self.selector() },
            16 | 17 => Step::Put { to: peer, len: self.len(), notify, bad },
            18 | 19 => Step::Get { from: peer, len: self.len().min(GETS.1), bad },
            20 => Step::Atomic { to: peer, counter: self.rng.below(COUNTERS) },
            21 | 22 => Step::Flush { to: peer },
            _ => Step::Cancel,
        }
    }

    /// A buffer in up to three pieces; `None`: the memory is used up.
    fn buffer(&mut self, rank: usize, len: u64, pieces: bool) -> Option<Vec<Seg>> {
        let at = self.buffers_at[rank];
        // A gap behind each piece, so that a write beyond it shows.
        if at + len + 64 > BUFFERS.0 + BUFFERS.1 {
            return None;
        }
        let mut segments = Vec::new();
        let (mut at, mut left) = (at, len);
        while pieces && left > 2 && segments.len() < 2 && self.rng.one_in(3) {
            let now = self.rng.below(left);
            segments.push(Seg::new(HEAP, at, now));
            (at, left) = (at + now + 16, left - now);
        }
        segments.push(Seg::new(HEAP, at, left));
        self.buffers_at[rank] = at + left + 16;
        Some(segments)
    }

    fn enter(&mut self, rank: usize, id: OpId, what: What, peer: Option<usize>, segments: Vec<Seg>, notify: Notify) {
        self.submitted[rank].push(Submitted { id, what, peer, segments, notify, ended: None, cancelled: false });
    }

    fn post(&mut self, rank: usize, from: Selector, len: u64, multi: bool) -> usize {
        self.receives[rank].push(Receive {
            from,
            len,
            multi,
            got: Vec::new(),
            cancelled: false,
            passed_by: Vec::new(),
        });
        self.receives[rank].len() - 1
    }

    /// Submits the next step of a rank; `false`: there is none, or it has to wait.
    pub(super) fn attempt(&mut self, rank: usize) -> bool {
        let Some(step) = self.steps[rank].pop() else { return false };
        // The last slot is left to receives: a program full of sends without receives is expected to block.
        let receives = matches!(step, Step::Recv { .. } | Step::Multi { .. } | Step::Claim { .. } | Step::Cancel);
        if !receives && self.cluster.nodes[rank].endpoint.usage().operations.used + 1 >= self.config.operations_max {
            self.steps[rank].push(step);
            return false;
        }
        let (buffers_at, puts_at) = (self.buffers_at.clone(), self.puts_at.clone());
        match self.submit(rank, &step) {
            Ok(()) | Err(SubmitError::PeerGone(_)) => true,
            Err(SubmitError::Full(what)) => {
                (self.buffers_at, self.puts_at) = (buffers_at, puts_at);
                let never = what == Full::Retained && self.config.retained_max == 0;
                if !never {
                    self.steps[rank].push(step);
                }
                never
            }
            Err(error) => panic!("seed {}: {error:?} for {step:?}", self.seed),
        }
    }

    fn submit(&mut self, rank: usize, step: &Step) -> Result<(), SubmitError> {
        let now = Time(self.cluster.now);
        let cookie = Cookie(self.submitted[rank].len() as u64);
        match *step {
            Step::Send { to, tag, len, level, notify, inject } => {
                let number = self.messages[rank][to].len() as u64;
                let mut len = if inject { len.min(self.config.eager_bytes_max.into()) } else { len };
                while len > 0 && self.messages[rank][to].iter().any(|message| message.len == len) {
                    len -= 1;
                }
                let name = (rank as u64) << 32 | (to as u64) << 16 | number;
                let (peer, immediate, more) = (PeerId(to as u32), Some(name), number.is_multiple_of(3));
                let send = SendRequest { tag, immediate, level, notify, cookie, more, ..SendRequest::new(peer, &[]) };
                let mut segments = Vec::new();
                let id = if inject {
                    let (id, span) = self.cluster.nodes[rank].endpoint.inject(now, &send, len)?;
                    let to: Vec<_> = self.cluster.nodes[rank].endpoint.segments(span).collect();
                    self.cluster.nodes[rank].write(&to, &oracle::bytes(name, len));
                    id
                } else {
                    let Some(buffer) = self.buffer(rank, len, true) else { return Ok(()) };
                    segments = buffer;
                    self.cluster.nodes[rank].write(&segments, &oracle::bytes(name, len));
                    self.cluster.send(rank, &SendRequest { segments: &segments, ..send })?
                };
                self.messages[rank][to].push(Message { name, tag, len, taken_back: false });
                self.enter(rank, id, What::Send { to, name }, Some(to), segments, notify);
            }
            Step::Recv { from, len, notify, probe } => {
                let Some(segments) = self.buffer(rank, len, true) else { return Ok(()) };
                let found = if probe { self.cluster.nodes[rank].endpoint.probe(&from) } else { None };
                let recv = RecvRequest { notify, cookie, ..RecvRequest::new(from, &segments) };
                let id = self.cluster.recv(rank, &recv)?;
                let receive = self.post(rank, from, len, false);
                if let Some(found) = found {
                    // No message came in between: the receive gets the one found.
                    self.receives[rank][receive].got.push(found.immediate.expect("named"));
                }
                let peer = from.source.map(|source| source.0 as usize);
                self.enter(rank, id, What::Recv { receive }, peer, segments, notify);
            }
            Step::Multi { from, len, min } => {
                let Some(segments) = self.buffer(rank, len, false) else { return Ok(()) };
                let recv = RecvRequest { multi: Some(min), cookie, ..RecvRequest::new(from, &segments) };
                let id = self.cluster.nodes[rank].endpoint.recv(now, &recv)?;
                let receive = self.post(rank, from, len, true);
                self.enter(rank, id, What::Multi { receive }, None, segments, Notify::Event);
            }
            Step::Claim { from } => {
                if let Some((message, found)) = self.cluster.nodes[rank].endpoint.claim(&from) {
                    let receive = self.post(rank, from, 0, false);
                    self.receives[rank][receive].got.push(found.immediate.expect("named"));
                    self.claims[rank].push((message, receive));
                }
            }
            Step::Put { to, len, notify, bad } => {
                let at = self.puts_at[to];
                if at + len > PUTS.0 + PUTS.1 {
                    return Ok(());
                }
                let Some(segments) = self.buffer(rank, len, true) else { return Ok(()) };
                self.cluster.nodes[rank].write(&segments, &oracle::bytes(cookie.0 + 7 * rank as u64, len));
                let window = if bad { KEY + 1 } else { KEY };
                let remote = Remote { peer: PeerId(to as u32), window, offset: at };
                let put = PutRequest { notify, cookie, ..PutRequest::new(remote, &segments) };
                let id = self.cluster.nodes[rank].endpoint.put(now, &put)?;
                self.puts_at[to] += len;
                self.enter(rank, id, What::Put { to, at, bad }, Some(to), segments, notify);
            }
            Step::Get { from, len, bad } => {
                let Some(segments) = self.buffer(rank, len, true) else { return Ok(()) };
                let skip = self.rng.below(GETS.1 - len + 1);
                let offset = if bad { BUFFERS.0 - len + 1 } else { GETS.0 + skip };
                let remote = Remote { peer: PeerId(from as u32), window: KEY, offset };
                let get = GetRequest { cookie, ..GetRequest::new(remote, &segments) };
                let id = self.cluster.nodes[rank].endpoint.get(now, &get)?;
                self.enter(rank, id, What::Get { from, at: skip, bad }, Some(from), segments, Notify::Event);
            }
            Step::Atomic { to, counter } => {
                let at = Remote { peer: PeerId(to as u32), window: KEY, offset: 8 * counter };
                let (kind, data_type) = (AtomicKind::Add, AtomicType::U64);
                let atomic = AtomicRequest { cookie, ..AtomicRequest::new(at, kind, data_type, 1) };
                let id = self.cluster.nodes[rank].endpoint.atomic(now, &atomic)?;
                self.enter(rank, id, What::Atomic { to, counter }, Some(to), Vec::new(), Notify::Event);
            }
            Step::Flush { to } => {
                let one_sided = |op: &Submitted| {
                    matches!(op.what, What::Put { .. } | What::Get { .. } | What::Atomic { .. }) && op.peer == Some(to)
                };
                let before = (0..self.submitted[rank].len()).filter(|&n| one_sided(&self.submitted[rank][n])).collect();
                let flush = FlushRequest { cookie, ..FlushRequest::new(PeerId(to as u32)) };
                let id = self.cluster.nodes[rank].endpoint.flush(now, &flush)?;
                self.enter(rank, id, What::Flush { before }, Some(to), Vec::new(), Notify::Event);
            }
            Step::Cancel => {
                let open: Vec<_> = (0..self.submitted[rank].len())
                    .rev()
                    .filter(|&n| self.submitted[rank][n].ended.is_none())
                    .collect();
                if !open.is_empty() {
                    let n = open[self.rng.below(open.len() as u64) as usize];
                    self.cancel(rank, n);
                }
                if let Some((message, receive)) = self.claims[rank].pop()
                    && !self.receive_claimed(rank, message, receive)
                {
                    return Err(SubmitError::Full(Full::Operations));
                }
            }
        }
        Ok(())
    }

    /// Tries to take a request back.
    fn cancel(&mut self, rank: usize, n: usize) {
        let op = &mut self.submitted[rank][n];
        if self.cluster.nodes[rank].endpoint.cancel(op.id).is_err() {
            return;
        }
        op.cancelled = true;
        match op.what {
            What::Send { to, name } => {
                let message = self.messages[rank][to].iter_mut().find(|message| message.name == name);
                message.expect("sent").taken_back = true;
            }
            What::Recv { receive } | What::Multi { receive } => self.receives[rank][receive].cancelled = true,
            _ => {}
        }
    }

    pub(super) fn cancel_receives(&mut self, rank: usize) {
        for n in 0..self.submitted[rank].len() {
            let op = &self.submitted[rank][n];
            if op.ended.is_none() && !op.cancelled && matches!(op.what, What::Recv { .. } | What::Multi { .. }) {
                self.cancel(rank, n);
            }
        }
    }

    /// Receives a claimed message; `false`: no room, it stays claimed.
    pub(super) fn receive_claimed(&mut self, rank: usize, message: MessageId, receive: usize) -> bool {
        let len = 500;
        let Some(segments) = self.buffer(rank, len, true) else { panic!("more memory") };
        let cookie = Cookie(self.submitted[rank].len() as u64);
        let recv = RecvRequest { cookie, ..RecvRequest::new(Selector::ANY_UNTAGGED, &segments) };
        match self.cluster.nodes[rank].endpoint.recv_claimed(Time(self.cluster.now), message, &recv) {
            Ok(id) => {
                self.receives[rank][receive].len = len;
                self.enter(rank, id, What::Recv { receive }, None, segments, Notify::Event);
            }
            Err(SubmitError::Full(_)) => {
                self.claims[rank].push((message, receive));
                return false;
            }
            // Its peer is lost.
            Err(error) => {
                assert!(self.cluster.faulty && error == SubmitError::UnknownMessage, "seed {}: {error:?}", self.seed);
                self.receives[rank][receive].got.clear();
            }
        }
        true
    }

    /// Posts receives for what has not been received; whether that is nothing.
    pub(super) fn drain_messages(&mut self, rank: usize) -> bool {
        let everything = |source, tagged: bool| {
            let tag = if tagged { TagMatch::Tagged { tag: 0, ignore: u64::MAX } } else { TagMatch::Untagged };
            Selector { source, tag }
        };
        let mut wanted = Vec::new();
        for from in 0..self.ranks {
            let open = self.messages[from][rank].iter().filter(|message| !message.taken_back);
            for message in open.filter(|message| !self.has_received(rank, message.name)) {
                if !self.is_cut(from, rank) {
                    let source = (!message.name.is_multiple_of(3)).then_some(PeerId(from as u32));
                    wanted.push(everything(source, message.tag.is_some()));
                }
            }
        }
        for tagged in [false, true] {
            // Of a lost peer, the messages that are complete.
            if self.cluster.nodes[rank].endpoint.probe(&everything(None, tagged)).is_some() {
                wanted.push(everything(None, tagged));
            }
        }
        let over = wanted.is_empty();
        for from in wanted {
            let step = Step::Recv { from, len: 200, notify: Notify::Event, probe: false };
            if self.submit(rank, &step).is_err() {
                break;
            }
        }
        over
    }
}
