//! Round trips, truncations and corruptions of arbitrary packets.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use rerail_core::wire::aggregate::{RECORD_BYTES, RecordHead, Records};
use rerail_core::wire::*;
use rerail_testkit::wire::{FIELDS, check_packet, parse_any, sample_payload, samples};

fn head() -> impl Strategy<Value = MessageHead> {
    let fields = (option::of(any::<u64>()), option::of(any::<u64>()), any::<bool>(), any::<u64>());
    fields.prop_map(|(tag, immediate, want_placed, operation)| MessageHead { tag, immediate, want_placed, operation })
}

fn keys() -> impl Strategy<Value = RemoteKeys> {
    let key = any::<(u8, u16, u64, u64)>();
    let key = key.prop_map(|(rail, connection, key, address)| RemoteKey { rail, connection, key, address });
    vec(key, 0..=KEYS_MAX).prop_map(|keys| keys.into_iter().collect())
}

fn refusal() -> impl Strategy<Value = Refusal> {
    use Refusal::*;
    prop_oneof![Just(NoWindow), Just(OutOfRange), Just(NoAccess), Just(BadAtomic)]
}

fn atomic() -> impl Strategy<Value = Atomic> {
    let kind = proptest::sample::select(AtomicKind::ALL.to_vec());
    let data_type = proptest::sample::select(AtomicType::ALL.to_vec());
    (any::<[u64; 5]>(), kind, data_type).prop_map(|([window, offset, operation, operand, compare], kind, data_type)| {
        Atomic { window, offset, operation, operand, compare, kind, data_type }
    })
}

fn body() -> impl Strategy<Value = Body> {
    let rts = (head(), any::<u64>(), keys());
    let cts = (any::<[u64; 3]>(), any::<u16>(), keys());
    let fin = (any::<[u64; 2]>(), 1..=u16::MAX, option::of(refusal()), any::<u16>(), any::<bool>());
    let connect = any::<([u32; 3], u16, [u8; 2], [u32; 2], bool)>();
    let fence = any::<([u8; 2], [u32; 2], [u64; 2], bool)>();
    prop_oneof![
        head().prop_map(Body::Eager),
        (1..=u16::MAX).prop_map(|count| Body::Aggregate { count }),
        rts.prop_map(|(head, message_bytes, keys)| Body::Rts(Rts { head, message_bytes, keys })),
        cts.prop_map(|([operation, target, granted_bytes], epoch, keys)| {
            Body::Cts(Cts { operation, target, granted_bytes, epoch, keys })
        }),
        fin.prop_map(|([operation, placed_bytes], count, refused, epoch, want_placed)| {
            Body::Fin(Fin { operation, count, refused, want_placed, epoch, placed_bytes })
        }),
        any::<[u64; 2]>().prop_map(|[operation, offset]| Body::Data(Data { operation, offset })),
        any::<[u64; 3]>().prop_map(|[window, offset, operation]| Body::Put(Put { window, offset, operation })),
        any::<[u64; 5]>().prop_map(|[window, offset, operation, bytes, immediate]| {
            Body::PutImmediate(PutImmediate { window, offset, operation, bytes, immediate })
        }),
        any::<[u64; 5]>().prop_map(|[window, offset, operation, bytes, immediate]| {
            Body::PutImmediate(PutImmediate { window, offset, operation, bytes, immediate })
        }),
        any::<[u64; 4]>().prop_map(|[window, offset, bytes, operation]| Body::Get(Get {
            window,
            offset,
            bytes,
            operation
        })),
        atomic().prop_map(Body::Atomic),
        any::<[u64; 2]>().prop_map(|[operation, old]| Body::AtomicReply(AtomicReply { operation, old })),
        any::<[u64; 2]>()
            .prop_map(|[ordered_beyond, unordered_beyond]| Body::Ack(Ack { ordered_beyond, unordered_beyond })),
        Just(Body::Credit),
        connect.prop_map(|([window, eager_bytes_max, block_bytes], requests_max, [rail, parked], numbers, answer)| {
            let [connection, first_number] = numbers;
            Body::Connect(Connect {
                window,
                eager_bytes_max,
                block_bytes,
                requests_max,
                rail,
                connection,
                first_number,
                parked,
                answer,
            })
        }),
        fence.prop_map(|([rail, peer_rail], [connection, peer_connection], beyond, answer)| {
            let [ordered_beyond, unordered_beyond] = beyond;
            Body::Fence(Fence {
                rail,
                peer_rail,
                connection,
                peer_connection,
                ordered_beyond,
                unordered_beyond,
                answer,
            })
        }),
        any::<(u64, u16)>().prop_map(|(target, epoch)| Body::Resume(Resume { target, epoch })),
        any::<(u64, bool)>().prop_map(|(nonce, answer)| Body::Probe(Probe { nonce, answer })),
        Just(Body::Bye),
        (any::<u32>(), proptest::sample::select(&ParkStep::ALL[..]))
            .prop_map(|(request, step)| Body::Park(Park { request, step })),
        (any::<u8>(), "[!-+\\--:<>-~]{1,200}").prop_map(|(rail, text)| {
            let text = AddressText::new(text.as_bytes()).expect("no space, comma, semicolon or equals sign");
            Body::Address(Address { rail, text })
        }),
    ]
}

