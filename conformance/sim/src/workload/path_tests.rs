//! Rails over several LMC paths of one port.

use super::run_checked;
use crate::check::Verdict;
use crate::scenario::Scenario;
use crate::trace::Trace;

/// MB/s of large messages between two hosts whose HCAs have one port with two paths, each through a plane of
/// its own of 200 MB/s; one rail for each path listed.
fn bandwidth(paths: &[u8]) -> f64 {
    let rails: String = paths.iter().map(|path| format!("[[rails]]\nkind = \"hca\"\npath = {path}\n")).collect();
    let text = format!(
        "config = {{ striping = \"even\" }}\n[[hcas]]\ndevice = \"connectx\"\nlmc = 1\n{rails}\n\
         [[subnets]]\nplanes = [{{ bytes_per_second = 200000000 }}, {{ bytes_per_second = 200000000 }}]\n\
         [workload]\nname = \"bandwidth\"\nparameters = {{ bytes = [1048576], window = 8, windows = 2 }}\n"
    );
    let scenario = Scenario::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
    let (verdict, _, measured) = run_checked(&scenario, 1, Trace::off());
    assert_eq!(verdict, Verdict::Clean, "{text}");
    measured[0].value
}

/// V-10
#[test]
fn rails_of_two_paths_take_two_planes() {
    for path in [0, 1] {
        let one = bandwidth(&[path]);
        assert!((150.0..200.0).contains(&one), "path {path}: {one}");
        // Two rails of one path share its plane.
        let same = bandwidth(&[path, path]);
        assert!((same / one - 1.0).abs() < 0.05, "path {path} twice: {same}");
    }
    let (one, both) = (bandwidth(&[0]), bandwidth(&[0, 1]));
    assert!(both > 1.9 * one, "{one} {both}");
}

#[test]
fn number_of_port_paths_follows_the_lmc() {
    let parse = |path: u8| {
        let text = format!("[[hcas]]\ndevice = \"connectx\"\nlmc = 2\n[[rails]]\nkind = \"hca\"\npath = {path}\n");
        Scenario::parse("test", &text).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(parse(3), Ok(()));
    let error = parse(4).unwrap_err();
    assert!(error.contains("rails[0].path = 4: with lmc 2, ports have 4 paths"), "{error}");
}
