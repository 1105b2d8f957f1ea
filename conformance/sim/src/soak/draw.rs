//! A scenario from a seed. What a seed draws:
//!
//! * places: in half, rank r is on host r mod hosts (`scattered`)
//! * settings: in half, each rank has its own at the edges of `Config` (`uneven`): numbers that wrap after at
//!   most 69, tables of 2 packets, 1 message and 1 block, no eager messages, acknowledgments after 1 packet
//!   or 50 ms
//! * rails: in half, segments of 256 B and up, eager limits from 0, 2 posts, rings of 2 slots; a third cannot
//!   read; half of those without a stream get one as administrative network
//! * policies: in half, any, strategies included
//! * faults: in half of those with faults, echoes; in two thirds, a storm: only faults that break
//!   connections, 5,000 to 60,000 a second within 50 us to 1.5 ms, while traffic flows
//! * polling: in a quarter, by the policies of shiba-2005, in half of these at a cost, copies included
//! * retry epochs (F-7): in half of the storms, no rail reads, segments are short, 70 % of the messages large
//! * a device gone: in a sixth of the storms, one for good, where a stream leads to all ranks
//! * closes: in half, ranks close a peer when all but acknowledgments is complete
//! * parking: in a quarter, ranks park idle peers now and then (K-1)
//! * the express path: in a third, ranks share hosts, half or more of the messages are such as MPI libraries
//!   send, rings have 2 cells and up, peers grant 1 to 3 messages in half of these, wildcards are posted late
//!   in half, and in a fifth other rails lead to the same peers; in an eighth no rank takes it (`express`),
//!   elsewhere of `uneven` ranks every sixth does not
//!
//! If both ends of every path move at once, neither can report its new address. So without a stream rail only
//! the first host draws `renumber`, and, if its ranks share memory or are one, `device-fatal` and
//! `cq-overflow`; and storms, which begin before all ranks have met, have none of the three.

use rerail_core::config::Policy;
use rerail_core::rail::sched::of;
use rerail_linux::rail::shm::RingReads;
use toml::Value;

use super::FaultMenu;
use crate::cluster::fault::{Fault, FaultAt, Kind};
use crate::cluster::place::Place;
use crate::rng::Rng;
use crate::scenario::{CopySpec, HcaSpec, MapSpec, ProgressSpec, RailSpec, RandomFaults, Scenario, Span, SubnetSpec};
use crate::workload::COPIED_PUTS;

/// Devices of scenarios: slow and fast ones, with buses that are shared and not.
const DEVICES: [&str; 4] = ["ideal", "infinihost-pcix", "connectx", "ndr"];

