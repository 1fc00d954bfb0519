//! Several paths for one connection of Shuttle: at which addresses of this host they may begin,
//! what the peer is told of them, and which are opened once the connection is there (S-75).
//!
//! The initiator opens them, by the rule of MPTCP's path manager in Linux: each further address of
//! the peer is reached from the address that the system chooses for it; each address of this host
//! from which no path begins then reaches the peer where the connection did. All are of the
//! connection's address family: the same link by IPv4 and by IPv6 is not two.
//!
//! Further paths have a socket of their own at both ends, whose port the peer is told or sees: the
//! first path's may be connected to one address of the peer, or share its port with a listener.
//!
//! Invariant: no address is told and no path opened unless both ends have asked for several paths.
//!
//! Order: [`Multipath::parse`]; `offer` for the answer to a peer that asks, then
//! `Multipath::routes` where this end has asked.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_net::interfaces::{self, NetInterface};
use weft_net::udp::{self, UdpPort};
use weft_rnic::shuttle::Route;

use crate::host::Host;

/// Longest name of a network interface in bytes: `IFNAMSIZ` less the NUL.
const INTERFACE_NAME_MAX: usize = 15;

/// The addresses at which paths of this host may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Multipath {
    /// The first address of each interface but loopback.
    All,
    /// Those that are listed, and the first of each interface that is.
    Listed(Vec<PathPlace>),
}

/// Where paths may begin, as the user has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPlace {
    /// An address of this host.
    Address(IpAddr),
    /// The name of a network interface.
    Interface(String),
}

/// Why a list is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlace(String);

