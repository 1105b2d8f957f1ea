//! Ports of one job in one thread, over shared memory or TCP.

use super::*;

/// Rounds after which what should happen counts as never happening. A round drives every port once.
const ROUNDS_MAX: usize = 5_000_000;

/// A job: ports, each with an endpoint, a queue for everything and a vector that numbers all ranks.
struct Cluster {
    ports: Vec<Port>,
    ends: Vec<End>,
    queues: Vec<u32>,
}

/// An endpoint and its vector.
#[derive(Clone, Copy)]
struct End {
    endpoint: u32,
    vector: u32,
}

impl Cluster {
    /// So many processes, without any inserted name.
    fn unknown_processes(size: u32, launched: bool) -> Cluster {
        let mut cluster = Cluster { ports: Vec::new(), ends: Vec::new(), queues: Vec::new() };
        for rank in 0..size {
            let launcher = Launcher { rank: launched.then_some(rank), size: launched.then_some(size) };
            let mut port = Port::new(launcher);
            let queue = port.ledger().queues.insert(Queue::default());
            let vector = port.open_vector();
            let bound = Some(Bound { queue, selective: false });
            let endpoint = Endpoint {
                vector: Some(vector),
                directed: true,
                tx: bound,
                rx: bound,
                multi_bytes_min: 64,
                ..Endpoint::default()
            };
            let endpoint = port.open_endpoint(endpoint).expect("rails can be opened");
            cluster.ports.push(port);
            cluster.ends.push(End { endpoint, vector });
            cluster.queues.push(queue);
        }
        cluster
    }

    /// So many processes, each of which has inserted all names in the order of ranks.
    fn of(size: u32) -> Cluster {
        let mut cluster = Cluster::unknown_processes(size, true);
        for at in 0..size as usize {
            cluster.meet(at);
        }
        cluster
    }

    /// Rank `at` inserts all names.
    fn meet(&mut self, at: usize) {
        let names: Vec<Name> = self.ports.iter().map(|port| *port.name().expect("an endpoint is open")).collect();
        for (name, number) in names.iter().zip(0..) {
            let vector = self.ends[at].vector;
            assert_eq!(self.ports[at].insert(vector, name.bytes()), Ok(number));
        }
    }

    /// The next completion of a rank.
    fn completion(&mut self, at: usize) -> Entry {
        for _ in 0..ROUNDS_MAX {
            self.ports.iter_mut().for_each(Port::progress);
            if let Some(entry) = self.ready(at) {
                return entry;
            }
        }
        panic!("rank {at} got no completion");
    }

    fn ready(&mut self, at: usize) -> Option<Entry> {
        let queue = self.queues[at];
        self.ports[at].ledger().queues.get_mut(queue).expect("it is open").entries.pop_front()
    }

    fn send(&mut self, from: usize, to: u64, tag: u64, payload: &[u8], context: u64) {
        let out = self.outgoing(from, to, tag, payload, context);
        assert_eq!(self.ports[from].send(&out, None), Ok(()));
    }

    fn outgoing(&self, from: usize, to: u64, tag: u64, payload: &[u8], context: u64) -> Outgoing {
        let endpoint = self.ends[from].endpoint;
        let pieces = Pieces::one(payload.as_ptr().expose_provenance() as u64, payload.len() as u64);
        Outgoing { endpoint, to, tag: Some(tag), data: Some(tag + 1000), pieces, context, flags: None }
    }

    fn incoming(&self, at: usize, tag: u64, buffer: &mut [u8], context: u64) -> Incoming {
        let endpoint = self.ends[at].endpoint;
        let pieces = Pieces::one(buffer.as_mut_ptr().expose_provenance() as u64, buffer.len() as u64);
        Incoming { endpoint, from: FI_ADDR_UNSPEC, tag: Some((tag, 0)), pieces, context, flags: None }
    }

    fn recv(&mut self, at: usize, tag: u64, buffer: &mut [u8], context: u64) {
        let incoming = self.incoming(at, tag, buffer, context);
        assert_eq!(self.ports[at].recv(&incoming), Ok(()));
    }
}