/// The scenario of a seed, with faults of a menu. Small clusters, because many of them find more than few
/// large ones.
pub fn draw_scenario(seed: u64, fault_menu: &FaultMenu) -> Scenario {
    let rng = &mut Rng::new(seed, "world");
    let about = format!("the simulation of seed {seed}, faults: {fault_menu}");
    let mut scenario = Scenario { about, ..Scenario::default() };
    (scenario.hosts, scenario.ranks_per_host) = *rng.pick(&SHAPES).unwrap_or(&(2, 1));
    let hcas = rng.within(1, 3) as usize;
    scenario.hcas = (0..hcas).map(|_| hca(rng)).collect();
    scenario.rails = rails(&scenario, rng);
    let short = &mut Rng::new(seed, "short way");
    let is_short = short.one_in(3);
    if is_short {
        share_hosts(&mut scenario);
    }
    // Dice of its own: what the others draw stays as it was.
    if Rng::new(seed, "administrative network").one_in(2) {
        administer(&mut scenario);
    }
    scenario.subnets = subnets(&scenario, rng);
    scenario.squeeze = rng.one_in(3);
    if rng.one_in(3) {
        scenario.cpu.slow_polls_per_thousand = rng.within(1, 50) as u32;
    }
    if rng.one_in(2) {
        scenario.config.multiplex = Some(Policy::RoundRobin);
    }
    if rng.one_in(4) {
        scenario.config.striping = Some(Policy::Binding);
    }
    policies(&mut scenario, &mut Rng::new(seed, "policies"));
    scenario.limits.safety = Span::from_millis(rng.within(1, 20));
    recovery(&mut scenario, &mut Rng::new(seed, "recovery"));
    // Where rails can read, that is how large messages come; rounds of writes need rails that can't.
    scenario.verbs.read = !Rng::new(seed, "reads").one_in(3);
    edges(&mut scenario, &mut Rng::new(seed, "edges"));
    single_copy(&mut scenario, &mut Rng::new(seed, "single copy"));
    polling(&mut scenario, &mut Rng::new(seed, "polling"));
    let joint = &mut Rng::new(seed, "joint copies");
    scenario.shm.joint_unit = joint.pick(&[0, 16, 64, 1000, 4096]).copied().unwrap_or(0);
    mapped_memory(&mut scenario, &mut Rng::new(seed, "mapped memory"));
    let kinds = fault_menu.kinds();
    if kinds.contains(&Kind::Kill) {
        keepalive(&mut scenario, &mut Rng::new(seed, "keep-alive"));
    }
    let kinds_kill = kinds.contains(&Kind::Kill);
    let echoes = *Rng::new(seed, "echoes").pick(&[0, 0, 30, 80]).unwrap_or(&0);
    // One scenario in four is calm: it should be clean whatever the menu.
    if !kinds.is_empty() && !rng.one_in(4) {
        scenario.random = Some(RandomFaults {
            per_second: rng.within(50, 2000) as u32,
            kinds,
            lasts_max: Span::from_micros(rng.within(5, 3000)),
            from: Span::from_micros(0),
            echoes_per_hundred: echoes,
            until: None,
        });
        storm(&mut scenario, &mut Rng::new(seed, "storm"));
    }
    if scenario.random.is_none() {
        // Nothing fails here, and no deadline may take a process that looks late for a rail that does
        // nothing.
        let config = &mut scenario.config;
        config.stall_min = config.stall_min.max(Some(Span::from_millis(2)));
        config.stall_max = config.stall_max.max(config.stall_min);
        config.keepalive = None;
    }
    if kinds_kill {
        super::liar::add(&mut scenario, seed);
    }
    let parameters = &mut scenario.workload.parameters;
    parameters.insert("messages".into(), Value::Integer(rng.within(1, 200) as i64));
    parameters.insert("closes".into(), Value::Boolean(Rng::new(seed, "closes").one_in(2)));
    // The peer of a parked channel is not notified that this end has moved, unless by another network.
    let moves = scenario.random.as_ref().is_some_and(|random| random.kinds.iter().any(|kind| kind.moves()));
    let may_park = !moves || scenario.rails.iter().any(is_stream);
    let parameters = &mut scenario.workload.parameters;
    if Rng::new(seed, "copied puts").one_in(2) {
        parameters.insert(COPIED_PUTS.into(), Value::Boolean(true));
    }
    if may_park && Rng::new(seed, "parks").one_in(4) {
        parameters.insert("parks".into(), Value::Boolean(true));
    }
    scenario.workload.name = "random".into();
    if is_short {
        short_way(&mut scenario, short);
    }
    scenario
}

/// In a quarter of the simulations rails are polled, and large messages taken out of rings, as in shiba-2005.
fn polling(scenario: &mut Scenario, rng: &mut Rng) {
    if !rng.one_in(4) {
        return;
    }
    let progress = [ProgressSpec::Timed, ProgressSpec::Adaptive, ProgressSpec::Toggle];
    scenario.cpu.progress = *rng.pick(&progress).unwrap_or(&ProgressSpec::Timed);
    scenario.shm.ring_reads = *rng.pick(&RingReads::ALL).unwrap_or(&RingReads::Burst);
    if rng.one_in(2) {
        scenario.shm.poll_ns = rng.within(1, 500);
        scenario.shm.copies = CopySpec {
            in_bytes_per_second: rng.within(100, 10_000) * 1_000_000,
            out_bytes_per_second: rng.within(100, 10_000) * 1_000_000,
            shared: rng.one_in(2),
        };
    }
}

