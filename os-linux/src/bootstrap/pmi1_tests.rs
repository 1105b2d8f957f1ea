//! The client against recorded dialogues, a small board with any limits, and servers that misbehave.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::bootstrap::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

const HYDRA: &str = include_str!("fixtures/hydra-4.0.2.txt");
const HYDRA_PORT: &str = include_str!("fixtures/hydra-4.0.2-port.txt");

/// A stream that tests can serve.
trait Served: std::io::Read + Write + Send + 'static {}
impl<T: std::io::Read + Write + Send + 'static> Served for T {}

/// Plays the launcher's part of a dialogue: lines with `> ` are expected from the client, those with `< ` are
/// sent to it.
fn play(mut stream: impl Served, dialogue: &'static str) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in dialogue.lines().filter(|line| !line.starts_with('#')) {
            match line.split_at(2) {
                ("> ", expected) => {
                    let mut peer_text = Vec::new();
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
                        peer_text.push(byte[0]);
                    }
                    assert_eq!(String::from_utf8(peer_text).unwrap(), expected);
                }
                ("< ", answer) => writeln!(stream, "{answer}").unwrap(),
                _ => panic!("fixture line {line:?}"),
            }
        }
    })
}

fn dialogue(text: &'static str) -> (OwnedFd, thread::JoinHandle<()>) {
    let (client, server) = UnixStream::pair().unwrap();
    (client.into(), play(server, text))
}

/// The steps of the recorded client, as rank 0 of 2.
fn recorded_session(mut boot: Pmi1) {
    assert_eq!((boot.rank(), boot.size()), (0, 2));
    boot.put("card", "tcp 10.0.0.1:7;a=b").unwrap();
    boot.put("long", &"0123456789".repeat(120)).unwrap();
    boot.fence().unwrap();
    assert_eq!(boot.get(1, "card").unwrap().as_deref(), Some("tcp 10.0.0.1:7;a=b"));
    assert_eq!(boot.get(1, "long").unwrap(), Some("0123456789".repeat(120)));
    assert_eq!(boot.get(1, "absent").unwrap(), None);
    boot.fence().unwrap();
    boot.finalize().unwrap();
    assert!(matches!(boot.fence(), Err(BootError::Over)));
}

/// Not a test of its own: under a launcher it plays the recorded session, so that fixtures can be recorded
/// again (`fixtures/README`).
#[test]
fn role_recorded_session() {
    if std::env::var("RERAIL_TEST_RECORD").is_ok() {
        let boot = Pmi1::from_vars(|name| std::env::var(name).ok()).unwrap();
        if boot.rank() == 0 {
            return recorded_session(boot);
        }
        let mut boot = boot;
        boot.put("card", "tcp 10.0.0.1:7;a=b").unwrap();
        boot.put("long", &"0123456789".repeat(120)).unwrap();
        boot.fence().unwrap();
        boot.fence().unwrap();
        boot.finalize().unwrap();
    }
}

#[test]
fn a_dialogue_recorded_with_hydra() {
    let (client, server) = dialogue(HYDRA);
    recorded_session(Pmi1::join(client, 0, 2).unwrap());
    server.join().unwrap();
}

#[test]
fn a_dialogue_recorded_with_hydra_over_a_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || play(listener.accept().unwrap().0, HYDRA_PORT).join().unwrap());
    let var = |name: &str| match name {
        "PMI_PORT" => Some(port.clone()),
        "PMI_ID" => Some("0".into()),
        _ => None,
    };
    recorded_session(Pmi1::from_vars(var).unwrap());
    server.join().unwrap();
}

