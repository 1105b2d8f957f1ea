//! Which addresses this machine has for TCP rails.

use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
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
    for (name, address, flags) in addresses()? {
        let is_loopback = flags.contains(InterfaceFlags::IFF_LOOPBACK);
        if flags.contains(UP) && usable(address) && (loopback || !is_loopback) {
            let bytes_per_second = speed_of(&name);
            found.push(Interface { name, address, loopback: is_loopback, bytes_per_second });
        }
    }
    Ok(found)
}

/// Whether an interface that is up has this address. Errors: the system's, from `getifaddrs`.
pub(super) fn is_running(local: IpAddr) -> Result<bool, Errno> {
    Ok(addresses()?.any(|(_, address, flags)| address == local && flags.contains(UP)))
}

/// It was set up, and its link carries something (netdevice(7)).
const UP: InterfaceFlags = InterfaceFlags::IFF_UP.union(InterfaceFlags::IFF_RUNNING);

/// Every address with its interface's name and flags.
fn addresses() -> Result<impl Iterator<Item = (String, IpAddr, InterfaceFlags)>, Errno> {
    let all = getifaddrs().map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    Ok(all.filter_map(|one| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
        let address = v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))?;
        Some((one.interface_name, address, one.flags))
    }))
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
    use std::net::Ipv4Addr;

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
