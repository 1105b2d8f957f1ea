//! Body of the fuzz target and of the corpus replay for everything that is parsed from a peer's bytes, and
//! one sample packet or more for every kind.

use rerail_core::wire::aggregate::{RECORD_BYTES, Record, RecordHead, Records};
use rerail_core::wire::handshake::{HELLO_BYTES, Hello, RefusedBecause};
use rerail_core::wire::handshake::{VERDICT_BYTES, Verdict};
use rerail_core::wire::*;
use rerail_core::wire::{header_len, payload_len};

/// Every name that a [`WireError`] may carry.
pub const FIELDS: [&str; 41] = [
    "header",
    "version",
    "kind",
    "header_bytes",
    "flags",
    "psn",
    "payload_bytes",
    "reserved",
    "head.tag",
    "head.immediate",
    "keys.count",
    "keys.padding",
    "aggregate.count",
    "aggregate.reserved",
    "record",
    "record.flags",
    "record.reserved",
    "record.bytes",
    "record.trailing",
    "fin.count",
    "fin.refused",
    "fin.reserved",
    "atomic.kind",
    "atomic.data_type",
    "atomic.reserved",
    "cts.reserved",
    "fence.reserved",
    "park.step",
    "park.reserved",
    "resume.reserved",
    "address.len",
    "address.reserved",
    "address.bytes",
    "hello.magic",
    "hello.version",
    "hello.transport",
    "hello.reserved",
    "hello.attempt",
    "verdict.code",
    "verdict.reason",
    "verdict.reserved",
];

/// Takes `data` for everything that a peer may send and asserts that what is accepted is canonical (W-7), and
/// that what is not names a field. Panics where that is broken.
pub fn parse_any(data: &[u8]) {
    check_packet(data);
    check_stream(data);
    check_handshake(data);
    if let Some((&count, payload)) = data.split_first() {
        check_records(u16::from(count), payload);
    }
}

/// The packet that `data` starts with.
pub fn check_packet(data: &[u8]) {
    let repr = match Repr::parse(data) {
        Ok(repr) => repr,
        Err(error) => return check_error(error),
    };
    let header_bytes = repr.header_bytes();
    let (header, payload) = data.split_at(header_bytes);
    assert_eq!(Repr::parse(header), Ok(repr.clone()), "payload must not matter");
    assert_eq!(repr.emit_vec().as_deref(), Ok(header), "W-7");
    let mut short = vec![0; header_bytes - 1];
    assert_eq!(repr.emit(&mut short), Err(EmitError::NoRoom { needed: header_bytes, room: header_bytes - 1 }));
    let cut = Repr::parse(&header[..header_bytes - 1]);
    assert_eq!(cut, Err(WireError { field: "header", value: header_bytes as u64 - 1 }), "W-3");
    assert_eq!(header_len(data), Ok(Some(header_bytes)));
    assert_eq!(payload_len(data), repr.common.payload_bytes);
    assert_eq!(repr.body.lane(), repr.body.kind().lane(), "W-4");
    if let Body::Aggregate { count } = repr.body {
        let payload_bytes = repr.common.payload_bytes as usize;
        check_records(count, payload.get(..payload_bytes).unwrap_or(payload));
    }
}

/// `data` as a stream of packets: each step makes progress, and more bytes never change the result for a
/// prefix.
fn check_stream(data: &[u8]) {
    let mut rest = data;
    loop {
        let len = match header_len(rest) {
            Ok(Some(len)) => len,
            Ok(None) => return assert!(rest.len() < COMMON_BYTES),
            Err(error) => return check_error(error),
        };
        assert!((COMMON_BYTES..=HEADER_BYTES_MAX).contains(&len));
        assert_eq!(header_len(&rest[..COMMON_BYTES]), Ok(Some(len)));
        check_packet(rest);
        let Some(next) = rest.get(len..).and_then(|behind| behind.get(payload_len(rest) as usize..)) else { return };
        rest = next;
    }
}

/// `payload` as the records of an aggregate of `count`: writing them back gives the same bytes.
fn check_records(count: u16, payload: &[u8]) {
    let mut again = Vec::new();
    let mut good = 0;
    for record in Records::new(count, payload) {
        match record {
            Ok(Record { head, payload }) => {
                again.extend_from_slice(&RecordHead { head, bytes: payload.len() as u32 }.emit());
                again.extend_from_slice(payload);
                good += 1;
            }
            Err(error) => {
                assert!(payload.starts_with(&again));
                return check_error(error);
            }
        }
    }
    assert_eq!((good, &again[..]), (count, payload), "W-11");
}

/// The front of `data` as each of the handshake's messages.
fn check_handshake(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<HELLO_BYTES>() {
        match Hello::parse(bytes) {
            Ok(hello) => assert_eq!(hello.emit(), *bytes),
            Err(error) => check_error(error),
        }
    }
    if let Some(bytes) = data.first_chunk::<VERDICT_BYTES>() {
        match Verdict::parse(bytes) {
            Ok(verdict) => assert_eq!(verdict.emit(), *bytes),
            Err(error) => check_error(error),
        }
    }
}