/// Serves one client with a board of its own; value limits as given.
fn serve(stream: UnixStream, vallen_max: usize) -> thread::JoinHandle<HashMap<String, String>> {
    thread::spawn(move || {
        let mut values = HashMap::new();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        while let Some(Ok(peer_text)) = lines.next() {
            assert!(peer_text.len() < 1024, "{} bytes", peer_text.len());
            let line = Line::parse(peer_text.as_bytes()).unwrap();
            let answer = match line.cmd() {
                "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".into(),
                "get_maxes" => format!("cmd=maxes vallen_max={vallen_max} kvsname_max=256 keylen_max=64"),
                "get_my_kvsname" => "kvsname=kvs cmd=my_kvsname".into(),
                "put" => {
                    let (key, value) = (line.get("key").unwrap(), line.get("value").unwrap());
                    assert!(key.len() < 64 && value.len() < vallen_max);
                    assert_eq!(values.insert(key.to_string(), value.to_string()), None);
                    "cmd=put_result rc=0".into()
                }
                "get" => match values.get(line.get("key").unwrap()) {
                    Some(value) => format!("cmd=get_result rc=0 value={value}"),
                    None => "cmd=get_result rc=-1 msg=no such key".into(),
                },
                "barrier_in" => "cmd=barrier_out".into(),
                "finalize" => "cmd=finalize_ack".into(),
                other => panic!("{other}"),
            };
            writeln!(stream, "{answer}").unwrap();
        }
        values
    })
}

fn with_limit(vallen_max: usize) -> (Pmi1, thread::JoinHandle<HashMap<String, String>>) {
    let (client, server) = UnixStream::pair().unwrap();
    let server = serve(server, vallen_max);
    (Pmi1::join(client.into(), 3, 4_000_000_000).unwrap(), server)
}

