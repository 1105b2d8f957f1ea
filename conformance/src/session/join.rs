//! Joining a job: ranks exchange their information over the bootstrap's board, then the transport starts.

use std::io::ErrorKind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rerail_linux::bootstrap::pair::{Pair, PairKey};
use rerail_linux::bootstrap::{BootError, Bootstrap};
use rerail_linux::driver::{Options, Transport};
use rerail_linux::settings::Settings;

use super::{RankInfo, Session, host_name};
use crate::exit::Failure;

/// The key under which each rank publishes its information.
const RANK_INFO_KEY: &str = "rank";

/// How long a process is waited for that does not listen yet.
const DIAL: Duration = Duration::from_secs(5);
/// Interval of the progress messages while this rank waits.
const SIGN: Duration = Duration::from_secs(3);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(100);
/// How long each step of joining may take.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Joins a job with a bootstrap. Collective.
pub fn start(settings: Settings, mut boot: Box<dyn Bootstrap>, stall: Duration) -> Result<Session, Failure> {
    // Before the transport starts, so that even a rank that is lost at its first message has a name.
    let rank_infos = exchange_rank_infos(&mut *boot, settings.host_id.clone())
        .map_err(|error| Failure::usage(format!("the job could not be joined: {error}")))?;
    let transport = Transport::start(Options { settings }, boot)?;
    Ok(Session::new(transport, rank_infos, stall))
}

/// Dials the other process of a pair until it listens, for a while: the two may be started at the same time.
pub fn dial(to: &str, key: &PairKey) -> Result<Pair, Failure> {
    let kind = |error: &BootError| match error {
        BootError::Io { source, .. } => source.kind(),
        _ => ErrorKind::Other,
    };
    let dialled = with_progress(to, || with_retries(|| Pair::dial(to, key, STEP_MAX), kind));
    dialled.map_err(|error| Failure::usage(format!("{to}: {error}")))
}

/// Calls `wait`, which may take long, and reports that on standard error where it does.
fn with_progress<T>(to: &str, wait: impl FnOnce() -> T) -> T {
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = is_over.recv_timeout(SIGN) {
                let (since, most) = (start.elapsed().as_secs(), (DIAL + STEP_MAX).as_secs());
                eprintln!("rerail: {to}: no rerail answers there yet ({since} s, {most} s at most)");
            }
        });
        let result = wait();
        drop(over);
        result
    })
}

/// Tries to connect again and again as long as the connection is refused, for a while; then as the last try
/// ended.
pub fn with_retries<T, E>(connect: impl Fn() -> Result<T, E>, kind: impl Fn(&E) -> ErrorKind) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match connect() {
            Err(error) if kind(&error) == ErrorKind::ConnectionRefused && start.elapsed() < DIAL => sleep(AGAIN),
            result => return result,
        }
    }
}

fn exchange_rank_infos(boot: &mut dyn Bootstrap, host_id: Option<String>) -> Result<Vec<RankInfo>, BootError> {
    // A logical host is identified by its id alone.
    let host = host_id.unwrap_or_else(host_name);
    let rank_info = RankInfo { host, pid: std::process::id() };
    boot.put(RANK_INFO_KEY, &serde_json::to_string(&rank_info).unwrap_or_default())?;
    boot.fence()?;
    (0..boot.size())
        .map(|rank| {
            let text = boot.get(rank, RANK_INFO_KEY)?;
            let rank_info = text.and_then(|text| serde_json::from_str(&text).ok());
            rank_info.ok_or(BootError::Absent { rank, key: RANK_INFO_KEY.to_owned() })
        })
        .collect()
}
