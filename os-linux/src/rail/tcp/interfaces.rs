//! Which addresses this machine has for TCP rails.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use rustix::io::Errno;

/// An address of a network interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name (`eth0`).
    pub name: String,
    /// One of its addresses; neither link-local nor multicast.
    pub address: IpAddr,
    /// It reaches only this machine.
    pub loopback: bool,
    /// The driver's value for its bandwidth, in bytes per second; 0: unknown. Virtual devices often report
    /// invented values.
    pub bytes_per_second: u64,
}

/// The addresses of all interfaces that are up, in the system's order, IPv4 before IPv6 for each interface as
/// the system lists them; loopback ones only on request. Errors: the system's, from `getifaddrs`.
pub fn interfaces(loopback: bool) -> Result<Vec<Interface>, Errno> {
    let mut found = Vec::new();
    each_address(|name, address, flags| {
        let is_loopback = flags & libc::IFF_LOOPBACK as u32 != 0;
        if is_up(flags) && usable(address) && (loopback || !is_loopback) {
            let name = name.to_string_lossy().into_owned();
            let bytes_per_second = speed_of(&name);
            found.push(Interface { name, address, loopback: is_loopback, bytes_per_second });
        }
    })?;
    Ok(found)
}

/// Whether an interface that is up has this address. Errors: the system's, from `getifaddrs`.
pub(super) fn is_running(local: IpAddr) -> Result<bool, Errno> {
    let mut running = false;
    each_address(|_, address, flags| running |= address == local && is_up(flags))?;
    Ok(running)
}

/// It was set up, and its link carries something (netdevice(7)).
fn is_up(flags: u32) -> bool {
    let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    flags & wanted == wanted
}

/// Reports every address with its interface's name and flags.
fn each_address(mut visit: impl FnMut(&CStr, IpAddr, u32)) -> Result<(), Errno> {
    let mut list = std::ptr::null_mut::<libc::ifaddrs>();
    // SAFETY: getifaddrs writes one pointer to the given address.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    let mut at = list;
    // SAFETY: `at` is null or an entry of the list that getifaddrs made and that is freed below.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: `ifa_addr` is null or points to a socket address of the family that it names.
        let Some(address) = (unsafe { address_of(entry.ifa_addr) }) else { continue };
        // SAFETY: `ifa_name` is a C string that lives as long as the list.
        visit(unsafe { CStr::from_ptr(entry.ifa_name) }, address, entry.ifa_flags);
    }
    // SAFETY: the list comes from getifaddrs, is freed once, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(())
}

/// # Safety
/// `address` is null or points to a socket address of the family that it names.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: see above.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family identifies a sockaddr_in; read_unaligned needs no alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family identifies a sockaddr_in6; read_unaligned needs no alignment.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// Whether a peer elsewhere can name it: link-local addresses mean nothing without an interface of the
/// peer's.
fn usable(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !link_local && !address.is_unspecified() && !address.is_multicast()
}

/// From sysfs, which gives megabits per second, a negative number, or an error.
fn speed_of(name: &str) -> u64 {
    let path = Path::new("/sys/class/net").join(name).join("speed");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse::<u64>().map_or(0, |megabits| megabits.saturating_mul(125_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_interfaces_are_listed_only_on_request() {
        let all = interfaces(true).unwrap();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(all.iter().any(|i| i.address == loopback && i.loopback && i.name == "lo"), "{all:?}");
        let outside = interfaces(false).unwrap();
        assert!(outside.iter().all(|i| !i.loopback && !i.address.is_loopback()), "{outside:?}");
        assert_eq!(all.iter().filter(|i| !i.loopback).cloned().collect::<Vec<_>>(), outside);
    }

    #[test]
    fn link_local_addresses_are_of_no_use() {
        let usable = |text: &str| usable(text.parse().unwrap());
        assert!(usable("10.1.2.3") && usable("127.0.0.1") && usable("2001:db8::1") && usable("fd00::1"));
        assert!(!usable("169.254.3.4") && !usable("fe80::1") && !usable("0.0.0.0") && !usable("ff02::1"));
    }
}
