//! Peers come, leave, and are lost.

use super::*;

fn kinds(cluster: &mut Cluster<'_>, rank: usize) -> Vec<Event> {
    cluster.nodes[rank].events.drain(..).filter(|e| !matches!(e, Event::Completed(_))).collect()
}

/// As `kinds`, and leaves completions where they are.
fn other_events(cluster: &mut Cluster<'_>, rank: usize) -> Vec<Event> {
    cluster.nodes[rank].events.iter().filter(|e| !matches!(e, Event::Completed(_))).copied().collect()
}

/// G-7: a BYE comes after everything that was submitted, and both ends are notified.
#[test]
fn bye_follows_all_submitted_messages() {
    let config = small();
    for rails in ALL_RAILS {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, rails, &[100_000], 9);
        fill(&mut cluster, 0, 0, 30_000, 1);
        let recv = RecvRequest {
            cookie: Cookie(1),
            segments: &seg(50_000, 30_000),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
        let send = SendRequest { cookie: Cookie(1), segments: &seg(0, 30_000), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
        cluster.nodes[0].endpoint.close_peer(PeerId(1)).unwrap();
        cluster.run_until_idle();
        assert_filled(&cluster, 1, 50_000, 30_000, 1);
        for rank in 0..2 {
            let other = PeerId(1 - rank as u32);
            assert!(cluster.nodes[rank].events.iter().any(|e| matches!(e, Event::Completed(c) if c.result.is_ok())));
            assert_eq!(kinds(&mut cluster, rank), [Event::PeerUp { peer: other }, Event::PeerClosed { peer: other }]);
            let late = SendRequest::new(other, &[]);
            assert_eq!(cluster.nodes[rank].endpoint.send(Time(0), &late), Err(SubmitError::PeerGone(other)));
            assert!(has_no_channel(&cluster.nodes[rank].endpoint), "the channel's slot is free");
        }
    }
}

/// G-7: a peer that is closed while its connections are still being made gets a BYE too, at whatever moment,
/// and from a process that exits as soon as it may. It may have the CONNECT already, so the end of a
/// connection alone counts as a loss.
#[test]
fn peer_closed_before_its_connect_arrives_receives_a_bye() {
    let config = small();
    let mut early = 0;
    for rails in ALL_RAILS {
        for seed in 0..60 {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[4096], seed);
            let send = SendRequest { cookie: Cookie(1), ..SendRequest::new(PeerId(1), &[]) };
            let taken_back = cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
            for step in 0..seed % 20 {
                cluster.now += 100;
                cluster.act((seed + step) as usize % 2);
                let (from, rail) = (cluster.rng.below(2) as usize, cluster.rng.below(rails.len() as u64) as usize);
                cluster.step_link(from, 1 - from, rail);
            }
            // There is nothing left to wait for.
            let _ = cluster.nodes[0].endpoint.cancel(taken_back);
            let channel = cluster.nodes[0].endpoint.channel_info(PeerId(1));
            early += u32::from(channel.is_none_or(|channel| channel.peer_parameters.is_none()));
            cluster.nodes[0].endpoint.close_peer(PeerId(1)).unwrap();
            cluster.run_until_idle();
            for rank in 0..2 {
                let peer = PeerId(1 - rank as u32);
                let reported = kinds(&mut cluster, rank);
                assert_eq!(reported, [Event::PeerUp { peer }, Event::PeerClosed { peer }], "rank {rank}, seed {seed}");
            }
        }
    }
    assert!(early > 60, "{early}");
}

