//! Processors, memory and limits.

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::Obstacle;
use crate::session::host_name;

/// Fewer open files leave no room for one connection per peer and rail.
const FILES_COMFORTABLE: u64 = 1024;

/// This machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processors that are online.
    pub cpus: u64,
    /// Those that this process may run on.
    pub cpus_usable: u64,
    /// Memory in all.
    pub memory_bytes: u64,
    /// Memory available without swapping.
    pub memory_available_bytes: u64,
    /// Memory that may be locked (registered with a device); `None`: unlimited.
    pub locked_bytes: Option<u64>,
    /// What that may be raised to without privilege.
    pub locked_bytes_max: Option<u64>,
    /// Files and connections that may be open.
    pub files: Option<u64>,
    /// What that may be raised to without privilege.
    pub files_max: Option<u64>,
    /// What may become a hindrance.
    pub notes: Vec<Obstacle>,
}

/// Looks at it.
pub fn detect() -> Machine {
    let locked = getrlimit(Resource::Memlock);
    let files = getrlimit(Resource::Nofile);
    let uname = rustix::system::uname();
    let mut notes = Vec::new();
    if let Some(limit) = files.current.filter(|&limit| limit < FILES_COMFORTABLE) {
        let why = format!("only {limit} files may be open: one connection per peer and TCP rail needs one each");
        notes.push(Obstacle::new(why, format!("ulimit -n {FILES_COMFORTABLE}")));
    }
    Machine {
        host: host_name(),
        kernel: uname.release().to_string_lossy().into_owned(),
        cpus: online(),
        cpus_usable: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        memory_bytes: memory("MemTotal:"),
        memory_available_bytes: memory("MemAvailable:"),
        locked_bytes: locked.current,
        locked_bytes_max: locked.maximum,
        files: files.current,
        files_max: files.maximum,
        notes,
    }
}

/// Memory available without swapping, in bytes; `None`: the kernel does not report it.
pub fn memory_available() -> Option<u64> {
    Some(memory("MemAvailable:")).filter(|&bytes| bytes > 0)
}

/// Processors from the kernel's list (`0-3,8`).
fn online() -> u64 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    count_of_list(list.trim()).unwrap_or(1)
}

fn count_of_list(list: &str) -> Option<u64> {
    list.split(',').try_fold(0, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(count + last.checked_sub(first)? + 1)
    })
}

/// A line of /proc/meminfo, in bytes.
fn memory(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count_of_list("0"), Some(1));
        assert_eq!(count_of_list("0-3,8"), Some(5));
        assert_eq!(count_of_list(""), None);
        assert_eq!(count_of_list("3-1"), None);
    }
}