#[test]
fn processes_connect_by_names_without_a_launcher() {
    // Without a launcher: each inserts the others in an order of its own, and itself or not.
    let mut cluster = Cluster::unknown_processes(3, false);
    let names: Vec<Name> = cluster.ports.iter().map(|port| *port.name().unwrap()).collect();
    let vector = |cluster: &Cluster, at: usize| cluster.ends[at].vector;
    for (at, others) in [(0, [2, 1]), (1, [0, 2]), (2, [1, 0])] {
        for other in others {
            let vector = vector(&cluster, at);
            cluster.ports[at].insert(vector, names[other].bytes()).unwrap();
        }
    }
    let (mut buffer, payload) = ([0; 5], *b"hello");
    cluster.recv(2, 7, &mut buffer, 70);
    cluster.send(0, 0, 7, &payload, 71);
    let sent = cluster.completion(0);
    assert_eq!((sent.context, sent.flags, sent.error), (71, FI_SEND | FI_TAGGED, 0));
    let received = cluster.completion(2);
    let expected =
        Entry { len: 5, data: 1007, tag: 7, source: 1, ..Entry::new(70, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA) };
    assert_eq!((received, buffer), (expected, payload));
}

/// Receives need no names, and names come when they come: a message of a process that is not inserted has no
/// source, one after the insertion has its number.
#[test]
fn names_come_after_the_first_message() {
    let mut cluster = Cluster::unknown_processes(2, true);
    let mut buffers = [[0; 8], [0; 8], [0; 8]];
    let [first, second, third] = &mut buffers;
    cluster.recv(1, 1, first, 1);
    cluster.recv(1, 1, second, 2);
    cluster.meet(0);
    cluster.send(0, 1, 1, b"first...", 3);
    cluster.send(0, 1, 1, b"second..", 4);
    let received = [cluster.completion(1), cluster.completion(1)];
    assert_eq!(received.map(|entry| (entry.context, entry.source)), [(1, FI_ADDR_UNSPEC), (2, FI_ADDR_UNSPEC)]);
    cluster.meet(1);
    let mut incoming = cluster.incoming(1, 1, third, 5);
    incoming.from = 0;
    assert_eq!(cluster.ports[1].recv(&incoming), Ok(()));
    cluster.send(0, 1, 1, b"third...", 6);
    let received = cluster.completion(1);
    assert_eq!((received.context, received.source, received.error), (5, 0, 0));
    cluster.send(1, 0, 2, b"back", 7);
    assert_eq!(buffers, [*b"first...", *b"second..", *b"third..."]);
}

#[test]
fn names_are_removed_and_inserted_again() {
    let mut cluster = Cluster::of(2);
    let unknown_process = Cluster::unknown_processes(1, false);
    let late = *unknown_process.ports[0].name().unwrap();
    let (vector, other) = (cluster.ends[0].vector, *cluster.ports[1].name().unwrap());
    let port = &mut cluster.ports[0];
    assert_eq!(port.insert(vector, late.bytes()), Ok(2), "after the start");
    assert_eq!(port.lookup(vector, 2), Ok(late));
    assert_eq!(port.insert(vector, &[0; 64]), Err(Errno(FI_EINVAL)));
    assert_eq!(port.remove(vector, 1), Ok(()));
    assert_eq!(port.remove(vector, 1), Err(Errno(FI_EINVAL)));
    assert_eq!(port.lookup(vector, 1), Err(Errno(FI_EINVAL)));
    let out = cluster.outgoing(0, 1, 1, b"x", 0);
    assert_eq!(cluster.ports[0].send(&out, None), Err(Errno(FI_EINVAL)));
    assert_eq!(cluster.ports[0].insert(vector, other.bytes()), Ok(3), "a number is not given again");
    let mut buffer = [0; 2];
    cluster.recv(1, 4, &mut buffer, 8);
    cluster.send(0, 3, 4, b"ok", 9);
    assert_eq!((cluster.completion(1).context, &buffer), (8, b"ok"));
    let out = cluster.outgoing(0, 9, 1, b"x", 0);
    assert_eq!(cluster.ports[0].send(&out, None), Err(Errno(FI_EINVAL)));
}