/// G-7: an unreachable peer that is closed is no loss where nothing was submitted to it, and is one where
/// something was.
#[test]
fn closed_unreachable_peer_is_lost_only_with_operations() {
    let config = Config { connect_timeout: Nanos(1_000_000), ..small() };
    for (is_expected, fault) in
        [(false, None), (true, None), (false, Some(RailFault::Gone)), (true, Some(RailFault::Gone))]
    {
        let mut region = Region::of(&config);
        let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
        endpoint.add_peer(PeerId(1), 1).unwrap();
        let send = SendRequest::new(PeerId(1), &[]);
        let op = endpoint.send(Time(0), &send).unwrap();
        if !is_expected {
            endpoint.cancel(op).unwrap();
        }
        let mut dials = heapless::Vec::new();
        endpoint.poll_actions(Time(0), &mut dials);
        assert!(matches!(dials[..], [Action::Connect { .. }]));
        endpoint.close_peer(PeerId(1)).unwrap();
        dials.clear();
        assert_eq!(endpoint.poll_actions(Time(1), &mut dials), 0);
        let reported = |endpoint: &mut Endpoint<'_>| {
            let events = std::iter::from_fn(|| endpoint.poll_event()).filter(|e| !matches!(e, Event::Completed(_)));
            events.collect::<Vec<_>>()
        };
        assert_eq!(reported(&mut endpoint), [], "it may be on its way");
        match fault {
            Some(fault) => {
                endpoint.handle_rail_event(Time(2), RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault });
            }
            None => endpoint.handle_timeout(Time(1_000_000)),
        }
        let reported = reported(&mut endpoint);
        match reported[..] {
            [Event::PeerLost { .. }] if is_expected => {}
            [Event::PeerClosed { .. }] if !is_expected => {}
            _ => panic!("{is_expected} {fault:?}: {reported:?}"),
        }
    }
}

/// G-10: packets sent before a BYE can be received after it; only then the channel has ended.
#[test]
fn messages_outlive_their_sender() {
    let config = small();
    for rails in ALL_RAILS {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, rails, &[10_000], 9);
        fill(&mut cluster, 0, 0, 900, 1);
        let send = SendRequest { tag: Some(3), segments: &seg(0, 900), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
        cluster.nodes[0].endpoint.close_peer(PeerId(1)).unwrap();
        cluster.run_until_idle();
        let recv =
            RecvRequest { cookie: Cookie(7), segments: &seg(5000, 900), ..RecvRequest::new(tagged(Some(0), 3), &[]) };
        cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
        cluster.run_until_idle();
        assert_eq!(completions(&mut cluster, 1)[&7].unwrap().bytes, 900);
        assert_filled(&cluster, 1, 5000, 900, 1);
        let endpoint = &mut cluster.nodes[1].endpoint;
        assert_eq!(endpoint.recv(Time(0), &recv), Err(SubmitError::PeerGone(PeerId(0))));
        assert!(has_no_channel(endpoint) && endpoint.usage().messages.used == 0, "slots are free");
    }
}

/// G-7: on whichever subchannel the BYE arrives first, and whatever is still on the others, it is no loss at
/// either end.
#[test]
fn bye_over_several_rails_is_not_reported_as_loss() {
    let config = Config { ack_packets: 1, ..small() };
    for seed in 0..400 {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, &[TCP, TCP, TCP], &[100_000], seed);
        for n in 0..6 {
            let recv = RecvRequest {
                cookie: Cookie(n),
                segments: &seg(50_000, 100),
                ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
            };
            cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
            let send = SendRequest { cookie: Cookie(n), segments: &seg(0, 100), ..SendRequest::new(PeerId(1), &[]) };
            cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
        }
        let leaver = seed as usize % 2;
        let arrived = |cluster: &Cluster<'_>| {
            cluster.nodes[1].events.iter().filter(|event| matches!(event, Event::Completed(_))).count() == 6
        };
        while !arrived(&cluster) {
            for rank in 0..2 {
                cluster.act(rank);
                let (from, rail) = (cluster.rng.below(2) as usize, cluster.rng.below(3) as usize);
                cluster.step_link(from, 1 - from, rail);
            }
            cluster.now += 100;
        }
        cluster.nodes[leaver].endpoint.close_peer(PeerId(1 - leaver as u32)).unwrap();
        cluster.run_until_idle();
        for rank in 0..2 {
            let peer = PeerId(1 - rank as u32);
            let expected = [Event::PeerUp { peer }, Event::PeerClosed { peer }];
            assert_eq!(kinds(&mut cluster, rank), expected, "rank {rank}, seed {seed}");
        }
    }
}

