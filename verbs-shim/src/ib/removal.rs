//! Devices that are removed without an event.
//!
//! `IBV_EVENT_DEVICE_FATAL` reports the removal of a device only where its driver can be taken away from
//! under its users (`disassociate_ucontext`; `ib_uverbs_remove_one` in Linux'
//! `drivers/infiniband/core/uverbs_main.c`). Of others, rxe among them, the kernel removes the character
//! device first, and then waits without end until all processes that have it open have closed it. So the
//! character device is watched: when it goes, so must we.
//!
//! Only devices without hardware are watched: these can be removed by a command at any time, and a user
//! may have few inotify instances (128 by default), which the processes of a node with many adapters
//! would use up.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// A watch on a device's character device.
#[derive(Debug)]
pub(super) struct Removal {
    watch: OwnedFd,
    /// Its name in its folder.
    node: CString,
    /// It went before it was watched.
    missed: bool,
}

impl Removal {
    /// Of an open device by its name and its character device; `None` also where it is hardware: the kernel
    /// links to that.
    pub fn of_device(name: &str, node: &str) -> Option<Removal> {
        let is_hardware = Path::new("/sys/class/infiniband").join(name).join("device").exists();
        if is_hardware { None } else { Removal::of(node) }
    }

    /// Of a path as `/dev/infiniband/uverbs0`. `None`: it can't be watched, and such a removal is not
    /// noticed.
    pub fn of(path: &str) -> Option<Removal> {
        let (folder, node) = path.rsplit_once('/')?;
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        inotify::add_watch(&watch, folder, WatchFlags::DELETE).ok()?;
        Some(Removal { watch, node: CString::new(node).ok()?, missed: !Path::new(path).exists() })
    }

    /// Becomes readable when something in the folder goes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Whether it went since the last call. By its name: another device may have that by now.
    pub fn happened(&mut self) -> bool {
        let mut room = [MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(&self.watch, &mut room);
        let mut happened = std::mem::take(&mut self.missed);
        // An error is that there is nothing more.
        while let Ok(event) = events.next() {
            happened |= event.file_name() == Some(&self.node);
        }
        happened
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::IbDevice;
    use crate::contract::{AsyncEvent, CqInit, CreateError, Device};

    /// A folder of this test's own.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("rerail-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn file(&self, name: &str) -> String {
            let path = self.0.join(name);
            fs::write(&path, "").unwrap();
            path.to_str().unwrap().to_owned()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_removal_of_the_own_node_is_reported_once() {
        let folder = Folder::new("removal");
        let (own, other) = (folder.file("uverbs0"), folder.file("uverbs1"));
        let mut removal = Removal::of(&own).unwrap();
        assert!(!removal.happened());
        fs::remove_file(other).unwrap();
        assert!(!removal.happened());
        fs::remove_file(&own).unwrap();
        // Another one has its name already.
        folder.file("uverbs0");
        assert!(removal.happened() && !removal.happened());
        let gone = folder.0.join("uverbs7");
        assert!(Removal::of(gone.to_str().unwrap()).unwrap().happened(), "it was not there when it was to be watched");
        assert!(Removal::of("/no/such/folder/uverbs0").is_none());
    }

    /// The device is dead then, reported once, and all of its objects can still be destroyed; the kernel
    /// waits for that.
    #[test]
    fn device_with_a_removed_node_reports_a_fatal_event() {
        let folder = Folder::new("removed-device");
        let node = folder.file("uverbs0");
        let mut device = IbDevice::new(crate::tests::open("rxe9")).unwrap();
        device.removal = Removal::of(&node);
        device.create_cq(&CqInit { depth: 1 }).unwrap();
        assert_eq!(device.async_event(), None);
        fs::remove_file(&node).unwrap();
        // The descriptor of a sleeper: it becomes readable, and a check for completion events follows.
        assert_eq!(device.cq_event(), None);
        assert_eq!(device.async_event(), Some(AsyncEvent::DeviceFatal));
        assert_eq!(device.async_event(), None);
        assert_eq!(device.create_cq(&CqInit { depth: 1 }), Err(CreateError::DeviceGone));
        drop(device);
        assert_eq!(crate::tests::alive(), [""; 0]);
    }

    /// Without a sleep it is seen too, by the next look.
    #[test]
    fn device_removal_is_detected_by_polling() {
        let folder = Folder::new("polled-removal");
        let node = folder.file("uverbs0");
        let mut device = IbDevice::new(crate::tests::open("rxe9")).unwrap();
        device.set_event_interval(4);
        device.removal = Removal::of(&node);
        assert_eq!(device.async_event(), None);
        fs::remove_file(&node).unwrap();
        let seen = (0..4).find_map(|_| device.async_event());
        assert_eq!(seen, Some(AsyncEvent::DeviceFatal));
    }
}
