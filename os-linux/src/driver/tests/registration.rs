//! Registrations go to the rails, are given back, and end before the completion is reported to the caller.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use rerail_core::config::Config;
use rerail_core::endpoint::{
    Access, Completion, Event, OpError, PeerError, PutRequest, RailFault, RecvRequest, Remote, Selector, SendRequest,
    Window,
};
use rerail_core::ids::PeerId;
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::rail::{Caps, RailFacts};
use rerail_core::time::Time;

use crate::driver::{Opening, StartError, Transport, VirtualTime, WindowError};
use crate::rail::loopback::Loopback;
use crate::rail::{AddressError, MemoryKey, Outgoing, Piece, Rail, RailCounters, RailUsage, Sink};

const ME: PeerId = PeerId(0);
/// Larger payloads go by rendezvous, with keys where the rail offers reads.
const EAGER_BYTES_MAX: u32 = 64;
const MESSAGE_BYTES: u64 = 1000;

/// The calls of the rail, and its answers.
#[derive(Default)]
struct Book {
    /// Address, bytes, whether peers write.
    requested: Vec<(usize, usize, bool)>,
    /// Keys that were not given back.
    held: Vec<u64>,
    /// Address and bytes of adopted memory.
    adopted: Vec<(usize, usize)>,
    refuse: bool,
    peers: Vec<PeerId>,
}

/// A loopback that offers reads, so that memory is registered for them.
struct Registering {
    inner: Loopback,
    book: Rc<RefCell<Book>>,
}

impl Rail for Registering {
    fn name(&self) -> &str {
        "registering"
    }

    fn facts(&self) -> RailFacts {
        let facts = self.inner.facts();
        RailFacts {
            caps: Caps { read: true, ..facts.caps },
            eager_bytes_max: EAGER_BYTES_MAX,
            segment_bytes_max: 256,
            posts_max: 2,
            ..facts
        }
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        self.book.borrow_mut().peers.push(peer);
        self.inner.add_peer(peer, address)
    }

    fn connect(&mut self, now: Time, peer: PeerId) {
        self.inner.connect(now, peer);
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.inner.disconnect(peer);
    }

    fn abort(&mut self, peer: PeerId) {
        self.disconnect(peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post(outgoing) }
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        let mut book = self.book.borrow_mut();
        book.requested.push((memory.start.addr(), memory.len, write));
        if book.refuse {
            return Err(RailFault::Device { code: 12 });
        }
        let key = book.requested.len() as u64;
        book.held.push(key);
        Ok(MemoryKey { key, address: 0 })
    }

    fn deregister(&mut self, key: MemoryKey) {
        let mut book = self.book.borrow_mut();
        let at = book.held.iter().position(|held| *held == key.key).expect("a key that is held");
        book.held.swap_remove(at);
    }

    fn adopt(&mut self, memory: Piece, is_over: bool) {
        let (adopted, memory) = (&mut self.book.borrow_mut().adopted, (memory.start.addr(), memory.len));
        match is_over {
            false => adopted.push(memory),
            true => adopted.retain(|known| *known != memory),
        }
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.inner.poll(now, sink)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.inner.next_timeout()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn counters(&self) -> RailCounters {
        self.inner.counters()
    }

    fn usage(&self) -> RailUsage {
        RailUsage::default()
    }
}

fn opening(size: u32) -> (Opening<VirtualTime>, Rc<RefCell<Book>>) {
    let book = Rc::new(RefCell::new(Book::default()));
    let rail = Registering { inner: Loopback::new(ME), book: book.clone() };
    let config = Config { rails_max: 1, ..Config::new(ME, size) };
    (Opening::with_clock(config, "here".into(), vec![Box::new(rail)], VirtualTime::default()).unwrap(), book)
}

/// A transport with an established connection to itself, and a region of two messages.
fn connected() -> (Transport<VirtualTime>, Rc<RefCell<Book>>, RegionId) {
    let (mut opening, book) = opening(1);
    let address_record = opening.address_record().to_owned();
    opening.learn(ME, &address_record).unwrap();
    let mut transport = opening.join().unwrap();
    let region = transport.alloc(4096).unwrap();
    transport.send(&SendRequest::new(ME, &[])).unwrap();
    transport.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[])).unwrap();
    assert_eq!(completions(&mut transport, 2).len(), 2);
    (transport, book, region)
}

/// Drives until so many requests are over.
fn completions(transport: &mut Transport<VirtualTime>, count: usize) -> Vec<Completion> {
    let mut over = Vec::new();
    for now in 1..1000 {
        transport.set_time(Time(now));
        transport.round();
        over.extend(std::iter::from_fn(|| transport.poll_event()).filter_map(completion));
        if over.len() >= count {
            break;
        }
    }
    over
}

