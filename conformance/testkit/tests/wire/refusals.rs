//! Each rule broken once, on purpose: which field the parser names, and that the emitter refuses to write it.

use rerail_core::wire::aggregate::Records;
use rerail_core::wire::*;
use rerail_testkit::wire::{sample_payload, samples};

fn sample(name: &str) -> Repr {
    samples().into_iter().find(|sample| sample.0 == name).unwrap().1
}

/// The error after writing `bytes` at `at` into the header of a sample.
fn damaged<const N: usize>(name: &str, at: usize, bytes: [u8; N]) -> (&'static str, u64) {
    let mut header = sample(name).emit_vec().unwrap();
    header[at..at + N].copy_from_slice(&bytes);
    let WireError { field, value } = Repr::parse(&header).unwrap_err();
    (field, value)
}

#[test]
fn the_parser_names_field_and_value() {
    assert_eq!(damaged("bye", 0, [0]), ("version", 0)); // W-1
    assert_eq!(damaged("bye", 0, [2]), ("version", 2)); // W-1
    assert_eq!(damaged("bye", 1, [0x38]), ("kind", 0x38)); // W-4
    assert_eq!(damaged("bye", 1, [0]), ("kind", 0)); // W-4
    assert_eq!(damaged("bye", 30, [40, 0]), ("header_bytes", 40)); // W-3
    assert_eq!(damaged("bye", 30, [31, 0]), ("header_bytes", 31)); // W-3
    assert_eq!(damaged("rts", 30, [8, 1]), ("header_bytes", 264)); // W-3
    assert_eq!(damaged("rts", 30, [96, 0]), ("header_bytes", 96)); // W-3: not what the key count requires
    assert_eq!(damaged("rts", 30, [64, 0]), ("header_bytes", 64)); // W-3: no room for the key count
    assert_eq!(damaged("eager", 2, [0x2E, 0]), ("flags", 0x2E)); // W-5: no kind of it answers
    assert_eq!(damaged("atomic", 2, [0x10, 0]), ("flags", 0x10)); // W-5: there is no such flag
    assert_eq!(damaged("eager", 2, [0x0E, 0x80]), ("flags", 0x800E)); // W-5
    assert_eq!(damaged("credit", 8, [0, 0, 1, 0]), ("psn", 0x1_0000)); // W-4
    assert_eq!(damaged("rts", 24, [3]), ("payload_bytes", 3)); // W-8
    assert_eq!(damaged("bye", 28, [1, 0]), ("reserved", 1)); // W-6
    assert_eq!(damaged("eager", 28, [0, 1]), ("reserved", 1 << 8)); // W-6
    assert_eq!(damaged("eager", 2, [0x0C]), ("head.tag", 0xB8B7_B6B5_B4B3_B2B1)); // W-6
    assert_eq!(damaged("rts", 2, [0x0A]), ("head.immediate", 0xC8C7_C6C5_C4C3_C2C1)); // W-6
    assert_eq!(damaged("rts", 64, [9]), ("keys.count", 9)); // W-9
    assert_eq!(damaged("rts", 64, [255]), ("keys.count", 255)); // W-9
    assert_eq!(damaged("rts", 71, [1]), ("keys.padding", 1)); // W-6
    assert_eq!(damaged("aggregate", 32, [0, 0]), ("aggregate.count", 0)); // W-11
    assert_eq!(damaged("aggregate", 32, [3, 0]), ("aggregate.count", 3)); // W-11: 69 bytes hold two heads
    assert_eq!(damaged("aggregate", 39, [1]), ("aggregate.reserved", 1 << 40)); // W-6
    assert_eq!(damaged("fin", 48, [0, 0]), ("fin.count", 0)); // W-14
    assert_eq!(damaged("fin", 50, [5]), ("fin.refused", 5)); // W-14
    assert_eq!(damaged("fin", 51, [7]), ("fin.reserved", 7)); // W-6
    assert_eq!(damaged("atomic", 72, [19]), ("atomic.kind", 19)); // W-18
    assert_eq!(damaged("atomic", 73, [10]), ("atomic.data_type", 10)); // W-18
    assert_eq!(damaged("atomic", 74, [1]), ("atomic.reserved", 1)); // W-6
    assert_eq!(damaged("fence", 34, [0, 1]), ("fence.reserved", 1 << 8)); // W-6
    assert_eq!(damaged("resume", 42, [0, 1]), ("resume.reserved", 1 << 8)); // W-6
    assert_eq!(damaged("address", 33, [0]), ("address.len", 0)); // W-28
    assert_eq!(damaged("address", 33, [201]), ("address.len", 201)); // W-28
    assert_eq!(damaged("address", 33, [13]), ("address.bytes", 0x31)); // W-6: more than announced
    assert_eq!(damaged("address", 33, [15]), ("address.bytes", 0)); // W-28: less than announced
    assert_eq!(damaged("address", 34, [0, 1]), ("address.reserved", 1 << 8)); // W-6
    assert_eq!(damaged("address", 41, [b';']), ("address.bytes", 0x3B)); // W-28
    assert_eq!(damaged("address", 239, [0xFF]), ("address.bytes", 0xFF)); // W-6
    assert_eq!(damaged("cts", 58, [0, 1]), ("cts.reserved", 1 << 8)); // W-6
    assert_eq!(damaged("fin", 54, [0, 1]), ("fin.reserved", 1 << 8)); // W-6
}

