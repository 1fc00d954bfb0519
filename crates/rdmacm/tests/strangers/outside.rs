//! A process in a network of its own, and another host at the other end of its only cable.
//!
//! Settings are those of a process, and so is the network that the engine's threads are in. So a
//! test runs itself again: the copy is the host, and a name space that it makes is the other one.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use degen::namespace::Namespace;
use weft_testkit::is_apart;

/// A key, and the same for `WEFT_KEY`.
pub const KEY: [u8; 32] = [0x17; 32];
pub const KEY_TEXT: &str = "weft1:1717171717171717171717171717171717171717171717171717171717171717";

/// Addresses of this host.
pub const HERE: &str = "198.51.100.1";
pub const HERE_V6: &str = "2001:db8::1";
/// The same; the other host has them too, to claim that it is this one.
pub const CLAIMED: &str = "198.51.100.9";
pub const CLAIMED_V6: &str = "2001:db8::9";
pub const HERE_ON_LINK: &str = "169.254.7.1";
/// Addresses of the other one.
pub const THERE: &str = "198.51.100.2";
pub const THERE_ON_LINK: &str = "169.254.7.2";

/// The other host.
pub struct Outside(Namespace);

/// The other host, in the copy; `None` in the test itself, once its copy has succeeded with `env`,
/// or where no network can be made.
pub fn apart(test: &str, env: &[(&str, &str)]) -> Option<Outside> {
    is_apart(test, env).then(Outside::new)
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().expect("ip of iproute2");
    assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Outside {
    fn new() -> Self {
        let outside = Self(Namespace::create().expect("this process may make name spaces"));
        let place = outside.place();
        ip("link set lo up");
        ip("link add cable type veth peer name plug");
        ip(&format!("link set plug netns {place}"));
        ip("link set cable address 02:00:00:00:00:01 up");
        for address in [HERE, CLAIMED, HERE_ON_LINK] {
            ip(&format!("addr add {address}/24 dev cable"));
        }
        for address in [HERE_V6, CLAIMED_V6] {
            ip(&format!("addr add {address}/64 dev cable nodad"));
        }
        outside.within(|| {
            ip("link set plug up");
            for address in [THERE, THERE_ON_LINK] {
                ip(&format!("addr add {address}/24 dev plug"));
            }
            ip(&format!("addr add {CLAIMED}/32 dev lo"));
            ip(&format!("addr add {CLAIMED_V6}/128 dev lo nodad"));
            ip("addr add 2001:db8::2/64 dev plug nodad");
            // By default the kernel says "port unreachable" once a second, after a burst of six: of
            // callers that come together some would hear nothing.
            let limit = std::fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0");
            limit.expect("the settings of the other host are ours");
            // No answer to a claimed address would come back.
            for address in [HERE, HERE_V6] {
                let neighbour = "lladdr 02:00:00:00:00:01 dev plug";
                ip(&format!("neigh add {address} {neighbour}"));
            }
        });
        outside
    }

    fn place(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.number())
    }

    /// What starts a program on the other host.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn entry(&self) -> String {
        format!("nsenter --net={}", self.place())
    }

    /// Does something on the other host.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.within(work).expect("the name space is ours")
    }

    /// A socket of the other host at `address`.
    pub fn socket(&self, address: &str) -> UdpSocket {
        let ip: IpAddr = address.parse().unwrap();
        self.within(|| UdpSocket::bind((ip, 0))).expect("an address of that host")
    }
}
