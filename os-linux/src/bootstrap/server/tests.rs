//! The server with real processes: this test binary starts itself, and [`role`] plays the rank's part.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::*;
use crate::bootstrap::{BootError, Bootstrap, from_env, job_key};

const ROLE: &str = "RERAIL_TEST_ROLE";

/// A job whose ranks play a part.
fn job(part: &str, ranks: u32) -> Launcher {
    let this = std::env::current_exe().unwrap();
    let args = ["--exact", "bootstrap::server::tests::role", "--nocapture", "--test-threads=1"];
    Launcher::new(this).args(args).env(ROLE, part).ranks(ranks).output(Output::Null)
}

/// Sleeps until a signal ends the process.
fn sleep_for_ever() -> ! {
    loop {
        // SAFETY: pause takes nothing and touches no memory.
        unsafe { libc::pause() };
    }
}

fn die_by(signal: i32) -> ! {
    // SAFETY: raise takes a number and touches no memory of ours.
    unsafe { libc::raise(signal) };
    sleep_for_ever()
}

fn joined() -> Box<dyn Bootstrap> {
    from_env().unwrap()
}

/// Not a test of its own: a rank's program when this binary is started by one of the tests below.
#[test]
fn role() {
    let Ok(part) = std::env::var(ROLE) else { return };
    match part.as_str() {
        "exchange" => exchange(joined().as_mut()).unwrap(),
        "rank 1 dies" => {
            let mut boot = joined();
            if boot.rank() == 1 {
                die_by(libc::SIGKILL);
            }
            boot.fence().unwrap();
            sleep_for_ever();
        }
        "rank 1 exits with 3" => {
            let mut boot = joined();
            boot.put("here", "yes").unwrap();
            if boot.rank() == 1 {
                std::process::exit(3);
            }
            boot.fence().unwrap();
            assert_eq!(boot.get(0, "here").unwrap().as_deref(), Some("yes"));
            boot.fence().unwrap();
            boot.finalize().unwrap();
        }
        "leaves without a word" => drop(joined()),
        "rank 1 aborts" => {
            let mut boot = joined();
            if boot.rank() == 1 {
                boot.abort("no rail to rank 0");
            }
            sleep_for_ever();
        }
        "joins and sleeps" => {
            let mut boot = joined();
            boot.fence().unwrap();
            println!("\nasleep");
            sleep_for_ever();
        }
        "is deaf to SIGTERM" => {
            // SAFETY: ignoring a signal installs no handler.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
            let mut boot = joined();
            boot.fence().unwrap();
            sleep_for_ever();
        }
        "talks nonsense" => {
            let fd: i32 = std::env::var("PMI_FD").unwrap().parse().unwrap();
            // SAFETY: the launcher left this descriptor to us and nothing else in this process uses it.
            let mut channel = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
            channel.write_all(b"what is this\ncmd=mcmd\n").unwrap();
            let mut answers = BufReader::new(channel.try_clone().unwrap());
            for _ in 0..2 {
                let mut answer = String::new();
                answers.read_line(&mut answer).unwrap();
                assert!(answer.starts_with("cmd=error rc=-1 "), "{answer}");
            }
            // The launcher hangs up, maybe before it has taken all of it.
            let _ = channel.write_all(&[b'x'; 9000]);
            assert!(matches!(channel.read(&mut [0; 8]), Ok(0) | Err(_)));
        }
        "looks for the key" => {
            let mut boot = joined();
            let key = hex::encode(job_key(boot.as_mut()).unwrap().key);
            for file in ["environ", "cmdline"] {
                for process in ["self", &std::os::unix::process::parent_id().to_string()] {
                    let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap();
                    assert!(!bytes.is_empty() && !String::from_utf8_lossy(&bytes).contains(&key), "{process}/{file}");
                }
            }
            boot.finalize().unwrap();
        }
        "is a launcher" => {
            let launch = job("joins and sleeps", 3).output(Output::Inherit).spawn().unwrap();
            let report = launch.wait();
            panic!("no rank was to end: {report:?}");
        }
        other => panic!("no part {other:?}"),
    }
}

