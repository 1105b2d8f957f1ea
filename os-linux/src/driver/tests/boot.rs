//! Starting through a bootstrap: one thread per rank, each with a transport of its own.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};

use rerail_core::ids::PeerId;

use super::world::{Fabric, rails, small};
use crate::bootstrap::{BootError, Bootstrap};
use crate::driver::{CardError, Opening, StartError};
use crate::rail::loopback::Loopback;

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
