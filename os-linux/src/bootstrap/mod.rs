//! How the processes of a job find each other: rank, size, and a board on which each rank publishes short
//! texts.
//!
//! | file | connects to |
//! |---|---|
//! | [`pmi1`] | a launcher, over the PMI-1 wire protocol (`mpiexec.hydra`, `rerail launch`) |
//! | [`pmi2`] | a launcher, over the PMI-2 wire protocol (Slurm's `srun --mpi=pmi2`) |
//! | [`pmix`] | a launcher, by its client library (Open MPI's `mpirun`, `srun --mpi=pmix`) |
//! | [`server`] | is such a launcher, for the processes of one machine |
//! | [`pair`] | one other process over TCP, without a launcher, behind a pre-shared key |
//! | [`single`] | no process: a job of one |
//!
//! Invariants: a key is put once per rank; keys put before a [`fence`](Bootstrap::fence) can be read by every
//! rank after it; data from the other side can't make us panic or hold more than a bounded amount of it.
//!
//! The channel is needed twice, and may fail at any time (rules B-1 to B-4): at the start every step ends in
//! bounded time, with an error that names the step; while messages flow it is not used; at shutdown it is
//! notified last.
//!
//! Trust: the launcher's channel (an inherited socket, or the pair's authenticated stream) is the root of
//! trust. The rails authenticate each other with the [`job_key`] that is drawn here and travels over it. It
//! is in no environment, argument or file: only in the memory of the job's processes and of the launcher.

pub mod error;
mod io;
mod line;
pub mod pair;
mod pieces;
pub mod pmi1;
pub mod pmi2;
pub mod pmix;
pub mod server;
pub mod single;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

pub use error::BootError;
use hmac::Mac;

use crate::auth::keyed;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 32;

/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// How long a launcher may take for each answer unless the setting `boot_timeout` is set. A fence's
/// answer waits for the slowest rank to start, so this is long.
pub const ANSWER_MAX: Duration = Duration::from_secs(600);

/// A process's place in its job, and the board of the job.
pub trait Bootstrap: Send {
    /// This process's rank: 0 to `size - 1`.
    fn rank(&self) -> u32;
    /// Processes in the job; at least 1.
    fn size(&self) -> u32;
    /// The launcher's name for the job: for people and logs, not unique over time.
    fn job_name(&self) -> &str;
    /// Publishes a value under a key of this rank. Keys: 1 to [`KEY_BYTES_MAX`] of `A-Z a-z 0-9 _ -`, each
    /// once; values: any text up to [`VALUE_BYTES_MAX`] bytes.
    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError>;
    /// Waits until every rank of the job (that still lives) is here. All values put before can be read after.
    fn fence(&mut self) -> Result<(), BootError>;
    /// A [`fence`](Self::fence) that may take `limit` (`None`: as long as it takes) and calls `meanwhile`
    /// over and over until all ranks are here. [`Transport::barrier`](crate::driver::Transport::barrier)
    /// drives the transport in it.
    fn barrier(&mut self, limit: Option<Duration>, meanwhile: &mut dyn FnMut()) -> Result<(), BootError>;
    /// The value that `rank` put before a completed fence or barrier; `None`: none.
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, BootError>;
    /// Leaves the job in good order. A process that ends without it counts as failed.
    fn finalize(&mut self) -> Result<(), BootError>;
    /// Requests that the launcher end the whole job, if it can be reached. Returns: the caller decides about
    /// this process.
    fn abort(&mut self, why: &str);
    /// Limits each step from now on, a fence with its wait for the other ranks among them; `None`: no limit.
    /// [`Transport::start`](crate::driver::Transport::start) passes the setting `boot_timeout`. No effect
    /// where there is no other process, and where the caller has set a limit already ([`pair`]).
    fn limit(&mut self, answer_max: Option<Duration>) {
        let _ = answer_max;
    }
    /// A secret that both sides hold already, so that [`job_key`] doesn't have to send one.
    fn shared_secret(&self) -> Option<[u8; 32]> {
        None
    }
}

/// The way into a job that an environment offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// PMI-1: `PMI_FD` or `PMI_PORT`.
    Pmi1,
    /// PMI-2: `PMI_FD` and `PMI_JOBID`, as Slurm sets them.
    Pmi2,
    /// PMIx: `PMIX_NAMESPACE` and `PMIX_RANK`.
    Pmix,
    /// None: a job of one.
    Alone,
    /// A launcher started several processes and offers none of these.
    Unsupported {
        /// The variable that reveals the launcher.
        variable: &'static str,
        /// The number of processes in it.
        size: u32,
    },
}