/// In half of the simulations with faults most of these come while most of the traffic is under way, and
/// break connections: traffic is over long before the phase of faults ends.
fn storm(scenario: &mut Scenario, rng: &mut Rng) {
    let Some(random) = scenario.random.as_mut().filter(|_| !rng.one_in(3)) else { return };
    let with_kills = rng.one_in(8);
    // Before its first call a rank is not notified that a peer it never met has moved, unless by another
    // network.
    let has_stream = scenario.rails.iter().any(is_stream);
    let breaks =
        |kind: &Kind| kind.needs_recovery() && (*kind != Kind::Kill || with_kills) && (has_stream || !kind.moves());
    let kinds: Vec<Kind> = random.kinds.iter().copied().filter(breaks).collect();
    if kinds.is_empty() {
        return;
    }
    random.kinds = kinds;
    random.per_second = rng.within(5_000, 60_000) as u32;
    random.lasts_max = Span::from_micros(rng.within(5, 300));
    random.until = Some(Span::from_micros(rng.within(50, 1_500)));
    scenario.config.redial_min = Some(Span::from_micros(rng.within(1, 100)));
    let until_us = rng.within(50, 1_500);
    if rng.one_in(2) {
        // Messages that are written over several rails, in rounds (F-7), by many posts.
        scenario.verbs.read = false;
        scenario.verbs.segment_bytes = *rng.pick(&[512, 1000, 4096]).unwrap_or(&1000);
        scenario.workload.parameters.insert("large_percent".into(), Value::Integer(70));
        let administrative = scenario.hcas.len().saturating_sub(1) as u32;
        let mut rails = scenario.rails.clone();
        for rail in &mut rails {
            if let RailSpec::Stream { hca, port } = *rail
                && hca != administrative
            {
                *rail = RailSpec::Hca { hca, port, path: 0 };
            }
        }
        let stays: Vec<Kind> = match rails.iter().any(is_stream) {
            true => random.kinds.clone(),
            false => random.kinds.iter().copied().filter(|kind| !kind.moves()).collect(),
        };
        // A menu of nothing but what moves keeps its streams.
        if !stays.is_empty() {
            (random.kinds, scenario.rails) = (stays, rails);
        }
    }
    if random_allows(scenario, Kind::DeviceFatal) && rng.one_in(3) {
        for_good(scenario, until_us, rng);
    }
}

fn is_stream(rail: &RailSpec) -> bool {
    matches!(rail, RailSpec::Stream { .. })
}

fn random_allows(scenario: &Scenario, kind: Kind) -> bool {
    scenario.random.as_ref().is_some_and(|random| random.kinds.contains(&kind))
}

/// One device of one host is gone for good, where every rank has another one: what it had goes over others
/// only because the peers are notified that its connections are dead (F-3), for none is ever made anew.
fn for_good(scenario: &mut Scenario, until_us: u64, rng: &mut Rng) {
    let verbs = |scenario: &Scenario, of: u32| {
        scenario.rails.iter().any(|rail| matches!(rail, RailSpec::Hca { hca, .. } if *hca == of))
    };
    let candidates: Vec<u32> = (0..scenario.hcas.len() as u32).filter(|hca| verbs(scenario, *hca)).collect();
    let has_stream = scenario.rails.iter().any(is_stream);
    if scenario.hosts < 2 || candidates.is_empty() || !has_stream {
        return;
    }
    let hca = rng.pick(&candidates).copied().unwrap_or(0);
    let host = rng.below(scenario.hosts.into()) as u32;
    let at = Span::from_micros(rng.within(1, until_us)).min(scenario.limits.safety);
    let fault = Fault::new(Kind::DeviceFatal, Place::Hca { host, hca });
    scenario.faults.push(FaultAt { at, fault, until: None });
}

