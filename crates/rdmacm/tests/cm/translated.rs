//! Peers behind a box that translates addresses, and begins to do so anew.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_host::CmTransport;
use weft_rdmacm::{CmId, EventKind, PortSpace};
use weft_verbs::{SendOp, WcStatus};

use crate::common::{DEADLINE, Side, expect, loopback, params};
use crate::relay::{self, Relay};
use crate::shuttle::{End, side};

/// Bytes of a message: some datagrams.
const MESSAGE: usize = 200_000;
/// Messages that the other side has posted receives for.
const ROUNDS: u64 = 12;

/// A connection whose client is behind a box.
struct Translated {
    server: End,
    _client: End,
    accepted: Arc<CmId>,
    at: SocketAddr,
    near: Side,
    far: Side,
    relay: Relay,
}

impl Translated {
    fn new() -> Self {
        let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
        let at = server.id.local_addr().unwrap();
        let client = End::new(CmTransport::Shuttle, PortSpace::Tcp);
        client.id.bind(loopback()).unwrap();
        let front = relay::socket(loopback());
        let seen = front.local_addr().unwrap();
        let relay = Relay::new(front, client.id.local_addr().unwrap(), at);
        client.resolve(seen);
        let (near, far) = (side(), side());
        client.id.connect(&params(b""), &near.qp).unwrap();
        let accepted = expect(&server.channel, EventKind::ConnectRequest).id;
        accepted.accept(&params(b""), &far.qp).unwrap();
        client.expect(EventKind::Established);
        expect(&server.channel, EventKind::Established);
        Self { server, _client: client, accepted, at, near, far, relay }
    }

    /// Messages go both ways while the far side sees one address after the other.
    fn converse(&self) {
        let ends = [&self.near, &self.far];
        let rooms = ends.map(|end| end.memory(MESSAGE, 0, crate::side::ALL));
        for round in 0..ROUNDS {
            if round.is_multiple_of(3) {
                self.relay.rebind();
            }
            for (from, to, room) in [(ends[0], ends[1], &rooms[1]), (ends[1], ends[0], &rooms[0])] {
                let octets = from.memory(MESSAGE, 1 + round as u8, crate::side::ALL);
                to.recv(round, &[room.sge(0, MESSAGE)]);
                from.send(round, SendOp::Send, &[octets.sge(0, MESSAGE)]);
                for end in [from, to] {
                    assert_eq!(end.completions(1)[0].status, WcStatus::Success as u32);
                }
                assert!(room.bytes == octets.bytes);
            }
        }
    }
}

#[test]
fn a_client_is_followed_from_address_to_address() {
    Translated::new().converse();
}

#[test]
fn so_it_is_when_nobody_listens_any_more() {
    let line = Translated::new();
    line.server.id.destroy();
    line.converse();
}

#[test]
fn who_asks_where_nobody_listens_any_more_is_told_so() {
    for transport in [CmTransport::Auto, CmTransport::Shuttle] {
        let line = Translated::new();
        line.server.id.destroy();
        let late = End::towards(transport, PortSpace::Tcp, line.at);
        late.id.connect(&params(b""), &side().qp).unwrap();
        assert_eq!(late.expect(EventKind::Rejected).status, 8);
    }
}

#[test]
fn another_may_listen_where_a_connection_outlasts_its_listener() {
    let line = Translated::new();
    line.server.id.destroy();
    let heir = End::new(CmTransport::Shuttle, PortSpace::Tcp);
    heir.id.bind((std::net::Ipv4Addr::UNSPECIFIED, line.at.port()).into()).unwrap();
    heir.id.listen(0).unwrap();
    let client = End::towards(CmTransport::Shuttle, PortSpace::Tcp, line.at);
    client.id.connect(&params(b""), &side().qp).unwrap();
    expect(&heir.channel, EventKind::ConnectRequest).id.destroy();
    client.expect(EventKind::Rejected);
}

#[test]
fn nothing_is_left_of_a_listener_and_its_connections() {
    let line = Translated::new();
    line.server.id.destroy();
    line.accepted.destroy();
    drop(line.far);
    // The connection ends once its peer has answered.
    let start = weft_os::clock::now();
    while std::net::UdpSocket::bind(line.at).is_err() {
        assert!(start.elapsed() < DEADLINE);
        std::thread::yield_now();
    }
}
