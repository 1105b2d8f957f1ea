//! One error type per verb, with the information that a person needs to act.

use std::io;

use rdma_core_sys::LoadError;

/// Why libibverbs can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is not installed.
    #[error(
        "libibverbs is not installed ({reason}); install {} and, for the devices' drivers, {}",
        Self::PACKAGES[0],
        Self::PACKAGES[1]
    )]
    NotInstalled {
        /// The dynamic linker's words.
        reason: String,
    },
    /// It is installed and can't be used: another architecture, a missing dependency, or older than the first
    /// version with the functions needed.
    #[error("libibverbs can't be used: {reason}")]
    Unusable {
        /// The reason.
        reason: String,
    },
}

impl OpenError {
    /// The packages, by their Debian names, that bring the library and the drivers for devices.
    pub const PACKAGES: [&'static str; 2] = ["libibverbs1", "ibverbs-providers"];
}

impl From<LoadError> for OpenError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NotFound { reason } => OpenError::NotInstalled { reason },
            error @ (LoadError::Unloadable { .. } | LoadError::NoSymbol { .. }) => {
                OpenError::Unusable { reason: error.to_string() }
            }
        }
    }
}

/// The devices can't be listed.
#[derive(Debug, thiserror::Error)]
#[error("the RDMA devices can't be listed: {0}")]
pub struct ListError(#[source] pub(crate) io::Error);

impl ListError {
    /// The system's error number.
    pub fn errno(&self) -> Option<i32> {
        self.0.raw_os_error()
    }
}

/// Why a device can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The user may not read and write the character device.
    #[error("{device}: permission denied: this user needs read and write access to {path}")]
    PermissionDenied {
        /// The device.
        device: String,
        /// The file.
        path: String,
    },
    /// The character device is missing, as in a container that the device was not given to, or the device is
    /// gone.
    #[error("{device}: there is no {path}: is ib_uverbs loaded, and was the container given the device?")]
    NoNode {
        /// The device.
        device: String,
        /// The file.
        path: String,
    },
    /// The system refused for another reason.
    #[error("{device}: {path} can't be opened{}", reason(*.errno))]
    System {
        /// The device.
        device: String,
        /// The file.
        path: String,
        /// The system's error number; 0 where the library gave none.
        errno: i32,
    },
}

impl DeviceError {
    pub(crate) fn new(device: String, path: String, error: io::Error) -> Self {
        // libibverbs looks for a file that it may not open in other places, and then reports that it is not
        // there.
        let usable = rustix::fs::access(path.as_str(), rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK);
        match error.raw_os_error().unwrap_or(0) {
            libc::EACCES | libc::EPERM => DeviceError::PermissionDenied { device, path },
            libc::ENOENT | libc::ENXIO | libc::ENODEV if usable == Err(rustix::io::Errno::ACCESS) => {
                DeviceError::PermissionDenied { device, path }
            }
            libc::ENOENT | libc::ENXIO | libc::ENODEV => DeviceError::NoNode { device, path },
            errno => DeviceError::System { device, path, errno },
        }
    }
}

/// The system's words, to be put behind what failed; none where the library gave no number.
fn reason(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(": {}", io::Error::from_raw_os_error(errno)) }
}

/// A query of an open device failed.
#[derive(Debug, thiserror::Error)]
#[error("{device}{}: {error}", .what.failed())]
pub struct QueryError {
    pub(crate) device: String,
    pub(crate) what: Query,
    #[source]
    pub(crate) error: io::Error,
}

/// The query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Device,
    Port(u8),
    Gid { port: u8, index: u32 },
}

impl Query {
    /// What failed, to be put behind the device.
    fn failed(self) -> String {
        match self {
            Query::Device => ": can't be queried".to_owned(),
            Query::Port(port) => format!(" port {port}: can't be queried"),
            Query::Gid { port, index } => format!(" port {port}: GID {index} can't be read"),
        }
    }
}

impl QueryError {
    pub(crate) fn of_device(device: String, error: io::Error) -> Self {
        QueryError { device, what: Query::Device, error }
    }

    /// The device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The port, if the query was for one.
    pub fn port(&self) -> Option<u8> {
        match self.what {
            Query::Device => None,
            Query::Port(port) | Query::Gid { port, .. } => Some(port),
        }
    }

    /// The system's error number.
    pub fn errno(&self) -> Option<i32> {
        self.error.raw_os_error()
    }
}
