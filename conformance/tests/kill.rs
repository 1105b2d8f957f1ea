//! A rank that dies by SIGKILL in the middle of an exchange: reported by name, with all that was tried (F-9),
//! survived, nothing left behind.
//!
//! The launcher itself judges that (`exchange --kill-rank`) and exits with 0 only if exactly this happened.

use std::process::Command;

fn kill(rank: u32, round: u32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerail"));
    for name in ["PMI_FD", "PMI_PORT", "PMI_SIZE", "PMI_RANK"] {
        command.env_remove(name);
    }
    let (rank_text, round_text) = (rank.to_string(), round.to_string());
    let arguments = ["exchange", "--quick", "--kill-rank", &rank_text, "--after-round", &round_text];
    let output = command.args(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{stderr}");
    let host = if rank < 2 { "host0" } else { "host1" };
    for survivor in (0..4).filter(|&other| other != rank) {
        let printed = format!("rank {survivor} reports: rank {rank} ({host}, pid ");
        let line = stderr.lines().find(|line| line.starts_with(&printed));
        let line = line.unwrap_or_else(|| panic!("{printed:?} is not in\n{stderr}"));
        let (_, tried) = line.split_once("; connections that failed: ").unwrap_or_else(|| panic!("{line:?}"));
        let rails: &[_] = if rank / 2 == survivor / 2 { &["shm"] } else { &["tcp:127.0.0.1", "tcp:127.0.0.2"] };
        let mut parts = tried.split(", ");
        for rail in rails {
            let (failed, of) =
                parts.next().and_then(|part| part.split_once(" over ")).unwrap_or_else(|| panic!("{line:?}"));
            assert!(of == *rail && failed.parse().is_ok_and(|failed: u32| failed > 0), "{line:?}");
        }
        assert_eq!(parts.next(), None, "{line:?}");
    }
    assert!(stdout.contains("PEER LOST"), "{stdout}");
}

#[test]
fn a_rank_dies_between_posted_messages() {
    kill(1, 5);
}

#[test]
fn the_reporting_rank_dies_among_unexpected_messages() {
    kill(0, 17);
}

#[test]
fn a_rank_of_the_other_host_dies_among_one_sided_accesses() {
    kill(3, 45);
}

#[test]
fn a_round_that_does_not_exist_is_wrong_use() {
    let arguments = ["exchange", "--quick", "--kill-rank", "9", "--after-round", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_rerail")).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    // The launcher reports it, once, before anything starts.
    let arguments = ["exchange", "--quick", "--kill-rank", "1", "--after-round", "1000"];
    let output = Command::new(env!("CARGO_BIN_EXE_rerail")).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.starts_with("rerail: --after-round 1000: there are ") && stderr.lines().count() == 1, "{stderr}");
}
