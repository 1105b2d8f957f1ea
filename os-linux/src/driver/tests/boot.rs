//! Starting through a bootstrap: one thread per rank, each with a transport of its own.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};

use rerail_core::endpoint::{Event, Recv, Send};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;

use super::world::{Fabric, pattern, rails, small, whole};
use crate::bootstrap::{BootError, Bootstrap, JobKey};
use crate::driver::{CardError, Opening, Options, StartError, Transport};
use crate::rail::loopback::Loopback;
use crate::settings::Settings;

/// What the ranks of a job in one process share.
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
    let mut all: Vec<Box<dyn crate::rail::Rail>> = vec![Box::new(Loopback::new(PeerId(rank)))];
    all.extend(fabric.into_iter().flat_map(|fabric| rails(rank, 2, fabric)));
    Opening::with_rails(small(rank, 2), host.to_owned(), all, 1).unwrap()
}

#[test]
fn a_rank_without_a_rail_in_common_is_unreachable() {
    let lonely = opening(1, "there", None);
    let mut other = opening(0, "here", Some(Fabric::Tcp));
    let unreachable = other.learn(PeerId(1), lonely.card()).unwrap_err();
    assert!(matches!(unreachable, StartError::Unreachable { peer: PeerId(1), .. }), "{unreachable}");
    assert!(unreachable.to_string().contains("rerail1;there;loop@self"), "{unreachable}");
}

#[test]
fn shared_memory_needs_one_host() {
    let mut here = opening(0, "here", Some(Fabric::Shm));
    let there = opening(1, "there", Some(Fabric::Shm));
    assert!(matches!(here.learn(PeerId(1), there.card()), Err(StartError::Unreachable { .. })));
    let near = opening(1, "here", Some(Fabric::Shm));
    here.learn(PeerId(1), near.card()).unwrap();
}

#[test]
fn a_card_of_another_version_is_refused_by_name() {
    let mut here = opening(0, "here", None);
    let error = here.learn(PeerId(1), "rerail9;there;tcp@127.0.0.1:1").unwrap_err();
    assert!(
        matches!(&error, StartError::Card { peer: PeerId(1), error: CardError::Version { found } } if found == "rerail9"),
        "{error}"
    );
}

#[test]
fn joining_needs_every_card() {
    let mut here = opening(0, "here", None);
    let own = here.card().to_owned();
    here.learn(PeerId(0), &own).unwrap();
    assert!(matches!(here.join().err(), Some(StartError::MissingCard(PeerId(1)))));
}

fn settings(values: &[(&str, &str)]) -> Options {
    let mut settings = Settings::default();
    for (name, value) in values {
        settings.set(name, value).unwrap();
    }
    Options { settings }
}

/// Starts two ranks in threads, lets rank 0 send rank 1 a message, and gives the kinds of rails that carried payload.
fn started(options: impl Fn(u32) -> Options + Sync) -> Vec<RailKind> {
    const BYTES: usize = 1 << 20;
    let board = Board::new(2);
    let used = std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let (board, options) = (board.clone(), options(rank));
            scope.spawn(move || {
                let mut transport = Transport::start(options, Box::new(Seat { board, rank })).unwrap();
                assert_eq!((transport.rank(), transport.size()), (PeerId(rank), 2));
                let region = transport.alloc(BYTES).unwrap();
                let segments = whole(region, BYTES);
                let done = match rank {
                    0 => {
                        transport.bytes_mut(region).unwrap().copy_from_slice(&pattern(BYTES, 1));
                        transport.send(&Send { peer: PeerId(1), segments: &segments, ..Send::default() }).unwrap()
                    }
                    _ => transport.recv(&Recv { segments: &segments, ..Recv::default() }).unwrap(),
                };
                loop {
                    transport.progress();
                    match transport.poll_event() {
                        Some(Event::Completed(over)) if over.operation == done => break,
                        Some(Event::PeerLost { why, .. }) => panic!("{why:?}"),
                        _ => {}
                    }
                }
                assert!(transport.bytes(region).unwrap() == pattern(BYTES, 1));
                let rails = transport.rails().filter(|rail| rail.counters.bytes_sent > BYTES as u64 / 4);
                let used: Vec<RailKind> = rails.map(|rail| rail.kind).collect();
                assert_eq!(transport.finish(None).unwrap().closed, 1);
                used
            })
        });
        let [used, _] = ranks.map(|rank| rank.join().unwrap());
        used
    });
    assert_eq!(board.finalized(), 2);
    used
}

const TWO_INTERFACES: (&str, &str) = ("tcp_interfaces", "127.0.0.1,127.0.0.2");

#[test]
fn processes_of_one_host_use_shared_memory() {
    assert_eq!(started(|_| settings(&[TWO_INTERFACES])), [RailKind::Shm]);
}

#[test]
fn processes_of_two_hosts_use_every_interface() {
    let host = |rank| if rank == 0 { "left" } else { "right" };
    assert_eq!(started(|rank| settings(&[TWO_INTERFACES, ("host_id", host(rank))])), [RailKind::Tcp; 2]);
}

#[test]
fn of_unequal_numbers_of_interfaces_the_common_ones_are_used() {
    let interfaces = |rank| if rank == 0 { "127.0.0.1,127.0.0.2" } else { "127.0.0.1" };
    assert_eq!(started(|rank| settings(&[("rails", "tcp"), ("tcp_interfaces", interfaces(rank))])), [RailKind::Tcp]);
}

#[test]
fn shared_memory_and_tcp_carry_together_where_asked() {
    let values = [TWO_INTERFACES, ("tcp_beside_shm", "on")];
    let used = started(|_| settings(&values));
    assert_eq!(used, [RailKind::Shm, RailKind::Tcp, RailKind::Tcp]);
}

fn key() -> JobKey {
    JobKey { key: [3; 32], job_id: 5 }
}

#[test]
fn a_job_of_one_opens_nothing() {
    let opening = Transport::open(&Options::default(), PeerId(0), 1, &key()).unwrap();
    assert!(opening.card().ends_with(";loop@self"), "{}", opening.card());
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
