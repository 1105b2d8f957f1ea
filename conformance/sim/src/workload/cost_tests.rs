//! The processor costs of a scenario appear in what its workloads measure.

use super::run_checked;
use crate::check::Verdict;
use crate::scenario::Scenario;
use crate::trace::Trace;

/// The first value that a workload measures in a simulation of this text.
fn measured(cluster: &str, workload: &str, parameters: &str) -> f64 {
    let text = format!("{cluster}\n[workload]\nname = \"{workload}\"\nparameters = {{ {parameters} }}\n");
    let scenario = Scenario::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
    let (verdict, _, measured) = run_checked(&scenario, 1, Trace::off());
    assert_eq!(verdict, Verdict::Clean, "{text}");
    measured[0].value
}

/// Half a round trip of small messages in nanoseconds, over so many HCAs, each with `more`.
fn latency_ns(hcas: usize, more: &str) -> f64 {
    let cluster = format!("[[hcas]]\ndevice = \"connectx\"\n{more}\n").repeat(hcas);
    1000.0 * measured(&cluster, "ping-pong", "bytes = [8]")
}

#[test]
fn every_rail_makes_polling_dearer() {
    let [one, two] = [1, 2].map(|hcas| latency_ns(hcas, "cost = { poll_ns = 400 }") - latency_ns(hcas, ""));
    // The round that finds the message pays; now and then one before it, in which it came, holds it up.
    assert!((400.0..600.0).contains(&one), "{one}");
    assert!((800.0..1_200.0).contains(&two), "{two}");
}

#[test]
fn a_far_device_is_slower_to_reach_and_to_feed() {
    let far = latency_ns(1, "numa = { latency_ns = 150 }") - latency_ns(1, "");
    assert!((299.0..301.0).contains(&far), "both ends are far: {far}");
    let bandwidth = |more: &str| {
        let cluster = format!("[[hcas]]\ndevice = \"connectx\"\n{more}\n");
        measured(&cluster, "bandwidth", "window = 16, windows = 1")
    };
    let (near, far) = (bandwidth(""), bandwidth("numa = { bytes_per_second = 1000000000 }"));
    assert!(near > 1_700.0, "{near}");
    assert!((940.0..1_000.0).contains(&far), "{far}");
}

#[test]
fn posting_and_registering_delay_messages() {
    let post = latency_ns(1, "cost = { post_ns = 500 }") - latency_ns(1, "");
    assert!((499.0..520.0).contains(&post), "{post}");
    let pio = latency_ns(1, "cost = { pio_bytes_max = 256, pio_bytes_per_second = 100000000 }") - latency_ns(1, "");
    // 10 ns per byte of the message and its header, which has some tens of bytes.
    assert!((200.0..1_000.0).contains(&pio), "{pio}");
    let large = |more: &str, rounds: &str| {
        let cluster = format!("[[hcas]]\ndevice = \"connectx\"\n{more}\n");
        1000.0 * measured(&cluster, "ping-pong", &format!("bytes = [65536], {rounds}"))
    };
    let registering =
        |rounds| large("cost = { register_ns = 10000, register_page_ns = 100 }", rounds) - large("", rounds);
    // At least the one end's registration of 16 pages.
    let first = registering("rounds = 1, warm_up = 0");
    assert!(first > 11_600.0, "{first}");
    // From then on they are found.
    let later = registering("rounds = 20, warm_up = 1");
    assert!(later < 100.0, "{later}");
}

/// newmadeleine-2007, 3.2: two small messages over two rails are no faster than over one, for the processor
/// carries them over one after the other; two large ones are.
#[test]
fn two_rails_speed_up_only_large_messages() {
    let speed_up = |bytes: u64| {
        let hca = "[[hcas]]\ndevice = \"connectx\"\nlink_bytes_per_second = 1000000000\n\
                   cost = { pio_bytes_max = 4096, pio_bytes_per_second = 500000000 }\n";
        let rate = |hcas: usize| {
            let cluster = format!("config = {{ multiplex = \"round-robin\" }}\n{}", hca.repeat(hcas));
            measured(&cluster, "bandwidth", &format!("bytes = [{bytes}], window = 16, windows = 4"))
        };
        rate(2) / rate(1)
    };
    let (small, large) = (speed_up(3_500), speed_up(7_500));
    assert!((0.95..1.25).contains(&small), "{small}");
    assert!(large > 1.5, "{large}");
}

#[test]
fn ethernet_device_accepts_poll_cost_only() {
    let parse =
        |cost: &str| Scenario::parse("here", &format!("[[hcas]]\ndevice = \"ethernet-10g\"\ncost = {{ {cost} }}"));
    assert!(parse("poll_ns = 3").is_ok());
    let error = parse("post_ns = 3").expect_err("posts of streams").to_string();
    assert!(error.contains("hcas[0].cost") && error.contains("poll_ns"), "{error}");
}