#[test]
fn the_emitter_writes_nothing_that_the_parser_refuses() {
    let refused = |repr: Repr| match repr.emit_vec() {
        Err(EmitError::Field(WireError { field, value })) => (field, value),
        other => panic!("{other:?}"),
    };
    let common = Common { psn: 7, ..Common::default() };
    assert_eq!(refused(Repr { common, body: Body::Credit }), ("psn", 7)); // W-4
    let common = Common { payload_bytes: 1, ..Common::default() };
    assert_eq!(refused(Repr { common, body: Body::Rts(Rts::default()) }), ("payload_bytes", 1)); // W-8
    assert_eq!(refused(Repr { common, body: Body::Aggregate { count: 1 } }), ("aggregate.count", 1)); // W-11
    let common = Common::default();
    assert_eq!(refused(Repr { common, body: Body::Aggregate { count: 0 } }), ("aggregate.count", 0)); // W-11
    assert_eq!(refused(Repr { common, body: Body::Fin(Fin::default()) }), ("fin.count", 0)); // W-14
    assert_eq!(refused(Repr { common, body: Body::Address(Address::default()) }), ("address.len", 0)); // W-28
}

#[test]
fn emitter_reports_the_room_it_needs() {
    for (_, repr) in samples() {
        let needed = repr.header_bytes();
        let mut out = [0; HEADER_BYTES_MAX];
        for room in 0..needed {
            assert_eq!(repr.emit(&mut out[..room]), Err(EmitError::NoRoom { needed, room }));
        }
        assert_eq!(repr.emit(&mut out[..needed]), Ok(needed));
    }
}

// W-11
#[test]
fn records_name_field_and_value() {
    let good = sample_payload(&sample("aggregate"));
    let errors = |count, payload: &[u8]| {
        let mut records = Records::new(count, payload);
        let error = records.by_ref().find_map(Result::err).map(|error| (error.field, error.value));
        assert!(records.next().is_none(), "the first error is the end");
        error
    };
    assert_eq!(errors(2, &good), None);
    assert_eq!(errors(1, &good), Some(("record.trailing", 32)));
    assert_eq!(errors(0, &good), Some(("record.trailing", 69)));
    assert_eq!(errors(3, &good), Some(("record", 0)));
    assert_eq!(errors(2, &good[..68]), Some(("record", 31)));
    assert_eq!(errors(1, &good[..36]), Some(("record.bytes", 5)));
    let damaged = |at: usize, value: u8| {
        let mut payload = good.clone();
        payload[at] = value;
        errors(2, &payload)
    };
    assert_eq!(damaged(0, 3), Some(("record.flags", 3)));
    assert_eq!(damaged(0, 0), Some(("head.tag", 1)));
    assert_eq!(damaged(3, 1), Some(("record.reserved", 0x100)));
    assert_eq!(damaged(7, 0xFF), Some(("record.bytes", 0xFF00_0005)));
    assert_eq!(damaged(16, 9), Some(("head.immediate", 9)));
}

// W-26
#[test]
fn a_stream_is_cut_into_its_packets() {
    let mut stream = Vec::new();
    for (_, repr) in samples() {
        stream.extend_from_slice(&repr.emit_vec().unwrap());
        stream.extend_from_slice(&sample_payload(&repr));
    }
    let mut rest = &stream[..];
    for (name, repr) in samples() {
        let header_bytes = header_len(rest).unwrap().unwrap();
        let payload_bytes = payload_len(rest) as usize;
        assert_eq!(Repr::parse(&rest[..header_bytes]), Ok(repr), "{name}");
        rest = &rest[header_bytes + payload_bytes..];
    }
    assert_eq!(header_len(rest), Ok(None));
    assert_eq!(payload_len(rest), 0);
}
