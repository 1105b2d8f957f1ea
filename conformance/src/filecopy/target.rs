//! The file being received: written without a name, named only when it is whole.
//!
//! Invariants: no existing file is replaced unless that was requested; a transfer that fails leaves nothing,
//! however its process ends. The file has no name while it is written (`O_TMPFILE`), so the kernel removes it
//! with its process. Where the file system can't do that, it has a hidden name beside its place, which is
//! removed on errors and on signals.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, fallocate, linkat, renameat_with};
use rustix::io::Errno;

use crate::interrupt;

/// A file that is not whole yet.
#[derive(Debug)]
pub struct Target {
    file: File,
    place: PathBuf,
    /// Its hidden name, if it has one.
    temporary: Option<PathBuf>,
    force: bool,
}

/// Where a file of this name goes: into `out` if that is a folder, else `out` itself.
pub fn place(out: &Path, name: &str) -> PathBuf {
    if out.is_dir() { out.join(name) } else { out.to_owned() }
}

/// Checks that a file can be written to `out`, before a sender connects.
pub fn check(out: &Path, force: bool) -> Result<(), String> {
    let shown = out.display();
    let folder = match std::fs::symlink_metadata(out) {
        Ok(_) if out.is_dir() => out,
        Ok(_) => {
            exists(out, force)?;
            folder_of(out)
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(format!("--out {shown}: {error}")),
        Err(_) if out.as_os_str().is_empty() => {
            return Err("--out is empty: give the file to write, or a folder that exists".to_owned());
        }
        Err(_) if out.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            return Err(format!(
                "--out {shown}: there is no such folder; make it first, or name a file without the last /"
            ));
        }
        Err(_) => folder_of(out),
    };
    if !folder.is_dir() {
        return Err(format!("--out {shown}: there is no folder {}", folder.display()));
    }
    // In the way the file would be made: permissions alone don't show that a file system takes files.
    let trial = folder.join("rerail");
    if nameless(&trial).is_some() {
        return Ok(());
    }
    let trial = hidden(&trial);
    let made = OpenOptions::new().write(true).create_new(true).open(&trial);
    made.map_err(|error| format!("--out {shown}: no file can be written in {}: {error}", folder.display()))?;
    let _ = std::fs::remove_file(trial);
    Ok(())
}

/// What may become of something that has the file's name.
fn exists(place: &Path, force: bool) -> Result<(), String> {
    let Ok(there) = place.symlink_metadata() else { return Ok(()) };
    if there.is_dir() {
        return Err(format!("{} is a folder, which a file does not replace", place.display()));
    }
    if !there.is_file() && !there.is_symlink() {
        return Err(format!("{} is no regular file, which nothing replaces", place.display()));
    }
    if force { Ok(()) } else { Err(format!("{} exists: --force replaces it", place.display())) }
}

fn folder_of(place: &Path) -> &Path {
    match place.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file of a process by its descriptor, which is how one without a name is given one.
fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Target {
    /// Makes the file and reserves its space.
    pub fn create(place: PathBuf, bytes: u64, force: bool) -> Result<Target, String> {
        exists(&place, force)?;
        let target = match nameless(&place) {
            Some(file) => Target { file, place, temporary: None, force },
            None => {
                let temporary = hidden(&place);
                let open = || OpenOptions::new().write(true).create_new(true).mode(0o666).open(&temporary);
                let file = interrupt::make(&temporary, open)
                    .map_err(|error| format!("creating {}: {error}", temporary.display()))?;
                Target { file, place, temporary: Some(temporary), force }
            }
        };
        match fallocate(&target.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            // Not every file system can; then a full disk shows while writing.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(target),
            Err(errno) => Err(format!("reserving {bytes} bytes for {}: {errno}", target.place.display())),
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
        self.name(&place).map_err(|error| failed("naming", error))?;
        Ok(place)
    }

    fn name(&mut self, place: &Path) -> io::Result<()> {
        if self.temporary.is_none() {
            let link = |to: &Path| linkat(CWD, by_descriptor(&self.file), CWD, to, AtFlags::SYMLINK_FOLLOW);
            match link(place) {
                Err(Errno::EXIST) if self.force => {}
                result => return Ok(result?),
            }
            // A link replaces nothing: it needs a name to be moved from.
            let temporary = hidden(place);
            interrupt::make(&temporary, || link(&temporary))?;
            self.temporary = Some(temporary);
        }
        let Some(temporary) = &self.temporary else { return Ok(()) };
        if self.force {
            std::fs::rename(temporary, place)?;
        } else {
            match renameat_with(CWD, temporary, CWD, place, RenameFlags::NOREPLACE) {
                // Not every file system can. A hard link does not replace anything either.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    std::fs::hard_link(temporary, place).and_then(|()| std::fs::remove_file(temporary))?;
                }
                result => result?,
            }
        }
        interrupt::done_with(temporary);
        self.temporary = None;
        Ok(())
    }
}

/// A file without a name in the folder of `place`; `None`: the file system has none, or it could not be given
/// a name later.
fn nameless(place: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o666).custom_flags(libc::O_TMPFILE);
    options.open(folder_of(place)).ok().filter(|file| by_descriptor(file).exists())
}

/// A name beside the place that no listing shows.
fn hidden(place: &Path) -> PathBuf {
    let name = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    place.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // What can't be removed can't be helped here; the transfer's own error is reported.
            let _ = std::fs::remove_file(&temporary);
            interrupt::done_with(&temporary);
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
    fn complete_file_is_renamed_and_partial_file_is_removed() {
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

    /// However the process ends, even by SIGKILL.
    #[test]
    fn a_file_that_is_not_whole_has_no_name() {
        let folder = Folder::new("nameless");
        let mut target = Target::create(place(&folder.0, "a"), 1 << 20, false).unwrap();
        target.write(b"hello").unwrap();
        if target.temporary.is_none() {
            assert_eq!(folder.names(), [""; 0]);
        }
        // Where the file system can't do that.
        drop(target);
        let hidden = hidden(&folder.0.join("b"));
        let file = File::create_new(&hidden).unwrap();
        let named = Target { file, place: folder.0.join("b"), temporary: Some(hidden), force: false };
        assert_eq!(folder.names().len(), 1);
        assert_eq!(named.keep().unwrap(), folder.0.join("b"));
        assert_eq!(folder.names(), ["b"]);
    }

    #[test]
    fn a_place_that_can_not_be_written_is_found_before_anything_is_sent() {
        let folder = Folder::new("check");
        let file = folder.0.join("a");
        std::fs::write(&file, b"old").unwrap();
        let complaint = |out: &str, force| check(&folder.0.join(out), force).err().unwrap_or_default();
        assert_eq!(check(&folder.0, false), Ok(()));
        assert_eq!(complaint("new", false), "");
        assert!(complaint("nope/", false).contains("nope/: there is no such folder"));
        assert!(complaint("nope/new", false).contains("there is no folder"));
        assert!(complaint("a/", false).contains("Not a directory"));
        assert!(complaint("a", false).contains("a exists: --force replaces it"));
        assert_eq!(complaint("a", true), "");
        assert!(check(Path::new("/dev/null"), true).unwrap_err().contains("no regular file"));
        assert!(check(Path::new(""), true).is_err());
        assert!(check(Path::new("/proc"), true).unwrap_err().contains("no file can be written in /proc"));
        assert_eq!(check(Path::new("new-file-here"), true), Ok(()));
    }

    #[test]
    fn existing_file_is_replaced_only_with_force() {
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