/// A process that has closed is forgotten with its last number, and its place is free.
#[test]
fn the_place_of_a_process_that_has_closed_is_free() {
    let mut cluster = Cluster::of(2);
    let mut buffer = [0; 2];
    cluster.recv(1, 4, &mut buffer, 8);
    cluster.send(0, 1, 4, b"ok", 9);
    assert_eq!(cluster.completion(1).context, 8);
    let End { endpoint, .. } = cluster.ends[1];
    cluster.ports[1].close_endpoint(endpoint);
    for _ in 0..ROUNDS_MAX {
        if !cluster.ports[0].gone.is_empty() {
            break;
        }
        cluster.ports[0].progress();
    }
    let (vector, peer) = (cluster.ends[0].vector, PeerId(1));
    let port = &mut cluster.ports[0];
    let named = |port: &Port| matches!(&port.stage, Stage::Joined(transport) if transport.name_of(peer).is_some());
    assert!(named(port));
    assert_eq!(port.remove(vector, 1), Ok(()));
    for _ in 0..ROUNDS_MAX {
        if !named(port) {
            break;
        }
        port.progress();
    }
    assert!(!named(port) && port.gone.is_empty());
}

#[test]
fn bidirectional_message_flood_is_fully_delivered() {
    // Far more than the transport takes in: what finds no room waits here, in order.
    const MESSAGES: u64 = 20_000;
    let mut cluster = Cluster::of(2);
    for from in 0..2 {
        for number in 0..MESSAGES {
            let mut out = cluster.outgoing(from, 1 - from as u64, 3, &[], 0);
            out.data = Some(number);
            assert_eq!(cluster.ports[from].inject(&out, &number.to_le_bytes()), Ok(()));
        }
    }
    assert!(!cluster.ports[0].waiting.is_empty(), "the test is too small");
    for at in 0..2 {
        for number in 0..MESSAGES {
            let mut buffer = [0; 8];
            cluster.recv(at, 3, &mut buffer, number);
            let received = cluster.completion(at);
            assert_eq!((received.context, received.data, received.error), (number, number, 0));
            assert_eq!(u64::from_le_bytes(buffer), number);
        }
    }
    assert!(cluster.ports.iter().all(|port| port.waiting.is_empty()));
}

#[test]
fn messages_with_more_to_follow_keep_their_order_and_leave() {
    let mut cluster = Cluster::of(2);
    let (mut buffers, payloads) = ([[0; 8]; 4], [1u64, 2, 3, 4].map(u64::to_le_bytes));
    for (buffer, context) in buffers.iter_mut().zip(0..) {
        cluster.recv(1, 3, buffer, context);
    }
    for (payload, context) in payloads.iter().zip(0..) {
        let mut out = cluster.outgoing(0, 1, 3, payload, context);
        out.flags = Some(FI_MORE);
        assert_eq!(cluster.ports[0].send(&out, None), Ok(()));
    }
    let contexts = [0, 1, 2, 3].map(|_| cluster.completion(1).context);
    assert_eq!((contexts, buffers), ([0, 1, 2, 3], payloads));
}

#[test]
fn receives_beyond_the_transport_room_keep_their_order() {
    const RECEIVES: u64 = 17_000;
    let mut cluster = Cluster::of(2);
    let mut buffers = vec![[0u8; 8]; RECEIVES as usize];
    for (number, buffer) in (0..).zip(&mut buffers) {
        cluster.recv(1, 3, buffer, number);
    }
    assert!(!cluster.ports[1].deferred.is_empty(), "the test is too small");
    for number in 0..RECEIVES {
        let out = cluster.outgoing(0, 1, 3, &[], 0);
        assert_eq!(cluster.ports[0].inject(&out, &number.to_le_bytes()), Ok(()));
    }
    // Completions have no order; matching has.
    let mut completed: Vec<u64> = (0..RECEIVES).map(|_| cluster.completion(1).context).collect();
    completed.sort_unstable();
    assert!(completed.into_iter().eq(0..RECEIVES));
    assert!((0..).zip(&buffers).all(|(number, buffer)| u64::from_le_bytes(*buffer) == number));
}

