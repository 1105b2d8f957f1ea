//! Starting through a bootstrap: one thread per rank, each with a transport of its own.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rerail_core::config::Policy;
use rerail_core::endpoint::{Event, MessageClass, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;

use super::cluster::{Fabric, pattern, rails, small, whole};
use crate::bootstrap::{BootError, Bootstrap, JobKey};
use crate::driver::{AddressRecordError, Opening, Options, StartError, Transport};
use crate::rail::loopback::Loopback;
use crate::settings::Settings;

/// The state that the ranks of a job in one process share.
pub(super) struct Board {
    values: Mutex<HashMap<(u32, String), String>>,
    fence: Barrier,
    size: u32,
    finalized: Mutex<u32>,
}

impl Board {
    pub(super) fn new(size: u32) -> Arc<Board> {
        let (values, finalized) = (Mutex::default(), Mutex::default());
        Arc::new(Board { values, fence: Barrier::new(size as usize), size, finalized })
    }

    pub(super) fn finalized(&self) -> u32 {
        *self.finalized.lock().unwrap()
    }
}

/// One rank's place at the board.
pub(super) struct Seat {
    pub(super) board: Arc<Board>,
    pub(super) rank: u32,
}

impl Bootstrap for Seat {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.board.size
    }

    fn job_name(&self) -> &str {
        "board"
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.board.values.lock().unwrap().insert((self.rank, key.to_owned()), value.to_owned());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootError> {
        self.board.fence.wait();
        Ok(())
    }

    fn barrier(&mut self, _: Option<Duration>, _: &mut dyn FnMut()) -> Result<(), BootError> {
        self.fence()
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, BootError> {
        Ok(self.board.values.lock().unwrap().get(&(rank, key.to_owned())).cloned())
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        *self.board.finalized.lock().unwrap() += 1;
        Ok(())
    }

    fn abort(&mut self, why: &str) {
        panic!("aborted: {why}");
    }
}

fn opening(rank: u32, host: &str, fabric: Option<Fabric>) -> Opening {
    let mut all: Vec<Box<dyn crate::rail::Rail + Send>> = vec![Box::new(Loopback::new(PeerId(rank)))];
    all.extend(fabric.into_iter().flat_map(|fabric| rails(rank, 2, fabric)));
    Opening::with_rails(small(rank, 2), host.to_owned(), all, 1).unwrap()
}

#[test]
fn a_rank_without_a_rail_in_common_is_unreachable() {
    let lonely = opening(1, "there", None);
    let mut other = opening(0, "here", Some(Fabric::Tcp));
    let unreachable = other.learn(PeerId(1), lonely.address_record()).unwrap_err();
    assert!(matches!(unreachable, StartError::Unreachable { peer: PeerId(1), .. }), "{unreachable}");
    assert!(unreachable.to_string().contains("rerail2;there;-;loop@self"), "{unreachable}");
}

#[test]
fn shared_memory_needs_one_host() {
    let mut here = opening(0, "here", Some(Fabric::Shm));
    let there = opening(1, "there", Some(Fabric::Shm));
    assert!(matches!(here.learn(PeerId(1), there.address_record()), Err(StartError::Unreachable { .. })));
    let near = opening(1, "here", Some(Fabric::Shm));
    here.learn(PeerId(1), near.address_record()).unwrap();
}

#[test]
fn address_record_of_another_version_is_refused() {
    let mut here = opening(0, "here", None);
    let error = here.learn(PeerId(1), "rerail9;there;tcp@127.0.0.1:1").unwrap_err();
    assert!(
        matches!(&error, StartError::AddressRecord { peer: PeerId(1), error: AddressRecordError::Version { found } } if found == "rerail9"),
        "{error}"
    );
}

#[test]
fn join_requires_every_address_record() {
    let mut here = opening(0, "here", None);
    let own = here.address_record().to_owned();
    here.learn(PeerId(0), &own).unwrap();
    assert!(matches!(here.join().err(), Some(StartError::MissingAddressRecord(PeerId(1)))));
}

fn settings(values: &[(&str, &str)]) -> Options {
    let mut settings = Settings::default();
    // All rails carry payload, whatever the measurements.
    for (name, value) in [("policy", "even")].iter().chain(values) {
        settings.set(name, value).unwrap();
    }
    Options { settings }
}

const BYTES: usize = 1 << 20;

/// The kinds of the rails that carried payload.
fn used(transport: &Transport) -> Vec<RailKind> {
    let rails = transport.rails().filter(|rail| rail.counters.bytes_sent > BYTES as u64 / 4);
    rails.map(|rail| rail.kind).collect()
}

/// Moves one message; gives its immediate data at the receiver.
fn move_message(transport: &mut Transport, last: bool) -> Option<u64> {
    let region = transport.alloc(BYTES).unwrap();
    let segments = whole(region, BYTES);
    let operation = match transport.rank() {
        PeerId(0) => {
            transport.bytes_mut(region).unwrap().copy_from_slice(&pattern(BYTES, 1));
            let immediate = last.then_some(1);
            let send = SendRequest { immediate, ..SendRequest::new(PeerId(1), &segments) };
            transport.send(&send).unwrap()
        }
        _ => transport.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments)).unwrap(),
    };
    let done = loop {
        transport.progress();
        match transport.poll_event() {
            Some(Event::Completed(over)) if over.operation == operation => break over.result.unwrap(),
            Some(Event::PeerLost { why, .. }) => panic!("{why:?}"),
            _ => {}
        }
    };
    assert!(transport.bytes(region).unwrap() == pattern(BYTES, 1));
    transport.free(region).unwrap();
    done.immediate
}

