//! Set-up messages byte for byte, right and wrong.

use super::*;
use proptest::prelude::*;

fn sample(kind: SetupKind) -> Setup {
    Setup { rail: 2, job: 0x1122_3344_5566_7788, from: 7, to: 9, attempt: 3, at: AT, nonce: [0xA1; 32], kind }
}

const AT: PeerAddress = PeerAddress { qp: 0x00_0A0B, lid: 0x0C0D, gid: [0xE7; 16] };
const PARAMETERS: SetupParameters =
    SetupParameters { qp: 0x00_1234, psn: 0xAB_CDEF, mtu: 2048, reads_served: 4, message_bytes: 0x1_0100, xrc: None };
const XRC: XrcParameters = XrcParameters { srqs: SRQS, through: 0x00_7788, target: 0x00_99AA };
const SRQS: Srqs = {
    let mut smaller = [Srq::NONE; SMALLER_MAX];
    smaller[0] = Srq { number: 0x0A_0B0C, bytes: 0x0100 };
    smaller[1] = Srq { number: 0x0D_0E0F, bytes: 0x1000 };
    Srqs { whole: 0x00_5566, smaller }
};

fn kinds() -> [SetupKind; 7] {
    let answers = [0xB2; 32];
    let left = Left { drained: true, target_dead: false };
    let requested = XrcParameters { target: 0, ..XRC };
    [
        SetupKind::Request(PARAMETERS),
        SetupKind::Reply { parameters: PARAMETERS, answers },
        SetupKind::Ready { answers, target: 0 },
        SetupKind::Refusal { answers, reason: Reason::Full, left },
        SetupKind::Request(SetupParameters { xrc: Some(requested), ..PARAMETERS }),
        SetupKind::Reply { parameters: SetupParameters { xrc: Some(XRC), ..PARAMETERS }, answers },
        SetupKind::Ready { answers, target: XRC.target },
    ]
}