/// G-4: a peer with a failed rail is lost by name; what is bound to it ends in an error, everything else
/// continues.
#[test]
fn lost_peer_fails_only_its_own_operations() {
    let config = small();
    for seed in 0..60 {
        let mut regions = regions(&config, 3);
        let mut cluster = Cluster::new(&mut regions, &config, &[TCP, TCP], &[400_000], seed);
        let m = |cluster: &mut Cluster<'_>, from: usize, to: u32, n: u64, len| {
            let send = SendRequest {
                tag: Some(n),
                cookie: Cookie(n),
                segments: &seg(0, len),
                ..SendRequest::new(PeerId(to), &[])
            };
            cluster.nodes[from].endpoint.send(Time(cluster.now), &send).unwrap();
        };
        for n in 0..10 {
            m(&mut cluster, 0, 1, n, 500 + 3000 * (n % 2));
            m(&mut cluster, 2, 0, 100 + n, 500 + 3000 * (n % 2));
            m(&mut cluster, 1, 0, 200 + n, 500 + 3000 * (n % 2));
        }
        for _ in 0..seed * 20 {
            let rank = cluster.rng.below(3) as usize;
            cluster.act(rank);
            let (from, to) = (cluster.rng.below(3) as usize, cluster.rng.below(3) as usize);
            let rail = cluster.rng.below(2) as usize;
            cluster.step_link(from, to, rail);
            cluster.now += 100;
        }
        let exact = RecvRequest { cookie: Cookie(999), ..RecvRequest::new(tagged(Some(1), 999), &[]) };
        cluster.nodes[0].endpoint.recv(Time(cluster.now), &exact).unwrap();
        for rail in 0..2 {
            cluster.cut(0, 1, RailId(rail), RailFault::Corrupt, true);
        }
        for n in 0..10 {
            let recv = RecvRequest {
                cookie: Cookie(100 + n),
                segments: &seg(200_000 + 4000 * n, 3500),
                ..RecvRequest::new(tagged(None, 100 + n), &[])
            };
            cluster.nodes[0].endpoint.recv(Time(cluster.now), &recv).unwrap();
        }
        cluster.run_until_idle();
        let events = other_events(&mut cluster, 0);
        let why = events.iter().find_map(|event| match event {
            Event::PeerLost { peer: PeerId(1), why } => Some(*why),
            _ => None,
        });
        let reason = LossReason::RailFailed { rail: RailId(0), fault: RailFault::Corrupt };
        let why = why.unwrap_or(Loss::new(reason, 3, Nanos(0), []));
        let failed: Vec<_> = why.attempts().collect();
        assert_eq!((why.reason, why.rails, failed.len(), failed[1]), (reason, 3, 2, (2, 0)));
        assert!(events.contains(&Event::PeerLost { peer: PeerId(1), why }) || seed == 0, "{events:?}");
        let got = completions(&mut cluster, 0);
        if seed > 0 {
            assert_eq!(got[&999], Err(OpError::PeerLost { peer: PeerId(1), why }));
        }
        for n in 0..10 {
            assert!(got[&(100 + n)].is_ok(), "from the living peer: {:?}", got[&(100 + n)]);
            if seed > 0 {
                assert!(got.contains_key(&n), "every send to the lost peer ends");
            }
        }
    }
}

