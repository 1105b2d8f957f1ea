//! A rail whose descriptor changes, as that of a device does that was opened again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rerail_core::config::Config;
use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::rail::RailFacts;
use rerail_core::time::Time;
use rustix::event::{EventfdFlags, eventfd};

use crate::driver::{Opening, Transport, Woken};
use crate::rail::loopback::Loopback;
use crate::rail::{AddressError, MemoryKey, Outgoing, Piece, Rail, RailCounters, RailUsage, Sink};

/// The test's commands to the rail.
#[derive(Default)]
struct Strings {
    /// Descriptors that it should have had by now.
    changes: AtomicU32,
    /// The same as the newest, to write to.
    newest: Mutex<Option<OwnedFd>>,
}

/// Has only itself as a peer.
struct Reopened {
    inner: Loopback,
    strings: Arc<Strings>,
    fd: Option<OwnedFd>,
    changes: u32,
}

impl Rail for Reopened {
    fn name(&self) -> &str {
        "reopened"
    }

    fn facts(&self) -> RailFacts {
        self.inner.facts()
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        self.inner.add_peer(peer, address)
    }

    fn connect(&mut self, now: Time, peer: PeerId) {
        self.inner.connect(now, peer);
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.inner.disconnect(peer);
    }

    fn abort(&mut self, peer: PeerId) {
        self.inner.abort(peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post(outgoing) }
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.register(memory, write) }
    }

    fn deregister(&mut self, key: MemoryKey) {
        self.inner.deregister(key);
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        let changes = self.strings.changes.load(Ordering::Relaxed);
        if self.changes != changes {
            self.changes = changes;
            // The old one first: the new one may get its number.
            self.fd = None;
            *self.strings.newest.lock().unwrap() = None;
            let fd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
            *self.strings.newest.lock().unwrap() = Some(fd.try_clone().unwrap());
            self.fd = Some(fd);
        }
        self.inner.poll(now, sink)
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    fn wait_fd_changes(&self) -> u32 {
        self.changes
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> RailCounters {
        RailCounters::default()
    }

    fn usage(&self) -> RailUsage {
        RailUsage::default()
    }
}

fn alone(strings: &Arc<Strings>) -> Transport {
    let me = PeerId(0);
    let rail = Reopened { inner: Loopback::new(me), strings: strings.clone(), fd: None, changes: 0 };
    let mut opening = Opening::with_rails(Config::new(me, 1), "here".into(), vec![Box::new(rail)], 1).unwrap();
    let address_record = opening.address_record().to_owned();
    opening.learn(me, &address_record).unwrap();
    opening.join().unwrap()
}

/// Once there is a descriptor, and after it changed, it wakes the sleeper, whatever its number.
#[test]
fn a_descriptor_that_is_new_wakes_the_sleeper() {
    let strings = Arc::new(Strings::default());
    let mut transport = alone(&strings);
    // None yet.
    assert_eq!(transport.wait(Some(Duration::ZERO)), Ok(Woken::TimedOut));
    for change in 1..4 {
        strings.changes.store(change, Ordering::Relaxed);
        transport.progress();
        assert_eq!(transport.wait(Some(Duration::ZERO)), Ok(Woken::TimedOut), "nothing has come");
        rustix::io::write(strings.newest.lock().unwrap().as_ref().unwrap(), &1u64.to_ne_bytes()).unwrap();
        assert_eq!(transport.wait(Some(Duration::ZERO)), Ok(Woken::Work), "descriptor number {change}");
    }
}