impl Offer {
    /// Of an environment.
    pub fn of(var: impl Fn(&str) -> Option<String>) -> Offer {
        let has = |name| var(name).is_some();
        if has("PMI_FD") && has("PMI_JOBID") {
            return Offer::Pmi2;
        }
        if has("PMI_FD") || has("PMI_PORT") {
            return Offer::Pmi1;
        }
        if has("PMIX_NAMESPACE") && has("PMIX_RANK") {
            return Offer::Pmix;
        }
        let size_in = |variable| var(variable).and_then(|text| text.parse().ok()).filter(|size| *size > 1);
        ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"]
            .into_iter()
            .find_map(|variable| Some(Offer::Unsupported { variable, size: size_in(variable)? }))
            .unwrap_or(Offer::Alone)
    }
}

/// Joins the job of the environment by what that [offers](Offer): PMI-1, PMI-2 or PMIx, else a job of one.
///
/// # Errors
/// Those of [`pmi1::Pmi1::from_vars`] or [`pmix::Pmix::from_vars`], and [`BootError::UnsupportedLauncher`]
/// where a launcher started several processes and offers none.
pub fn from_env() -> Result<Box<dyn Bootstrap>, BootError> {
    from_vars(|name| std::env::var(name).ok())
}

/// [`from_env`] with the environment as an argument.
pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Box<dyn Bootstrap>, BootError> {
    match Offer::of(&var) {
        Offer::Pmi1 => Ok(Box::new(pmi1::Pmi1::from_vars(var)?)),
        Offer::Pmi2 => Ok(Box::new(pmi2::Pmi2::from_vars(var)?)),
        Offer::Pmix => Ok(Box::new(pmix::Pmix::from_vars(var)?)),
        Offer::Alone => Ok(Box::new(single::Single::new())),
        Offer::Unsupported { variable, size } => Err(BootError::UnsupportedLauncher { variable, size }),
    }
}

/// The secret that only the processes of a job share.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey {
    /// The key with which rails authenticate peers.
    pub key: [u8; 32],
    /// A random number that identifies this run of the job.
    pub job_id: u64,
}

impl fmt::Debug for JobKey {
    /// Leaves the key out, so that it can't slip into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobKey").field("job_id", &self.job_id).finish_non_exhaustive()
    }
}

/// Agrees on the job's key: rank 0 draws it from the kernel and publishes it; the others read it. Collective,
/// with one fence; once per job.
///
/// The key is as secret as the launcher's channel. Where the two sides hold a secret already
/// ([`Bootstrap::shared_secret`]) the key is derived from it and nothing is sent.
pub fn job_key(boot: &mut dyn Bootstrap) -> Result<JobKey, BootError> {
    const KEY: &str = "job-key";
    if let Some(secret) = boot.shared_secret() {
        boot.fence()?;
        let id = mac(&secret, &[b"rerail job id"]);
        let id = u64::from_le_bytes(id[..8].try_into().expect("eight of 32 bytes"));
        return Ok(JobKey { key: mac(&secret, &[b"rerail job key"]), job_id: id });
    }
    if boot.rank() == 0 {
        let bytes: [u8; 40] = random("drawing the job key")?;
        boot.put(KEY, &hex::encode(bytes))?;
    }
    boot.fence()?;
    let text = boot.get(0, KEY)?.ok_or_else(|| BootError::Absent { rank: 0, key: KEY.into() })?;
    let bytes: [u8; 40] = from_hex(&text).ok_or_else(|| BootError::Value {
        rank: 0,
        key: KEY.into(),
        why: "80 hexadecimal digits expected",
    })?;
    let (key, id) = bytes.split_at(32);
    Ok(JobKey {
        key: key.try_into().expect("split at 32"),
        job_id: u64::from_le_bytes(id.try_into().expect("the other eight")),
    })
}

/// HMAC-SHA256 over parts that each have a fixed length or come last.
fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    keyed(key, parts).finalize().into_bytes().into()
}

/// Bytes from the kernel's generator.
fn random<const N: usize>(doing: &'static str) -> Result<[u8; N], BootError> {
    crate::random::random().map_err(|errno| BootError::Io { doing, source: errno.into() })
}

/// Exactly `N` bytes of hexadecimal digits, or nothing.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

/// The keys that this rank has put: the rules that hold for every implementation.
#[derive(Debug, Default)]
struct OwnKeys(BTreeSet<String>);

impl OwnKeys {
    /// Notes a key, or returns why it may not be put.
    fn claim(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(BootError::ValueTooLong { key: key.into(), bytes: value.len(), bytes_max: VALUE_BYTES_MAX });
        }
        if !self.0.insert(key.into()) {
            return Err(BootError::DuplicateKey { key: key.into() });
        }
        Ok(())
    }
}

/// Whether a key may be used at all.
fn check_key(key: &str) -> Result<(), BootError> {
    let why = if key.is_empty() {
        "empty"
    } else if key.len() > KEY_BYTES_MAX {
        "longer than 32 bytes"
    } else if !key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        "only letters, digits, '_' and '-' are allowed"
    } else {
        return Ok(());
    };
    Err(BootError::Key { key: error::excerpt(key.as_bytes()), why })
}

