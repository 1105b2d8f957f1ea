//! The file being received: written under a temporary name beside its place, named only when it is whole.
//!
//! Invariants: nothing that exists is replaced unless that was asked for; a transfer that fails leaves nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use rustix::io::Errno;

/// A file that is not whole yet.
#[derive(Debug)]
pub struct Target {
    file: File,
    place: PathBuf,
    temporary: Option<PathBuf>,
    force: bool,
}

/// Where a file of this name goes: into `out` if that is a folder, else `out` itself.
pub fn place(out: &Path, name: &str) -> PathBuf {
    if out.is_dir() { out.join(name) } else { out.to_owned() }
}

impl Target {
    /// Makes the temporary file and reserves its space.
    pub fn create(place: PathBuf, bytes: u64, force: bool) -> Result<Target, String> {
        if !force && place.symlink_metadata().is_ok() {
            return Err(format!("{} exists: --force replaces it", place.display()));
        }
        let name = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary = place.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let failed = |doing: &str, error: io::Error| format!("{doing} {}: {error}", temporary.display());
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&temporary)
            .map_err(|error| failed("creating", error))?;
        let target = Target { file, place, temporary: Some(temporary.clone()), force };
        match fallocate(&target.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            // Not every file system can; then a full disk shows while writing.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(target),
            Err(errno) => Err(failed(&format!("reserving {bytes} bytes for"), errno.into())),
        }
    }

    /// Appends.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all(bytes).map_err(|error| format!("writing {}: {error}", self.place.display()))
    }

    /// Where the file will be.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The file is whole: gives it its name.
    pub fn keep(mut self) -> Result<PathBuf, String> {
        let place = std::mem::take(&mut self.place);
        let failed = |doing: &str, error: io::Error| format!("{doing} {}: {error}", place.display());
        self.file.sync_all().map_err(|error| failed("writing", error))?;
        let Some(temporary) = &self.temporary else { return Ok(place) };
        let named = if self.force {
            std::fs::rename(temporary, &place)
        } else {
            match renameat_with(CWD, temporary, CWD, &place, RenameFlags::NOREPLACE) {
                // Not every file system can. A hard link does not replace anything either.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    std::fs::hard_link(temporary, &place).and_then(|()| std::fs::remove_file(temporary))
                }
                result => result.map_err(io::Error::from),
            }
        };
        named.map_err(|error| failed("naming", error))?;
        self.temporary = None;
        Ok(place)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // What can't be removed can't be helped here; the transfer's own error is reported.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("rerail-target-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_whole_file_gets_its_name_and_a_broken_one_leaves_nothing() {
        let folder = Folder::new("whole");
        let mut target = Target::create(place(&folder.0, "a"), 5, false).unwrap();
        target.write(b"hello").unwrap();
        assert_eq!(target.keep().unwrap(), folder.0.join("a"));
        assert_eq!(std::fs::read(folder.0.join("a")).unwrap(), b"hello");
        let mut target = Target::create(place(&folder.0, "b"), 5, false).unwrap();
        target.write(b"he").unwrap();
        drop(target);
        assert_eq!(folder.names(), ["a"]);
    }

    #[test]
    fn what_exists_is_replaced_by_force_only() {
        let folder = Folder::new("force");
        let path = folder.0.join("a");
        std::fs::write(&path, b"old").unwrap();
        assert!(Target::create(path.clone(), 0, false).unwrap_err().contains("--force"));
        let mut target = Target::create(path.clone(), 3, true).unwrap();
        target.write(b"new").unwrap();
        target.keep().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_not_replaced() {
        let folder = Folder::new("race");
        let path = folder.0.join("a");
        let target = Target::create(path.clone(), 0, false).unwrap();
        std::fs::write(&path, b"other").unwrap();
        assert!(target.keep().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"other");
        assert_eq!(folder.names(), ["a"]);
    }
}
