//! An endpoint that threads share.

use std::collections::BTreeSet;

use rerail_core::config::Config;
use rerail_core::endpoint::{Completion, Endpoint, Event, OpError, RecvRequest, Selector};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::shared::Shared;
use rerail_core::time::Time;
use rerail_testkit::endpoint::{Region, TCP};

/// Four threads submit and take back at once: every request completes exactly once.
#[test]
fn threads_share_an_endpoint() {
    let config = Config::new(PeerId(0), 1);
    let mut region = Region::of(&config);
    let endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    let shared = Shared::new(endpoint);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let shared = &shared;
            scope.spawn(move || {
                for n in 0..200 {
                    let recv = RecvRequest {
                        cookie: Cookie(thread * 1000 + n),
                        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
                    };
                    let op = shared.lock(|endpoint| endpoint.recv(Time(0), &recv)).unwrap();
                    shared.lock(|endpoint| endpoint.cancel(op)).unwrap();
                }
            });
        }
    });
    let mut endpoint = shared.into_inner();
    let reported: Vec<_> = std::iter::from_fn(|| endpoint.poll_event())
        .map(|event| match event {
            Event::Completed(Completion { cookie, result: Err(OpError::Cancelled), .. }) => cookie.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reported.len(), 800);
    assert_eq!(reported.into_iter().collect::<BTreeSet<_>>().len(), 800);
}

/// While one holds the lock, another does not wait for it.
#[test]
fn try_lock_does_not_wait_for_a_held_lock() {
    let config = Config::new(PeerId(0), 1);
    let mut region = Region::of(&config);
    let endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    let shared = Shared::new(endpoint);
    shared.lock(|_| assert!(shared.try_lock(|_| ()).is_none()));
    assert!(shared.try_lock(|_| ()).is_some());
}
