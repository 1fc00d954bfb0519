//! Datagrams are cut where they may be, and leave whole or not at all elsewhere: in a network of
//! its own, whose loopback takes 1300 bytes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use weft_net::udp::{BUNDLE_OCTETS, UdpPort};
use weft_rnic::shuttle::Route;
use weft_rnic::wire::llp::Gather;
use weft_rnic::{Batch, Written};
use weft_testkit::is_apart;

const LONG: u16 = 1400;

fn lo_takes(octets: u16) {
    let words = format!("link set lo mtu {octets} up");
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

struct Ends {
    from: UdpPort,
    to: UdpPort,
    route: Route,
}

impl Ends {
    fn new(ip: std::net::IpAddr) -> Self {
        let [from, to] = [(); 2].map(|()| UdpPort::bind(0).unwrap());
        let at = |port: &UdpPort| SocketAddr::new(ip, port.number());
        let route = Route { local: at(&from), remote: at(&to) };
        Self { from, to, route }
    }

    /// Sends datagrams of these lengths; the bytes of the first that arrive.
    fn pass(&self, lengths: &[u16], may_fragment: bool) -> (Written, Option<usize>) {
        let mut gather = Gather::default();
        gather.push_bytes(&vec![7; lengths.iter().copied().map(usize::from).sum()]);
        let route = Some(&self.route);
        let batch = Batch { route, gather: &gather, lengths, may_fragment, written: 0 };
        let written = self.from.send(&batch, None);
        let arrived = self.to.receive(&mut vec![0; BUNDLE_OCTETS], None);
        (written, arrived.map(|bundle| bundle.octets))
    }
}

#[test]
fn only_what_may_be_cut_passes_where_it_is_too_long() {
    if !is_apart("only_what_may_be_cut_passes_where_it_is_too_long", &[]) {
        return;
    }
    let refused = (Written::Failed, None);
    let passed = |octets: u16| (Written::Octets(octets.into()), Some(octets.into()));
    for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
        lo_takes(1300);
        let ends = Ends::new(ip);
        assert_eq!(ends.pass(&[LONG], false), refused, "{ip}");
        assert_eq!(ends.pass(&[LONG; 2], false), refused);
        assert!(!ends.from.has_lost_route(), "a device that takes less is no lost route");
        assert_eq!(ends.pass(&[LONG], true), passed(LONG), "{ip}");
        assert_eq!(ends.pass(&[LONG], false), refused, "as before");
        ends.from.cut_long();
        assert_eq!(ends.pass(&[LONG], false), passed(LONG), "{ip}");
        assert_eq!(ends.pass(&[LONG], true), passed(LONG), "{ip}");
        assert_eq!(ends.pass(&[LONG], false), passed(LONG), "as before");
    }
    // Every path is to take so much, and IPv4 has paths that do not.
    lo_takes(1000);
    let ends = Ends::new(Ipv4Addr::LOCALHOST.into());
    assert_eq!(ends.pass(&[1200], false), passed(1200));
    assert_eq!(ends.pass(&[1201], false), refused);
}