#[test]
fn a_message_that_is_too_long_is_an_error_with_its_lengths() {
    let mut cluster = Cluster::of(2);
    for bytes in [10, 100_000] {
        let (mut buffer, payload) = (vec![0; bytes / 2], vec![5; bytes]);
        cluster.recv(1, 2, &mut buffer, 20);
        cluster.send(0, 1, 2, &payload, 21);
        let failed = cluster.completion(1);
        let lengths = (failed.error, failed.len, failed.missing, failed.tag, failed.source);
        assert_eq!(lengths, (FI_ETRUNC, bytes as u64 / 2, bytes as u64 / 2, 2, 0));
        assert_eq!(failed.data, 1002, "MPICH has the sender's rank there");
        assert_eq!(buffer, payload[..bytes / 2]);
        assert_eq!(cluster.completion(0).context, 21);
    }
}

#[test]
fn probes_look_claim_and_discard() {
    let mut cluster = Cluster::of(2);
    let probe = |cluster: &mut Cluster, tag: u64, context: u64, probe: Probe| {
        let incoming = cluster.incoming(1, tag, &mut [], context);
        cluster.ports[1].probe(&incoming, probe).unwrap();
        cluster.ready(1).expect("a probe answers at once")
    };
    assert_eq!(probe(&mut cluster, 5, 1, Probe::Peek).error, FI_ENOMSG);
    for text in [b"one", b"two", b"six"] {
        cluster.send(0, 1, 5, text, 2);
    }
    for _ in 0..3 {
        cluster.completion(0);
    }
    let mut found = probe(&mut cluster, 5, 1, Probe::Peek);
    for _ in 0..ROUNDS_MAX {
        if found.error == 0 {
            break;
        }
        found = probe(&mut cluster, 5, 1, Probe::Peek);
    }
    assert_eq!((found.len, found.tag, found.data, found.source), (3, 5, 1005, 0));
    assert_eq!(probe(&mut cluster, 5, 11, Probe::Claim).error, 0);
    assert_eq!(probe(&mut cluster, 5, 12, Probe::Discard).error, 0);
    let (mut third, mut first) = ([0; 3], [0; 3]);
    cluster.recv(1, 5, &mut third, 13);
    assert_eq!((cluster.completion(1).context, &third), (13, b"six"));
    let claimed = cluster.incoming(1, 5, &mut first, 11);
    cluster.ports[1].recv_claimed(&claimed, false).unwrap();
    assert_eq!((cluster.completion(1).context, &first), (11, b"one"));
    assert_eq!(cluster.ports[1].recv_claimed(&claimed, false), Err(Errno(FI_EINVAL)));
    assert_eq!(probe(&mut cluster, 5, 1, Probe::Peek).error, FI_ENOMSG);
}

#[test]
fn a_receive_is_cancelled() {
    let mut cluster = Cluster::of(2);
    let mut buffer = [0; 8];
    for _ in 0..2 {
        cluster.recv(1, 1, &mut buffer, 5);
        let endpoint = cluster.ends[1].endpoint;
        assert_eq!(cluster.ports[1].cancel(endpoint, 6), Err(Errno(FI_EINVAL)));
        cluster.ports[1].cancel(endpoint, 5).unwrap();
        let cancelled = cluster.completion(1);
        assert_eq!((cancelled.context, cancelled.error), (5, FI_ECANCELED));
        assert_eq!(cluster.ports[1].cancel(endpoint, 5), Err(Errno(FI_EINVAL)));
    }
    assert!(cluster.ports[1].ledger.records.is_empty());
}

#[test]
fn a_multi_receive_takes_message_after_message() {
    let mut cluster = Cluster::of(2);
    let mut buffer = [0; 200];
    let start = buffer.as_mut_ptr().expose_provenance() as u64;
    let mut incoming = cluster.incoming(1, 0, &mut buffer, 9);
    (incoming.tag, incoming.flags) = (None, Some(FI_MULTI_RECV));
    cluster.ports[1].recv(&incoming).unwrap();
    let mut released = Vec::new();
    for (number, text) in [(0u64, [b'a'; 50]), (1, [b'b'; 50]), (2, [b'c'; 50])] {
        let mut out = cluster.outgoing(0, 1, 0, &text, 8);
        out.tag = None;
        cluster.ports[0].send(&out, None).unwrap();
        let entry = cluster.completion(1);
        assert_eq!((entry.context, entry.len, entry.address, entry.error), (9, 50, start + 50 * number, 0));
        assert_eq!(entry.flags & !FI_MULTI_RECV, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA);
        released.push(entry.flags & FI_MULTI_RECV != 0);
    }
    // 64 bytes must be left.
    assert_eq!(released, [false, false, true]);
    assert!(buffer[..150].chunks(50).eq([[b'a'; 50], [b'b'; 50], [b'c'; 50]]));
    assert!(cluster.ports[1].ledger.records.is_empty());
}