fn completion(event: Event) -> Option<Completion> {
    match event {
        Event::Completed(completion) => Some(completion),
        _ => None,
    }
}

fn large(transport: &mut Transport<VirtualTime>, region: RegionId) -> rerail_core::ids::OpId {
    let segments = [Seg::new(region, 0, MESSAGE_BYTES)];
    transport.send(&SendRequest::new(ME, &segments)).unwrap()
}

/// a rail that can't register the memory is left out; here it is the only one, so the message goes in
/// segments.
#[test]
fn message_is_sent_without_the_key_if_registration_fails() {
    let (mut transport, book, region) = connected();
    book.borrow_mut().refuse = true;
    let source: Vec<u8> = (0..MESSAGE_BYTES).map(|byte| (byte % 251) as u8).collect();
    transport.bytes_mut(region).unwrap()[..source.len()].copy_from_slice(&source);
    let start = transport.bytes(region).unwrap().as_ptr().addr();
    large(&mut transport, region);
    let target = [Seg::new(region, 2048, MESSAGE_BYTES)];
    transport.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &target)).unwrap();
    let over = completions(&mut transport, 2);
    assert!(over.len() == 2 && over.iter().all(|completion| completion.result.is_ok()), "{over:?}");
    assert_eq!(&transport.bytes(region).unwrap()[2048..2048 + source.len()], source);
    assert_eq!(book.borrow().requested, [(start, MESSAGE_BYTES as usize, false)]);
}

#[test]
fn cancelled_request_leaves_no_registration() {
    let (mut transport, book, region) = connected();
    // Something that takes the rail's room while the message waits for its key.
    let window = Window::new(MemRef { region, offset: 2048 }, 1024, Access::default(), 7);
    transport.expose(&window).unwrap();
    let message = large(&mut transport, region);
    let segments = [Seg::new(region, 0, 1024)];
    let to = Remote { peer: ME, window: 7, offset: 0 };
    transport.put(&PutRequest::new(to, &segments)).unwrap();
    transport.push();
    assert_eq!(book.borrow().held.len(), 1, "the message is registered");
    transport.cancel(message).unwrap();
    let reported = std::iter::from_fn(|| transport.poll_event()).filter_map(completion).next().unwrap();
    assert_eq!((reported.operation, reported.result.err()), (message, Some(OpError::Cancelled)));
    assert_eq!(book.borrow().held, [0; 0], "its memory is the caller's again");
}

#[test]
fn rails_are_notified_once_of_each_valid_peer() {
    let (mut opening, book) = opening(1);
    let address_record = opening.address_record().to_owned();
    opening.learn(ME, &address_record).unwrap();
    let again = opening.learn(ME, &address_record);
    assert!(matches!(again, Err(StartError::Peer(PeerError::Known(ME)))), "{again:?}");
    let unknown_process = opening.learn(PeerId(1), &address_record);
    assert!(
        matches!(unknown_process, Err(StartError::Peer(PeerError::OutOfRange { peers_max: 1, .. }))),
        "{unknown_process:?}"
    );
    // The rail is no loopback by name, but its kind is: only this process is reached by it.
    assert_eq!(book.borrow().peers, [ME]);
}

/// Offsets in a region are checked for atomics, so the region must be aligned.
#[test]
fn atomics_need_an_aligned_region() {
    let (mut transport, ..) = connected();
    let memory = Box::leak(Box::new([0u64; 8])).as_mut_ptr().cast::<u8>();
    for (shift, is_good) in [(0, true), (4, false)] {
        // SAFETY: nothing else uses the memory, which is never freed.
        let region = unsafe { transport.adopt(memory.wrapping_add(shift), 32) }.unwrap();
        let access = Access { atomic: true, ..Access::default() };
        let exposed = transport.expose(&Window::new(MemRef { region, offset: 4 }, 8, access, shift as u64));
        assert_eq!(exposed.is_ok(), is_good, "{exposed:?}");
        let misaligned = matches!(exposed, Err(WindowError::Misaligned { align: 8, .. }));
        assert_eq!(misaligned, !is_good);
    }
}

/// Rails keep no registration of memory that the application unmaps without notice, until it has it back.
#[test]
fn rails_are_notified_of_adopted_memory() {
    let (mut transport, book, own) = connected();
    let memory = Box::leak(Box::new([0u64; 8]));
    let adopted = (memory.as_ptr().addr(), 64);
    // SAFETY: nothing else uses the memory, which is never freed.
    let region = unsafe { transport.adopt(memory.as_mut_ptr().cast(), 64) }.unwrap();
    assert_eq!(book.borrow().adopted, [adopted]);
    transport.free(own).unwrap();
    assert_eq!(book.borrow().adopted, [adopted]);
    transport.free(region).unwrap();
    assert_eq!(book.borrow().adopted, []);
}