/// Any policy with any, on some of the rails, in half of the scenarios.
fn policies(scenario: &mut Scenario, rng: &mut Rng) {
    if rng.one_in(2) {
        return;
    }
    let config = &mut scenario.config;
    config.multiplex = rng.pick(&Policy::RAIL_CHOICES).copied();
    config.striping = rng.pick(&Policy::STRIPINGS).copied();
    config.weights = Some((0..8).map(|_| rng.below(5) as u16).collect());
    config.alpha = Some(rng.within(0, 256) as u16);
    config.window_messages = Some(rng.within(1, 8) as u16);
    config.bind = Some(rng.below(4) as u8);
    config.rails_used = Some(rng.within(1, 4) as u8);
    config.rails_eligible = Some(rng.below(15) + 1);
}

/// What is equal by chance elsewhere: where ranks are, what each of them is configured as, how little rails
/// take at once.
fn edges(scenario: &mut Scenario, rng: &mut Rng) {
    scenario.scattered = rng.one_in(2);
    scenario.uneven = rng.one_in(2);
    if rng.one_in(2) {
        return;
    }
    let pick = |rng: &mut Rng, from: &[u32]| rng.pick(from).copied().unwrap_or(0);
    scenario.verbs.segment_bytes = pick(rng, &[256, 1000, 4096, 16 * 1024]);
    scenario.verbs.eager_bytes_max = pick(rng, &[0, 1, 333, 8192]);
    scenario.verbs.posts_max = pick(rng, &[2, 3, 16]) as u16;
    scenario.verbs.inline_bytes = pick(rng, &[0, 61, 256]) as u16;
    scenario.shm.slots = pick(rng, &[2, 3, 16]);
    scenario.shm.cells = scenario.shm.slots.next_power_of_two();
    scenario.shm.slot_bytes = pick(rng, &[256, 4096]);
    scenario.shm.posts_max = pick(rng, &[2, 3, 16]) as u16;
}

/// Whether ranks of a host read each other's memory, and what fails of it.
fn single_copy(scenario: &mut Scenario, rng: &mut Rng) {
    let shm = &mut scenario.shm;
    shm.read = !rng.one_in(4);
    shm.read_portion = rng.pick(&[64, 1000, 4096, 256 * 1024]).copied().unwrap_or(4096);
    shm.read_bytes_per_second = rng.pick(&[0, 100_000_000, 8_000_000_000]).copied().unwrap_or(0);
    shm.denied_one_in = rng.pick(&[0, 0, 1, 3]).copied().unwrap_or(0);
    shm.refused_one_in = rng.pick(&[0, 0, 2, 10]).copied().unwrap_or(0);
}

/// Whether ranks of a host map each other's memory, and what fails of that.
fn mapped_memory(scenario: &mut Scenario, rng: &mut Rng) {
    scenario.shm.maps = MapSpec {
        bytes_max: rng.pick(&[0, 1 << 20, 1 << 30, 1 << 30]).copied().unwrap_or(0),
        unsafe_one_in: rng.pick(&[0, 2, 10]).copied().unwrap_or(0),
        refused_one_in: rng.pick(&[0, 2, 10]).copied().unwrap_or(0),
        busy_one_in: rng.pick(&[0, 2, 10]).copied().unwrap_or(0),
    };
    if scenario.shm.maps.is_none() {
        scenario.shm.maps = MapSpec::default();
    }
}

/// Deadlines and pauses on the time scale of these simulations, whose faults are over within 20 ms. A living
/// peer must be reached again long before `recovery_timeout`; one that was killed is given up long before
/// `limits.convergence`.
fn recovery(scenario: &mut Scenario, rng: &mut Rng) {
    let (redial_min, stall_min) = (rng.within(10, 1_000), rng.within(200, 5_000));
    let config = &mut scenario.config;
    config.redial_min = Some(Span::from_micros(redial_min));
    config.redial_max = Some(Span::from_micros(redial_min * rng.within(1, 20)));
    config.stall_min = Some(Span::from_micros(stall_min));
    config.stall_max = Some(Span::from_micros(stall_min * rng.within(1, 10)));
    config.stall_lone = Some(Span::from_micros(stall_min * rng.within(10, 30)));
    config.recovery_timeout = Some(Span::from_millis(rng.within(1_000, 2_000)));
    config.connect_timeout = Some(Span::from_millis(rng.within(1_000, 2_000)));
    scenario.verbs.handshake_timeout = Span::from_millis(rng.within(5, 50));
    scenario.verbs.ack_timeout = rng.within(5, 10) as u8;
    scenario.limits.convergence = Span::from_millis(10_000);
    // Longer than all that comes behind a lost BYE: the peer is called, from a new address, for
    // `connect_timeout`; the last connection stands for ten times `redial_max` (G-10); its rail waits for the
    // BYE to leave, and its device may not give back what it has, for a second each
    // (`VerbsOptions::drain_time`).
    scenario.limits.rest = Span::from_millis(2_000 + 200 + 2_500);
}