fn repr() -> impl Strategy<Value = Repr> {
    let common = any::<(u32, [u32; 3], [u16; 2], u32, bool, bool)>();
    (common, body()).prop_map(|((source, numbers, limits, payload_bytes, ack_now, refusing), body)| {
        let ([psn, ack_ordered, ack_unordered], [message_limit, block_limit]) = (numbers, limits);
        let psn = if body.lane().is_some() { psn } else { 0 }; // W-4
        let payload_bytes = match body {
            Body::Aggregate { count } => payload_bytes.max(u32::from(count) * RECORD_BYTES as u32), // W-11
            _ if body.kind().has_payload() => payload_bytes,
            _ => 0, // W-8
        };
        let common = Common {
            source,
            psn,
            ack_ordered,
            ack_unordered,
            message_limit,
            block_limit,
            payload_bytes,
            ack_now,
            refusing,
        };
        Repr { common, body }
    })
}

proptest! {
    /// W-7: the meaning comes back, from any alignment, and takes the announced number of bytes.
    #[test]
    fn round_trip(repr in repr(), shift in 0usize..8) {
        let mut bytes = [0xEE; HEADER_BYTES_MAX + 8];
        let header_bytes = repr.emit(&mut bytes[shift..]).unwrap();
        prop_assert_eq!(header_bytes, repr.header_bytes());
        prop_assert!(bytes[shift + header_bytes..].iter().all(|&byte| byte == 0xEE));
        let packet = Packet::new_checked(&bytes[shift..]).unwrap();
        prop_assert_eq!((packet.kind(), packet.common()), (repr.body.kind(), repr.common));
        prop_assert_eq!(packet.header_bytes(), header_bytes);
        prop_assert_eq!(Repr::parse(&bytes[shift..]), Ok(repr));
    }

    /// W-3: no header that ends too soon is accepted, and the error contains the length there was.
    #[test]
    fn truncation(repr in repr()) {
        let header = repr.emit_vec().unwrap();
        for len in 0..header.len() {
            prop_assert_eq!(Repr::parse(&header[..len]), Err(WireError { field: "header", value: len as u64 }));
            let expected = if len < COMMON_BYTES { None } else { Some(header.len()) };
            prop_assert_eq!(header_len(&header[..len]), Ok(expected));
        }
    }

    /// W-7: what is still accepted with a byte changed is canonical too; what is not names a field.
    #[test]
    fn corruption(repr in repr(), change in 1u8..) {
        let mut header = repr.emit_vec().unwrap();
        for at in 0..header.len() {
            header[at] ^= change;
            check_packet(&header);
            header[at] ^= change;
        }
    }

    /// Any bytes: no panic, nothing accepted that is not canonical.
    #[test]
    fn garbage(data in vec(any::<u8>(), 0..400), kind in 0usize..16, header_bytes in 4u16..32) {
        parse_any(&data);
        if data.len() >= COMMON_BYTES {
            // The same, past the framing.
            let mut data = data;
            let front = [VERSION, Kind::ALL[kind] as u8, data[2] & 0x3F, 0];
            data[..4].copy_from_slice(&front);
            data[30..32].copy_from_slice(&(header_bytes * 8).to_le_bytes());
            parse_any(&data);
        }
    }

    /// W-11
    #[test]
    fn records_round_trip(messages in vec((head(), vec(any::<u8>(), 0..40)), 1..20)) {
        let mut payload = Vec::new();
        for (head, message) in &messages {
            payload.extend_from_slice(&RecordHead { head: *head, bytes: message.len() as u32 }.emit());
            payload.extend_from_slice(message);
        }
        let read: Result<Vec<_>, _> = Records::new(messages.len() as u16, &payload).collect();
        let read: Vec<_> = read.unwrap().into_iter().map(|record| (record.head, record.payload.to_vec())).collect();
        prop_assert_eq!(read, messages.clone());
        for len in 0..payload.len() {
            prop_assert!(Records::new(messages.len() as u16, &payload[..len]).any(|record| record.is_err()));
        }
    }
}

/// Every value of every byte of every sample: exhaustive where `corruption` is random.
#[test]
fn every_single_byte_corruption() {
    let mut seen = std::collections::BTreeSet::new();
    for (_, repr) in samples() {
        let mut bytes = repr.emit_vec().unwrap().to_vec();
        let header_bytes = bytes.len();
        bytes.extend_from_slice(&sample_payload(&repr));
        for at in 0..header_bytes {
            let good = bytes[at];
            for value in 0..=255 {
                bytes[at] = value;
                check_packet(&bytes);
                seen.extend(Repr::parse(&bytes).err().map(|error| error.field));
            }
            bytes[at] = good;
        }
    }
    // Every rule of the header was broken at least once; records and handshake have tests of their own.
    let of_headers = |field: &&str| !["record", "hello", "verdict"].iter().any(|of| field.starts_with(of));
    // A count of zero takes a change of both its bytes.
    for field in FIELDS.iter().filter(|field| of_headers(field) && **field != "fin.count") {
        assert!(seen.contains(field), "{field} was never at fault");
    }
}
