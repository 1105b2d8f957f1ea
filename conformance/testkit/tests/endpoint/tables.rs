//! Tables that are full, and counters in place of events.

use super::*;

/// Full is a value, and what is full empties again.
#[test]
fn full_tables_refuse_and_recover() {
    let config = Config { operations_max: 8, retained_max: 2, channels_max: 2, ..small() };
    let mut regions = regions(&config, 3);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[100_000], 1);
    let send = |peer| SendRequest::new(PeerId(peer), &[]);
    for _ in 0..2 {
        cluster.nodes[0].endpoint.inject(Time(0), &send(1), 10).unwrap();
    }
    assert_eq!(cluster.nodes[0].endpoint.inject(Time(0), &send(1), 10), Err(SubmitError::Full(Full::Retained)));
    // K-6: the other channel is left for callers until the first is connected.
    assert_eq!(cluster.nodes[0].endpoint.send(Time(0), &send(2)), Err(SubmitError::Full(Full::Channels)));
    while cluster.nodes[0].endpoint.send(Time(0), &send(1)).is_ok() {}
    assert_eq!(cluster.nodes[0].endpoint.send(Time(0), &send(1)), Err(SubmitError::Full(Full::Operations)));
    cluster.run_until_idle();
    cluster.nodes[0].endpoint.inject(Time(cluster.now), &send(1), 10).unwrap();
    let wrong = SendRequest::new(PeerId(77), &[]);
    assert_eq!(cluster.nodes[0].endpoint.send(Time(0), &wrong), Err(SubmitError::UnknownPeer(PeerId(77))));
    let pieces = [Seg::default(); 5];
    let wrong = SendRequest::new(PeerId(1), &pieces);
    assert_eq!(cluster.nodes[0].endpoint.send(Time(0), &wrong), Err(SubmitError::Segments { given: 5, max: 4 }));
}

/// Counters count instead of events; errors are reported all the same.
#[test]
fn counters_and_silence() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[10_000], 1);
    let recv = |notify, n| RecvRequest { notify, cookie: Cookie(n), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    let both = [Notify::Counter(CounterId(1)), Notify::Both(CounterId(1)), Notify::Silent, Notify::Event];
    for (n, notify) in both.into_iter().enumerate() {
        cluster.nodes[1].endpoint.recv(Time(0), &recv(notify, n as u64)).unwrap();
        let send = SendRequest { notify, segments: &seg(0, 10 * (n as u64 / 3)), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    }
    let unknown =
        RecvRequest { notify: Notify::Counter(CounterId(4)), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    assert_eq!(cluster.nodes[1].endpoint.recv(Time(0), &unknown), Err(SubmitError::UnknownCounter(CounterId(4))));
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[1].endpoint.counter(CounterId(1)), Some(2));
    assert_eq!(cluster.nodes[0].endpoint.counter(CounterId(1)), Some(2));
    let got = completions(&mut cluster, 1);
    assert_eq!(got.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert!(matches!(got[&3], Err(OpError::Truncated { .. })));
}