/// Where processes are killed, its loss must be reported to a rank that waits for it alone within
/// `limits.convergence`. From the scale of deadlines (four times `stall_min`) up to that of pauses.
fn keepalive(scenario: &mut Scenario, rng: &mut Rng) {
    let shortest = scenario.config.stall_min.unwrap_or_default();
    scenario.config.keepalive = Some(Span::from_micros((shortest.nanos().0 / 1_000) << rng.within(2, 7)));
}

/// As many ranks or about, on hosts that they share.
fn share_hosts(scenario: &mut Scenario) {
    let (hosts, ranks) = (scenario.hosts, scenario.ranks_per_host);
    (scenario.hosts, scenario.ranks_per_host) = match (hosts, ranks) {
        (4, 1) => (2, 2),
        (hosts, 1) => (1, hosts.max(2)),
        shape => shape,
    };
    if scenario.rails.first() != Some(&RailSpec::Shm {}) {
        scenario.rails.insert(0, RailSpec::Shm {});
    }
}

/// Messages that can go the express path, and what forces them off it in mid-stream.
fn short_way(scenario: &mut Scenario, rng: &mut Rng) {
    let parameters = &mut scenario.workload.parameters;
    let plain = rng.pick(&[50, 90, 98, 100]).copied().unwrap_or(90);
    parameters.insert("plain_percent".into(), Value::Integer(plain));
    parameters.insert("late".into(), Value::Boolean(rng.one_in(2)));
    // Receives posted before the first message has come are no entries of their own.
    parameters.insert("receives".into(), Value::Integer(rng.pick(&[1, 2, 4, 8, 64]).copied().unwrap_or(4)));
    parameters.insert("one_sided".into(), Value::Boolean(rng.one_in(3)));
    // A channel is back on the express path when all that left it is acknowledged.
    parameters.insert("pause_us".into(), Value::Integer(rng.pick(&[0, 100, 1000, 3000]).copied().unwrap_or(1000)));
    let config = &mut scenario.config;
    // Strategies look at messages before these go anywhere.
    if !rng.one_in(8) && config.multiplex.is_some_and(|policy| of(policy).properties().waits_for_idle) {
        config.multiplex = Some(Policy::Balanced);
    }
    scenario.shm.cells = 1 << rng.within(1, 5);
    scenario.shm.slots = rng.within(2, 8) as u32;
    if rng.one_in(2) {
        config.unexpected_per_peer = Some(rng.within(1, 3) as u16);
        let (blocks, block_bytes) = (rng.within(1, 3), *rng.pick(&[64, 256, 1024]).unwrap_or(&256));
        config.blocks_per_peer = Some(blocks as u16);
        config.block_bytes = Some(block_bytes);
        config.eager_bytes_max = Some(rng.within(8, blocks * u64::from(block_bytes)) as u32);
    }
    if rng.one_in(2) {
        config.ack_delay = Some(Span::from_micros(20));
    }
    if rng.one_in(8) {
        config.express = Some(false);
    }
    scenario.shm.others_beside = rng.one_in(5);
}

/// Hosts, and ranks on each.
const SHAPES: [(u32, u32); 8] = [(2, 1), (2, 1), (2, 2), (3, 1), (1, 2), (4, 1), (3, 2), (1, 1)];

