//! The tool over IPv6. On a machine without it, the tool must report which address it can't have (exit code
//! 2).

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;

fn rerail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerail"));
    // A launcher around the tests is none of the tool's business.
    for name in ["PMI_FD", "PMI_PORT", "PMI_SIZE", "PMI_RANK", "RERAIL_KEY"] {
        command.env_remove(name);
    }
    command.env("RERAIL_TCP_INTERFACES", "::1");
    command
}

fn is_here() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

#[test]
fn ranks_exchange_messages_of_all_kinds() {
    let output = rerail().args(["-n", "3", "--hosts", "3", "--quick", "--json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if !is_here() {
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("[::1]:0"), "{errors}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.to_string().contains("tcp:::1"), "{report}");
}

#[test]
fn file_is_copied_between_two_processes_over_ipv6() {
    let folder = std::env::temp_dir().join(format!("rerail-ipv6-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (from, to) = (folder.join("file"), folder.join("copy"));
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
    std::fs::write(&from, &content).unwrap();
    let mut receiver = rerail();
    receiver.args(["recv", "--listen", "[::1]:0", "--once", "--out"]).arg(&to).env("RERAIL_HOST_ID", "receiver");
    let mut receiver = receiver.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(receiver.stderr.take().unwrap()).lines();
    let mut after = |start: &str| {
        let line = lines.next().unwrap().unwrap();
        line.strip_prefix(start).map(str::to_owned)
    };
    match after("listening on ") {
        None => assert!(!is_here() && receiver.wait().unwrap().code() == Some(2)),
        Some(address) => {
            let key = after("key ").unwrap();
            assert!(address.starts_with("[::1]:"), "{address}");
            let sent = rerail().args(["send", "--to", &address]).env("RERAIL_KEY", &key).arg(&from).output().unwrap();
            assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
            assert!(lines.all(|line| line.is_ok()) && receiver.wait().unwrap().success());
            assert!(std::fs::read(&to).unwrap() == content);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