/// G-4: a peer that never answers is lost after the configured time.
#[test]
fn connecting_has_a_limit() {
    let config = Config { connect_timeout: Nanos(5000), ..small() };
    let mut regions = regions(&config, 1);
    let mut region = regions.pop().unwrap();
    let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    endpoint.add_peer(PeerId(1), 1).unwrap();
    endpoint.send(Time(100), &SendRequest { cookie: Cookie(4), ..SendRequest::new(PeerId(1), &[]) }).unwrap();
    let mut actions = heapless::Vec::new();
    endpoint.poll_actions(Time(100), &mut actions);
    assert_eq!(actions[..], [Action::Connect { peer: PeerId(1), rail: RailId(0) }]);
    assert_eq!(endpoint.next_timeout(), Some(Time(5100)));
    endpoint.handle_timeout(Time(5099));
    assert_eq!(endpoint.poll_event(), None);
    endpoint.handle_timeout(Time(5100));
    let why = Loss::new(LossReason::ConnectTimeout, 1, Nanos(5000), [0]);
    assert_eq!(endpoint.poll_event(), Some(Event::PeerLost { peer: PeerId(1), why }));
    let Some(Event::Completed(completion)) = endpoint.poll_event() else { panic!("no completion") };
    assert_eq!(completion.result, Err(OpError::PeerLost { peer: PeerId(1), why }));
    assert_eq!(endpoint.next_timeout(), None);
}

/// G-4, F-8: a refused connection is tried again; the peer is lost when it does not listen on any rail.
#[test]
fn rails_that_cannot_be_had_are_tried_again() {
    let config = small();
    let mut regions = regions(&config, 1);
    let mut region = regions.pop().unwrap();
    let mut endpoint = Endpoint::new(config, &[TCP, TCP], region.take(&config), Time(0)).unwrap();
    endpoint.add_peer(PeerId(1), 3).unwrap();
    endpoint.send(Time(0), &SendRequest::new(PeerId(1), &[])).unwrap();
    let down = |rail, fault| RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault };
    let dialled = |endpoint: &mut Endpoint<'_>, now| {
        let mut actions = heapless::Vec::new();
        endpoint.handle_timeout(Time(now));
        endpoint.poll_actions(Time(now), &mut actions);
        let rail = |action: &Action| match action {
            Action::Connect { rail, .. } => rail.0,
            other => panic!("{other:?}"),
        };
        actions.iter().map(rail).collect::<Vec<_>>()
    };
    assert_eq!(dialled(&mut endpoint, 0), [0, 1]);
    // At once, then after pauses that double up to the longest.
    let (min, max) = (config.redial_min.0, config.redial_max.0);
    let mut now = 0;
    for (before, pause) in (0..).zip([0, min, 2 * min, 4 * min, 8 * min, max, max]) {
        let health = |endpoint: &Endpoint<'_>| endpoint.rail_health(PeerId(1), RailId(0)).unwrap();
        assert_eq!((health(&endpoint).state, health(&endpoint).refusals), (RailState::Opening, before));
        endpoint.handle_rail_event(Time(now), down(0, RailFault::TimedOut));
        let state = if pause == 0 { RailState::Opening } else { RailState::Down { redial_at: Time(now + pause) } };
        let fault = Some(RailFault::TimedOut);
        assert_eq!(health(&endpoint), RailHealth { state, refusals: before + 1, fault, ..RailHealth::default() });
        assert!(pause == 0 || dialled(&mut endpoint, now + pause - 1).is_empty(), "{pause}");
        now += pause;
        assert_eq!(dialled(&mut endpoint, now), [0], "{pause}");
    }
    // A rail is redialled at once when its device reports that it works again.
    endpoint.handle_rail_event(Time(now), down(0, RailFault::TimedOut));
    for (back, tried) in [(1, vec![]), (9, vec![]), (0, vec![0]), (0, vec![])] {
        endpoint.handle_rail_event(Time(now), RailEvent::Back { rail: RailId(back) });
        assert_eq!(dialled(&mut endpoint, now), tried, "{back}");
    }
    endpoint.handle_rail_event(Time(now), down(0, RailFault::Gone));
    assert_eq!(endpoint.poll_event(), None, "the other one is on its way");
    endpoint.handle_rail_event(Time(now), down(1, RailFault::Gone));
    let reason = LossReason::RailFailed { rail: RailId(1), fault: RailFault::Gone };
    let why = Loss::new(reason, 3, Nanos(now), [9, 1]);
    assert_eq!(endpoint.poll_event(), Some(Event::PeerLost { peer: PeerId(1), why }));
}

