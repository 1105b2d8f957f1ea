//! The client against a dialogue recorded with hydra, a small server, and servers that misbehave.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;
use crate::bootstrap::VALUE_BYTES_MAX;

/// One message from the client; `None`: it has left.
fn message(stream: &mut impl Read) -> Option<String> {
    let mut digits = [0; LENGTH_BYTES];
    stream.read_exact(&mut digits).ok()?;
    let mut text = vec![0; std::str::from_utf8(&digits).unwrap().trim().parse().unwrap()];
    stream.read_exact(&mut text).unwrap();
    Some(String::from_utf8(text).unwrap())
}

fn answer(stream: &mut impl Write, text: &str) {
    write!(stream, "{:6}{text}", text.len()).unwrap();
}

/// Serves one client as rank 3 of 5, with a board of its own; returns what is on it, and the last message.
fn serve(mut stream: UnixStream) -> thread::JoinHandle<(HashMap<String, String>, String)> {
    thread::spawn(move || {
        let (mut values, mut last) = (HashMap::new(), String::new());
        let mut line = [0; 40];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(line, *b"cmd=init pmi_version=2 pmi_subversion=0\n");
        stream.write_all(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n").unwrap();
        while let Some(text) = message(&mut stream) {
            let line = Line::parse_pairs(text.as_bytes()).unwrap();
            let get = |name| line.get(name).unwrap().to_string();
            last = text;
            let text = match line.cmd() {
                "fullinit" => {
                    assert_eq!(
                        (get("pmijobid"), get("pmirank"), get("threaded")),
                        ("a;b".into(), "3".into(), "FALSE".into())
                    );
                    "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=3;size=5;appnum=0;debugged=FALSE;rc=0;"
                        .into()
                }
                "job-getid" => "cmd=job-getid-response;jobid=a;;b;rc=0;".into(),
                "kvs-put" => {
                    assert!(get("key").len() < 64 && get("value").len() < 1024);
                    assert_eq!(values.insert(get("key"), get("value")), None);
                    "cmd=kvs-put-response;rc=0;".into()
                }
                "kvs-get" => match values.get(&get("key")) {
                    Some(value) => format!("cmd=kvs-get-response;found=TRUE;value={value};rc=0;"),
                    None => "cmd=kvs-get-response;found=FALSE;rc=0;".into(),
                },
                "kvs-fence" => "cmd=kvs-fence-response;rc=0;".into(),
                "finalize" => "cmd=finalize-response;rc=0;".into(),
                "abort" => continue,
                other => panic!("{other}"),
            };
            answer(&mut stream, &text);
        }
        (values, last)
    })
}

/// The server's values, and the client's last message.
type Served = (HashMap<String, String>, String);

fn served() -> (Pmi2, thread::JoinHandle<Served>) {
    let (client, server) = UnixStream::pair().unwrap();
    let server = serve(server);
    (Pmi2::join(client.into(), 3, 5, "a;b").unwrap(), server)
}

#[test]
fn values_of_every_length_around_a_piece_come_back() {
    let (mut boot, server) = served();
    assert_eq!((boot.rank(), boot.size(), boot.job_name()), (3, 5, "a;b"));
    for length in (985..1005).chain(1980..2010).chain([0, 1, VALUE_BYTES_MAX]) {
        let (key, value) = (format!("k{length}"), "x".repeat(length));
        boot.put(&key, &value).unwrap();
        assert_eq!(boot.get(3, &key).unwrap(), Some(value), "{length}");
    }
    boot.put("strange", "a=b;c\nd;;").unwrap();
    boot.fence().unwrap();
    assert_eq!(boot.get(3, "strange").unwrap().as_deref(), Some("a=b;c\nd;;"));
    assert_eq!(boot.get(4, "absent").unwrap(), None);
    boot.barrier(None, &mut || ()).unwrap();
    boot.finalize().unwrap();
    assert!(matches!(boot.fence(), Err(BootError::Over)));
    drop(boot);
    let (values, _) = server.join().unwrap();
    assert_eq!(values["strange.3"], "1:a%3Db%3Bc%0Ad%3B%3B");
}

#[test]
fn an_abort_is_one_message_with_the_reason() {
    let (mut boot, server) = served();
    boot.abort("no rail;cmd=finalize");
    boot.abort("once is enough");
    assert!(matches!(boot.put("k", "v"), Err(BootError::Over)));
    drop(boot);
    assert_eq!(server.join().unwrap().1, "cmd=abort;isworld=TRUE;msg=no%20rail%3Bcmd%3Dfinalize;");
}

/// The client's error for a launcher that answers like this: the line, then messages.
fn join_error(line: &str, messages: &[u8]) -> String {
    let (client, mut server) = UnixStream::pair().unwrap();
    server.write_all(line.as_bytes()).unwrap();
    // The client takes the line alone.
    let messages = messages.to_vec();
    let server = thread::spawn(move || {
        let mut request = [0; 40];
        server.read_exact(&mut request).unwrap();
        message(&mut server);
        server.write_all(&messages).unwrap();
        server
    });
    let error = Pmi2::join(client.into(), 0, 2, "job").unwrap_err().to_string();
    let _ = server.join().unwrap();
    error
}

#[test]
fn malformed_answers_are_errors_that_quote_them() {
    const LINE: &str = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
    let cases: [(&[u8], &str); 9] = [
        (b"hello!", "no length of a message in answer \"hello!\""),
        (b"999999", "no length of a message"),
        (b"     5hello", "\"hello\" without '=' in answer \"hello\""),
        (b"     4a=b;", "no cmd in answer \"a=b;\""),
        (b"     8cmd=a\x1b;c", "control character 0x1b"),
        (b"    26cmd=kvs-put-response;rc=0;", "cmd=fullinit-response expected"),
        (b"    32cmd=fullinit-response;rc=zero;;;;", "rc is no number"),
        (b"    52cmd=fullinit-response;rc=14;errmsg=too late;;again;   ", "refused with 14 (too late;again)"),
        (b"    39cmd=fullinit-response;rank=2;size=2;   ", "rank 2 is not in a job of 2"),
    ];
    for (messages, expected) in cases {
        let error = join_error(LINE, messages);
        assert!(error.contains(expected), "{error}\n{expected}");
    }
    for (line, expected) in [
        ("cmd=response_to_init rc=0 pmi_version=1\n", "PMI version 2 expected, not 1"),
        ("cmd=init\n", "cmd=response_to_init expected"),
        ("\n", "no cmd"),
    ] {
        let (client, mut server) = UnixStream::pair().unwrap();
        server.write_all(line.as_bytes()).unwrap();
        let error = Pmi2::join(client.into(), 0, 2, "job").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n{expected}");
    }
}

/// B-1: a launcher that stalls, or is gone, is an error that names the step; then the channel is over.
#[test]
fn a_stalled_or_closed_launcher_is_an_error_that_names_the_step() {
    for closes in [false, true] {
        let (client, mut server) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || {
            let mut line = [0; 40];
            server.read_exact(&mut line).unwrap();
            server.write_all(b"cmd=response_to_init rc=0 pmi_version=2\n").unwrap();
            message(&mut server);
            answer(&mut server, "cmd=fullinit-response;rank=0;size=2;rc=0;");
            message(&mut server);
            answer(&mut server, "cmd=job-getid-response;jobid=job;rc=0;");
            message(&mut server);
            (!closes).then_some(server)
        });
        let mut boot = Pmi2::join(client.into(), 0, 2, "job").unwrap();
        boot.limit(Some(Duration::from_millis(30)));
        let error = boot.fence().unwrap_err();
        assert!(error.to_string().starts_with("waiting for the other ranks (kvs-fence): "), "{error}");
        assert!(matches!(&error, BootError::Closed { .. }) == closes, "{error}");
        assert!(matches!(boot.get(1, "k"), Err(BootError::Over)));
        drop(thread.join());
    }
}