fn check_error(error: WireError) {
    assert!(FIELDS.contains(&error.field), "{error} is not in the field map");
}

/// One packet or more of every kind, with a name; all fields differ, so that none can stand for another
/// unnoticed.
pub fn samples() -> Vec<(&'static str, Repr)> {
    let common = Common {
        source: 0x0403_0201,
        psn: 0x1413_1211,
        ack_ordered: 0x2423_2221,
        ack_unordered: 0x3433_3231,
        message_limit: 0x4241,
        block_limit: 0x5251,
        payload_bytes: 0,
        ack_now: false,
        refusing: false,
    };
    let with_payload = Common { payload_bytes: 5, ..common };
    let unsequenced = Common { psn: 0, ..common };
    let plain = MessageHead { operation: 0xA8A7_A6A5_A4A3_A2A1, ..MessageHead::default() };
    let full = MessageHead {
        tag: Some(0xB8B7_B6B5_B4B3_B2B1),
        immediate: Some(0xC8C7_C6C5_C4C3_C2C1),
        want_placed: true,
        ..plain
    };
    let key = |rail| RemoteKey {
        rail,
        connection: 0xF200 + u16::from(rail),
        key: 0xD8D7_D6D5_D4D3_D200 + u64::from(rail),
        address: 0xE8E7_E6E5_E4E3_E2E1,
    };
    let keys = |count| (1..=count).map(key).collect::<RemoteKeys>();
    let rts = |keys| Rts { head: full, message_bytes: 0x0807_0605_0403_0201, keys };
    let cts = |keys| Cts {
        operation: 0xA8A7_A6A5_A4A3_A2A1,
        target: 0xF8F7_F6F5_F4F3_F2F1,
        granted_bytes: 0x0807_0605_0403_0201,
        epoch: 0x0201,
        keys,
    };
    let fin = Fin {
        operation: 0xA8A7_A6A5_A4A3_A2A1,
        count: 0x0201,
        refused: None,
        want_placed: true,
        epoch: 0x3231,
        placed_bytes: 0x1817_1615,
    };
    vec![
        ("eager", Repr { common: with_payload, body: Body::Eager(full) }),
        ("eager_plain", Repr { common: Common { ack_now: true, ..with_payload }, body: Body::Eager(plain) }),
        ("aggregate", Repr { common: Common { payload_bytes: 69, ..common }, body: Body::Aggregate { count: 2 } }),
        ("rts", Repr { common, body: Body::Rts(rts(keys(2))) }),
        ("rts_no_keys", Repr { common, body: Body::Rts(rts(keys(0))) }),
        ("rts_all_keys", Repr { common, body: Body::Rts(rts(keys(KEYS_MAX as u8))) }),
        ("cts", Repr { common, body: Body::Cts(cts(keys(1))) }),
        ("cts_no_keys", Repr { common, body: Body::Cts(cts(keys(0))) }),
        ("fin", Repr { common, body: Body::Fin(fin) }),
        ("fin_refused", Repr { common, body: Body::Fin(Fin { refused: Some(Refusal::BadAtomic), ..fin }) }),
        ("data", Repr { common: with_payload, body: Body::Data(Data { operation: 0xA1, offset: 0xB2B1 }) }),
        ("put", Repr { common: with_payload, body: Body::Put(Put { window: 0xA1, offset: 0xB1, operation: 0xC1 }) }),
        ("put_immediate", {
            let (window, offset, operation, bytes, immediate) = (0xA1, 0xB1, 0xC1, 0xD1, 0xE1);
            let put = PutImmediate { window, offset, operation, bytes, immediate };
            Repr { common: with_payload, body: Body::PutImmediate(put) }
        }),
        ("get", Repr { common, body: Body::Get(Get { window: 0xA1, offset: 0xB1, bytes: 0xC1, operation: 0xD1 }) }),
        ("atomic", {
            let (kind, data_type) = (AtomicKind::CompareSwap, AtomicType::I64);
            let (window, offset, operation, operand, compare) = (0xA1, 0xB1, 0xC1, 0xD1, 0xE1);
            let atomic = Atomic { window, offset, operation, operand, compare, kind, data_type };
            Repr { common, body: Body::Atomic(atomic) }
        }),
        ("atomic_reply", Repr { common, body: Body::AtomicReply(AtomicReply { operation: 0xA1, old: u64::MAX }) }),
        ("resume", Repr { common, body: Body::Resume(Resume { target: 0xA1, epoch: 0x0201 }) }),
        ("ack", {
            let ack = Ack { ordered_beyond: 1, unordered_beyond: 1 << 63 };
            Repr { common: unsequenced, body: Body::Ack(ack) }
        }),
        ("credit", Repr { common: unsequenced, body: Body::Credit }),
        ("connect", {
            let (window, eager_bytes_max, block_bytes) = (0x0403_0201, 0x1413_1211, 0x2423_2221);
            let connect = Connect {
                window,
                eager_bytes_max,
                block_bytes,
                requests_max: 0x3231,
                rail: 9,
                connection: 0x4443_4241,
                first_number: 0x5453_5251,
                parked: 0x61,
                answer: true,
            };
            Repr { common: unsequenced, body: Body::Connect(connect) }
        }),
        ("fence", {
            let (connection, peer_connection) = (0x0403_0201, 0x1413_1211);
            let (ordered_beyond, unordered_beyond, answer) = (1, 1 << 63, true);
            let body =
                Fence { rail: 1, peer_rail: 2, connection, peer_connection, ordered_beyond, unordered_beyond, answer };
            Repr { common: unsequenced, body: Body::Fence(body) }
        }),
        ("probe", {
            let probe = Probe { nonce: 0xA1, answer: false };
            Repr { common: Common { ack_now: true, ..unsequenced }, body: Body::Probe(probe) }
        }),
        ("bye", Repr { common: unsequenced, body: Body::Bye }),
        (
            "park",
            Repr { common: unsequenced, body: Body::Park(Park { request: 0x0102_0304, step: ParkStep::Withdraw }) },
        ),
        ("address", {
            let text = AddressText::new(b"[fe80::1]:7471").expect("an address");
            Repr { common: unsequenced, body: Body::Address(Address { rail: 9, text }) }
        }),
    ]
}