/// Whether a rank is in the job.
fn check_rank(rank: u32, size: u32) -> Result<(), BootError> {
    if rank < size { Ok(()) } else { Err(BootError::Rank { rank, size }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
    }

    #[test]
    fn an_empty_environment_is_a_job_of_one() {
        let boot = from_vars(vars(&[])).unwrap();
        assert_eq!((boot.rank(), boot.size()), (0, 1));
        assert!(from_vars(vars(&[("SLURM_STEP_NUM_TASKS", "1")])).is_ok());
    }

    #[test]
    fn the_environment_chooses_the_protocol() {
        let offer = |names: &[&str]| Offer::of(|name| names.contains(&name).then(|| "1".to_owned()));
        assert_eq!(offer(&["PMI_FD", "PMI_RANK", "PMI_SIZE"]), Offer::Pmi1);
        assert_eq!(offer(&["PMI_PORT", "PMI_ID"]), Offer::Pmi1);
        assert_eq!(offer(&["PMI_FD", "PMI_JOBID", "SLURM_STEP_NUM_TASKS"]), Offer::Pmi2);
        assert_eq!(offer(&["PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE"]), Offer::Pmix);
        assert_eq!(offer(&["PMIX_RANK", "PMIX_NAMESPACE", "PMI_FD"]), Offer::Pmi1, "without a library");
        assert_eq!(offer(&["PMIX_RANK"]), Offer::Alone);
    }

    #[test]
    fn a_launcher_that_we_do_not_speak_is_an_error_not_n_jobs_of_one() {
        for variable in ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"] {
            let got = from_vars(|name| (name == variable).then(|| "4".into()));
            let error = got.err().expect("an error");
            assert!(matches!(error, BootError::UnsupportedLauncher { size: 4, .. }), "{error}");
            assert!(error.to_string().contains(variable), "{error}");
        }
    }

    #[test]
    fn job_keys_differ_from_run_to_run_and_stay_out_of_logs() {
        let first = job_key(&mut single::Single::new()).unwrap();
        let second = job_key(&mut single::Single::new()).unwrap();
        assert_ne!(first.key, second.key);
        assert_ne!(first.job_id, second.job_id);
        let shown = format!("{first:?}");
        assert!(shown.contains(&first.job_id.to_string()) && !shown.contains("key:"), "{shown}");
    }

    #[test]
    fn a_job_key_that_is_no_key_is_named() {
        struct Liar(single::Single);
        impl Bootstrap for Liar {
            fn rank(&self) -> u32 {
                1
            }
            fn size(&self) -> u32 {
                2
            }
            fn job_name(&self) -> &str {
                "liar"
            }
            fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
                self.0.put(key, value)
            }
            fn fence(&mut self) -> Result<(), BootError> {
                Ok(())
            }
            fn barrier(&mut self, _: Option<Duration>, _: &mut dyn FnMut()) -> Result<(), BootError> {
                Ok(())
            }
            fn get(&mut self, _: u32, key: &str) -> Result<Option<String>, BootError> {
                self.0.get(0, key)
            }
            fn finalize(&mut self) -> Result<(), BootError> {
                Ok(())
            }
            fn abort(&mut self, _: &str) {}
        }
        let mut liar = Liar(single::Single::new());
        assert!(matches!(job_key(&mut liar), Err(BootError::Absent { rank: 0, .. })));
        liar.put("job-key", "0123").unwrap();
        assert!(matches!(job_key(&mut liar), Err(BootError::Value { rank: 0, .. })));
    }

    #[test]
    fn hexadecimal_round_trips() {
        assert_eq!(hex::encode([0, 0x0f, 0xf0, 0xff]), "000ff0ff");
        assert_eq!(from_hex::<4>("000FF0ff"), Some([0, 0x0f, 0xf0, 0xff]));
        assert_eq!(from_hex::<4>("000ff0f"), None);
        assert_eq!(from_hex::<4>("000ff0f+"), None);
        assert_eq!(from_hex::<2>("\u{e9}\u{e9}"), None);
    }

    #[test]
    fn keys_follow_the_rules_everywhere() {
        let mut own = OwnKeys::default();
        own.claim("tcp-0", "").unwrap();
        assert!(matches!(own.claim("tcp-0", "x"), Err(BootError::DuplicateKey { .. })));
        for key in ["", "a b", "a=b", "a.b", "a;b", &"k".repeat(33)] {
            assert!(matches!(own.claim(key, ""), Err(BootError::Key { .. })), "{key:?}");
        }
        own.claim(&"k".repeat(32), &"v".repeat(VALUE_BYTES_MAX)).unwrap();
        let long = own.claim("long", &"v".repeat(VALUE_BYTES_MAX + 1));
        assert!(matches!(long, Err(BootError::ValueTooLong { bytes: 65_537, bytes_max: 65_536, .. })));
    }
}
