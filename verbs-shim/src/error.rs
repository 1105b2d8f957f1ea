//! One error type per verb, with the information that a person needs to act.

use std::{error, fmt, io};

use rdma_core_sys::LoadError;

/// Why libibverbs can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It is not installed.
    NotInstalled {
        /// The dynamic linker's words.
        reason: String,
    },
    /// It is installed and can't be used: another architecture, a missing dependency, or older than the first
    /// version with the functions needed.
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

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [library, providers] = Self::PACKAGES;
        match self {
            OpenError::NotInstalled { reason } => write!(
                f,
                "libibverbs is not installed ({reason}); install {library} and, for the devices' drivers, {providers}"
            ),
            OpenError::Unusable { reason } => write!(f, "libibverbs can't be used: {reason}"),
        }
    }
}

impl error::Error for OpenError {}

/// The devices can't be listed.
#[derive(Debug)]
pub struct ListError(pub(crate) io::Error);

impl ListError {
    /// The system's error number.
    pub fn errno(&self) -> Option<i32> {
        self.0.raw_os_error()
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the RDMA devices can't be listed: {}", self.0)
    }
}

impl error::Error for ListError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Why a device can't be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The user may not read and write the character device.
    PermissionDenied {
        /// The device.
        device: String,
        /// The file.
        path: String,
    },
    /// The character device is missing, as in a container that the device was not given to, or the device is
    /// gone.
    NoNode {
        /// The device.
        device: String,
        /// The file.
        path: String,
    },
    /// The system refused for another reason.
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

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::PermissionDenied { device, path } => {
                write!(f, "{device}: permission denied: this user needs read and write access to {path}")
            }
            DeviceError::NoNode { device, path } => {
                write!(f, "{device}: there is no {path}: is ib_uverbs loaded, and was the container given the device?")
            }
            DeviceError::System { device, path, errno: 0 } => write!(f, "{device}: {path} can't be opened"),
            DeviceError::System { device, path, errno } => {
                write!(f, "{device}: {path} can't be opened: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl error::Error for DeviceError {}

/// A query of an open device failed.
#[derive(Debug)]
pub struct QueryError {
    pub(crate) device: String,
    pub(crate) what: Query,
    pub(crate) error: io::Error,
}

/// The query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Device,
    Port(u8),
    Gid { port: u8, index: u32 },
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

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueryError { device, what, error } = self;
        match what {
            Query::Device => write!(f, "{device}: can't be queried: {error}"),
            Query::Port(port) => write!(f, "{device} port {port}: can't be queried: {error}"),
            Query::Gid { port, index } => write!(f, "{device} port {port}: GID {index} can't be read: {error}"),
        }
    }
}

impl error::Error for QueryError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}