/// The payload that goes with a sample: two records for the aggregate, else letters.
pub fn sample_payload(repr: &Repr) -> Vec<u8> {
    let Body::Aggregate { .. } = repr.body else {
        return (b'a'..=b'z').cycle().take(repr.common.payload_bytes as usize).collect();
    };
    let head = MessageHead { tag: Some(1), immediate: None, want_placed: false, operation: 0xA1 };
    let mut payload = Vec::with_capacity(2 * RECORD_BYTES + 5);
    payload.extend_from_slice(&RecordHead { head, bytes: 5 }.emit());
    payload.extend_from_slice(b"hello");
    let head = MessageHead { tag: None, immediate: Some(2), want_placed: true, operation: 0xB1 };
    payload.extend_from_slice(&RecordHead { head, bytes: 0 }.emit());
    payload
}

/// Inputs from which a fuzzer starts, with file names: every sample, the handshake's messages, a stream of
/// all kinds, and inputs that are wrong in one way each.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let packet = |repr: &Repr| {
        let mut bytes = repr.emit_vec().expect("samples are good").to_vec();
        bytes.extend_from_slice(&sample_payload(repr));
        bytes
    };
    let mut seeds = Vec::new();
    let mut stream = Vec::new();
    for (name, repr) in samples() {
        let bytes = packet(&repr);
        stream.extend_from_slice(&bytes);
        seeds.push((format!("packet-{name}"), bytes));
    }
    seeds.push((String::from("stream-all"), stream.clone()));
    stream.truncate(stream.len() - 7);
    seeds.push((String::from("stream-cut"), stream));

    let hello = Hello { job: 0x0807_0605_0403_0201, from: 1, to: 2, attempt: 3, ..Hello::default() };
    seeds.push((String::from("hello"), hello.emit().to_vec()));
    seeds.push((String::from("verdict-accepted"), Verdict::Accepted.emit().to_vec()));
    seeds.push((String::from("verdict-refused"), Verdict::Refused(RefusedBecause::Full).emit().to_vec()));

    let damaged = |name: &str, at: usize, value: u8| {
        let (_, repr) = samples().into_iter().find(|sample| sample.0 == name).expect("a sample's name");
        let mut bytes = packet(&repr);
        bytes[at] = value;
        bytes
    };
    seeds.push((String::from("bad-version"), damaged("eager", 0, 2)));
    seeds.push((String::from("bad-kind"), damaged("eager", 1, 0)));
    seeds.push((String::from("bad-flags"), damaged("credit", 2, 2)));
    seeds.push((String::from("bad-psn"), damaged("bye", 8, 1)));
    seeds.push((String::from("bad-payload"), damaged("rts", 24, 1)));
    seeds.push((String::from("bad-reserved"), damaged("credit", 29, 1)));
    seeds.push((String::from("bad-header-bytes"), damaged("cts", 30, 88)));
    seeds.push((String::from("bad-keys-count"), damaged("rts_all_keys", 64, 9)));
    seeds.push((String::from("bad-keys-padding"), damaged("rts", 71, 1)));
    seeds.push((String::from("bad-fin-count"), {
        let mut bytes = damaged("fin", 48, 0);
        bytes[49] = 0;
        bytes
    }));
    seeds.push((String::from("bad-address-len"), damaged("address", 33, 201)));
    seeds.push((String::from("bad-address-bytes"), damaged("address", 40, b' ')));
    seeds.push((String::from("bad-record-bytes"), damaged("aggregate", 44, 200)));
    seeds.push((String::from("bad-record-trailing"), damaged("aggregate", 32, 1)));
    let mut records = vec![2];
    records.extend_from_slice(&damaged("aggregate", 0, 1)[COMMON_BYTES + 8..]);
    seeds.push((String::from("records"), records));
    seeds
}