fn hca(rng: &mut Rng) -> HcaSpec {
    let device = rng.pick(&DEVICES).copied().unwrap_or("ideal").to_owned();
    let ports = if rng.one_in(4) { 2 } else { 1 };
    HcaSpec { device, ports, lmc: rng.below(2) as u8, ..HcaSpec::default() }
}

/// Rails in the order of the driver: shared memory first. Streams and verbs over the same devices.
fn rails(scenario: &Scenario, rng: &mut Rng) -> Vec<RailSpec> {
    let mut rails = Vec::new();
    if scenario.ranks_per_host > 1 && !rng.one_in(4) {
        rails.push(RailSpec::Shm {});
    }
    for (hca, spec) in (0..).zip(&scenario.hcas) {
        let stream = rng.one_in(3);
        rails.extend((0..spec.ports).map(|port| match stream {
            true => RailSpec::Stream { hca, port },
            false => RailSpec::Hca { hca, port, path: 0 },
        }));
    }
    rails
}

/// Where no stream leads anywhere, an administrative network: slow, and over a card of its own.
fn administer(scenario: &mut Scenario) {
    if scenario.rails.iter().any(is_stream) {
        return;
    }
    let hca = scenario.hcas.len() as u32;
    scenario.hcas.push(HcaSpec { link_bytes_per_second: Some(125_000_000), ..HcaSpec::default() });
    scenario.rails.push(RailSpec::Stream { hca, port: 0 });
}

/// A subnet for each port number, some with jitter.
fn subnets(scenario: &Scenario, rng: &mut Rng) -> Vec<SubnetSpec> {
    let ports: u32 = scenario.hcas.iter().map(|hca| hca.ports).sum();
    let subnet = |_| {
        let jitter_ns = if rng.one_in(2) { rng.below(20_000) } else { 0 };
        SubnetSpec { latency_ns: rng.within(100, 5_000), jitter_ns, ..SubnetSpec::default() }
    };
    (0..ports).map(subnet).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A kind that came to the menu later takes no place in the draws of seeds; it is there for scenarios
    /// that name it.
    #[test]
    fn later_fault_kinds_do_not_change_seeded_draws() {
        let (lossless, all) = (FaultMenu::Lossless.kinds(), FaultMenu::All.kinds());
        assert_eq!((lossless.len(), all.len()), (11, 27));
        assert!(!all.contains(&Kind::Slow) && lossless.iter().all(|kind| all.contains(kind)));
        assert_eq!("slow".parse::<FaultMenu>().map(|fault_menu| fault_menu.kinds()), Ok(vec![Kind::Slow]));
    }

    /// What moves before its peers have met it can be found only where a stream reports it.
    #[test]
    fn storms_move_rails_only_beside_a_stream() {
        let (mut storms, mut moving) = (0, 0);
        for cluster in (0..1000).map(|seed| draw_scenario(seed, &FaultMenu::All)) {
            let Some(random) = cluster.random.as_ref().filter(|random| random.until.is_some()) else { continue };
            let moves = random.kinds.iter().any(|kind| kind.moves());
            assert!(!moves || cluster.has_stream(), "{}", cluster.about);
            (storms, moving) = (storms + 1, moving + u32::from(moves));
        }
        assert!(storms > 300 && moving > 100, "{storms} storms, {moving} that move");
    }

    /// Every scenario is legal and survives being written and read, and scenarios differ.
    #[test]
    fn drawn_scenarios_are_valid_and_distinct() {
        let mut seen = BTreeSet::new();
        for seed in 0..500 {
            let cluster = draw_scenario(seed, &FaultMenu::All);
            let text = cluster.to_toml().unwrap();
            assert_eq!(Scenario::parse("drawn", &text).unwrap(), cluster, "seed {seed}");
            assert_eq!(draw_scenario(seed, &FaultMenu::All), cluster, "the seed decides");
            for rank in 0..cluster.size() {
                cluster.core_config(rank, seed).validate().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            seen.insert(text);
        }
        assert_eq!(seen.len(), 500);
    }
}
