//! Messages of ICMP that say that nobody is there: anybody can make them.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use weft_host::{CmTransport, DeviceKind};
use weft_rdmacm::{CmId, EventChannel, EventKind, PortSpace};
use weft_verbs::{QpAttrMask, QpState, SendOp};

use super::common::{expect, loopback, params};
use super::outside::{HERE, KEY_TEXT, Outside, THERE, apart};
use super::relay::{self, Relay};
use super::side::{ALL, DEADLINE, Side};

/// For how long and how often messages are forged: longer than a silent peer is believed to live.
const FORGED_FOR: Duration = Duration::from_millis(3500);
const PAUSE: Duration = Duration::from_millis(50);

fn side() -> Side {
    let side = Side::on(DeviceKind::Roce);
    let mut attr = side.qp.query();
    (attr.state, attr.port) = (QpState::Init, 1);
    let mask = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
    side.qp.modify(&attr, mask | QpAttrMask::ACCESS_FLAGS).unwrap();
    side
}

/// An id, the channel of its events, and its queue pair.
struct End {
    channel: Arc<EventChannel>,
    id: Arc<CmId>,
    side: Side,
}

impl End {
    fn new() -> Self {
        let channel = EventChannel::new(crate::side::host()).unwrap();
        let id = CmId::new(channel.clone(), PortSpace::Tcp, CmTransport::Shuttle);
        Self { channel, id, side: side() }
    }

    fn call(&self, to: SocketAddr) {
        self.id.resolve_addr(None, to, DEADLINE).unwrap();
        expect(&self.channel, EventKind::AddrResolved);
        self.id.resolve_route().unwrap();
        expect(&self.channel, EventKind::RouteResolved);
        self.id.connect(&params(b""), &self.side.qp).unwrap();
    }
}

/// A listener at `ip`.
fn listener(ip: &str) -> End {
    let end = End::new();
    end.id.bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
    end.id.listen(0).unwrap();
    end
}

/// The next Request of a listener, granted.
fn accept(server: &End) -> (Arc<CmId>, Side) {
    let accepted = expect(&server.channel, EventKind::ConnectRequest).id;
    let side = side();
    accepted.accept(&params(b""), &side.qp).unwrap();
    (accepted, side)
}

fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// "Port unreachable" about a datagram from `from` to `to` (RFC 792).
fn unreachable_port(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut about = vec![0x45, 0, 0, 128, 0, 0, 0x40, 0, 64, 17, 0, 0];
    about.extend(from.ip().octets());
    about.extend(to.ip().octets());
    let sum = checksum(&about).to_be_bytes();
    about[10..12].copy_from_slice(&sum);
    about.extend(from.port().to_be_bytes());
    about.extend(to.port().to_be_bytes());
    about.extend([0, 108, 0, 0]);
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(about);
    let sum = checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    message
}

fn v4(at: Option<SocketAddr>) -> SocketAddrV4 {
    match at {
        Some(SocketAddr::V4(at)) => at,
        other => panic!("{other:?}"),
    }
}

/// Says to this host, from the other one, that nobody is at `peer`, over and over.
fn forge(outside: &Outside, own: SocketAddrV4, peer: SocketAddrV4) {
    let message = unreachable_port(own, peer);
    let host: Ipv4Addr = HERE.parse().unwrap();
    outside.within(|| {
        let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
        // Nobody ever speaks on it.
        let (_silent, pause) = std::sync::mpsc::channel::<()>();
        let start = weft_os::clock::now();
        while start.elapsed() < FORGED_FOR {
            let to = SocketAddrV4::new(host, 0);
            sendto(&raw, &message, SendFlags::empty(), &to).unwrap();
            let _silence = pause.recv_timeout(PAUSE);
        }
    });
}

/// A connection of which both ends were heard, and whose peer is said to be gone, goes on.
fn forged_messages_end_nothing(test: &str, env: &[(&str, &str)]) {
    let Some(outside) = apart(test, env) else { return };
    let server = listener(HERE);
    let to = server.id.local_addr().unwrap();
    let client = outside.within(|| {
        let client = End::new();
        client.call(to);
        client
    });
    let (accepted, far) = accept(&server);
    expect(&client.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
    let (own, peer) = (v4(accepted.local_addr()), v4(accepted.peer_addr()));
    assert_eq!(peer.ip().to_string(), THERE);
    forge(&outside, own, peer);
    let (from, room) = (client.side.memory(8, 7, ALL), far.memory(8, 0, ALL));
    far.recv(1, &[room.sge(0, 8)]);
    client.side.send(2, SendOp::Send, &[from.sge(0, 8)]);
    assert!(far.completions(1)[0].is_success() && client.side.completions(1)[0].is_success());
    assert!(server.channel.is_empty(), "the end was told");
}

#[test]
fn forged_messages_end_no_connection() {
    forged_messages_end_nothing(
        "refusals::forged_messages_end_no_connection",
        &[("WEFT_INSECURE", "1")],
    );
}

#[test]
fn forged_messages_end_no_connection_under_a_key() {
    forged_messages_end_nothing(
        "refusals::forged_messages_end_no_connection_under_a_key",
        &[("WEFT_KEY", KEY_TEXT)],
    );
}

/// An attempt under a key goes on too, for a true answer may still come.
#[test]
fn forged_messages_end_no_attempt_that_was_heard() {
    let test = "refusals::forged_messages_end_no_attempt_that_was_heard";
    let Some(outside) = apart(test, &[("WEFT_KEY", KEY_TEXT)]) else { return };
    let server = outside.within(|| listener(THERE));
    let client = End::new();
    client.call(server.id.local_addr().unwrap());
    let request = expect(&server.channel, EventKind::ConnectRequest).id;
    let own = v4(client.id.local_addr());
    forge(&outside, own, v4(server.id.local_addr()));
    let far = side();
    outside.within(|| request.accept(&params(b""), &far.qp).unwrap());
    expect(&client.channel, EventKind::Established);
}

/// A process that was killed leaves nobody at its port, and that is found out in seconds.
#[test]
fn a_peer_that_is_gone_is_missed() {
    let server = listener("127.0.0.1");
    let client = End::new();
    client.id.bind(loopback()).unwrap();
    let front = relay::socket(loopback());
    let seen = front.local_addr().unwrap();
    let (near, far) = (client.id.local_addr().unwrap(), server.id.local_addr().unwrap());
    let relay = Relay::new(front, near, far);
    client.call(seen);
    let (_accepted, far) = accept(&server);
    expect(&client.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
    drop(relay);
    // What is sent now is answered by the host.
    let from = far.memory(8, 7, ALL);
    far.send(1, SendOp::Send, &[from.sge(0, 8)]);
    expect(&server.channel, EventKind::Disconnected);
}