/// V-1 and V-2, byte for byte.
#[test]
fn setup_reply_matches_its_golden_bytes() {
    let bytes = sample(kinds()[1]).emit();
    let mut expected = b"RERV\x04\x02\x02\x00\x88\x77\x66\x55\x44\x33\x22\x11\x07\0\0\0\x09\0\0\0\x03\0\0\0".to_vec();
    expected.extend(b"\x34\x12\0\0\xEF\xCD\xAB\0\x00\x08\x04\0\x00\x01\x01\0\x0B\x0A\0\0");
    expected.extend([0xE7; 16]);
    expected.extend(b"\x0D\x0C\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    expected.extend([0xA1; 32]);
    expected.extend([0xB2; 32]);
    expected.extend([0; 32]);
    assert_eq!(bytes.to_vec(), expected);
    const { assert!(SETUP_BYTES_MAX <= 256, "one packet on any link") };
    // V-14, V-17: by XRC.
    let bytes = sample(kinds()[5]).emit();
    expected[39] = 1;
    expected[68..80].copy_from_slice(b"\x66\x55\0\0\x88\x77\0\0\xAA\x99\0\0");
    expected.extend(b"\x0C\x0B\x0A\0\0\x01\0\0\x0F\x0E\x0D\0\0\x10\0\0");
    expected.extend([0; 40]);
    assert_eq!(bytes.to_vec(), expected);
}

#[test]
fn every_setup_message_kind_round_trips() {
    for kind in kinds() {
        assert_eq!(Setup::parse(&sample(kind).emit()), Ok(sample(kind)));
    }
    assert!(Reason::from_code(1).is_err());
    for code in 2..=7 {
        assert_eq!(Reason::from_code(code).map(|reason| reason as u8), Ok(code));
    }
}

/// V-2: each field that is wrong is named.
#[test]
fn errors_name_the_field() {
    let cases: [(usize, usize, u8, &str); 31] = [
        (0, 0, b'X', "setup.magic"),
        (0, 4, 2, "setup.version"),
        (0, 5, 5, "setup.kind"),
        (0, 7, 1, "setup.reason"),
        (3, 7, 9, "setup.reason"),
        (0, 24, 0, "setup.attempt"),
        (0, 31, 1, "setup.qp"),
        (0, 35, 1, "setup.psn"),
        (0, 36, 1, "setup.mtu"),
        (0, 39, 2, "setup.transport"),
        (3, 39, 1, "setup.transport"),
        (4, 39, 0, "setup.srq"),
        (0, 47, 1, "setup.datagrams"),
        (0, 65, 0xC0, "setup.lid"),
        (0, 66, 1, "setup.left"),
        (3, 66, 4, "setup.left"),
        (0, 67, 1, "setup.reserved"),
        (4, 71, 1, "setup.srq"),
        (4, 75, 1, "setup.through"),
        (6, 72, 1, "setup.through"),
        (4, 76, 1, "setup.target"),
        (5, 79, 1, "setup.target"),
        // V-17: numbers of 24 bits; ascending, not empty, no gap, less than a message.
        (4, 179, 1, "setup.smaller"),
        (4, 181, 0, "setup.smaller"),
        (4, 181, 0x11, "setup.smaller"),
        (4, 190, 1, "setup.smaller"),
        (5, 201, 0x20, "setup.smaller"),
        (5, 192, 1, "setup.smaller"),
        (2, 28, 1, "setup.terms"),
        (0, 112, 1, "setup.answers"),
        (3, 40, 1, "setup.terms"),
    ];
    for (kind, at, value, field) in cases {
        let mut bytes = sample(kinds()[kind]).emit();
        bytes[at] = value;
        assert_eq!(Setup::parse(&bytes).map_err(|error| error.field), Err(field), "byte {at}");
    }
}

/// V-1: neither shorter nor longer than its kind is.
#[test]
fn each_kind_has_one_length() {
    for kind in kinds() {
        let whole = sample(kind).emit();
        let mut bytes = [0; 2 * SETUP_BYTES_MAX];
        bytes[..whole.len()].copy_from_slice(&whole);
        for len in 0..bytes.len() {
            let found = Setup::parse(&bytes[..len]);
            assert_eq!(found.is_ok(), len == whole.len(), "{len} bytes of {kind:?}: {found:?}");
        }
    }
}

/// V-3: the MAC covers every byte but its own.
#[test]
fn the_mac_covers_all_but_itself() {
    for kind in kinds() {
        let mut bytes = sample(kind).emit();
        seal(&mut bytes, &[7; 32]);
        assert_eq!(mac_of(&bytes), &[7; 32]);
        let [label, before, behind] = signed(&bytes);
        assert_eq!((label, before.len() + 32 + behind.len()), (SETUP_LABEL, bytes.len()));
        let emitted = sample(kind).emit();
        assert!(before == &emitted[..SIGNED_BYTES] && behind == &emitted[SETUP_BYTES..]);
    }
}

/// V-17: the smallest that holds it, to the byte.
#[test]
fn message_uses_the_smallest_receive_queue_that_holds_it() {
    let [small, middle, ..] = SRQS.smaller;
    for (bytes, number) in [
        (1, small.number),
        (0x100, small.number),
        (0x101, middle.number),
        (0x1000, middle.number),
        (0x1001, SRQS.whole),
        (usize::MAX, SRQS.whole),
    ] {
        assert_eq!(SRQS.holding(bytes), number, "{bytes}");
    }
    let one = Srqs { whole: 7, ..Srqs::default() };
    assert!([1, 0x100, 1 << 20].into_iter().all(|bytes| one.holding(bytes) == 7));
    let mut full = Srqs { whole: 99, ..Srqs::default() };
    for (at, srq) in full.smaller.iter_mut().enumerate() {
        *srq = Srq { number: at as u32, bytes: 10 * (at as u32 + 1) };
    }
    for bytes in 1..100 {
        let slow = full.smaller.iter().find(|srq| srq.bytes as usize >= bytes).map_or(99, |srq| srq.number);
        assert_eq!(full.holding(bytes), slow, "{bytes}");
    }
}

proptest! {
    /// A parsed message emits the same bytes, whatever they are.
    #[test]
    fn one_meaning_one_form(
        kind in 0usize..7,
        edits in proptest::collection::vec((0usize..SETUP_BYTES_MAX, any::<u8>()), 0..4),
    ) {
        let mut bytes = sample(kinds()[kind]).emit();
        for (at, value) in edits.into_iter().filter(|(at, _)| !(SIGNED_BYTES..SETUP_BYTES).contains(at)) {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(setup) = Setup::parse(&bytes) {
            prop_assert_eq!(setup.emit(), bytes);
        }
    }
}