impl fmt::Display for BadPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` is neither an address nor the name of a network interface", self.0)
    }
}

impl Multipath {
    /// What `WEFT_MULTIPATH` says: `on`, `off`, or addresses and interfaces with `,` between them.
    ///
    /// # Errors
    /// An item that can be neither.
    pub fn parse(text: &str) -> Result<Option<Self>, BadPlace> {
        match text.trim() {
            "off" | "" => Ok(None),
            "on" => Ok(Some(Self::All)),
            list => {
                let places: Result<_, _> = list.split(',').map(place).collect();
                Ok(Some(Self::Listed(places?)))
            }
        }
    }

    /// What is listed and not here, as the user has written it.
    pub fn missing(&self) -> Vec<String> {
        self.missing_of(&interfaces_now())
    }

    fn missing_of(&self, interfaces: &[NetInterface]) -> Vec<String> {
        let Self::Listed(places) = self else { return Vec::new() };
        let missing = places.iter().filter_map(|place| match place {
            PathPlace::Address(address) => {
                let here = interfaces.iter().any(|i| i.addresses.contains(address));
                (!here).then(|| address.to_string())
            }
            PathPlace::Interface(name) => {
                let here = interfaces.iter().any(|i| i.name == name.as_bytes());
                (!here).then(|| name.clone())
            }
        });
        missing.collect()
    }

    /// The addresses of this host where paths may begin, for a connection at `local`.
    fn addresses(&self, local: IpAddr, interfaces: &[NetInterface]) -> Vec<IpAddr> {
        let usable =
            |address: &IpAddr| address.is_ipv4() == local.is_ipv4() && !is_link_local(*address);
        let first = |interface: &NetInterface| interface.addresses.iter().copied().find(usable);
        let found: Vec<IpAddr> = match self {
            // The connection's own stands for its interface.
            Self::All => {
                let others = |i: &&NetInterface| !i.loopback && !i.addresses.contains(&local);
                interfaces.iter().filter(others).filter_map(first).collect()
            }
            Self::Listed(places) => {
                let of_place = |place: &PathPlace| match place {
                    PathPlace::Address(address) => Some(*address).filter(usable),
                    PathPlace::Interface(name) => {
                        let named = |i: &&NetInterface| i.name == name.as_bytes();
                        interfaces.iter().find(named).and_then(first)
                    }
                };
                places.iter().filter_map(of_place).collect()
            }
        };
        let mut others = Vec::new();
        for address in found {
            if address != local && !others.contains(&address) {
                others.push(address);
            }
        }
        others
    }

    /// What the peer is told of a connection whose first path, `route`, ends at `port`, and whose
    /// further ones end at the port `further`: all addresses, or the one that `port` is bound to.
    fn announced(&self, port: &UdpPort, further: u16, route: &Route) -> Vec<SocketAddr> {
        let home = route.local.ip();
        let others = match port.is_bound_anywhere() {
            true => self.addresses(home, &interfaces_now()),
            false => Vec::new(),
        };
        [home].into_iter().chain(others).map(|ip| SocketAddr::new(ip, further)).collect()
    }

    /// The further paths of a connection whose first one is `route`, to a peer that has them end at
    /// `peers`; here they begin at port 0, in whose place the caller puts that of their socket.
    pub(crate) fn routes(&self, route: &Route, peers: &[SocketAddr]) -> Vec<Route> {
        let own = self.addresses(route.local.ip(), &interfaces_now());
        pair(route, &own, peers, udp::source_to)
    }
}

/// For a connection of `host` that its peer has asked for by `route` at `port`: its socket for
/// further paths, and where the peer may open them. Nothing if it is to have one path only.
pub fn offer(
    host: &Host,
    port: &UdpPort,
    route: &Route,
) -> Option<(Arc<UdpPort>, Vec<SocketAddr>)> {
    let multipath = host.multipath().filter(|_| !route.is_within_host())?;
    let further = open(host)?;
    let addresses = multipath.announced(port, further.number(), route);
    Some((further, addresses))
}

/// A socket for further paths. Without one a connection has one path.
pub(crate) fn open(host: &Host) -> Option<Arc<UdpPort>> {
    let opened = UdpPort::for_queue_pair(host.settings().path_ports);
    opened.map(Arc::new).inspect_err(|error| log::warn!("one path only: {error}")).ok()
}

/// The interfaces by which `routes` begin where the system would take another one to their peer.
pub(crate) fn interfaces_of(routes: &[Route]) -> Vec<(IpAddr, u32)> {
    let all = interfaces_now();
    let index = |ip: IpAddr| all.iter().find(|i| i.addresses.contains(&ip)).map(|i| i.index);
    let chosen = |route: &Route| udp::source_to(route.remote) == Some(route.local.ip());
    let forced = routes.iter().filter(|route| !chosen(route));
    forced.filter_map(|route| Some((route.local.ip(), index(route.local.ip())?))).collect()
}

fn interfaces_now() -> Vec<NetInterface> {
    interfaces::list().unwrap_or_else(|interfaces::Shortage| interfaces::list_v4())
}

fn place(item: &str) -> Result<PathPlace, BadPlace> {
    let item = item.trim();
    if let Ok(address) = item.parse() {
        return Ok(PathPlace::Address(address));
    }
    let is_name = (1..=INTERFACE_NAME_MAX).contains(&item.len())
        && !item.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if is_name { Ok(PathPlace::Interface(item.into())) } else { Err(BadPlace(item.into())) }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Pairs addresses of this host, at port 0, with those of the peer, where `source_to` says from
/// which one the system goes to a peer.
fn pair(
    first: &Route,
    own: &[IpAddr],
    peers: &[SocketAddr],
    source_to: impl Fn(SocketAddr) -> Option<IpAddr>,
) -> Vec<Route> {
    let (local, remote) = (first.local.ip(), first.remote.ip());
    let is_own = |ip: IpAddr| ip == local || own.contains(&ip);
    let from = |ip: IpAddr, remote: SocketAddr| Route { local: SocketAddr::new(ip, 0), remote };
    let mut routes: Vec<Route> = Vec::new();
    // The first is where the peer was asked, as it sees itself: behind a translator of addresses it
    // has another one.
    let Some((home, others)) = peers.split_first() else { return routes };
    for peer in others.iter().filter(|peer| peer.ip() != remote && may_be_host(peer, first)) {
        // Two hosts may have a bridge of the same address.
        let source = source_to(*peer).filter(|source| is_own(*source) && !is_own(peer.ip()));
        let route = source.map(|source| from(source, *peer));
        routes.extend(route.filter(|route| !routes.contains(route)));
    }
    let begins = |routes: &[Route], ip: IpAddr| routes.iter().any(|route| route.local.ip() == ip);
    for ip in own {
        if home.port() != 0 && !begins(&routes, *ip) {
            routes.push(from(*ip, SocketAddr::new(remote, home.port())));
        }
    }
    routes
}

/// Whether an address that a peer has named can be another host's.
fn may_be_host(peer: &SocketAddr, first: &Route) -> bool {
    let ip = peer.ip();
    peer.is_ipv4() == first.remote.is_ipv4()
        && peer.port() != 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && !ip.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn interface(name: &str, loopback: bool, addresses: &[&str]) -> NetInterface {
        NetInterface {
            name: name.into(),
            index: 1,
            loopback,
            mac: None,
            mtu: 1500,
            addresses: addresses.iter().map(|text| ip(text)).collect(),
        }
    }

    #[test]
    fn a_list_has_addresses_and_interfaces() {
        assert_eq!(Multipath::parse("off"), Ok(None));
        assert_eq!(Multipath::parse("on"), Ok(Some(Multipath::All)));
        let listed = Multipath::Listed(vec![
            PathPlace::Address(ip("192.0.2.1")),
            PathPlace::Interface("wlan0".into()),
            PathPlace::Address(ip("2001:db8::1")),
        ]);
        assert_eq!(Multipath::parse("192.0.2.1, wlan0,2001:db8::1"), Ok(Some(listed)));
        for bad in ["eth0,", "a b", "eth0/1", "a-name-of-sixteen", "192.0.2.1:80"] {
            assert!(Multipath::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_interface_but_loopback_and_the_connections_own_has_a_place() {
        let all = [
            interface("eth0", false, &["10.0.0.1", "10.0.0.9", "fd00::1"]),
            interface("wlan0", false, &["169.254.0.1", "10.1.0.1", "fe80::1"]),
            interface("ppp0", false, &["fd02::1"]),
            interface("lo", true, &["127.0.0.1"]),
        ];
        let of = |text: &str, local: &str| {
            Multipath::parse(text).unwrap().unwrap().addresses(ip(local), &all)
        };
        assert_eq!(of("on", "10.0.0.1"), [ip("10.1.0.1")]);
        assert_eq!(of("on", "10.1.0.1"), [ip("10.0.0.1")]);
        assert_eq!(of("on", "fd00::1"), [ip("fd02::1")]);
        assert_eq!(of("eth0,wlan0", "10.0.0.1"), [ip("10.1.0.1")]);
        assert_eq!(of("10.0.0.9", "10.0.0.1"), [ip("10.0.0.9")], "an address that is asked for");
        assert_eq!(of("wlan0,10.0.0.9,10.1.0.1", "10.0.0.1"), [ip("10.1.0.1"), ip("10.0.0.9")]);
        assert_eq!(of("eth9", "10.0.0.1"), [] as [IpAddr; 0]);
        let missing = |text: &str| Multipath::parse(text).unwrap().unwrap().missing_of(&all);
        assert_eq!(missing("eth9,eth0,10.9.9.9,10.1.0.1"), ["eth9", "10.9.9.9"]);
        assert_eq!(missing("on"), [] as [&str; 0]);
    }

    #[test]
    fn every_address_of_either_end_has_a_path() {
        let at = |text: &str, port: u16| SocketAddr::new(ip(text), port);
        let first = Route { local: at("10.0.0.1", 1), remote: at("10.0.0.2", 2) };
        let (home, other) = (at("10.0.0.2", 8), at("10.1.0.2", 8));
        let to = |local: &str, remote| Route { local: at(local, 0), remote };
        let from = |own: &[IpAddr], peers: &[SocketAddr], source: &dyn Fn(SocketAddr) -> IpAddr| {
            pair(&first, own, peers, |peer| Some(source(peer)))
        };
        let second = [ip("10.1.0.1")];
        // Two links, each with an address at both ends.
        let by_link = |peer| ip(if peer == other { "10.1.0.1" } else { "10.0.0.1" });
        assert_eq!(from(&second, &[home, other], &by_link), [to("10.1.0.1", other)]);
        // One end has two addresses, then the other.
        let here = |_| ip("10.0.0.1");
        assert_eq!(from(&second, &[home], &here), [to("10.1.0.1", home)]);
        assert_eq!(from(&[], &[home, other], &here), [to("10.0.0.1", other)]);
        // Both have, and the system knows one way.
        let both = [to("10.0.0.1", other), to("10.1.0.1", home)];
        assert_eq!(from(&second, &[home, other], &here), both);
        assert_eq!(from(&second, &[], &here), [], "the peer has no socket for it");
        // Behind a translator of addresses the peer names the address that it has itself.
        assert_eq!(from(&second, &[at("192.168.0.2", 8)], &here), [to("10.1.0.1", home)]);
        assert_eq!(from(&[], &[home], &here), [], "the same link");
    }

    #[test]
    fn what_a_peer_must_not_name_is_left_out() {
        let at = |text: &str| SocketAddr::new(ip(text), 7);
        let first = Route { local: at("10.0.0.1"), remote: at("10.0.0.2") };
        let here = |_| Some(ip("10.0.0.1"));
        let home = first.remote;
        for named in ["10.0.0.2", "10.0.0.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "fd00::1"] {
            assert_eq!(pair(&first, &[], &[home, at(named)], here), [], "{named}");
        }
        let portless = SocketAddr::new(ip("10.1.0.2"), 0);
        assert_eq!(pair(&first, &[ip("10.1.0.1")], &[portless, portless], here), []);
        let twice = [home, at("10.1.0.2"), at("10.1.0.2")];
        assert_eq!(pair(&first, &[], &twice, here).len(), 1);
        let elsewhere = |_| Some(ip("10.9.0.1"));
        assert_eq!(pair(&first, &[], &twice, elsewhere), [], "not from an address of the list");
    }
}
