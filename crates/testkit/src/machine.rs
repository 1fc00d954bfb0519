//! The machine: who listens, its addresses, and private networks within it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::skip;

/// Whether a socket of TCP or UDP listens on `port`.
pub fn listens(port: u16) -> bool {
    listens_to_tcp(port) || listens_to_udp(port)
}

/// Whether a socket of TCP listens on `port`: state 0A in the kernel's tables.
pub fn listens_to_tcp(port: u16) -> bool {
    is_in_state(port, "0A", ["tcp", "tcp6"])
}

/// Whether a socket of UDP without a peer has `port`: state 07 in the kernel's tables.
pub fn listens_to_udp(port: u16) -> bool {
    is_in_state(port, "07", ["udp", "udp6"])
}

fn is_in_state(port: u16, state: &str, tables: [&str; 2]) -> bool {
    let suffix = format!(":{port:04X}");
    let is_it = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&suffix)) && fields.nth(1) == Some(state)
    };
    let tables = tables.map(|table| fs::read_to_string(format!("/proc/net/{table}")));
    tables.iter().flatten().any(|table| table.lines().any(is_it))
}

/// Whether this process has all rights.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An address of this machine other than loopback's, which libfabric and DAPL insist on; nothing,
/// and a line on stderr, when it has none.
pub fn own_address() -> Option<IpAddr> {
    let own = route_source().filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
    if own.is_none() {
        skip("this machine has no address but loopback's");
    }
    own
}

/// The address that packets to elsewhere come from.
fn route_source() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Connecting a datagram socket sends nothing; it only asks for the route. The address is one
    // that RFC 2544 sets aside for tests.
    socket.connect((Ipv4Addr::new(198, 18, 0, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Two network namespaces with a cable between them, removed when dropped. Only for root.
#[derive(Debug)]
pub struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    /// The address of the first.
    pub const FIRST: &str = "10.77.0.1";
    /// The address of the second.
    pub const SECOND: &str = "10.77.0.2";

    /// Makes them; nothing, and a line on stderr, where the kernel does not let us.
    pub fn new() -> Option<Self> {
        let id = std::process::id();
        let this = Self { names: [format!("weft-{id}-a"), format!("weft-{id}-b")] };
        match this.set_up() {
            Ok(()) => Some(this),
            Err(why) => {
                skip(&format!("no network namespaces here: {why}"));
                None
            }
        }
    }

    fn set_up(&self) -> Result<(), String> {
        let [a, b] = &self.names;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("-n {a} link add cable type veth peer name cable netns {b}"))?;
        for (name, address) in [(a, Self::FIRST), (b, Self::SECOND)] {
            // One address only: link-local ones come at a time of their own.
            ip(&format!("-n {name} link set cable addrgenmode none"))?;
            ip(&format!("-n {name} address add {address}/24 dev cable"))?;
            ip(&format!("-n {name} link set cable up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(())
    }

    /// What starts a program in the first.
    pub fn in_first(&self) -> String {
        format!("ip netns exec {}", self.names[0])
    }

    /// What starts a program in the second.
    pub fn in_second(&self) -> String {
        format!("ip netns exec {}", self.names[1])
    }

    /// The files by which the two are entered, the first's first.
    pub fn links(&self) -> [PathBuf; 2] {
        self.names.each_ref().map(|name| Path::new("/run/netns").join(name))
    }

    /// Has a firewall in the second drop all UDP, in and out.
    ///
    /// # Panics
    /// Where `nft` is missing, or refuses.
    pub fn drop_udp_in_second(&self) {
        self.drop_in_second("no_udp", &["meta l4proto udp drop"]);
    }

    /// Has a firewall in the second drop all TCP, in and out, but that to or from `port`.
    ///
    /// # Panics
    /// As [`Namespaces::drop_udp_in_second`].
    pub fn drop_tcp_in_second_but(&self, port: u16) {
        let passes = ["sport", "dport"].map(|end| format!("tcp {end} {port} accept"));
        self.drop_in_second("no_tcp", &[&passes[0], &passes[1], "meta l4proto tcp drop"]);
    }

    fn drop_in_second(&self, table: &str, rules: &[&str]) {
        let name = &self.names[1];
        let nft = |line: &str| ip(&format!("netns exec {name} nft {line}")).expect("nft works");
        nft(&format!("add table inet {table}"));
        for hook in ["input", "output"] {
            let chain = format!("inet {table} {hook}");
            nft(&format!("add chain {chain} {{ type filter hook {hook} priority 0 ; }}"));
            rules.iter().for_each(|rule| nft(&format!("add rule {chain} {rule}")));
        }
    }

    /// Takes its address from the second and gives it `to`, an address of the same network.
    ///
    /// # Panics
    /// Where `ip` refuses.
    pub fn move_second(&self, to: &str) {
        let name = &self.names[1];
        ip(&format!("-n {name} address flush dev cable scope global")).expect("it had one");
        ip(&format!("-n {name} address add {to}/24 dev cable")).expect("the address is free");
    }

    /// Packets that the second has sent over the cable.
    ///
    /// # Panics
    /// Where `ip` refuses.
    pub fn sent_by_second(&self) -> u64 {
        let path = "/sys/class/net/cable/statistics/tx_packets";
        let said = ip_from(&format!("netns exec {} cat {path}", self.names[1]));
        said.ok().and_then(|said| said.trim().parse().ok()).expect("the cable counts")
    }

    /// Whether a socket of the first listens on `port`.
    pub fn first_listens(&self, port: u16) -> bool {
        listens_in(&self.names[0], port)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            // One that was never made need not be removed.
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// Whether a socket of the namespace `name` listens on `port`.
pub(crate) fn listens_in(name: &str, port: u16) -> bool {
    let mut ss = Command::new("ip");
    ss.args(["netns", "exec", name, "ss", "-Hltun", &format!("sport = :{port}")]);
    ss.output().is_ok_and(|output| !output.stdout.is_empty())
}

pub(crate) fn ip(line: &str) -> Result<(), String> {
    ip_from(line).map(drop)
}

/// What `ip` says to `line`.
pub(crate) fn ip_from(line: &str) -> Result<String, String> {
    let output = Command::new("ip").args(line.split_whitespace()).output();
    let output = output.map_err(|error| error.to_string())?;
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("ip {line}: {complaint}"))
    }
}