/// Starts two ranks in threads. Rank 0 sends rank 1 messages until these rails and no others have carried
/// their part: some rails are up later than others.
fn uses(expected: &[RailKind], options: impl Fn(u32) -> Options) {
    const MESSAGES_MAX: usize = 1000;
    let board = Board::new(2);
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            let (board, options) = (board.clone(), options(rank));
            scope.spawn(move || {
                let mut transport = Transport::start(options, Box::new(Seat { board, rank })).unwrap();
                assert_eq!((transport.rank(), transport.size()), (PeerId(rank), 2));
                if rank == 0 {
                    let mut left = MESSAGES_MAX;
                    while used(&transport) != expected && left > 0 {
                        move_message(&mut transport, false);
                        left -= 1;
                    }
                    move_message(&mut transport, true);
                    assert_eq!(used(&transport), expected);
                } else {
                    while move_message(&mut transport, false).is_none() {}
                }
                // The other one may have left already.
                let shutdown = transport.finish(None).unwrap();
                assert_eq!((shutdown.lost, shutdown.abandoned), (vec![], vec![]));
            });
        }
    });
    assert_eq!(board.finalized(), 2);
}

const BY_PACKETS: (&str, &str) = ("shm_single_copy", "off");

const TWO_INTERFACES: (&str, &str) = ("tcp_interfaces", "127.0.0.1,127.0.0.2");

#[test]
fn processes_of_one_host_use_shared_memory() {
    // By packets: payload that the peer reads is sent by no rail here.
    uses(&[RailKind::Shm], |_| settings(&[TWO_INTERFACES, BY_PACKETS]));
}

/// payload that the receiver reads from the sender's memory goes through no ring.
#[test]
fn a_large_message_between_processes_of_one_host_is_copied_once() {
    let board = Board::new(2);
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            let board = board.clone();
            scope.spawn(move || {
                let mut transport = Transport::start(settings(&[]), Box::new(Seat { board, rank })).unwrap();
                move_message(&mut transport, true);
                let counted = transport.rails().find(|rail| rail.kind == RailKind::Shm).unwrap().counters;
                let read = counted.bytes_received;
                assert!(counted.bytes_sent < BYTES as u64 / 100, "{} bytes sent", counted.bytes_sent);
                let expected = if rank == 0 { 0 } else { BYTES as u64 };
                assert!((expected..expected + BYTES as u64 / 100).contains(&read), "{read} bytes read");
                transport.finish(None).unwrap();
            });
        }
    });
}

