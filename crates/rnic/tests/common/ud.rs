//! Queue pairs for unreliable datagrams without sockets.

use weft_rnic::shuttle::{AddressPair, Key, Opener, Route, Sealer};
use weft_rnic::wire::datagram::Cipher;
#[allow(unused_imports)]
pub use weft_rnic::wire::datagram::ROUTE_LEN;
use weft_rnic::{UdConfig, UdPolicy};
use weft_verbs::{AddressVector, QpState, QpType};

use super::Host;

pub const QKEY: u32 = 0x1111_2222;
/// The time of day.
pub const NOW_NS: u64 = 1_800_000_000_000_000_000;

/// Everything is permitted, in clear.
pub struct Open;

impl UdPolicy for Open {
    fn admit(&self, _: &AddressPair) -> bool {
        true
    }

    fn permit(&self, _: &AddressPair) -> bool {
        true
    }

    fn permit_groups(&self) -> bool {
        true
    }
}

/// Nothing is.
pub struct Shut;

impl UdPolicy for Shut {
    fn admit(&self, _: &AddressPair) -> bool {
        false
    }

    fn permit(&self, _: &AddressPair) -> bool {
        false
    }

    fn permit_groups(&self) -> bool {
        false
    }
}

/// A host whose queue pair is ready to send.
pub fn host(seed: u32) -> Host {
    let host = Host::of_kind(seed, QpType::Ud, false);
    host.qp.set_attrs(|attrs| attrs.qkey = QKEY);
    host.qp.enter(QpState::Rts);
    host
}

pub fn config(policy: impl UdPolicy + 'static) -> UdConfig {
    let policy = Box::new(policy);
    UdConfig { port: 4000, group: None, seals: None, protection: None, screened: true, policy }
}

/// What seals and opens under the key that has `key` for each of its bytes.
pub fn seals(key: u8, salt: u64) -> Option<(Sealer, Opener)> {
    let key = Key::new([key; 32]);
    let sealer = Sealer::new(&key, Cipher::Aes128Gcm, NOW_NS, salt);
    Some((sealer, Opener::new(&key, NOW_NS, false)))
}

/// The address vector of `route`'s remote end.
pub fn path(route: &Route) -> AddressVector {
    let gid = |ip: std::net::IpAddr| match ip {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(v6) => v6.octets(),
    };
    let (sgid, dgid) = (gid(route.local.ip()), gid(route.remote.ip()));
    AddressVector { sgid, dgid, is_global: true, port: 1, ..AddressVector::default() }
}
