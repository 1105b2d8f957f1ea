//! Bytes from the kernel's generator (rule H-7).

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// So many random bytes, fit for keys and nonces.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}