/// Every rank publishes a short value, a long one and its job key for all others.
fn exchange(boot: &mut dyn Bootstrap) -> Result<(), BootError> {
    let long = |rank: u32| format!("rank {rank} = \u{20ac};\n").repeat(500);
    boot.put("short", &boot.rank().to_string())?;
    boot.put("long", &long(boot.rank()))?;
    let key = job_key(boot)?;
    boot.put("seen", &key.job_id.to_string())?;
    boot.fence()?;
    for rank in 0..boot.size() {
        assert_eq!(boot.get(rank, "short")?, Some(rank.to_string()));
        assert_eq!(boot.get(rank, "long")?, Some(long(rank)));
        assert_eq!(boot.get(rank, "seen")?, Some(key.job_id.to_string()));
    }
    assert!(boot.job_name().starts_with("rerail-"));
    boot.finalize()
}

#[test]
fn four_ranks_exchange_and_finalize() {
    let mut seen = [0; 3];
    let report = job("exchange", 4)
        .spawn()
        .unwrap()
        .wait_with(|event| match event {
            LaunchEvent::Joined { .. } => seen[0] += 1,
            LaunchEvent::Finalized { .. } => seen[1] += 1,
            LaunchEvent::Exited(end) => {
                assert_eq!((end.exit, end.phase), (Exit::Code(0), Phase::Finalized));
                seen[2] += 1;
            }
            other => panic!("{other:?}"),
        })
        .unwrap();
    assert_eq!(seen, [4; 3]);
    assert!(report.success());
    assert_eq!(report.exit_code(), 0);
    assert_eq!(report.ends.iter().map(|end| end.rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn the_jobs_key_is_in_nobodys_environment_or_arguments() {
    assert!(job("looks for the key", 2).spawn().unwrap().wait().unwrap().success());
}

#[test]
fn a_rank_that_dies_is_named_and_takes_the_others_with_it() {
    let report = job("rank 1 dies", 3).spawn().unwrap().wait().unwrap();
    assert_eq!(report.failed_first, Some(1));
    assert_eq!(report.stop, Some(Stop::RankFailed(1)));
    assert_eq!(report.exit_code(), 128 + 9);
    assert_eq!((report.ends[1].exit, report.ends[1].phase), (Exit::Signal(9), Phase::Joined));
    assert_eq!(report.failures().map(|end| end.rank).collect::<Vec<_>>(), [1]);
    for rank in [0, 2] {
        assert_eq!((report.ends[rank].exit, report.ends[rank].stopped), (Exit::Signal(15), true));
    }
}

#[test]
fn the_others_may_finish_and_wait_for_no_dead_rank() {
    let launch = job("rank 1 exits with 3", 3).on_failure(OnFailure::LetOthersFinish).spawn().unwrap();
    let report = launch.wait().unwrap();
    assert_eq!((report.stop.clone(), report.failed_first, report.exit_code()), (None, Some(1), 3));
    assert!(!report.success());
    for rank in [0, 2] {
        assert_eq!((report.ends[rank].exit, report.ends[rank].phase), (Exit::Code(0), Phase::Finalized));
    }
}

#[test]
fn an_exit_with_0_without_leaving_the_job_is_a_failure() {
    let report = job("leaves without a word", 1).spawn().unwrap().wait().unwrap();
    assert_eq!((report.ends[0].exit, report.exit_code()), (Exit::Code(0), 1));
    assert!(report.ends[0].to_string().ends_with("before it had left the job"), "{}", report.ends[0]);
}

#[test]
fn an_abort_ends_the_job_with_its_reason() {
    let report = job("rank 1 aborts", 2).on_failure(OnFailure::LetOthersFinish).spawn().unwrap().wait().unwrap();
    let message = "no rail to rank 0".to_string();
    assert_eq!(report.stop, Some(Stop::Aborted { rank: 1, code: 1, message }));
    assert!(report.ends.iter().all(|end| end.stopped && end.exit == Exit::Signal(15)));
}

/// Steps until every rank has joined.
fn wait_until_joined(launch: &mut Launch) {
    let mut joined = 0;
    while joined < launch.size() {
        launch.step_for(None).unwrap();
        while let Some(event) = launch.poll_event() {
            assert!(matches!(event, LaunchEvent::Joined { .. }), "{event:?}");
            joined += 1;
        }
    }
}

#[test]
fn a_caller_can_kill_a_rank_and_watch_without_waiting() {
    let mut launch = job("joins and sleeps", 2).on_failure(OnFailure::LetOthersFinish).spawn().unwrap();
    wait_until_joined(&mut launch);
    assert!(launch.pid(0).is_some() && launch.pid(0) != launch.pid(1) && launch.pid(2).is_none());
    launch.step().unwrap();
    assert!(!launch.is_over() && launch.end(1).is_none());
    assert!(launch.signal(1, Signal::KILL));
    while launch.end(1).is_none() {
        launch.step_for(None).unwrap();
    }
    assert_eq!(launch.end(1).unwrap().exit, Exit::Signal(9));
    assert_eq!(launch.pid(1), None);
    assert!(!launch.signal(1, Signal::KILL));
    assert!(launch.pid(0).is_some());
    launch.stop();
    let report = launch.wait().unwrap();
    assert_eq!((report.failed_first, report.stop.clone()), (Some(1), Some(Stop::EndRequested)));
    assert_eq!(report.exit_code(), 128 + 9);
}

#[test]
fn a_rank_that_is_deaf_is_killed_after_the_grace_period() {
    let grace = std::time::Duration::from_millis(5);
    let mut launch = job("is deaf to SIGTERM", 2).grace(grace).spawn().unwrap();
    wait_until_joined(&mut launch);
    launch.stop();
    let report = launch.wait().unwrap();
    assert!(report.ends.iter().all(|end| end.stopped && end.exit == Exit::Signal(9)), "{report:?}");
}

#[test]
fn a_second_request_to_stop_does_not_wait_for_the_grace_period() {
    let grace = std::time::Duration::MAX;
    let mut launch = job("is deaf to SIGTERM", 1).grace(grace).spawn().unwrap();
    wait_until_joined(&mut launch);
    launch.stop();
    launch.stop();
    assert_eq!(launch.wait().unwrap().ends[0].exit, Exit::Signal(9));
}

#[test]
fn a_signal_to_the_launcher_ends_the_ranks() {
    let mut launch = job("joins and sleeps", 2).catch_signals(true).spawn().unwrap();
    wait_until_joined(&mut launch);
    // SAFETY: raise takes a number; the signal goes to this thread, which has it blocked.
    unsafe { libc::raise(libc::SIGINT) };
    let report = launch.wait().unwrap();
    assert_eq!((report.stop.clone(), report.exit_code()), (Some(Stop::Signal(libc::SIGINT)), 130));
    // The ranks started with the mask from before: SIGTERM reached them.
    assert!(report.ends.iter().all(|end| end.exit == Exit::Signal(15)));
}

#[test]
fn killed_launcher_leaves_no_processes() {
    let this = std::env::current_exe().unwrap();
    let mut launcher = Command::new(this)
        .args(["--exact", "bootstrap::server::tests::role", "--nocapture", "--test-threads=1"])
        .env(ROLE, "is a launcher")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The ranks hold the pipe's writing end too, so its end comes when the last of them is dead.
    let mut pipe = launcher.stdout.take().unwrap();
    let mut peer_text = Vec::new();
    let mut killed = false;
    loop {
        let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&pipe.as_fd(), PollFlags::IN)], Some(&minute)).unwrap();
        assert_ne!(ready, 0, "silence, killed: {killed}, output: {}", String::from_utf8_lossy(&peer_text));
        let mut bytes = [0; 512];
        match pipe.read(&mut bytes).unwrap() {
            0 => break,
            count => peer_text.extend_from_slice(&bytes[..count]),
        }
        // Only a rank that is past its fence does not need its channel: it dies of the signal or not.
        if !killed && peer_text.windows(7).filter(|window| window == b"\nasleep").count() == 3 {
            launcher.kill().unwrap();
            killed = true;
        }
    }
    assert!(killed, "{}", String::from_utf8_lossy(&peer_text));
    assert_eq!(Exit::from_status(launcher.wait().unwrap()), Exit::Signal(9));
}

