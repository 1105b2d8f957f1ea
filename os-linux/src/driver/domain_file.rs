//! The file through which the processes of a job find the XRC domain that they share on this host
//! (`ibv_open_xrcd(3)`): empty, in `/dev/shm`, named by user and job. A process that can open it can reach
//! the queues in the domain, so only the user may open it.
//!
//! Each process holds a shared lock on it until it exits. The last process to leave obtains the exclusive
//! lock and removes the file. If all processes of a job are killed at once, the user's next job removes it.
//!
//! Invariant: a process that holds the lock has the file that the name leads to, or looks again.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

/// The folder: memory that all processes of a host see, emptied at boot.
const FOLDER: &str = "/dev/shm";
/// How often a file may be removed under our hands.
const TRIES: usize = 100;

/// The file, open and locked.
#[derive(Debug)]
pub(super) struct DomainFile {
    file: File,
    path: PathBuf,
    id: [u64; 2],
}

impl DomainFile {
    /// Opens a job's file, or makes it.
    ///
    /// # Errors
    /// The system's; `PermissionDenied` where a file of that name belongs to another user or is open to
    /// others.
    pub fn open(job: u64) -> io::Result<Self> {
        Self::open_in(Path::new(FOLDER), job)
    }

    fn open_in(folder: &Path, job: u64) -> io::Result<Self> {
        let prefix = format!("rerail-xrc-{}-", rustix::process::geteuid().as_raw());
        let path = folder.join(format!("{prefix}{job:016x}"));
        sweep(folder, &prefix, &path);
        for _ in 0..TRIES {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&path)?;
            let found = file.metadata()?;
            let own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
            if !own || !found.is_file() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not this user's alone"));
            }
            flock(&file, FlockOperation::LockShared)?;
            let id = id_of(&found);
            if leads_to(&path, id) {
                return Ok(DomainFile { file, path, id });
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "others remove it time and again"))
    }

    /// Its descriptor; open as long as this lives.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Device and inode.
    pub fn id(&self) -> [u64; 2] {
        self.id
    }
}

impl Drop for DomainFile {
    fn drop(&mut self) {
        remove_unused(&self.file, &self.path);
    }
}

/// The identity of a file on this host: device and inode.
fn id_of(found: &Metadata) -> [u64; 2] {
    [found.dev(), found.ino()]
}

/// Whether this is the name of that file: another one of the name may have been made since.
fn leads_to(path: &Path, id: [u64; 2]) -> bool {
    fs::symlink_metadata(path).is_ok_and(|named| id_of(&named) == id)
}

/// Removes a file that no other process has locked, if the name still leads to it.
fn remove_unused(file: &File, path: &Path) {
    let is_alone = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_alone && file.metadata().is_ok_and(|found| leads_to(path, id_of(&found))) {
        let _ = fs::remove_file(path);
    }
}

/// Removes the files that earlier jobs of this user left.
fn sweep(folder: &Path, prefix: &str, but: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
    for path in of_ours.map(|entry| entry.path()).filter(|path| path != but) {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        if let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            remove_unused(&file, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder of this test's own, removed when it is over.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("rerail-test-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn names(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn processes_of_a_job_have_one_file_and_the_last_one_removes_it() {
        let folder = Folder::new("domain-shared");
        let [a, b] = [0, 1].map(|_| DomainFile::open_in(&folder.0, 5).unwrap());
        let other = DomainFile::open_in(&folder.0, 6).unwrap();
        assert_eq!(a.id(), b.id());
        assert_ne!(a.id(), other.id());
        assert!(a.descriptor() != b.descriptor() && folder.names() == 2);
        drop(a);
        assert_eq!(folder.names(), 2, "b has it still");
        drop(b);
        assert_eq!(folder.names(), 1);
        drop(other);
        assert_eq!(folder.names(), 0);
    }

    #[test]
    fn domain_file_of_a_killed_job_is_removed_by_the_next() {
        let folder = Folder::new("domain-left");
        let left = DomainFile::open_in(&folder.0, 7).unwrap().path.clone();
        fs::write(&left, b"").unwrap();
        fs::write(folder.0.join("of-another-user"), b"").unwrap();
        let next = DomainFile::open_in(&folder.0, 8).unwrap();
        assert!(!left.exists() && folder.names() == 2);
        drop(next);
        assert_eq!(folder.names(), 1);
    }

    /// Its name leads to another file by now, which others have.
    #[test]
    fn only_the_file_that_is_locked_is_removed() {
        let folder = Folder::new("domain-replaced");
        let old = DomainFile::open_in(&folder.0, 5).unwrap();
        fs::remove_file(&old.path).unwrap();
        let new = DomainFile::open_in(&folder.0, 5).unwrap();
        assert_ne!(old.id(), new.id());
        drop(old);
        assert!(new.path.exists());
        drop(new);
        assert_eq!(folder.names(), 0);
    }

    #[test]
    fn a_file_that_others_can_open_is_refused() {
        let folder = Folder::new("domain-open");
        let path = DomainFile::open_in(&folder.0, 9).unwrap().path.clone();
        fs::write(&path, b"").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(DomainFile::open_in(&folder.0, 9).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