#[test]
fn selective_completions_are_filtered_and_counters_count_all() {
    let mut cluster = Cluster::of(2);
    let counter = cluster.ports[0].ledger().counts.insert(Count::default());
    let End { endpoint, .. } = cluster.ends[0];
    let end = cluster.ports[0].ledger().endpoints.get_mut(endpoint).unwrap();
    end.tx.as_mut().unwrap().selective = true;
    (end.sends, end.writes, end.reads) = (Some(counter), Some(counter), Some(counter));
    let mut buffers = [[0; 4]; 3];
    for (buffer, context) in buffers.iter_mut().zip(0..) {
        cluster.recv(1, 1, buffer, context);
    }
    let mut out = cluster.outgoing(0, 1, 1, b"text", 1);
    cluster.ports[0].send(&out, None).unwrap();
    cluster.ports[0].inject(&out, b"text").unwrap();
    out.flags = Some(FI_COMPLETION);
    cluster.ports[0].send(&out, None).unwrap();
    for _ in 0..3 {
        assert_eq!(cluster.completion(1).error, 0);
    }
    assert_eq!(cluster.completion(0).context, 1);
    assert_eq!(cluster.ports[0].ledger.counts.get(counter).map(|count| count.done), Some(3));
    assert_eq!(cluster.ready(0), None);
}

#[test]
fn memory_is_written_read_and_changed() {
    let mut cluster = Cluster::unknown_processes(2, true);
    let mut memory = vec![0u64; 512];
    let piece = Piece { address: memory.as_mut_ptr().expose_provenance() as u64, len: 4096 };
    let number = cluster.ports[1].register(piece, FI_REMOTE_READ | FI_REMOTE_WRITE, 77).unwrap();
    assert_eq!(cluster.ports[1].register(piece, FI_REMOTE_READ, 77), Err(Errno(FI_ENOKEY)));
    (0..2).for_each(|at| cluster.meet(at));
    let endpoint = cluster.ends[0].endpoint;
    let request = |pieces, offset, copy| OneSided {
        endpoint,
        peer: 1,
        key: 77,
        offset,
        pieces,
        data: None,
        copy,
        context: 4,
        flags: None,
        silent: false,
    };
    let payload = [0x1122_3344_5566_7788u64; 100];
    let local = Pieces::one(payload.as_ptr().expose_provenance() as u64, 800);
    cluster.ports[0].write(request(local, 8, None)).unwrap();
    assert_eq!((cluster.completion(0).flags, memory[0], memory[1], memory[101]), (FI_RMA | FI_WRITE, 0, payload[0], 0));
    cluster.ports[0].write(request(Pieces::default(), 0, Some([3, 0, 0, 0, 0, 0, 0, 0].into()))).unwrap();
    assert_eq!((cluster.completion(0).error, memory[0]), (0, 3));

    cluster.ports[0].write(OneSided { data: Some(0xabc), ..request(local, 896, None) }).unwrap();
    let flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
    let written = Entry { len: 800, data: 0xabc, source: 0, ..Entry::new(0, flags) };
    assert_eq!((cluster.completion(1), memory[112]), (written, payload[0]));
    assert_eq!(cluster.completion(0).error, 0);

    let mut back = [0u64; 101];
    let into = Pieces::one(back.as_mut_ptr().expose_provenance() as u64, 808);
    cluster.ports[0].read(&request(into, 0, None)).unwrap();
    assert_eq!((cluster.completion(0).flags, back[0], back[100]), (FI_RMA | FI_READ, 3, payload[0]));

    let at = request(Pieces::default(), 0, None);
    let sum = AtomicCall { at, op: FI_SUM, datatype: FI_UINT64, values: vec![(5, 0)], old: None };
    cluster.ports[0].atomic(sum).unwrap();
    assert_eq!((cluster.completion(0).flags, memory[0]), (FI_ATOMIC | FI_WRITE, 8));
    let at = request(Pieces::default(), 0, None);
    let bits = AtomicCall { at, op: FI_BOR, datatype: FI_DOUBLE, values: vec![(5, 0)], old: None };
    assert_eq!(cluster.ports[0].atomic(bits), Err(Errno(FI_EOPNOTSUPP)));

    // Several values are one request with one completion.
    let at = request(Pieces::default(), 3584, None);
    let values = (1..=ATOMIC_COUNT_MAX as u64).rev().map(|operand| (operand, 0)).collect();
    let sums = AtomicCall { at, op: FI_SUM, datatype: FI_UINT64, values, old: None };
    cluster.ports[0].atomic(sums).unwrap();
    assert_eq!((cluster.completion(0).error, memory[448], memory[511]), (0, 64, 1));
    let at = request(Pieces::default(), 4088, None);
    let beyond = AtomicCall { at, op: FI_SUM, datatype: FI_UINT64, values: vec![(1, 0); 2], old: None };
    cluster.ports[0].atomic(beyond).unwrap();
    assert_eq!((cluster.completion(0).error, memory[511]), (FI_EACCES, 2));

    // What is fenced is taken when all before it is complete.
    cluster.ports[0].write(request(local, 8, None)).unwrap();
    let fenced = || OneSided { flags: Some(FI_FENCE | FI_COMPLETION), context: 5, ..request(into, 0, None) };
    assert_eq!(cluster.ports[0].read(&fenced()), Err(Errno(FI_EAGAIN)));
    let mut message = cluster.outgoing(0, 1, 1, b"text", 6);
    message.flags = Some(FI_FENCE);
    assert_eq!(cluster.ports[0].send(&message, None), Err(Errno(FI_EAGAIN)));
    assert_eq!(cluster.completion(0).context, 4);
    cluster.ports[0].read(&fenced()).unwrap();
    assert_eq!((cluster.completion(0).context, back[1]), (5, payload[0]));

    cluster.ports[1].deregister(number).unwrap();
    cluster.ports[0].write(request(local, 8, None)).unwrap();
    assert_eq!(cluster.completion(0).error, FI_EACCES);
}

