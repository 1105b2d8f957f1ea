//! A file between two processes, as a user copies it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A folder of a test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("rerail-filecopy-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// A file of pseudorandom bytes.
    fn file(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.0.join(name);
        let mut state = 1_u64;
        let content: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(bytes)
        .collect();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn rerail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerail"));
    // A launcher around the tests is none of the tool's business.
    for name in ["PMI_FD", "PMI_PORT", "PMI_SIZE", "PMI_RANK", "RERAIL_KEY"] {
        command.env_remove(name);
    }
    command
}

/// A receiver that listens: its process, where it listens, its key, and the rest of its messages.
struct Receiver {
    child: Child,
    address: String,
    key: String,
    messages: BufReader<std::process::ChildStderr>,
}

impl Receiver {
    fn start(out: &Path, more: &[&str]) -> Receiver {
        let mut command = rerail();
        command.args(["recv", "--listen", "127.0.0.1:0", "--once", "--json", "--interfaces", "127.0.0.1,127.0.0.2"]);
        command.arg("--out").arg(out).args(more).env("RERAIL_HOST_ID", "receiver");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        let mut after = |start: &str| {
            let mut line = String::new();
            messages.read_line(&mut line).unwrap();
            let rest = line.trim_end().strip_prefix(start).unwrap_or_else(|| panic!("{start:?} expected: {line:?}"));
            rest.to_owned()
        };
        let (address, key) = (after("listening on "), after("key "));
        assert_eq!(after("RERAIL_KEY="), format!("{key} rerail send FILE --to {address}"));
        Receiver { child, address, key, messages }
    }

    fn end(mut self) -> (Option<i32>, Value, String) {
        let mut text = String::new();
        self.messages.read_to_string(&mut text).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), text)
    }
}

fn send(file: &Path, address: &str, key: &str) -> Output {
    let mut command = rerail();
    command.arg("send").arg(file).args(["--to", address, "--json", "--interfaces", "127.0.0.1,127.0.0.2"]);
    // What is measured of two rails on a busy machine is anything: both are to carry.
    command.env("RERAIL_POLICY", "even");
    command.env("RERAIL_HOST_ID", "sender").env("RERAIL_KEY", key).output().unwrap()
}

#[test]
fn a_file_arrives_whole_over_both_rails() {
    let folder = Folder::new("whole");
    let out = folder.0.join("out");
    std::fs::create_dir(&out).unwrap();
    let source = folder.file("some data.bin", 20_000_003);
    let receiver = Receiver::start(&out, &[]);
    let sent = send(&source, &receiver.address, &receiver.key);
    let (code, received, messages) = receiver.end();
    assert_eq!((sent.status.code(), code), (Some(0), Some(0)), "{}{messages}", String::from_utf8_lossy(&sent.stderr));
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(received["bytes"], 20_000_003);
    assert_eq!(received["sha256"], sent["sha256"]);
    assert_eq!(std::fs::read(out.join("some data.bin")).unwrap(), std::fs::read(&source).unwrap());
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1, "nothing temporary is left");
    let rails = sent["rails"].as_array().unwrap();
    assert_eq!(rails.len(), 2, "{rails:?}");
    assert!(rails.iter().all(|rail| rail["bytes"].as_u64().unwrap() > 5_000_000), "{rails:?}");
}

#[test]
fn an_empty_file_is_a_file() {
    let folder = Folder::new("empty");
    let source = folder.file("source", 0);
    let receiver = Receiver::start(&folder.0.join("copy"), &[]);
    let sent = send(&source, &receiver.address, &receiver.key);
    assert_eq!((sent.status.code(), receiver.end().0), (Some(0), Some(0)));
    assert_eq!(std::fs::read(folder.0.join("copy")).unwrap(), b"");
}

#[test]
fn existing_target_is_kept_and_both_sides_report_why() {
    let folder = Folder::new("exists");
    let source = folder.file("source", 1000);
    let copy = folder.0.join("copy");
    // What exists from the start ends the receiver before it listens (`ends.rs`).
    let receiver = Receiver::start(&copy, &[]);
    std::fs::write(&copy, b"precious").unwrap();
    let sent = send(&source, &receiver.address, &receiver.key);
    let (code, _, messages) = receiver.end();
    assert_eq!((sent.status.code(), code), (Some(2), Some(2)));
    assert!(messages.contains("--force"), "{messages}");
    assert!(String::from_utf8_lossy(&sent.stderr).contains("--force"));
    assert_eq!(std::fs::read(&copy).unwrap(), b"precious");
    let receiver = Receiver::start(&copy, &["--force"]);
    let sent = send(&source, &receiver.address, &receiver.key);
    assert_eq!((sent.status.code(), receiver.end().0), (Some(0), Some(0)));
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&source).unwrap());
}

#[test]
fn a_sender_without_the_key_gets_nowhere() {
    let folder = Folder::new("key");
    let source = folder.file("source", 1000);
    let mut receiver = Receiver::start(&folder.0.join("copy"), &[]);
    let sent = send(&source, &receiver.address, &"0".repeat(64));
    assert_eq!(sent.status.code(), Some(2));
    assert!(!folder.0.join("copy").exists());
    // It still waits for the right one.
    assert_eq!(receiver.child.try_wait().unwrap(), None);
    let sent = send(&source, &receiver.address, &receiver.key);
    assert_eq!((sent.status.code(), receiver.end().0), (Some(0), Some(0)));
}

#[test]
fn a_sender_that_is_absent_or_a_file_that_is_not_one_is_wrong_use() {
    let folder = Folder::new("use");
    let key = "0".repeat(64);
    for file in [folder.0.clone(), folder.0.join("nothing")] {
        let sent = send(&file, "127.0.0.1:1", &key);
        assert_eq!(sent.status.code(), Some(2), "{}", file.display());
        assert!(String::from_utf8_lossy(&sent.stderr).contains(&*file.to_string_lossy()));
    }
}
