//! Byte-exact examples: every kind against the field map in `conformance/PROTOCOL.md`, by hand.

use rerail_core::wire::aggregate::{RecordHead, Records};
use rerail_core::wire::{COMMON_BYTES, Kind, MessageHead, Repr};
use rerail_testkit::wire::{sample_payload, samples};

/// Common: `version kind flags | source | psn | ack_ordered | ack_unordered | message_limit block_limit |
/// payload_bytes | reserved header_bytes`. W-2
#[rustfmt::skip]
const GOLDEN: [(&str, &str, &str); 25] = [
    // W-10: tag, immediate, operation
    ("eager",        "01 10 0e00 01020304 11121314 21222324 31323334 4142 5152 05000000 0000 3800",
                     "b1b2b3b4b5b6b7b8 c1c2c3c4c5c6c7c8 a1a2a3a4a5a6a7a8"),
    ("eager_plain",  "01 10 0100 01020304 11121314 21222324 31323334 4142 5152 05000000 0000 3800",
                     "0000000000000000 0000000000000000 a1a2a3a4a5a6a7a8"),
    // W-11: count, reserved
    ("aggregate",    "01 11 0000 01020304 11121314 21222324 31323334 4142 5152 45000000 0000 2800",
                     "0200 000000000000"),
    // W-12: tag, immediate, operation, message_bytes; W-9: count, rails, connections, padding; key, address
    // each
    ("rts",          "01 12 0e00 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 6800",
                     "b1b2b3b4b5b6b7b8 c1c2c3c4c5c6c7c8 a1a2a3a4a5a6a7a8 0102030405060708 02 0102 01f2 02f2 00 \
                      01d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 02d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8"),
    ("rts_no_keys",  "01 12 0e00 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 4800",
                     "b1b2b3b4b5b6b7b8 c1c2c3c4c5c6c7c8 a1a2a3a4a5a6a7a8 0102030405060708 00 00000000000000"),
    ("rts_all_keys", "01 12 0e00 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 e000",
                     "b1b2b3b4b5b6b7b8 c1c2c3c4c5c6c7c8 a1a2a3a4a5a6a7a8 0102030405060708 \
                      08 0102030405060708 01f2 02f2 03f2 04f2 05f2 06f2 07f2 08f2 00000000000000 \
                      01d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 02d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 \
                      03d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 04d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 \
                      05d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 06d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 \
                      07d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8 08d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8"),
    // W-13: operation, target, granted_bytes, round, reserved, keys
    ("cts",          "01 20 0000 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 5800",
                     "a1a2a3a4a5a6a7a8 f1f2f3f4f5f6f7f8 0102030405060708 0102 000000000000 01 01 01f2 00000000 \
                      01d2d3d4d5d6d7d8 e1e2e3e4e5e6e7e8"),
    ("cts_no_keys",  "01 20 0000 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 4800",
                     "a1a2a3a4a5a6a7a8 f1f2f3f4f5f6f7f8 0102030405060708 0102 000000000000 00 00000000000000"),
    // W-14: operation, placed_bytes, count, refused, reserved, round, reserved
    ("fin",          "01 21 0800 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 3800",
                     "a1a2a3a4a5a6a7a8 1516171800000000 0102 00 00 3132 0000"),
    ("fin_refused",  "01 21 0800 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 3800",
                     "a1a2a3a4a5a6a7a8 1516171800000000 0102 04 00 3132 0000"),
    // W-15: operation, offset
    ("data",         "01 22 0000 01020304 11121314 21222324 31323334 4142 5152 05000000 0000 3000",
                     "a100000000000000 b1b2000000000000"),
    // W-16: window, offset, operation
    ("put",          "01 23 0000 01020304 11121314 21222324 31323334 4142 5152 05000000 0000 3800",
                     "a100000000000000 b100000000000000 c100000000000000"),
    // W-31: window, offset, operation, bytes, immediate
    ("put_immediate", "01 28 0000 01020304 11121314 21222324 31323334 4142 5152 05000000 0000 4800",
                     "a100000000000000 b100000000000000 c100000000000000 d100000000000000 e100000000000000"),
    // W-17: window, offset, bytes, operation
    ("get",          "01 24 0000 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 4000",
                     "a100000000000000 b100000000000000 c100000000000000 d100000000000000"),
    // W-18: window, offset, operation, operand, compare, kind, data_type, reserved
    ("atomic",       "01 25 0000 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 5000",
                     "a100000000000000 b100000000000000 c100000000000000 d100000000000000 e100000000000000 \
                      02 06 000000000000"),
    // W-19: operation, old
    ("atomic_reply", "01 26 0000 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 3000",
                     "a100000000000000 ffffffffffffffff"),
    // W-27: target, round, reserved
    ("resume",       "01 27 0000 01020304 11121314 21222324 31323334 4142 5152 00000000 0000 3000",
                     "a100000000000000 0102 000000000000"),
    // W-20: ordered_beyond, unordered_beyond
    ("ack",          "01 30 0000 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 3000",
                     "0100000000000000 0000000000000080"),
    // W-21
    ("credit",       "01 31 0000 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 2000", ""),
    // W-22: window, eager_bytes_max, block_bytes, requests_max, rail, parked, connection, first_number
    ("connect",      "01 32 2000 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 3800",
                     "01020304 11121314 21222324 3132 09 61 41424344 51525354"),
    // W-23: rail, peer_rail, reserved, connection, peer_connection, ordered_beyond, unordered_beyond
    ("fence",        "01 33 2000 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 4000",
                     "01 02 000000000000 01020304 11121314 0100000000000000 0000000000000080"),
    // W-24: nonce
    ("probe",        "01 34 0100 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 2800",
                     "a100000000000000"),
    // W-25
    ("bye",          "01 35 0000 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 2000", ""),
    // W-30: request, step, reserved
    ("park",         "01 37 0000 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 2800",
                     "04030201 03 000000"),
    // W-28: rail, len, reserved, bytes
    ("address",      "01 36 0000 01020304 00000000 21222324 31323334 4142 5152 00000000 0000 f000",
                     "09 0e 000000000000 5b666538303a3a315d3a37343731 \
                      00000000000000000000000000000000000000000000000000000000000000000000000000000000 \
                      00000000000000000000000000000000000000000000000000000000000000000000000000000000 \
                      00000000000000000000000000000000000000000000000000000000000000000000000000000000 \
                      00000000000000000000000000000000000000000000000000000000000000000000000000000000 \
                      0000000000000000000000000000000000000000000000000000"),
];

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_sample_header_matches_its_golden_bytes() {
    let samples = samples();
    assert_eq!(samples.len(), GOLDEN.len());
    for ((name, repr), (golden, common, body)) in samples.iter().zip(GOLDEN) {
        assert_eq!(*name, golden);
        let emitted = repr.emit_vec().unwrap();
        println!("{name}: {}", hex_of(&emitted));
        assert_eq!(hex_of(&emitted[..COMMON_BYTES]), hex_of(&bytes_of(common)), "common part of {name}");
        assert_eq!(hex_of(&emitted[COMMON_BYTES..]), hex_of(&bytes_of(body)), "body of {name}");
        assert_eq!(Repr::parse(&emitted).as_ref(), Ok(repr), "{name}");
    }
}

