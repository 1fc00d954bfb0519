//! Listeners of rdma-cm: an application that takes a failing request for the end of everything, as
//! `rping -s` and the servers of perftest do, goes on.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use weft_host::{CmTransport, DeviceKind};
use weft_rdmacm::{CmId, EventChannel, EventKind, PortSpace};
use weft_rnic::shuttle::ShuttleConfig;
use weft_rnic::wire::shuttle::ConnectionId;
use weft_rnic::wire::shuttle::greeting::{CmTerms, Greeting, Purpose};
use weft_rnic::wire::shuttle::hello::{Hello, HelloKind, HelloLimits, Modules, reason};

use super::common::{REQUEST, Server, expect, params, raw_peer, wait_closed};
use super::outside::{CLAIMED, CLAIMED_V6, HERE, HERE_V6, KEY_TEXT, Outside, THERE, apart};

/// How long an answer takes at most; nothing is concluded from a silence of this length but that
/// the next packet may be looked at.
const ANSWER: Duration = Duration::from_secs(5);

/// A Request in clear that asks a listener for a connection.
fn request() -> Vec<u8> {
    let ShuttleConfig { placement, recovery, protection, .. } = ShuttleConfig::default();
    let greeting = Greeting {
        purpose: Purpose::Manager,
        terms: CmTerms::default(),
        room_octets: 1 << 20,
        from: 0x1234,
        to: 0,
        private_data: b"stranger",
    };
    let limits = HelloLimits {
        datagram_octets: 1200,
        streams: 1,
        ord: 1,
        ird: 1,
        idle_ms: 1000,
        rate_kbps: u64::MAX,
    };
    Hello {
        from: ConnectionId(0x5500),
        nonce: 77,
        modules: Modules { protection, placement, recovery },
        limits: Some(limits),
        private_data: &greeting.encode(),
        ..Hello::new(HelloKind::Request)
    }
    .encode()
}

/// A listener at all addresses, and its port.
fn server(transport: CmTransport) -> (Server, u16) {
    let channel = EventChannel::new(crate::side::host()).unwrap();
    let id = CmId::new(channel.clone(), PortSpace::Tcp, transport);
    id.bind("[::]:0".parse().unwrap()).unwrap();
    id.listen(0).unwrap();
    let addr = id.local_addr().unwrap();
    (Server { channel, id, addr }, addr.port())
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port)
}

/// What a Request of `socket` is answered with, by kind and reason.
fn ask(socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) -> (HelloKind, u16) {
    socket.set_read_timeout(Some(ANSWER)).unwrap();
    socket.send_to(datagram, to).unwrap();
    let mut room = [0; 2048];
    let len = socket.recv(&mut room).expect("an answer in time");
    assert!(len <= datagram.len());
    let hello = Hello::parse(&room[..len]).unwrap();
    (hello.kind, hello.reason)
}

/// A connection of this host is the next that is announced.
fn prove_alive(server: &Server, port: u16, transport: CmTransport) {
    let client = EventChannel::new(crate::side::host()).unwrap();
    let id = CmId::new(client.clone(), PortSpace::Tcp, transport);
    id.resolve_addr(None, at(HERE, port), ANSWER).unwrap();
    expect(&client, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&client, EventKind::RouteResolved);
    let side = match id.personality() {
        DeviceKind::Iwarp => super::common::ready_side(),
        DeviceKind::Roce => {
            let side = super::side::Side::on(DeviceKind::Roce);
            let mut attr = side.qp.query();
            (attr.state, attr.port) = (weft_verbs::QpState::Init, 1);
            use weft_verbs::QpAttrMask as Mask;
            let mask = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS;
            side.qp.modify(&attr, mask).unwrap();
            side
        }
    };
    id.connect(&params(b"alive?"), &side.qp).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(request.event.private_data[..6], *b"alive?");
    request.id.reject(b"").unwrap();
    expect(&client, EventKind::Rejected);
    id.destroy();
    request.id.destroy();
}

/// A stream of another host, which is closed without a word although it sends a Request.
fn is_hung_up_on(outside: &Outside, to: SocketAddr) {
    let stream: TcpStream = outside.within(|| raw_peer(to, REQUEST));
    assert_eq!(wait_closed(&stream, ANSWER), b"");
}

#[test]
fn without_a_key_other_hosts_are_not_announced() {
    let test = "listeners::without_a_key_other_hosts_are_not_announced";
    let Some(outside) = apart(test, &[]) else { return };
    let (server, port) = server(CmTransport::Auto);
    let stranger = outside.socket(THERE);
    let refused = (HelloKind::Reject, reason::CLEAR_TEXT);
    assert_eq!(ask(&stranger, at(HERE, port), &request()), refused);
    is_hung_up_on(&outside, at(HERE, port));
    for transport in [CmTransport::Auto, CmTransport::Iwarp] {
        prove_alive(&server, port, transport);
    }
    assert!(server.channel.is_empty());
}