#[test]
fn processes_of_two_hosts_use_every_interface() {
    let host = |rank| if rank == 0 { "left" } else { "right" };
    uses(&[RailKind::Tcp; 2], |rank| settings(&[TWO_INTERFACES, ("host_id", host(rank))]));
}

#[test]
fn of_unequal_numbers_of_interfaces_the_common_ones_are_used() {
    let interfaces = |rank| if rank == 0 { "127.0.0.1,127.0.0.2" } else { "127.0.0.1" };
    uses(&[RailKind::Tcp], |rank| settings(&[("rails", "tcp"), ("tcp_interfaces", interfaces(rank))]));
}

#[test]
fn shared_memory_and_tcp_are_used_together_if_configured() {
    // TCP can't read memory, so a message that is read does not take it.
    let values = [TWO_INTERFACES, ("tcp_beside_shm", "on"), BY_PACKETS];
    uses(&[RailKind::Shm, RailKind::Tcp, RailKind::Tcp], |_| settings(&values));
}

fn key() -> JobKey {
    JobKey { key: [3; 32], job_id: 5 }
}

#[test]
fn a_job_of_one_opens_nothing() {
    let opening = Transport::open(&Options::default(), PeerId(0), 1, &key()).unwrap();
    assert!(opening.address_record().ends_with(";loop@self"), "{}", opening.address_record());
}

#[test]
fn policies_of_classes_are_those_of_the_settings_until_they_are_set() {
    let values = [("policy", "adaptive"), ("policy_small", "binding"), ("express", "off")];
    let mut opening = Transport::open(&settings(&values), PeerId(0), 1, &key()).unwrap();
    let address_record = opening.address_record().to_owned();
    opening.learn(PeerId(0), &address_record).unwrap();
    let mut transport = opening.join().unwrap();
    let small = transport.endpoint().class_policy(MessageClass::Small);
    assert_eq!((small.multiplex, small.striping), (Policy::Binding, Policy::Binding));
    assert!(!transport.config().express);
    assert_eq!(transport.endpoint().class_policy(MessageClass::Large).striping, Policy::Adaptive);
    transport.set_policy(MessageClass::Large, Policy::Even);
    transport.set_rails(MessageClass::Small, 1, 1);
    assert_eq!(transport.endpoint().class_policy(MessageClass::Large).striping, Policy::Even);
    assert_eq!(transport.endpoint().class_policy(MessageClass::Small).eligible, 1);
    assert_eq!(transport.endpoint().class_policy(MessageClass::OneSided).striping, Policy::Adaptive);
}

#[test]
fn an_interface_that_is_not_there_is_named_beside_those_that_are() {
    let error = Transport::open(&settings(&[("tcp_interfaces", "nosuch7")]), PeerId(0), 2, &key()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("tcp:nosuch7") && text.contains("lo"), "{text}");
    // Of the documentation's addresses, no machine has one.
    let error = Transport::open(&settings(&[("tcp_interfaces", "192.0.2.1")]), PeerId(0), 2, &key()).unwrap_err();
    assert!(error.to_string().contains("tcp:192.0.2.1"), "{error}");
}

#[test]
fn ports_that_do_not_exist_are_refused() {
    let values = [TWO_INTERFACES, ("tcp_port", "65535"), ("rails", "tcp")];
    // The first rail may find its port taken; the second has none in any case.
    let error = Transport::open(&settings(&values), PeerId(0), 2, &key()).unwrap_err();
    assert!(matches!(error, StartError::Rail { .. }), "{error}");
}
