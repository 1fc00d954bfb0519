//! A private network behind a box that translates addresses, as homes and clouds have them.

use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::lab::skip;
use crate::machine::{ip, ip_from};

/// Two network namespaces and the box between them, removed when dropped. Only for root.
#[derive(Debug)]
pub struct Translator {
    inside: String,
    translating: String,
    outside: String,
    /// The last byte of the box's own address on the far side.
    address: AtomicU8,
}

/// The first of the addresses that the box has, one after the other.
const FIRST: u8 = 10;

impl Translator {
    /// The address of the outside; that of the inside nobody there knows.
    pub const OUTSIDE: &str = "10.77.0.1";

    /// Makes them; nothing, and a line on stderr, where the kernel does not let us.
    pub fn new() -> Option<Self> {
        let name = |part: &str| format!("weft-{}-{part}", std::process::id());
        let (inside, translating, outside) = (name("in"), name("box"), name("out"));
        let this = Self { inside, translating, outside, address: FIRST.into() };
        match this.set_up() {
            Ok(()) => Some(this),
            Err(why) => {
                skip(&format!("addresses cannot be translated here: {why}"));
                None
            }
        }
    }

    fn set_up(&self) -> Result<(), String> {
        let Self { inside, translating, outside, .. } = self;
        for name in [inside, translating, outside] {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        for (name, end, own, boxed) in [
            (inside, "inner", "10.78.0.2/24", "10.78.0.1/24"),
            (outside, "outer", "10.77.0.1/24", "10.77.0.10/24"),
        ] {
            ip(&format!("-n {name} link add cable type veth peer name {end} netns {translating}"))?;
            ip(&format!("-n {name} address add {own} dev cable"))?;
            ip(&format!("-n {translating} address add {boxed} dev {end}"))?;
            ip(&format!("-n {name} link set cable up"))?;
            ip(&format!("-n {translating} link set {end} up"))?;
        }
        ip(&format!("-n {inside} route add default via 10.78.0.1"))?;
        self.in_box("sysctl -q net.ipv4.ip_forward=1")?;
        self.in_box("nft add table ip nat")?;
        self.in_box("nft add chain ip nat out { type nat hook postrouting priority 100 ; }")?;
        // Ports of its own choice, so that they change as well.
        self.in_box("nft add rule ip nat out oifname outer masquerade random")
    }

    fn in_box(&self, line: &str) -> Result<(), String> {
        ip(&format!("netns exec {} {line}", self.translating))
    }

    /// What starts a program in the private network.
    pub fn inside(&self) -> String {
        format!("ip netns exec {}", self.inside)
    }

    /// What starts a program outside.
    pub fn outside(&self) -> String {
        format!("ip netns exec {}", self.outside)
    }

    /// Whether a socket of the outside listens on `port`.
    pub fn outside_listens(&self, port: u16) -> bool {
        crate::machine::listens_in(&self.outside, port)
    }

    /// Gives the box another address. It forgets what it has translated, and who is outside sees
    /// another address and another port from then on.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn rebind(&self) {
        let old = self.address.fetch_add(1, Ordering::Relaxed);
        let change = |what: &str, last: u8| {
            let name = &self.translating;
            ip(&format!("-n {name} address {what} 10.77.0.{last}/24 dev outer")).expect("its own");
        };
        change("del", old);
        change("add", old + 1);
    }

    /// Bytes that it has sent to the outside.
    ///
    /// # Panics
    /// If the kernel does not say.
    pub fn octets_out(&self) -> u64 {
        self.octets(&["tx_bytes"])
    }

    /// Bytes that have passed it, either way.
    ///
    /// # Panics
    /// If the kernel does not say.
    pub fn octets_passed(&self) -> u64 {
        self.octets(&["tx_bytes", "rx_bytes"])
    }

    /// The sum of these counters of its outer side.
    fn octets(&self, names: &[&str]) -> u64 {
        let file = |name: &&str| format!(" /sys/class/net/outer/statistics/{name}");
        let files: String = names.iter().map(file).collect();
        let line = format!("netns exec {} cat{files}", self.translating);
        let text = ip_from(&line).expect("its own counters");
        text.lines().map(|line| line.parse::<u64>().expect("a number")).sum()
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        for name in [&self.inside, &self.translating, &self.outside] {
            // One that was never made need not be removed.
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}
