//! The one folder that calls libibverbs. Owns the library's objects and gives each back exactly once.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the list of devices; an open device and its attributes |
//! | `objects` | making, changing and destroying objects |
//! | `work` | posting and polling |
//! | `events` | completion events, asynchronous events, descriptors |
//!
//! Safety argument, common to all blocks: a [`Functions`] holds the functions of a libibverbs with the
//! prototypes of its header (`rdma-core-sys` pins their versions), and the library is never unloaded, so
//! calling them is sound with valid arguments. A [`List`] owns its array, and every device in it lives as
//! long as that array. A [`Handle`] owns its context, which keeps its device alive by itself. libibverbs does
//! its own locking: its control functions may be called from any thread (`ibv_open_device(3)` and the
//! library's documentation).
#![allow(unsafe_code)]

mod events;
mod objects;
mod work;

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

pub(crate) use events::{Channel, RawEvent};
#[cfg(test)]
pub(crate) use objects::vector_of;
pub(crate) use objects::{Ah, Cq, Mr, Object, Pd, Qp, QpParts, Srq, Xrcd};
pub(crate) use work::{Scratch, completion};

use rdma_core_sys::{
    Functions, ibv_context, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_port_attr,
};

/// Lets the process fork while memory is registered.
pub(crate) fn fork_init(functions: &Functions) -> io::Result<()> {
    let fork_init = functions.fork_init.ok_or(io::Error::from_raw_os_error(libc::ENOSYS))?;
    // SAFETY: no arguments; the library does its own locking.
    check(unsafe { fork_init() })
}

/// Devices as listed by the library.
pub(crate) struct List {
    functions: Functions,
    /// `None`: the library gave no array, which means no devices.
    array: Option<NonNull<*mut ibv_device>>,
    len: usize,
}

// SAFETY: the array is not written until it is freed, and libibverbs may be called from any thread.
unsafe impl Send for List {}
// SAFETY: as for Send; all methods only read.
unsafe impl Sync for List {}

