//! Everything about a process that others publish or send before they are known: address records, names, the
//! set-up datagrams of verbs rails.

use rerail_core::ids::PeerId;
use rerail_linux::driver::{AddressRecord, NAME_BYTES, Name};
use rerail_linux::rail::verbs::wire::{SETUP_BYTES, SIGNED_BYTES, Setup, mac_of, seal, signed};

use crate::corpus::Seeds;

/// Reads the bytes as one of them, by the first byte. What is accepted is what would have been written, and
/// means one thing.
pub fn parse_any(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    match kind % 3 {
        0 => name(data),
        1 => address_record(&String::from_utf8_lossy(data)),
        _ => set_up(data),
    }
}

fn name(data: &[u8]) {
    let Some(bytes) = data.first_chunk::<NAME_BYTES>() else { return };
    let Ok(name) = Name::parse(*bytes) else { return };
    assert_eq!(name.bytes(), bytes);
    assert_eq!(name.rank_among(&[name]), Some(PeerId(0)));
    assert!(format!("{name:?}").contains("contacts"));
}

fn address_record(text: &str) {
    if let Ok(address_record) = AddressRecord::parse(text) {
        assert_eq!(address_record.emit().as_deref(), Ok(text));
    }
}

fn set_up(data: &[u8]) {
    let Ok(setup) = Setup::parse(data) else { return };
    let mut emitted = setup.emit();
    assert_eq!(Setup::parse(&emitted), Ok(setup));
    assert_eq!(signed(&emitted), signed(data), "all that is signed");
    seal(&mut emitted, mac_of(data));
    assert_eq!(emitted, data);
    assert_eq!(mac_of(data), &data[SIGNED_BYTES..SETUP_BYTES]);
}

/// Good ones, by name.
pub fn seeds() -> Seeds {
    let key = "00112233445566778899aabbccddeeff";
    let address_records = [
        "rerail2;h;-;".to_owned(),
        format!("rerail2;node-a;{key};loop@self,shm@17/4,tcp@10.0.0.1:4000,tcp@[fe80::1%eth0]:4001"),
        format!("rerail2;node-a;{key}{key};loop@self,verbs@ib-0012-1-00004a-fe800000000000000002c90300001234"),
    ];
    let mut named = [0; NAME_BYTES];
    // Version, no rank; host, fingerprint, socket; one contact of either kind.
    named[..4].copy_from_slice(&[2, 0xff, 0xff, 0xff]);
    named[4..42].fill(0x42);
    named[42..49].copy_from_slice(&[4, 127, 0, 0, 1, 0x1f, 0x90]);
    let mut long = named;
    long[42..].fill(0);
    long[42] = 6;
    long[58..61].copy_from_slice(&[1, 0x1f, 0x90]);
    let mut seeds = Seeds::new();
    for (number, text) in address_records.iter().enumerate() {
        seeds.push((format!("record-{number}"), [&[1], text.as_bytes()].concat()));
    }
    seeds.push(("name-4".to_owned(), [&[0], &named[..]].concat()));
    seeds.push(("name-6".to_owned(), [&[0], &long[..]].concat()));
    for (number, mut message) in set_ups().into_iter().enumerate() {
        seal(&mut message, &[5; 32]);
        seeds.push((format!("set-up-{number}"), [&[2], &message[..]].concat()));
    }
    seeds
}

/// A message of each kind, by RC and by XRC.
fn set_ups() -> Vec<rerail_linux::rail::verbs::wire::Message> {
    use rerail_linux::rail::verbs::wire::{
        Left, PeerAddress, Reason, SetupKind, SetupParameters, Srq, Srqs, XrcParameters,
    };
    let mut smaller = [Srq::NONE; 7];
    smaller[0] = Srq { number: 5, bytes: 512 };
    let xrc = XrcParameters { srqs: Srqs { whole: 6, smaller }, through: 0, target: 0 };
    let parameters = SetupParameters { qp: 7, psn: 8, mtu: 4096, reads_served: 4, message_bytes: 8192, xrc: None };
    let answers = [3; 32];
    let kinds = [
        SetupKind::Request(parameters),
        SetupKind::Reply { parameters, answers },
        SetupKind::Ready { answers, target: 0 },
        SetupKind::Refusal { answers, reason: Reason::Full, left: Left { drained: true, target_dead: false } },
        SetupKind::Request(SetupParameters { xrc: Some(xrc), ..parameters }),
        SetupKind::Reply {
            parameters: SetupParameters { xrc: Some(XrcParameters { target: 9, ..xrc }), ..parameters },
            answers,
        },
        SetupKind::Ready { answers, target: 9 },
    ];
    let at = PeerAddress { qp: 11, lid: 12, gid: [0xfe; 16] };
    let message = |kind| Setup { rail: 0, job: 7, from: 1, to: 2, attempt: 1, at, nonce: [4; 32], kind }.emit();
    kinds.into_iter().map(message).collect()
}
