//! Once it runs, a transport allocates nothing, neither while rings and sockets are full nor while their
//! readers sleep: counted by an allocator that counts.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rerail_core::config::Config;
use rerail_core::endpoint::{
    Access, Event, GetRequest, PutRequest, RecvRequest, Remote, Selector, SendRequest, Window,
};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::mem::{MemRef, Seg};
use rerail_core::time::Nanos;
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{Opening, Transport};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::shm::{ShmOptions, ShmRail};
use rerail_linux::rail::tcp::{TcpOptions, TcpRail};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn credentials(rank: PeerId) -> Credentials {
    Credentials::new([rank.0 as u8; 32], Secret::new([1; 32]))
}

fn count() {
    // Threads on their way out have no counter any more, and none of them is measured.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the one demanded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the one demanded.
        unsafe { System.realloc(start, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEY: u64 = 7;
const BYTES: u64 = 1 << 20;

/// A TCP rail whose sockets are full after a few packets.
fn tcp(rank: PeerId) -> Box<dyn Rail + Send> {
    let buffer = Some(16 * 1024);
    let options = TcpOptions {
        send_buffer_bytes: buffer,
        receive_buffer_bytes: buffer,
        ..TcpOptions::new([127, 0, 0, 1].into(), 0)
    };
    Box::new(TcpRail::open(options, credentials(rank), 1, rank).unwrap())
}

/// A shared-memory rail whose rings are full after four packets.
fn shm(rank: PeerId) -> Box<dyn Rail + Send> {
    let options = ShmOptions { cells: 4, slots: 4, ..ShmOptions::new(2) };
    Box::new(ShmRail::open(options, credentials(rank), 1, rank).unwrap())
}

/// Two ranks in one thread, joined by a rail. On a busy machine a connection with buffers as small as these
/// may stand still for as long as the kernel waits before it repeats something; it is not given up for that
/// (F-11, F-13), since a connection that is made anew allocates.
fn pair(rail: fn(PeerId) -> Box<dyn Rail + Send>) -> [Transport; 2] {
    let mut openings = [0, 1].map(|rank| {
        let rank = PeerId(rank);
        let rails: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(rank)), rail(rank)];
        let config = Config { stall_min: Nanos(0), keepalive: Nanos(0), ..Config::new(rank, 2) };
        Opening::with_rails(config, "here".to_owned(), rails, 1).unwrap()
    });
    let address_records = openings.each_ref().map(|opening| opening.address_record().to_owned());
    for opening in &mut openings {
        for (rank, address_record) in address_records.iter().enumerate() {
            opening.learn(PeerId(rank as u32), address_record).unwrap();
        }
    }
    openings.map(|opening| opening.join().unwrap())
}

/// Drives both until so many requests of theirs are over.
fn until_completed(ranks: &mut [Transport; 2], mut count: usize) {
    while count > 0 {
        for rank in &mut *ranks {
            rank.progress();
            while let Some(event) = rank.poll_event() {
                if let Event::Completed(completion) = event {
                    completion.result.unwrap();
                    count -= 1;
                }
            }
        }
    }
}

/// More messages than the rail takes before the receiver looks.
fn pressure(ranks: &mut [Transport; 2], memory: [rerail_core::mem::RegionId; 2]) {
    const MESSAGES: usize = 40;
    for _ in 0..MESSAGES {
        let segments = [Seg::new(memory[0], 0, 8000)];
        ranks[0].send(&SendRequest::new(PeerId(1), &segments)).unwrap();
        ranks[0].progress();
    }
    let sent = |ranks: &[Transport; 2]| ranks[0].rails().map(|rail| rail.counters.bytes_sent).sum::<u64>();
    let stuck = sent(ranks);
    for _ in 0..MESSAGES {
        let segments = [Seg::new(memory[1], 0, 8000)];
        ranks[1].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments)).unwrap();
    }
    until_completed(ranks, 2 * MESSAGES);
    assert!(sent(ranks) > stuck + 8000, "the rail was full before the receiver looked");
}

/// One of each: small, large, unexpected, to oneself, put, get.
fn traffic(ranks: &mut [Transport; 2], memory: [rerail_core::mem::RegionId; 2]) {
    let segments = |rank: usize, bytes| [Seg::new(memory[rank], 0, bytes)];
    for bytes in [1, 4000, BYTES] {
        ranks[0].send(&SendRequest::new(PeerId(1), &segments(0, bytes))).unwrap();
        until_completed(ranks, usize::from(bytes < BYTES));
        ranks[1].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments(1, bytes))).unwrap();
        until_completed(ranks, 1 + usize::from(bytes == BYTES));
    }
    ranks[1].inject(&SendRequest::new(PeerId(1), &[]), b"to myself").unwrap();
    ranks[1].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments(1, 9))).unwrap();
    let there = Remote { peer: PeerId(1), window: KEY, offset: BYTES };
    ranks[0].put(&PutRequest::new(there, &segments(0, BYTES))).unwrap();
    ranks[0].get(&GetRequest::new(there, &segments(0, BYTES))).unwrap();
    until_completed(ranks, 4);
    for rank in ranks {
        rank.wait(Some(std::time::Duration::ZERO)).unwrap();
    }
}

#[test]
fn a_running_transport_allocates_nothing_over_tcp() {
    a_running_transport_allocates_nothing(tcp);
}

#[test]
fn a_running_transport_allocates_nothing_over_shared_memory() {
    a_running_transport_allocates_nothing(shm);
}

fn a_running_transport_allocates_nothing(rail: fn(PeerId) -> Box<dyn Rail + Send>) {
    let mut ranks = pair(rail);
    let memory = ranks.each_mut().map(|rank| rank.alloc(2 * BYTES as usize).unwrap());
    let at = MemRef { region: memory[1], offset: 0 };
    let access = Access { read: true, write: true, atomic: false };
    ranks[1].expose(&Window::new(at, 2 * BYTES, access, KEY)).unwrap();
    // Connections are made and lists grow to their working size.
    for _ in 0..50 {
        traffic(&mut ranks, memory);
        pressure(&mut ranks, memory);
    }
    let before = ALLOCATIONS.get();
    for _ in 0..50 {
        traffic(&mut ranks, memory);
        pressure(&mut ranks, memory);
    }
    let after = ALLOCATIONS.get();
    let failures =
        [0, 1].map(|rank| ranks[rank].endpoint().rail_health(PeerId(1 - rank as u32), RailId(1)).unwrap().failures);
    assert_eq!(failures, [0, 0], "connections were made anew");
    assert_eq!(after - before, 0);
    let before = ALLOCATIONS.get();
    let probe = Box::new(0);
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts: {probe}");
}
