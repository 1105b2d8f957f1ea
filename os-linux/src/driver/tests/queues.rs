//! Completion queues and waiting for one request, on a transport that is alone.

use std::time::Duration;

use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::{Cookie, OpId, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::bootstrap::single::Single;
use crate::driver::{Options, QueueError, QueueId, Transport, WaitForError};
use crate::settings::Settings;

fn alone() -> (Transport, RegionId) {
    let mut settings = Settings::default();
    settings.rails.clear();
    let mut transport = Transport::start(Options { settings }, Box::new(Single::new())).unwrap();
    let memory = transport.alloc(4096).unwrap();
    (transport, memory)
}

/// A receive of a message with a tag, and its message, of 1 byte. The receive.
fn exchange(transport: &mut Transport, memory: RegionId, tag: u64, cookie: Cookie) -> OpId {
    let into = [Seg::new(memory, 64 * tag, 1)];
    let receive = RecvRequest { cookie, ..RecvRequest::new(Selector::tagged(tag), &into) };
    let receive = transport.recv(&receive).unwrap();
    let from = [Seg::new(memory, 0, 1)];
    let send = SendRequest { tag: Some(tag), cookie, ..SendRequest::new(PeerId(0), &from) };
    transport.send(&send).unwrap();
    receive
}

fn cookies(mut poll: impl FnMut() -> Option<Event>) -> Vec<u64> {
    std::iter::from_fn(&mut poll)
        .filter_map(|event| match event {
            Event::Completed(completion) => Some(completion.cookie.0),
            _ => None,
        })
        .collect()
}

#[test]
fn events_are_taken_in_batches() {
    let (mut transport, memory) = alone();
    for tag in 0..5 {
        exchange(&mut transport, memory, tag, Cookie(tag));
    }
    while transport.progress() > 0 {}
    let mut taken = Vec::new();
    let mut batch = [None; 4];
    for places in [0, 1, 4, 4] {
        let count = transport.poll_events(&mut batch[..places]);
        assert_eq!(count, places, "there are more");
        taken.extend(batch[..count].iter().map(|event| event.expect("it was filled")));
    }
    taken.extend(std::iter::from_fn(|| transport.poll_event()));
    assert_eq!(transport.poll_events(&mut batch), 0);
    let mut taken = taken.into_iter();
    let mut cookies = cookies(|| taken.next());
    cookies.sort_unstable();
    assert_eq!(cookies, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    assert!(transport.poll_shorts().is_empty());
}

#[test]
fn each_library_gets_its_own_completions() {
    let (mut transport, memory) = alone();
    let [first, second] = [transport.open_queue(16).unwrap(), transport.open_queue(16).unwrap()];
    let of = |queue: QueueId, value| queue.cookie(value).unwrap();
    for (tag, cookie) in [of(second, 1), Cookie(2), of(first, 3), of(second, 4)].into_iter().enumerate() {
        exchange(&mut transport, memory, tag as u64, cookie);
    }
    for _ in 0..20 {
        transport.progress();
    }
    assert!(transport.poll_short().is_none() && transport.poll_shorts().is_empty(), "it may be another queue's");
    assert_eq!(cookies(|| transport.poll_queue(first)), [of(first, 3).0; 2]);
    assert_eq!(cookies(|| transport.poll_event()), [2, 2]);
    let mut left = cookies(|| transport.poll_queue(second));
    left.sort_unstable();
    assert_eq!(left.iter().map(|cookie| QueueId::value(Cookie(*cookie))).collect::<Vec<_>>(), [1, 1, 4, 4]);
    assert_eq!(first.cookie(QueueId::VALUE_MAX + 1), None);
}

#[test]
fn a_queue_that_is_full_loses_nothing() {
    let (mut transport, memory) = alone();
    assert_eq!(transport.open_queue(0), Err(QueueError::NoRoom));
    let queue = transport.open_queue(1).unwrap();
    for tag in 0..4 {
        exchange(&mut transport, memory, tag, queue.cookie(tag).unwrap());
    }
    let waited = exchange(&mut transport, memory, 9, Cookie(9));
    for _ in 0..20 {
        transport.progress();
    }
    let error = transport.wait_for(waited, Some(Duration::ZERO)).unwrap_err();
    assert!(matches!(error, WaitForError::Full { events: 1 }), "{error}");
    assert_eq!(cookies(|| transport.poll_queue(queue)).len(), 8);
    transport.wait_for(waited, None).unwrap();
}

#[test]
fn waiting_for_one_request_keeps_the_order_of_others() {
    let (mut transport, memory) = alone();
    let [_, second, third] = [0, 1, 2].map(|tag| exchange(&mut transport, memory, tag, Cookie(tag)));
    assert_eq!(transport.wait_for(third, None).unwrap().cookie, Cookie(2));
    assert_eq!(transport.test(second).unwrap().cookie, Cookie(1));
    assert_eq!(transport.test(second), None, "it was taken");
    assert!(matches!(transport.wait_for(second, None), Err(WaitForError::Unknown(unknown)) if unknown == second));
    let mut left = cookies(|| transport.poll_event());
    left.dedup();
    assert_eq!(left, [0, 1, 2]);
}

#[test]
fn timed_out_wait_leaves_the_request_pending() {
    let (mut transport, memory) = alone();
    let into = [Seg::new(memory, 0, 1)];
    let receive = transport.recv(&RecvRequest::new(Selector::tagged(1), &into)).unwrap();
    assert!(matches!(transport.wait_for(receive, Some(Duration::from_millis(1))), Err(WaitForError::TimedOut)));
    transport.cancel(receive).unwrap();
    assert!(transport.wait_for(receive, None).unwrap().result.is_err());
}

/// A wait that takes long takes no processor: it polls and yields at first, then sleeps.
#[test]
fn long_waits_sleep() {
    let (mut transport, memory) = alone();
    let into = [Seg::new(memory, 0, 1)];
    let receive = transport.recv(&RecvRequest::new(Selector::tagged(1), &into)).unwrap();
    let spent = || {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(tv_sec as u64, tv_nsec as u32)
    };
    let before = spent();
    let waited = transport.wait_for(receive, Some(Duration::from_millis(300)));
    assert!(matches!(waited, Err(WaitForError::TimedOut)));
    let spent = spent() - before;
    assert!(spent < Duration::from_millis(100), "{spent:?}");
    transport.cancel(receive).unwrap();
}

/// An event of another queue wakes a library about to sleep, once: its own library may be the one
/// that sleeps.
#[test]
fn event_of_another_queue_prevents_sleep_once() {
    let (mut transport, memory) = alone();
    let queue = transport.open_queue(16).unwrap();
    exchange(&mut transport, memory, 1, queue.cookie(1).unwrap());
    for _ in 0..20 {
        transport.progress();
    }
    assert_eq!(transport.arm(), Ok(false), "it was not seen yet");
    assert_eq!(cookies(|| transport.poll_event()), [], "its own are of peers");
    assert_eq!(transport.arm(), Ok(true));
    assert_eq!(cookies(|| transport.poll_queue(queue)).len(), 2);
}

#[test]
fn the_board_and_keys_are_there() {
    let (mut transport, _) = alone();
    let board = transport.bootstrap().expect("it was started with one");
    board.put("of-the-host", "something").unwrap();
    board.fence().unwrap();
    assert_eq!(board.get(0, "of-the-host").unwrap().as_deref(), Some("something"));
    assert_ne!(transport.random_key().unwrap(), transport.random_key().unwrap());
}