/// G-9: a silent peer that has packets to acknowledge is probed, and lost when it stays silent.
#[test]
fn silence_is_noticed() {
    let config = Config { probe_after: Nanos(1_000_000), silence_max: Nanos(10_000_000), ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[1000], 2);
    let send = SendRequest { segments: &seg(0, 10), ..SendRequest::new(PeerId(1), &[]) };
    cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    cluster.run_until_idle();
    cluster.nodes[0].events.clear();
    cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
    let start = cluster.now;
    let (mut probes, mut lost_at) = (0, None);
    while lost_at.is_none() {
        cluster.now += 500_000;
        assert!(cluster.now < start + 20_000_000, "never lost");
        cluster.nodes[0].endpoint.handle_timeout(Time(cluster.now));
        let before = cluster.counts[1];
        cluster.act(0);
        probes += cluster.counts[1] - before;
        // The rail takes everything; the peer's process doesn't run.
        while cluster.finish_posts(0, 1, 0) {}
        lost_at = cluster.nodes[0]
            .events
            .iter()
            .any(|e| matches!(e, Event::PeerLost { why: Loss { reason: LossReason::Silent, .. }, .. }))
            .then_some(cluster.now);
    }
    assert!(probes >= 5, "{probes} packets");
    assert!((start + 10_000_000..start + 11_500_000).contains(&lost_at.unwrap()));
}

/// L-1: a peer that is dialled on one rail dials back on the others.
#[test]
fn a_call_is_returned_on_the_other_rails() {
    let config = small();
    let mut region = Region::of(&config);
    let rails = [TCP, TCP, TCP];
    let mut endpoint = Endpoint::new(config, &rails, region.take(&config), Time(0)).unwrap();
    let peer = PeerId(1);
    endpoint.add_peer(peer, 0b110).unwrap();
    endpoint.handle_rail_event(Time(0), RailEvent::Up { peer, rail: RailId(1) });
    let mut actions = heapless::Vec::new();
    endpoint.poll_actions(Time(0), &mut actions);
    let called: Vec<_> = actions.iter().filter(|action| matches!(action, Action::Connect { .. })).collect();
    assert_eq!(called, [&Action::Connect { peer, rail: RailId(2) }]);
}

/// How a rail fares: up, failed with the fault that was reported, back.
#[test]
fn rail_health_reports_failures_and_returns() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP, TCP], &[100_000], 2);
    let peer = PeerId(1);
    let health = |cluster: &Cluster<'_>, rail| cluster.nodes[0].endpoint.rail_health(peer, RailId(rail));
    assert_eq!(health(&cluster, 0), None, "no channel is open");
    cluster.nodes[0].endpoint.send(Time(0), &SendRequest::new(peer, &[])).unwrap();
    cluster.run_until_idle();
    let up = RailHealth { state: RailState::Up, ..RailHealth::default() };
    let reported = |health: Option<RailHealth>| RailHealth { since: Time(0), ..health.unwrap() };
    assert_eq!((reported(health(&cluster, 0)), reported(health(&cluster, 1))), (up, up));
    assert_eq!(health(&cluster, 2), None, "there is no such rail");
    let fault = RailFault::Device { code: 7 };
    cluster.break_end(0, 1, RailId(1), fault);
    let down = health(&cluster, 1).unwrap();
    assert_ne!(down.state, RailState::Up);
    assert_eq!((down.failures, down.returns, down.fault), (1, 0, Some(fault)));
    assert_eq!(down.since, Time(cluster.now));
    cluster.nodes[0].endpoint.send(Time(cluster.now), &SendRequest::new(peer, &[])).unwrap();
    cluster.run_until_idle();
    let back = reported(health(&cluster, 1));
    assert_eq!(back, RailHealth { failures: 1, returns: 1, fault: Some(fault), ..up });
    assert_eq!(reported(health(&cluster, 0)), up);
}