#[test]
fn dropping_a_launch_leaves_no_processes() {
    let mut launch = job("joins and sleeps", 2).spawn().unwrap();
    wait_until_joined(&mut launch);
    let pids = [launch.pid(0).unwrap(), launch.pid(1).unwrap()];
    drop(launch);
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        assert_eq!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH));
    }
}

#[test]
fn invalid_requests_are_reported_and_an_endless_line_is_cut() {
    let mut why = Vec::new();
    let report = job("talks nonsense", 1)
        .spawn()
        .unwrap()
        .wait_with(|event| {
            if let LaunchEvent::Malformed { rank: 0, why: text } = event {
                why.push(text);
            }
        })
        .unwrap();
    assert_eq!(why, ["\"what\" without '='", "unknown command \"mcmd\"", "line without end"]);
    assert_eq!(report.ends[0].exit, Exit::Code(0));
}

#[test]
fn programs_without_pmi_get_their_variables_and_their_lines_come_by_rank() {
    let script = "echo $PMI_RANK/$PMI_SIZE $COLOUR ${PMI_PORT-unset} $1; echo bad >&2; printf end; exit $PMI_RANK";
    let launcher = Launcher::new("sh")
        .args(["-c", script, "sh", "an argument"])
        .ranks(2)
        .env("COLOUR", "red")
        .env("PMI_PORT", "outer:1")
        .rank_env(1, "COLOUR", "blue")
        .job_name("lines.1")
        .on_failure(OnFailure::LetOthersFinish)
        .output(Output::Lines);
    let launch = launcher.spawn().unwrap();
    assert_eq!(launch.job_name(), "lines.1");
    let mut lines = Vec::new();
    let report = launch
        .wait_with(|event| {
            if let LaunchEvent::Line { rank, stream, text } = event {
                lines.push((rank, stream == Stream::Err, text));
            }
        })
        .unwrap();
    lines.sort();
    let expected = [
        (0, false, "0/2 red unset an argument"),
        (0, false, "end"),
        (0, true, "bad"),
        (1, false, "1/2 blue unset an argument"),
        (1, false, "end"),
        (1, true, "bad"),
    ];
    assert_eq!(lines, expected.map(|(rank, error, text)| (rank, error, text.to_string())));
    assert_eq!((report.ends[0].failed(), report.ends[1].exit, report.exit_code()), (false, Exit::Code(1), 1));
    assert_eq!(report.ends[1].phase, Phase::Started);
}