#[test]
fn tens_of_thousands_of_registrations_have_room() {
    let mut cluster = Cluster::of(1);
    let mut memory = [0u64; 8];
    let piece = Piece { address: memory.as_mut_ptr().expose_provenance() as u64, len: 64 };
    let port = &mut cluster.ports[0];
    let numbers: Vec<u32> =
        (0..u64::from(WINDOWS_MAX)).map(|key| port.register(piece, FI_REMOTE_READ, key).unwrap()).collect();
    assert_eq!(port.register(piece, FI_REMOTE_READ, u64::MAX), Err(Errno(FI_ENOMEM)));
    assert_eq!(port.register(piece, FI_REMOTE_READ, 77), Err(Errno(FI_ENOKEY)));
    port.deregister(numbers[77]).unwrap();
    assert_eq!(port.register(piece, FI_REMOTE_READ, 77), Ok(numbers[77]));
    numbers.into_iter().for_each(|number| port.deregister(number).unwrap());
    assert_eq!(port.register(piece, FI_REMOTE_READ, u64::MAX).map(|_| ()), Ok(()));
}

#[test]
fn closing_the_last_endpoint_disconnects_its_peers() {
    let mut cluster = Cluster::of(2);
    cluster.send(0, 1, 1, b"bye", 1);
    cluster.completion(0);
    let End { endpoint, .. } = cluster.ends[0];
    let mut buffer = [0; 3];
    cluster.recv(1, 1, &mut buffer, 2);
    assert_eq!((cluster.completion(1).error, &buffer), (0, b"bye"));
    cluster.ports[0].close_endpoint(endpoint);
    assert!(matches!(cluster.ports[0].stage, Stage::Over));
    // A receive from a peer that has closed ends with that.
    let mut incoming = cluster.incoming(1, 1, &mut buffer, 3);
    incoming.from = 0;
    let ended = match cluster.ports[1].recv(&incoming) {
        Ok(()) => cluster.completion(1).error,
        Err(Errno(errno)) => errno,
    };
    assert!([FI_ESHUTDOWN, FI_ECONNRESET].contains(&ended), "{ended}");
}
