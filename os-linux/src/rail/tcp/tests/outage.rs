//! Interfaces that go down and come back, in a network namespace of the test's own.

use std::process::{Command, Stdio};

use super::*;

/// Set in the process that is in the namespace.
const INSIDE: &str = "RERAIL_TEST_TCP_OUTAGE";

/// Runs `ip` with these words.
fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

/// Runs a test of this file in a network namespace; where the machine does not let us have one, there is no
/// test.
fn inside(name: &str) {
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--map-root-user"]).args(words).env(INSIDE, "1").stdout(Stdio::null());
        command
    };
    let possible = unshare(&["ip", "link", "set", "lo", "up"]).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("ABSENT: network namespaces");
        return;
    }
    let me = std::env::current_exe().unwrap();
    let test = format!("rail::tcp::tests::outage::{name}");
    let status = unshare(&[me.to_str().unwrap(), "--exact", &test, "--nocapture"]).status().unwrap();
    assert!(status.success());
}

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn cluster(address: &str) -> Cluster {
    let options = TcpOptions::new(address.parse().unwrap(), 0);
    Cluster::new([options.clone(), options.clone(), options])
}

/// L-17: every subchannel of the rail is down at once, dials fail at once, and all comes back with the
/// interface, with the listener as it was.
fn an_interface_goes_and_comes(address: &str, down: &[&str], up: &[&str]) {
    let mut cluster = cluster(address);
    cluster.join(0, 1);
    cluster.join(0, 2);
    cluster.join(1, 2);
    let net_down = RailFault::Device { code: Errno::NETDOWN.raw_os_error() };
    for life in 1..4 {
        down.iter().for_each(|words| ip(words));
        cluster.until(|hosts| hosts.iter().all(|host| host.sink.standing.is_empty()));
        assert!(cluster.hosts.iter().any(|host| host.sink.down.contains(&(PeerId(1), net_down))));
        for (rank, host) in cluster.hosts.iter_mut().enumerate() {
            let lost: Vec<_> =
                (0..3).filter(|peer| *peer != rank as u32).map(|peer| (PeerId(peer), net_down)).collect();
            // All are on one machine: the end of one may reach the next before the news does.
            host.sink
                .down
                .iter_mut()
                .filter(|(_, fault)| *fault == RailFault::Closed)
                .for_each(|lost| lost.1 = net_down);
            host.sink.down.sort_by_key(|(peer, _)| *peer);
            assert_eq!(host.sink.down, lost);
            host.sink.down.clear();
            assert!(host.rail.pending.is_empty() && host.rail.connections.is_empty());
        }
        let now = cluster.now;
        cluster.hosts[0].rail.connect(now, PeerId(1));
        cluster.poll();
        assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), net_down)]);
        cluster.hosts[0].sink.down.clear();
        up.iter().for_each(|words| ip(words));
        cluster.until(|hosts| hosts.iter().all(|host| host.rail.watch.as_ref().is_some_and(Watch::is_up)));
        assert!(cluster.hosts.iter().all(|host| host.sink.backs == life), "F-8");
        cluster.join(1, 0);
        cluster.join(2, 0);
        cluster.join(2, 1);
        cluster.ping(0, 1, life);
        cluster.ping(2, 1, 100 + life);
    }
}

#[test]
fn the_interface_is_set_down() {
    if !is_inside() {
        return inside("the_interface_is_set_down");
    }
    ip("link set lo up");
    an_interface_goes_and_comes("127.0.0.1", &["link set lo down"], &["link set lo up"]);
}

#[test]
fn the_address_vanishes() {
    if !is_inside() {
        return inside("the_address_vanishes");
    }
    ip("link set lo up");
    ip("address add 10.77.0.1/32 dev lo");
    let (gone, back) = ("address del 10.77.0.1/32 dev lo", "address add 10.77.0.1/32 dev lo");
    an_interface_goes_and_comes("10.77.0.1", &[gone], &[back]);
}

/// The carrier is lost, as by a pulled cable.
#[test]
fn carrier_loss_at_the_cable_end_is_recovered() {
    if !is_inside() {
        return inside("carrier_loss_at_the_cable_end_is_recovered");
    }
    ip("link set lo up");
    ip("link add west type veth peer name east");
    ip("link set west up");
    ip("link set east up");
    ip("address add 10.77.1.1/24 dev west");
    an_interface_goes_and_comes("10.77.1.1", &["link set east down"], &["link set east up"]);
}

/// Other interfaces are none of its concern.
#[test]
fn others_come_and_go() {
    if !is_inside() {
        return inside("others_come_and_go");
    }
    ip("link set lo up");
    let mut cluster = cluster("127.0.0.1");
    cluster.join(0, 1);
    ip("link add west type veth peer name east");
    ip("link set west up");
    ip("address add 10.77.1.1/24 dev west");
    ip("link delete west");
    cluster.ping(0, 1, 1);
    // All messages were taken.
    cluster.until(|hosts| hosts.iter().all(|host| !host.rail.interfaces_changed));
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}