#[test]
fn with_a_key_who_has_none_is_not_announced() {
    let test = "listeners::with_a_key_who_has_none_is_not_announced";
    let Some(outside) = apart(test, &[("WEFT_KEY", KEY_TEXT)]) else { return };
    let (server, port) = server(CmTransport::Auto);
    let stranger = outside.socket(THERE);
    // Before anything else it is asked whether it receives at its address.
    let (kind, _) = ask(&stranger, at(HERE, port), &request());
    assert_eq!(kind, HelloKind::Retry);
    let to = at(HERE, port);
    let answer = ask_with_cookie(&stranger, to);
    assert_eq!(answer, (HelloKind::Reject, reason::NOTHING_IN_COMMON));
    is_hung_up_on(&outside, to);
    prove_alive(&server, port, CmTransport::Auto);
    assert!(server.channel.is_empty());
}

/// A Request with the cookie that a Probe was answered with.
fn ask_with_cookie(socket: &UdpSocket, to: SocketAddr) -> (HelloKind, u16) {
    let plain = request();
    let hello = Hello::parse(&plain).unwrap();
    socket.send_to(&Hello::probe(hello.from, hello.nonce).encode(), to).unwrap();
    let mut room = [0; 2048];
    let len = socket.recv(&mut room).expect("an answer in time");
    let cookie = Hello::parse(&room[..len]).unwrap().cookie;
    ask(socket, to, &Hello { cookie, ..hello }.encode())
}

/// Listeners of sockets, which are told of a Request before its sender has shown anything where
/// there is no key.
#[test]
fn who_knows_peers_by_another_sign_asks_for_a_cookie_under_a_key_too() {
    let test = "listeners::who_knows_peers_by_another_sign_asks_for_a_cookie_under_a_key_too";
    let Some(outside) = apart(test, &[("WEFT_KEY", KEY_TEXT)]) else { return };
    let channel = EventChannel::new(crate::side::host()).unwrap();
    let id = CmId::new(channel.clone(), PortSpace::Tcp, CmTransport::Shuttle);
    id.set_prompt();
    id.bind("[::]:0".parse().unwrap()).unwrap();
    id.listen(0).unwrap();
    let addr = id.local_addr().unwrap();
    let server = Server { channel, id, addr };
    let stranger = outside.socket(THERE);
    let (kind, _) = ask(&stranger, at(HERE, addr.port()), &request());
    assert_eq!(kind, HelloKind::Retry);
    prove_alive(&server, addr.port(), CmTransport::Shuttle);
    assert!(server.channel.is_empty());
}

#[test]
fn where_clear_text_is_meant_a_request_needs_an_address_that_receives() {
    let test = "listeners::where_clear_text_is_meant_a_request_needs_an_address_that_receives";
    let Some(outside) = apart(test, &[("WEFT_INSECURE", "1")]) else { return };
    let (server, port) = server(CmTransport::Shuttle);
    let stranger = outside.socket(THERE);
    for _ in 0..100 {
        stranger.send_to(&request(), at(HERE, port)).unwrap();
    }
    let (kind, _) = ask(&stranger, at(HERE, port), &request());
    assert_eq!(kind, HelloKind::Retry);
    prove_alive(&server, port, CmTransport::Shuttle);
    assert!(server.channel.is_empty());
}

/// The kernel takes packets of IPv6 from outside that claim to be from this host.
#[test]
fn who_claims_to_be_this_host_is_not_announced() {
    let test = "listeners::who_claims_to_be_this_host_is_not_announced";
    let Some(outside) = apart(test, &[]) else { return };
    let (server, port) = server(CmTransport::Auto);
    for (claims, to) in [(CLAIMED_V6, HERE_V6), (CLAIMED, HERE)] {
        let stranger = outside.socket(claims);
        stranger.send_to(&request(), at(to, port)).unwrap();
        // Behind it on the cable, so that it has come before what is announced next.
        let (kind, _) = ask(&outside.socket(THERE), at(HERE, port), &request());
        assert_eq!(kind, HelloKind::Reject);
    }
    prove_alive(&server, port, CmTransport::Auto);
    assert!(server.channel.is_empty());
}

#[test]
fn iwarp_serves_other_hosts_where_it_was_named() {
    let test = "listeners::iwarp_serves_other_hosts_where_it_was_named";
    let Some(outside) = apart(test, &[]) else { return };
    let (server, port) = server(CmTransport::Iwarp);
    let stream = outside.within(|| raw_peer(at(HERE, port), REQUEST));
    let request = expect(&server.channel, EventKind::ConnectRequest);
    request.id.reject(b"heard").unwrap();
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    let mut reply = [0; 20];
    (&stream).read_exact(&mut reply).unwrap();
    assert_eq!(reply[..16], *b"MPA ID Rep Frame");
}

/// A peer that answers by TCP alone is another transport, in clear: nobody has asked for that.
#[test]
fn a_client_does_not_turn_to_clear_text_because_nobody_answers_by_udp() {
    let test = "listeners::a_client_does_not_turn_to_clear_text_because_nobody_answers_by_udp";
    let Some(outside) = apart(test, &[]) else { return };
    let listener = outside.within(|| std::net::TcpListener::bind((THERE, 0))).unwrap();
    let to = listener.local_addr().unwrap();
    let channel = EventChannel::new(crate::side::host()).unwrap();
    let id = CmId::new(channel.clone(), PortSpace::Tcp, CmTransport::Auto);
    id.resolve_addr(None, to, ANSWER).unwrap();
    expect(&channel, EventKind::AddrResolved);
    assert_eq!(id.personality(), DeviceKind::Roce);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    listener.set_nonblocking(true).unwrap();
    let error = listener.accept().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it was called");
}
