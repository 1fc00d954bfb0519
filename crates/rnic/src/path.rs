//! Where an address vector leads.

use core::net::{IpAddr, Ipv6Addr};

use weft_verbs::{AddressVector, Misuse};

/// The addresses of this side and of the peer that `path` names. A vector without GIDs names the
/// port by its LID, of which Ethernet has none: that is this port itself.
///
/// # Errors
/// Addresses of two families, or a peer that is no host; `group` says that it may be a group.
pub fn ends(path: &AddressVector, group: bool) -> Result<(IpAddr, IpAddr), Misuse> {
    let (local, remote) = (address(path.sgid), address(path.dgid));
    if path.port != 1 {
        return Err(Misuse::Invalid("there is one port, number 1"));
    }
    if !path.is_global {
        return Ok((local, local));
    }
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(Misuse::Invalid("the GIDs of a path are of different address families"));
    }
    if remote.is_unspecified() || remote.is_multicast() && !group {
        return Err(Misuse::Invalid("the GID of the peer is no host's address"));
    }
    Ok((local, remote))
}

fn address(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(sgid: &str, dgid: &str) -> AddressVector {
        let gid = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let (sgid, dgid) = (gid(sgid), gid(dgid));
        AddressVector { sgid, dgid, is_global: true, port: 1, ..AddressVector::default() }
    }

    #[test]
    fn gids_are_the_addresses_of_both_ends() {
        let found = ends(&path("192.0.2.1", "192.0.2.2"), false).unwrap();
        assert_eq!(found, ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()));
        assert!(ends(&path("192.0.2.1", "2001:db8::2"), false).is_err());
        assert!(ends(&path("2001:db8::1", "::"), false).is_err());
        assert!(ends(&path("192.0.2.1", "224.0.0.1"), false).is_err());
        assert!(ends(&path("192.0.2.1", "224.0.0.1"), true).is_ok());
        let other = AddressVector { port: 2, ..path("192.0.2.1", "192.0.2.2") };
        assert!(ends(&other, false).is_err());
    }

    #[test]
    fn a_path_without_gids_leads_back() {
        let path = AddressVector { is_global: false, ..path("192.0.2.1", "::") };
        let here = "192.0.2.1".parse().unwrap();
        assert_eq!(ends(&path, false).unwrap(), (here, here));
    }
}
