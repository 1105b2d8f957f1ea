//! A port's address as it is published: `ib-0012-1-00004a-fe800000000000000002c90300001234`.
//!
//! Link (`ib`, `eth`, or `ibg`: InfiniBand by LID and GID), LID (4 hex digits: the port's base LID and the
//! rail's path), LMC, number of the queue pair for datagrams (6), GID (32). Lower case and full width, so
//! that an address has one form only. Where the rail connects by XRC, its domain (16) comes last (V-14).

use std::fmt;

use super::wire::PeerAddress;
use rerail_verbs::{Gid, LinkLayer};

/// Where a rail's port and its queue pair for datagrams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Addressed by GID (RoCE), not by LID.
    pub ethernet: bool,
    /// InfiniBand, and the port requires a global route (V-10).
    pub global: bool,
    /// Base LID and path bits; 0 on Ethernet.
    pub lid: u16,
    /// The port uses `2^lmc` LIDs.
    pub lmc: u8,
    /// Number of the queue pair for datagrams.
    pub qp: u32,
    pub gid: Gid,
    /// Connects by XRC: which domain its targets are in. Processes of one domain are one node to others.
    pub domain: Option<u64>,
}

impl Address {
    /// Parses an address; `Err` names the error.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or("too few parts");
        let (ethernet, global) = match next()? {
            "ib" => (false, false),
            "ibg" => (false, true),
            "eth" => (true, false),
            _ => return Err("the link is none of ib, ibg and eth"),
        };
        let lid = hex(next()?, 4).ok_or("the LID is not 4 hex digits")? as u16;
        let lmc = hex(next()?, 1).filter(|lmc| *lmc <= 7).ok_or("the LMC is not from 0 to 7")? as u8;
        let qp = hex(next()?, 6).filter(|qp| *qp != 0).ok_or("the queue pair is not 6 hex digits")? as u32;
        let gid = hex(next()?, 32).ok_or("the GID is not 32 hex digits")?;
        let digits = |text| hex(text, 16).ok_or("the XRC domain is not 16 hex digits");
        let domain = parts.next().map(digits).transpose()?.map(|domain| domain as u64);
        if parts.next().is_some() {
            return Err("too many parts");
        }
        if ethernet != (lid == 0) {
            return Err("InfiniBand has LIDs, Ethernet has none");
        }
        if lid >= 0xC000 || lid != 0 && lid < 1 << lmc {
            return Err("no port's LID");
        }
        Ok(Address { ethernet, global, lid, lmc, qp, gid: Gid(gid.to_be_bytes()), domain })
    }

    /// Whether datagrams can be sent from one to the other: the same link, on InfiniBand the same subnet (a
    /// router's LID would need a query), and on Ethernet GIDs of one family, both an IPv4 address or neither
    /// (V-19).
    pub fn reaches(&self, other: &Address) -> bool {
        let alike = match self.ethernet {
            true => self.gid.ipv4().is_some() == other.gid.ipv4().is_some(),
            false => self.gid.0[..8] == other.gid.0[..8],
        };
        self.ethernet == other.ethernet && alike
    }

    /// The form in set-up messages.
    pub fn peer_addresses(&self) -> PeerAddress {
        PeerAddress { qp: self.qp, lid: self.lid, gid: self.gid.0 }
    }

    pub fn is_ethernet(link: LinkLayer) -> bool {
        link == LinkLayer::Ethernet
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { ethernet, global, lid, lmc, qp, gid, domain } = self;
        let link = match (ethernet, global) {
            (true, _) => "eth",
            (false, true) => "ibg",
            (false, false) => "ib",
        };
        write!(f, "{link}-{lid:04x}-{lmc}-{qp:06x}-{:032x}", u128::from_be_bytes(gid.0))?;
        domain.map_or(Ok(()), |domain| write!(f, "-{domain:016x}"))
    }
}

/// A number of exactly so many digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let plain = text.len() == digits && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u128::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Address = Address {
        ethernet: false,
        global: false,
        lid: 0x12,
        lmc: 1,
        qp: 0x4A,
        gid: Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xC9, 3, 0, 0, 0x12, 0x34]),
        domain: None,
    };

    #[test]
    fn an_address_has_one_form() {
        let text = HERE.to_string();
        assert_eq!(text, "ib-0012-1-00004a-fe800000000000000002c90300001234");
        assert_eq!(Address::parse(&text), Ok(HERE));
        let ethernet = Address { ethernet: true, lid: 0, lmc: 0, ..HERE };
        assert_eq!(Address::parse(&ethernet.to_string()), Ok(ethernet));
        let global = Address { global: true, ..HERE };
        assert_eq!(global.to_string(), text.replace("ib-", "ibg-"));
        assert_eq!(Address::parse(&global.to_string()), Ok(global));
        assert!(HERE.reaches(&global));
        let xrc = Address { domain: Some(0xABC), ..HERE };
        assert_eq!(xrc.to_string(), format!("{text}-0000000000000abc"));
        assert_eq!(Address::parse(&xrc.to_string()), Ok(xrc));
        assert!(text.len() <= 200 && !text.contains([' ', ';', ',', '=']));
    }

    #[test]
    fn invalid_verbs_address_reports_the_reason() {
        let gid = "fe800000000000000002c90300001234";
        for (text, why) in [
            ("".to_owned(), "the link is none of ib, ibg and eth"),
            ("ib".to_owned(), "too few parts"),
            (format!("opa-0012-1-00004a-{gid}"), "the link is none of ib, ibg and eth"),
            (format!("ib-12-1-00004a-{gid}"), "the LID is not 4 hex digits"),
            (format!("ib-+012-1-00004a-{gid}"), "the LID is not 4 hex digits"),
            (format!("ib-001A-1-00004a-{gid}"), "the LID is not 4 hex digits"),
            (format!("ib-0012-8-00004a-{gid}"), "the LMC is not from 0 to 7"),
            (format!("ib-0012-1-000000-{gid}"), "the queue pair is not 6 hex digits"),
            ("ib-0012-1-00004a-fe80".to_owned(), "the GID is not 32 hex digits"),
            (format!("ib-0012-1-00004a-{gid}-"), "the XRC domain is not 16 hex digits"),
            (format!("ib-0012-1-00004a-{gid}-0000000000000abc-"), "too many parts"),
            (format!("ib-0000-0-00004a-{gid}"), "InfiniBand has LIDs, Ethernet has none"),
            (format!("eth-0012-0-00004a-{gid}"), "InfiniBand has LIDs, Ethernet has none"),
            (format!("ib-c000-0-00004a-{gid}"), "no port's LID"),
            (format!("ib-0003-2-00004a-{gid}"), "no port's LID"),
        ] {
            assert_eq!(Address::parse(&text), Err(why), "{text}");
        }
    }

    #[test]
    fn subnets_are_apart() {
        let mut other = HERE;
        other.gid.0[15] = 9;
        assert!(HERE.reaches(&other));
        other.gid.0[7] = 1;
        assert!(!HERE.reaches(&other) && !HERE.reaches(&Address { ethernet: true, ..HERE }));
    }

    /// V-19: a RoCE device has no path from an IPv4 address to a different one.
    #[test]
    fn address_families_are_apart_on_ethernet() {
        let v4 = |last| Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last]);
        let at = |gid| Address { ethernet: true, lid: 0, lmc: 0, gid, ..HERE };
        let mut other = at(HERE.gid);
        other.gid.0[7] = 1;
        assert!(at(v4(1)).reaches(&at(v4(2))) && at(HERE.gid).reaches(&other));
        assert!(!at(v4(1)).reaches(&other) && !other.reaches(&at(v4(1))));
    }
}