#[test]
fn values_of_every_length_around_a_piece_come_back() {
    let (mut boot, server) = with_limit(64);
    let key = "k".repeat(KEY_BYTES_MAX - 5);
    for length in (50..70).chain(110..130).chain([0, 1, 10_000, VALUE_BYTES_MAX]) {
        let key = format!("{key}{length:05}");
        boot.put(&key, &"x".repeat(length)).unwrap();
        assert_eq!(boot.get(3, &key).unwrap(), Some("x".repeat(length)), "{length}");
    }
    boot.put("euros", &"\u{20ac}".repeat(VALUE_BYTES_MAX / 3)).unwrap();
    assert_eq!(boot.get(3, "euros").unwrap(), Some("\u{20ac}".repeat(VALUE_BYTES_MAX / 3)));
    drop(boot);
    assert!(server.join().unwrap().len() > 1000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_stored_value_is_read_back(value in "\\PC{0,300}", vallen_max in 33_usize..2000) {
        let (mut boot, _server) = with_limit(vallen_max);
        boot.put("key", &value).unwrap();
        boot.fence().unwrap();
        prop_assert_eq!(boot.get(3, "key").unwrap(), Some(value));
    }
}

#[test]
fn oversize_values_and_strange_keys_never_reach_the_wire() {
    let (mut boot, server) = with_limit(1024);
    let error = boot.put("k", &"v".repeat(VALUE_BYTES_MAX + 1)).unwrap_err();
    assert!(matches!(error, BootError::ValueTooLong { .. }), "{error}");
    assert!(matches!(boot.put("a b", "v"), Err(BootError::Key { .. })));
    boot.put("k", "v").unwrap();
    assert!(matches!(boot.put("k", "w"), Err(BootError::DuplicateKey { .. })));
    assert!(matches!(boot.get(4_000_000_000, "k"), Err(BootError::Rank { .. })));
    drop(boot);
    assert_eq!(server.join().unwrap(), HashMap::from([("k.3".to_string(), "1:v".to_string())]));
}

#[test]
fn limits_too_small_to_work_with_are_named() {
    let cases = [
        ("kvsname_max=256 keylen_max=32 vallen_max=1024", "keylen_max is 32, at least 50"),
        ("kvsname_max=256 keylen_max=64 vallen_max=8", "vallen_max is 8, at least 33"),
        ("kvsname_max=256 keylen_max=64 vallen_max=-1", "vallen_max is 0, at least 33"),
        ("kvsname_max=256 keylen_max=64", "no vallen_max"),
    ];
    for (maxes, expected) in cases {
        let (client, mut server) = UnixStream::pair().unwrap();
        writeln!(server, "cmd=response_to_init pmi_version=1 rc=0\ncmd=maxes {maxes}").unwrap();
        let error = Pmi1::join(client.into(), 0, 1).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// The client's error for a launcher that answers its first request like this.
fn first_answer(answer: &[u8]) -> BootError {
    let (client, mut server) = UnixStream::pair().unwrap();
    server.write_all(answer).unwrap();
    server.shutdown(std::net::Shutdown::Write).unwrap();
    Pmi1::join(client.into(), 0, 1).unwrap_err()
}

#[test]
fn malformed_answers_are_errors_that_quote_them() {
    let cases: [(&[u8], &str); 8] = [
        (b"hello\n", "\"hello\" without '=' in answer \"hello\""),
        (b"\n", "no cmd in answer \"\""),
        (b"cmd=maxes\n", "cmd=response_to_init expected in answer \"cmd=maxes\""),
        (b"cmd=response_to_init rc=0\n", "no pmi_version"),
        (b"cmd=response_to_init rc=zero pmi_version=1\n", "rc is no number"),
        (b"cmd=response_to_init rc=0 pmi_version=2\n", "PMI version 1 expected, not 2"),
        (b"cmd=response_to_init rc=-1 msg=too late\n", "refused with -1 (too late)"),
        (b"cmd=\x1b[2J\n", "in answer \"cmd=?[2J\""),
    ];
    for (answer, expected) in cases {
        let error = first_answer(answer).to_string();
        assert!(error.contains(expected), "{error}\n{expected}");
    }
}

#[test]
fn possible_job_key_is_not_quoted_in_errors() {
    let error = first_answer(b"cmd=get_result msg=success value=0123456789abcdef\n").to_string();
    assert!(error.contains("value=") && !error.contains("0123"), "{error}");
}

#[test]
fn a_closed_channel_and_an_endless_line_are_errors() {
    assert!(matches!(first_answer(b""), BootError::Closed { .. }));
    assert!(matches!(first_answer(b"cmd=response_to_init"), BootError::Closed { .. }));
    let error = first_answer(&[b'x'; 20_000]);
    assert!(error.to_string().contains("no end of line"), "{error}");
    assert!(error.to_string().len() < 400, "{error}");
}

#[test]
fn closed_launcher_socket_is_an_error_without_a_signal() {
    let (client, server) = UnixStream::pair().unwrap();
    drop(server);
    assert!(matches!(Pmi1::join(client.into(), 0, 1), Err(BootError::Closed { .. })));
}

#[test]
fn damaged_values_are_errors_that_name_rank_and_key() {
    for (stored, why) in [
        ("plain", "no number of pieces"),
        ("x:plain", "bad number of pieces"),
        ("70000:plain", "bad number of pieces"),
        ("2:plain", "a piece is missing"),
        ("1:100%", "'%' without two hexadecimal digits"),
        ("1:%FF", "not UTF-8"),
    ] {
        let (mut boot, _server) = with_limit(1024);
        boot.put_piece("k.9", stored).unwrap();
        let error = boot.get(9, "k").unwrap_err();
        assert_eq!(error.to_string(), format!("value of \"k\" of rank 9: {why}"));
    }
}

#[test]
fn a_non_blocking_descriptor_works_too() {
    let (client, server) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    let server = serve(server, 1024);
    let mut boot = Pmi1::join(client.into(), 0, 1).unwrap();
    boot.put("k", "v").unwrap();
    boot.finalize().unwrap();
    drop(boot);
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn a_bad_environment_names_the_variable() {
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[("PMI_FD", "six")], "PMI_FD=\"six\""),
        (&[("PMI_FD", "-1")], "PMI_FD=\"-1\""),
        (&[("PMI_FD", "0"), ("PMI_SIZE", "2")], "PMI_RANK is not"),
        (&[("PMI_FD", "0"), ("PMI_RANK", "1")], "PMI_SIZE is not"),
        (&[("PMI_FD", "1048570"), ("PMI_SIZE", "2"), ("PMI_RANK", "0")], "PMI_FD=\"1048570\""),
        (&[("PMI_PORT", "127.0.0.1:1")], "PMI_ID is not"),
        (&[], "PMI_PORT is not"),
    ];
    for (vars, expected) in cases {
        let var = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        let error = Pmi1::from_vars(var).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let (client, _server) = UnixStream::pair().unwrap();
    assert!(matches!(Pmi1::join(client.into(), 2, 2), Err(BootError::Rank { rank: 2, size: 2 })));
}

#[test]
fn an_introduction_that_never_ends_or_lacks_something_is_an_error() {
    let join_kvs = |answers: &str| {
        let (client, mut server) = UnixStream::pair().unwrap();
        server.write_all(answers.as_bytes()).unwrap();
        Pmi1::join_by_id(client.into(), 0).unwrap_err().to_string()
    };
    assert!(join_kvs("cmd=initack\ncmd=set size=1\ncmd=set debug=0\n").contains("neither rank nor size"));
    assert!(join_kvs("cmd=initack\ncmd=set size=x\n").contains("size is no number"));
    assert!(join_kvs("cmd=initack\ncmd=get\n").contains("cmd=set expected"));
    let many = "cmd=set color=1\n".repeat(20);
    assert!(join_kvs(&format!("cmd=initack\n{many}")).contains("neither rank nor size"));
}

#[test]
fn an_abort_is_one_line_with_the_reason() {
    let (client, server) = UnixStream::pair().unwrap();
    let mut answers = server.try_clone().unwrap();
    writeln!(answers, "cmd=response_to_init pmi_version=1 rc=0").unwrap();
    writeln!(answers, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024").unwrap();
    writeln!(answers, "cmd=my_kvsname kvsname=kvs").unwrap();
    let mut boot = Pmi1::join(client.into(), 0, 1).unwrap();
    boot.abort("no rail\ncmd=finalize");
    boot.abort("once is enough");
    drop(boot);
    let peer_text: Vec<String> = BufReader::new(server).lines().map_while(Result::ok).collect();
    assert_eq!(peer_text.len(), 4);
    assert_eq!(peer_text[3], "cmd=abort exitcode=1 message=no%20rail%0Acmd%3Dfinalize");
}

/// A session's steps, each under the name that its errors have.
const STEPS: [&str; 7] = [
    "joining (init)",
    "asking for limits (get_maxes)",
    "asking for the job's name (get_my_kvsname)",
    "publishing (put)",
    "waiting for the other ranks (barrier)",
    "reading (get)",
    "leaving (finalize)",
];

/// A session over a channel; the error with which it ends.
fn session_error(client: OwnedFd, answer_max: Duration) -> BootError {
    let session = || {
        let mut boot = Pmi1::enter(Channel::new(client.try_clone().unwrap(), Some(answer_max)), 0, 1)?;
        boot.put("k", "v")?;
        boot.fence()?;
        boot.get(0, "k")?;
        boot.finalize()
    };
    session().unwrap_err()
}

/// Answers so many requests, each correctly.
fn answer(server: &mut UnixStream, count: usize) {
    let answers = [
        "cmd=response_to_init pmi_version=1 rc=0",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
        "cmd=my_kvsname kvsname=kvs",
        "cmd=put_result rc=0",
        "cmd=barrier_out rc=0",
        "cmd=get_result rc=0 value=1:v",
        "cmd=finalize_ack",
    ];
    answers.iter().take(count).for_each(|answer| writeln!(server, "{answer}").unwrap());
}

/// B-1: at every step a launcher that stalls, or is gone, is an error that names the step.
#[test]
fn stalled_or_closed_launcher_error_names_the_step() {
    for (answered, step) in STEPS.into_iter().enumerate() {
        for stalls in [true, false] {
            let (client, mut server) = UnixStream::pair().unwrap();
            answer(&mut server, answered);
            if !stalls {
                server.shutdown(std::net::Shutdown::Write).unwrap();
            }
            // The one that goes may take its time.
            let error = session_error(client.into(), Duration::from_millis(if stalls { 20 } else { 60_000 }));
            match error {
                BootError::Timeout { doing, waited_ms: 20 } if stalls => assert_eq!(doing, step),
                BootError::Closed { doing } if !stalls => assert_eq!(doing, step),
                other => panic!("at {step}: {other}"),
            }
            drop(server);
        }
    }
}

/// B-1: a reset is the channel's end as well.
#[test]
fn a_connection_that_is_reset_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
    drop(server);
    let error = Pmi1::join(client.into(), 0, 1).unwrap_err();
    assert!(matches!(error, BootError::Closed { doing: "joining (init)" }), "{error}");
}

/// B-1: an answer that comes too late is not taken for that of a later request.
#[test]
fn after_a_late_reply_only_an_abort_is_sent() {
    let (client, mut server) = UnixStream::pair().unwrap();
    answer(&mut server, 3);
    let mut boot = Pmi1::join(client.into(), 0, 2).unwrap();
    boot.limit(Some(Duration::from_millis(20)));
    assert!(matches!(boot.fence(), Err(BootError::Timeout { waited_ms: 20, .. })));
    writeln!(server, "cmd=barrier_out").unwrap();
    for later in [boot.fence(), boot.put("k", "v"), boot.get(0, "k").map(drop), boot.finalize()] {
        assert!(matches!(later, Err(BootError::Over)), "{later:?}");
    }
    boot.abort("the launcher does not answer");
    drop(boot);
    let peer_text: Vec<String> = BufReader::new(server).lines().map_while(Result::ok).collect();
    let commands: Vec<&str> = peer_text.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(commands, ["cmd=init", "cmd=get_maxes", "cmd=get_my_kvsname", "cmd=barrier_in", "cmd=abort"]);
}

/// B-1: a malformed answer is none, and the next one could belong to any request.
#[test]
fn after_a_malformed_reply_no_request_is_sent() {
    type Call = fn(&mut Pmi1) -> Result<(), BootError>;
    let cases: [(&str, Call); 3] = [
        ("cmd=put_result rc=fine", |boot| boot.put("k", "v")),
        ("cmd=get_result rc=fine value=v", |boot| boot.get(0, "k").map(drop)),
        ("cmd=get_result rc=0", |boot| boot.get(0, "k").map(drop)),
    ];
    for (peer_text, call) in cases {
        let (client, mut server) = UnixStream::pair().unwrap();
        answer(&mut server, 3);
        let mut boot = Pmi1::join(client.into(), 0, 2).unwrap();
        writeln!(server, "{peer_text}").unwrap();
        let error = call(&mut boot).unwrap_err();
        assert!(matches!(error, BootError::Protocol { .. }), "{peer_text}: {error}");
        assert!(matches!(boot.fence(), Err(BootError::Over)), "{peer_text}");
    }
}

/// B-1: a process that was delayed finds the answer that came meanwhile.
#[test]
fn an_answer_that_is_there_is_in_time() {
    let (client, mut server) = UnixStream::pair().unwrap();
    answer(&mut server, 3);
    let mut boot = Pmi1::join(client.into(), 0, 2).unwrap();
    boot.limit(Some(Duration::ZERO));
    writeln!(server, "cmd=barrier_out").unwrap();
    boot.fence().unwrap();
}

/// B-1: the limit is the user's, from the first word on.
#[test]
fn launcher_timeout_is_read_from_the_environment() {
    // Accepted by the kernel only.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let join = |limit: &str| {
        let var = |name: &str| match name {
            "PMI_PORT" => Some(port.clone()),
            "PMI_ID" => Some("0".into()),
            TIMEOUT_VARIABLE => Some(limit.into()),
            _ => None,
        };
        Pmi1::from_vars(var).unwrap_err()
    };
    let error = join("500ms");
    assert!(matches!(error, BootError::Timeout { doing: "introduction (initack)", waited_ms: 500 }), "{error}");
    for limit in ["soon", "20"] {
        let error = join(limit).to_string();
        assert!(error.contains(TIMEOUT_VARIABLE) && error.contains(limit), "{error}");
    }
    assert_eq!(limit_of("0").unwrap(), None);
    assert_eq!(limit_of("90s").unwrap(), Some(Duration::from_secs(90)));
}