#[test]
fn there_is_a_sample_of_every_kind() {
    for kind in Kind::ALL {
        assert!(samples().iter().any(|(_, repr)| repr.body.kind() == kind), "{kind:?}");
    }
}

// W-11: flags, reserved, bytes, tag, immediate, operation; then the message, unpadded.
#[test]
fn aggregate_records_match_their_golden_bytes() {
    let (_, aggregate) = &samples()[2];
    let payload = sample_payload(aggregate);
    let first = "0200 0000 05000000 0100000000000000 0000000000000000 a100000000000000 68656c6c6f";
    let second = "0c00 0000 00000000 0000000000000000 0200000000000000 b100000000000000";
    assert_eq!(hex_of(&payload), hex_of(&bytes_of(&format!("{first} {second}"))));

    let records: Vec<_> = Records::new(2, &payload).map(Result::unwrap).collect();
    let head = MessageHead { tag: Some(1), operation: 0xA1, ..MessageHead::default() };
    assert_eq!((records[0].head, records[0].payload), (head, &b"hello"[..]));
    let head = MessageHead { immediate: Some(2), want_placed: true, operation: 0xB1, ..MessageHead::default() };
    assert_eq!((records[1].head, records[1].payload), (head, &b""[..]));
    assert_eq!(RecordHead { head, bytes: 0 }.emit()[..], payload[37..]);
}