impl List {
    /// Fetches the devices. `ENOSYS` means that the kernel has no uverbs: an empty list.
    pub(crate) fn fetch(functions: &Functions) -> io::Result<List> {
        let mut count: c_int = 0;
        // SAFETY: `count` may be written.
        let array = NonNull::new(unsafe { (functions.get_device_list)(&mut count) });
        if array.is_none() {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ENOSYS) {
                return Err(error);
            }
        }
        let len = if array.is_some() { usize::try_from(count).unwrap_or(0) } else { 0 };
        Ok(List { functions: *functions, array, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Panics where `index` is not below `len`.
    fn device(&self, index: usize) -> *mut ibv_device {
        assert!(index < self.len, "device {index} of {}", self.len);
        let array = self.array.expect("a list with devices has an array");
        // SAFETY: the array has `len` entries in front of its final NULL, and `index` is below `len`.
        unsafe { array.add(index).read() }
    }

    /// The struct of a device.
    fn fields(&self, index: usize) -> &ibv_device {
        // SAFETY: devices in the array are valid, and are not written, while the array lives.
        unsafe { &*self.device(index) }
    }

    /// Name of the device: `mlx5_0`.
    pub(crate) fn name(&self, index: usize) -> String {
        text(&self.fields(index).name)
    }

    /// Name of its character device: `uverbs0`.
    pub(crate) fn node_name(&self, index: usize) -> String {
        text(&self.fields(index).dev_name)
    }

    /// `IBV_NODE_*` and `IBV_TRANSPORT_*`.
    pub(crate) fn kinds(&self, index: usize) -> (c_int, c_int) {
        let fields = self.fields(index);
        (fields.node_type, fields.transport_type)
    }

    /// Node GUID as 8 bytes in network order.
    pub(crate) fn guid(&self, index: usize) -> [u8; 8] {
        // SAFETY: the device is valid. The result is big-endian in memory.
        unsafe { (self.functions.get_device_guid)(self.device(index)) }.to_ne_bytes()
    }

    /// Opens a device.
    pub(crate) fn open(&self, index: usize) -> io::Result<Handle> {
        // SAFETY: the device is valid.
        let context = unsafe { (self.functions.open_device)(self.device(index)) };
        match NonNull::new(context) {
            Some(context) => Ok(Handle { functions: self.functions, context }),
            None => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if let Some(array) = self.array {
            // SAFETY: the array is the library's, and this is the only time that it is given back.
            unsafe { (self.functions.free_device_list)(array.as_ptr()) }
        }
    }
}

/// An opened device.
pub(crate) struct Handle {
    functions: Functions,
    context: NonNull<ibv_context>,
}

// SAFETY: a context belongs to no thread.
unsafe impl Send for Handle {}
// SAFETY: the functions called through a shared handle are queries, which the library allows at once from any
// thread.
unsafe impl Sync for Handle {}

impl Handle {
    /// Its optional features; `None` where the query fails.
    pub(crate) fn query_offers(&self) -> Option<ibv_device_attr_ex> {
        let mut attr = MaybeUninit::<ibv_device_attr_ex>::zeroed();
        // SAFETY: the context is open; the function writes no more than the size that it is passed.
        let error = unsafe { rdma_core_sys::ibv_query_device_ex(self.context.as_ptr(), attr.as_mut_ptr()) };
        // SAFETY: all fields are integers: zero was a value already.
        (error == 0).then(|| unsafe { attr.assume_init() })
    }

    pub(crate) fn query_device(&self) -> io::Result<ibv_device_attr> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open; the function writes one whole `ibv_device_attr`, the size declared.
        check(unsafe { (self.functions.query_device)(self.context.as_ptr(), attr.as_mut_ptr()) })?;
        // SAFETY: all fields are integers: zero was a value already.
        Ok(unsafe { attr.assume_init() })
    }

    pub(crate) fn query_port(&self, port: u8) -> io::Result<ibv_port_attr> {
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is open; the exported function writes the fields up to `flags`, all of them
        // declared.
        check(unsafe { (self.functions.query_port)(self.context.as_ptr(), port, attr.as_mut_ptr()) })?;
        // SAFETY: all fields are integers: zero was a value already.
        Ok(unsafe { attr.assume_init() })
    }

    /// Whether entries of the GID table come with their type.
    pub(crate) fn reports_gid_types(&self) -> bool {
        self.functions.query_gid_ex.is_some()
    }

    /// The entries in use of all ports' GID tables, up to `most`, by one system call; `None`: the library
    /// can't do that.
    pub(crate) fn query_gid_table(&self, most: usize) -> Option<io::Result<Vec<ibv_gid_entry>>> {
        let query_gid_table = self.functions.query_gid_table?;
        let mut entries = vec![ibv_gid_entry::default(); most];
        let (context, size) = (self.context.as_ptr(), size_of::<ibv_gid_entry>());
        // SAFETY: the context is open; there is room for `most` entries of the given size, which the function
        // does not exceed.
        let found = unsafe { query_gid_table(context, entries.as_mut_ptr(), most, 0, size) };
        Some(match usize::try_from(found) {
            Ok(count) => {
                entries.truncate(count);
                Ok(entries)
            }
            Err(_) => Err(io::Error::from_raw_os_error(i32::try_from(-found).unwrap_or(libc::EIO))),
        })
    }

    /// One entry of a port's table of partition keys; `None`: the library has no such function.
    pub(crate) fn query_pkey(&self, port: u8, index: u16) -> Option<io::Result<u16>> {
        let query_pkey = self.functions.query_pkey?;
        let mut key = 0;
        // SAFETY: the context is open; the function writes 2 bytes.
        let found = check(unsafe { query_pkey(self.context.as_ptr(), port, index.into(), &mut key) });
        Some(found.map(|()| u16::from_be(key)))
    }

    /// One entry of a port's GID table; `None`: it is empty. Before rdma-core 33 an entry's type is unknown:
    /// 0.
    pub(crate) fn query_gid(&self, port: u8, index: u32) -> io::Result<Option<ibv_gid_entry>> {
        let mut entry = ibv_gid_entry { gid_index: index, port_num: port.into(), ..Default::default() };
        let found = match self.functions.query_gid_ex {
            Some(query_gid_ex) => {
                let (context, size) = (self.context.as_ptr(), size_of::<ibv_gid_entry>());
                // SAFETY: the context is open; `entry` has the given size, which the function
                // does not exceed.
                check(unsafe { query_gid_ex(context, port.into(), index, &mut entry, 0, size) })
            }
            None => {
                let signed = c_int::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
                // SAFETY: the context is open; the function writes 16 bytes.
                check(unsafe { (self.functions.query_gid)(self.context.as_ptr(), port, signed, &mut entry.gid) })
            }
        };
        match found {
            Ok(()) if entry.gid == ibv_gid::default() => Ok(None),
            Ok(()) => Ok(Some(entry)),
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the context is open, and this is the only time that it is closed. An error means that the
        // library could not release something; there is no alternative.
        unsafe { (self.functions.close_device)(self.context.as_ptr()) };
    }
}

/// libibverbs' two ways to fail: the error number itself, or -1 with `errno`.
fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

/// A NUL-terminated C array as text; all of it where the NUL is missing.
pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| c.to_ne_bytes()[0]).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