#[test]
fn full_event_queue_delays_output_without_loss() {
    let mut launch = Launcher::new("sh").args(["-c", "seq 100000"]).output(Output::Lines).spawn().unwrap();
    let mut next = 1_u32;
    while !launch.is_over() {
        launch.step_for(None).unwrap();
        let mut queued = 0;
        while let Some(event) = launch.poll_event() {
            if let LaunchEvent::Line { text, .. } = event {
                assert_eq!(text, next.to_string());
                next += 1;
                queued += 1;
            }
        }
        assert!(queued < 100_000, "all at once");
    }
    assert_eq!(next, 100_001);
}

#[test]
fn launch_failure_reports_its_cause() {
    let error = Launcher::new("/no/such/program").ranks(2).spawn().unwrap_err();
    assert!(error.to_string().starts_with("can't start /no/such/program as rank 0: "), "{error}");
    let source = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
    let error = LaunchError::Program { program: "rerail".into(), rank: 3, source }.to_string();
    assert!(error.ends_with("(os error 24): raise the launcher's limit of open descriptors (ulimit -n)"), "{error}");
    for ranks in [0, RANKS_MAX + 1] {
        assert!(matches!(Launcher::new("true").ranks(ranks).spawn(), Err(LaunchError::Ranks { .. })));
    }
    let error = Launcher::new("true").ranks(2).rank_env(2, "A", "b").spawn().unwrap_err();
    assert!(matches!(error, LaunchError::RankEnv { rank: 2, ranks: 2 }), "{error}");
    for name in ["", "a b", "a=b", &"n".repeat(65)] {
        assert!(matches!(Launcher::new("true").job_name(name).spawn(), Err(LaunchError::JobName { .. })), "{name}");
    }
}
