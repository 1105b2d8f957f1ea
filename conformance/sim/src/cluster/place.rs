//! Places in a simulation, as text: `rank3`, `rank3.hca0`, `host0.hca1.port0`, `host0.bus1`,
//! `subnet0.plane1`, `cluster`.

use std::fmt;
use std::str::FromStr;

/// A place. Numbers count from 0; devices of a host, ports of a device and planes of a subnet each by
/// themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Everything.
    Cluster,
    /// A process.
    Rank(u32),
    /// A process's use of its n-th device.
    RankHca {
        /// The process.
        rank: u32,
        /// The device, counted within its host.
        hca: u32,
    },
    /// A device.
    Hca {
        /// The host.
        host: u32,
        /// The device.
        hca: u32,
    },
    /// A port.
    Port {
        /// The host.
        host: u32,
        /// The device.
        hca: u32,
        /// The port.
        port: u32,
    },
    /// An I/O bus.
    Bus {
        /// The host.
        host: u32,
        /// The bus.
        bus: u32,
    },
    /// A switch.
    Subnet(u32),
    /// A path through a switch.
    Plane {
        /// The switch.
        subnet: u32,
        /// The path.
        plane: u32,
    },
}

/// Text that names no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceError {
    found: String,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is no place: rank3, rank3.hca0, host0.hca1, host0.hca1.port0, host0.bus1, subnet0, \
             subnet0.plane1 or `world`",
            self.found
        )
    }
}

impl std::error::Error for PlaceError {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Cluster => f.write_str("world"),
            Place::Rank(rank) => write!(f, "rank{rank}"),
            Place::RankHca { rank, hca } => write!(f, "rank{rank}.hca{hca}"),
            Place::Hca { host, hca } => write!(f, "host{host}.hca{hca}"),
            Place::Port { host, hca, port } => write!(f, "host{host}.hca{hca}.port{port}"),
            Place::Bus { host, bus } => write!(f, "host{host}.bus{bus}"),
            Place::Subnet(subnet) => write!(f, "subnet{subnet}"),
            Place::Plane { subnet, plane } => write!(f, "subnet{subnet}.plane{plane}"),
        }
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        fn part(part: &str) -> Option<(&str, u32)> {
            let at = part.find(|c: char| c.is_ascii_digit())?;
            let (word, number) = part.split_at(at);
            // One spelling per number, so that text and place are one to one.
            let number = number.parse().ok().filter(|parsed: &u32| parsed.to_string() == number)?;
            Some((word, number))
        }
        let error = || PlaceError { found: text.chars().take(40).collect() };
        if text == "world" {
            return Ok(Place::Cluster);
        }
        let parts = text.split('.').map(part).collect::<Option<Vec<_>>>().ok_or_else(error)?;
        match parts[..] {
            [("rank", rank)] => Ok(Place::Rank(rank)),
            [("rank", rank), ("hca", hca)] => Ok(Place::RankHca { rank, hca }),
            [("host", host), ("hca", hca)] => Ok(Place::Hca { host, hca }),
            [("host", host), ("hca", hca), ("port", port)] => Ok(Place::Port { host, hca, port }),
            [("host", host), ("bus", bus)] => Ok(Place::Bus { host, bus }),
            [("subnet", subnet)] => Ok(Place::Subnet(subnet)),
            [("subnet", subnet), ("plane", plane)] => Ok(Place::Plane { subnet, plane }),
            _ => Err(error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back_as_written() {
        for text in [
            "world",
            "rank0",
            "rank31.hca1",
            "host2.hca0",
            "host2.hca0.port1",
            "host0.bus2",
            "subnet0",
            "subnet1.plane3",
        ] {
            assert_eq!(text.parse::<Place>().map(|place| place.to_string()), Ok(text.to_owned()));
        }
        for text in
            ["", "rank", "rank01", "rank-1", "rank1.port0", "host1", "hca0", "rank1.", "world.rank1", "rank9999999999"]
        {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
