//! Connections over Shuttle, and how it is found out that a peer takes them.

use std::io::Read;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_host::{CmTransport, DeviceKind};
use weft_rdmacm::{
    CmEvent, CmId, ConnParam, EventChannel, EventKind, IdEvent, PortSpace, QpTerms, config,
};
use weft_rnic::wire::shuttle::hello::Hello;
use weft_testkit::SetAtEnd;
use weft_verbs::{QpAttrMask, QpState, SendOp, WcStatus};

use crate::common::{DEADLINE, Side, expect, loopback, next, params, raw_server, ready_side};

/// Attempts of which one is not held up by what else this machine does.
const ATTEMPTS: usize = 5;
const NOBODY_LISTENS: i32 = 8;
const REFUSED_BY_THE_PROGRAM: i32 = 28;

/// An id and the channel of its events.
pub struct End {
    pub channel: Arc<EventChannel>,
    pub id: Arc<CmId>,
}

impl End {
    pub fn new(transport: CmTransport, space: PortSpace) -> Self {
        let channel = EventChannel::new(crate::side::host()).unwrap();
        let id = CmId::new(Arc::clone(&channel), space, transport);
        Self { channel, id }
    }

    pub fn listening(transport: CmTransport, space: PortSpace) -> Self {
        let end = Self::new(transport, space);
        end.id.bind(loopback()).unwrap();
        end.id.listen(0).unwrap();
        end
    }

    /// An id that has a route to `to`.
    pub fn towards(transport: CmTransport, space: PortSpace, to: std::net::SocketAddr) -> Self {
        let end = Self::new(transport, space);
        end.resolve(to);
        end
    }

    /// Gives the id a route to `to`.
    pub fn resolve(&self, to: std::net::SocketAddr) {
        self.id.resolve_addr(None, to, DEADLINE).unwrap();
        self.expect(EventKind::AddrResolved);
        self.id.resolve_route().unwrap();
        self.expect(EventKind::RouteResolved);
    }

    /// An id that has found by itself that `server` takes connections over Shuttle. One that gets
    /// no answer in time, as the engine may be held up, goes by TCP instead.
    fn finding(server: &Self) -> Self {
        let mut found = (0..ATTEMPTS).map(|_| Self::towards_end(CmTransport::Auto, server));
        found.find(|client| client.id.personality() == DeviceKind::Roce).expect("an answer by UDP")
    }

    fn towards_end(transport: CmTransport, server: &Self) -> Self {
        Self::towards(transport, PortSpace::Tcp, server.id.local_addr().unwrap())
    }

    pub fn expect(&self, kind: EventKind) -> CmEvent {
        expect(&self.channel, kind).event
    }
}

/// A queue pair of `weft0` that may be connected.
pub fn side() -> Side {
    let side = Side::on(DeviceKind::Roce);
    let mut attr = side.qp.query();
    attr.state = QpState::Init;
    attr.port = 1;
    let mask = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
    side.qp.modify(&attr, mask | QpAttrMask::ACCESS_FLAGS).unwrap();
    side
}

struct Pair {
    server: End,
    client: End,
    accepted: Arc<CmId>,
    far: Side,
    near: Side,
}

fn connected() -> Pair {
    let server = End::listening(CmTransport::Auto, PortSpace::Tcp);
    let client = End::finding(&server);
    let (near, far) = (side(), side());
    client.id.connect(&params(b"hello"), &near.qp).unwrap();
    let IdEvent { id: accepted, event, .. } = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(accepted.personality(), DeviceKind::Roce);
    assert_eq!(event.private_data.len(), 56);
    assert_eq!(&event.private_data[..6], b"hello\0");
    assert_eq!(event.terms.qp_num, near.qp.num());
    assert_eq!((event.responder_resources, event.initiator_depth), (2, 4));
    assert_eq!(accepted.peer_addr(), client.id.local_addr());
    accepted.accept(&params(b"welcome"), &far.qp).unwrap();
    let event = client.expect(EventKind::Established);
    assert_eq!((&event.private_data[..8], event.private_data.len()), (&b"welcome\0"[..], 196));
    assert_eq!(event.terms.qp_num, far.qp.num());
    expect(&server.channel, EventKind::Established);
    Pair { server, client, accepted, far, near }
}

fn end(pair: Pair) {
    pair.client.id.destroy();
    pair.accepted.destroy();
    pair.server.id.destroy();
}

/// How long a program may take to see what succeeded, before it hears that the peer has gone.
const SIGHT: Duration = Duration::from_millis(100);

#[test]
fn what_succeeded_may_be_seen_before_the_end_is_told() {
    let pair = connected();
    let octets = pair.near.memory(100, 7, crate::side::ALL);
    let room = pair.far.memory(100, 0, crate::side::ALL);
    pair.far.recv(1, &[room.sge(0, 100)]);
    pair.near.send(2, SendOp::Send, &[octets.sge(0, 100)]);
    assert_eq!(pair.near.completions(1)[0].status, WcStatus::Success as u32);
    let start = weft_os::clock::now();
    pair.client.id.disconnect().unwrap();
    expect(&pair.server.channel, EventKind::Disconnected);
    assert!(start.elapsed() >= SIGHT, "told after {:?}", start.elapsed());
    assert_eq!(pair.far.completions(1)[0].status, WcStatus::Success as u32);
    end(pair);
}

#[test]
fn a_client_that_comes_again_is_told_after_its_end() {
    for transport in [CmTransport::Shuttle, CmTransport::Iwarp] {
        let server = End::listening(transport, PortSpace::Tcp);
        let client = End::towards_end(transport, &server);
        let again = End::towards_end(transport, &server);
        let [near, far, near_again] =
            [(); 3].map(|()| if transport == CmTransport::Shuttle { side() } else { ready_side() });
        client.id.connect(&params(b""), &near.qp).unwrap();
        let accepted = expect(&server.channel, EventKind::ConnectRequest).id;
        let room = far.memory(100, 0, crate::side::ALL);
        far.recv(1, &[room.sge(0, 100)]);
        accepted.accept(&params(b""), &far.qp).unwrap();
        client.expect(EventKind::Established);
        let octets = near.memory(100, 7, crate::side::ALL);
        near.send(2, SendOp::Send, &[octets.sge(0, 100)]);
        assert_eq!(near.completions(1)[0].status, WcStatus::Success as u32);
        expect(&server.channel, EventKind::Established);
        let start = weft_os::clock::now();
        client.id.disconnect().unwrap();
        client.expect(EventKind::Disconnected);
        again.id.connect(&params(b"again"), &near_again.qp).unwrap();
        let over = expect(&server.channel, EventKind::Disconnected);
        assert!(Arc::ptr_eq(&over.id, &accepted), "{transport:?}");
        assert!(start.elapsed() >= SIGHT, "{transport:?}: told after {:?}", start.elapsed());
        assert_eq!(far.completions(1)[0].status, WcStatus::Success as u32);
        let request = expect(&server.channel, EventKind::ConnectRequest);
        assert_eq!(&request.event.private_data[..5], b"again");
        for id in [&request.id, &accepted, &client.id, &again.id, &server.id] {
            id.destroy();
        }
    }
}

#[test]
fn data_flows_both_ways_and_one_exchange_ends_it() {
    let pair = connected();
    for (from, to) in [(&pair.near, &pair.far), (&pair.far, &pair.near)] {
        assert_eq!(from.qp.state(), QpState::Rts);
        assert_eq!(from.qp.query().dest_qp_num, to.qp.num());
        let octets = from.memory(100_000, 7, crate::side::ALL);
        let room = to.memory(100_000, 0, crate::side::ALL);
        to.recv(1, &[room.sge(0, 100_000)]);
        from.send(2, SendOp::Send, &[octets.sge(0, 100_000)]);
        assert_eq!(from.completions(1)[0].status, WcStatus::Success as u32);
        assert_eq!(to.completions(1)[0].status, WcStatus::Success as u32);
        assert!(room.bytes == octets.bytes);
    }
    pair.client.id.disconnect().unwrap();
    pair.client.expect(EventKind::Disconnected);
    expect(&pair.server.channel, EventKind::Disconnected);
    pair.client.expect(EventKind::TimewaitExit);
    // The program that did not end it does so too. Only from then on its queue pair is in no use.
    assert_eq!(pair.far.qp.state(), QpState::Rts);
    let start = weft_os::clock::now();
    pair.accepted.disconnect().unwrap();
    assert_eq!(pair.far.qp.state(), QpState::Err);
    expect(&pair.server.channel, EventKind::TimewaitExit);
    assert!(start.elapsed() >= config::TIMEWAIT, "told after {:?}", start.elapsed());
    pair.accepted.disconnect().unwrap();
    end(pair);
}

#[test]
fn an_id_that_is_destroyed_ends_its_connection() {
    let pair = connected();
    pair.accepted.destroy();
    pair.client.expect(EventKind::Disconnected);
    end(pair);
}

#[test]
fn a_refusal_carries_the_programs_words() {
    let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
    let client = End::towards_end(CmTransport::Shuttle, &server);
    let near = side();
    client.id.connect(&params(b""), &near.qp).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    request.id.reject(b"busy").unwrap();
    let event = client.expect(EventKind::Rejected);
    assert_eq!(event.status, REFUSED_BY_THE_PROGRAM);
    assert_eq!((&event.private_data[..5], event.private_data.len()), (&b"busy\0"[..], 148));
    request.id.destroy();
}

#[test]
fn a_request_that_is_not_answered_is_refused_with_its_id() {
    let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
    let client = End::towards_end(CmTransport::Shuttle, &server);
    let near = side();
    client.id.connect(&params(b""), &near.qp).unwrap();
    expect(&server.channel, EventKind::ConnectRequest).id.destroy();
    client.expect(EventKind::Rejected);
}

#[test]
fn where_nobody_listens_the_host_says_so() {
    for transport in [CmTransport::Auto, CmTransport::Shuttle] {
        let server = End::listening(transport, PortSpace::Tcp);
        let to = server.id.local_addr().unwrap();
        server.id.destroy();
        let client = End::towards(transport, PortSpace::Tcp, to);
        assert_eq!(client.id.personality(), DeviceKind::Roce);
        let near = side();
        near.recv(1, &[]);
        client.id.connect(&params(b""), &near.qp).unwrap();
        let event = client.expect(EventKind::Rejected);
        assert_eq!((event.status, event.private_data.len()), (NOBODY_LISTENS, 0));
        assert_eq!(near.qp.state(), QpState::Err);
        assert_eq!(near.completions(1)[0].status, WcStatus::WrFlushErr as u32);
    }
}

/// A request that waits for its answer keeps the socket of a listener that is gone; who asks there
/// meanwhile would wait for an answer until it gives up.
#[test]
fn where_nobody_listens_any_more_the_host_says_so_while_a_request_waits() {
    let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
    let to = server.id.local_addr().unwrap();
    let clients = [(); 2].map(|()| End::towards(CmTransport::Shuttle, PortSpace::Tcp, to));
    let (near, far) = ([side(), side()], side());
    clients[0].id.connect(&params(b""), &near[0].qp).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    server.id.destroy();
    clients[1].id.connect(&params(b""), &near[1].qp).unwrap();
    assert_eq!(clients[1].expect(EventKind::Rejected).status, NOBODY_LISTENS);
    request.id.accept(&params(b""), &far.qp).unwrap();
    clients[0].expect(EventKind::Established);
    request.id.destroy();
    clients[0].expect(EventKind::Disconnected);
}

#[test]
fn a_peer_that_listens_over_tcp_alone_is_reached_there() {
    let server = End::listening(CmTransport::Iwarp, PortSpace::Tcp);
    let client = End::towards_end(CmTransport::Auto, &server);
    assert_eq!(client.id.personality(), DeviceKind::Iwarp);
    assert!(client.id.connect(&params(b""), &side().qp).is_err(), "of the other device");
    let near = crate::common::ready_side();
    client.id.connect(&params(b"hello"), &near.qp).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(request.event.private_data, b"hello");
    let far = crate::common::ready_side();
    request.id.accept(&params(b"yes"), &far.qp).unwrap();
    assert_eq!(client.expect(EventKind::Established).private_data, b"yes");
}

/// Answers the Probe after the first `lost`, and nothing else.
fn answer_after(lost: usize, socket: &UdpSocket) {
    let mut room = [0; 2048];
    for _ in 0..lost {
        socket.recv_from(&mut room).unwrap();
    }
    let (len, from) = socket.recv_from(&mut room).unwrap();
    let answer = Hello::parse(&room[..len]).unwrap().probed().expect("a Probe").encode();
    socket.send_to(&answer, from).unwrap();
}

/// An application that has objects on the device of one transport fails on that of the other.
#[test]
fn a_peer_by_tcp_is_asked_often_whether_it_takes_shuttle() {
    let (_listener, addr) = raw_server();
    let socket = UdpSocket::bind(addr).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| answer_after(5, &socket));
        let client = End::towards(CmTransport::Auto, PortSpace::Tcp, addr);
        assert_eq!(client.id.personality(), DeviceKind::Roce);
    });
}

/// A firewall that drops UDP costs little time.
#[test]
fn a_peer_by_tcp_whose_udp_is_silent_is_reached_there_soon() {
    let (_listener, addr) = raw_server();
    let _silent = UdpSocket::bind(addr).unwrap();
    let took = || {
        let start = weft_os::clock::now();
        let client = End::towards(CmTransport::Auto, PortSpace::Tcp, addr);
        assert_eq!(client.id.personality(), DeviceKind::Iwarp);
        start.elapsed()
    };
    let soon = (0..ATTEMPTS).map(|_| took()).min().unwrap();
    assert!(soon < Duration::from_secs(1), "{soon:?}");
}

/// Anybody may send to the port that asks; each datagram is looked at, and changes nothing.
#[test]
fn what_strangers_send_does_not_decide_how_a_peer_is_reached() {
    let (_listener, addr) = raw_server();
    let socket = UdpSocket::bind(addr).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetAtEnd(&over);
        scope.spawn(|| {
            let (_, from) = socket.recv_from(&mut [0; 2048]).unwrap();
            while !over.load(Ordering::Acquire) {
                let _full = socket.send_to(b"no answer", from);
            }
        });
        let client = End::new(CmTransport::Auto, PortSpace::Tcp);
        client.id.resolve_addr(None, addr, DEADLINE).unwrap();
        let event = next(&client.channel).event;
        assert_eq!((event.kind, event.status), (EventKind::AddrResolved, 0));
        assert_eq!(client.id.personality(), DeviceKind::Iwarp);
    });
}

#[test]
fn a_peer_of_iwarp_alone_sees_one_stream_which_lasts() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = End::towards(CmTransport::Auto, PortSpace::Tcp, listener.local_addr().unwrap());
    let (mut stream, from) = listener.accept().unwrap();
    let near = crate::common::ready_side();
    client.id.connect(&params(b"hello"), &near.qp).unwrap();
    let mut request = [0; 16];
    stream.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"MPA ID Req Frame");
    assert_eq!(client.id.local_addr(), Some(from));
    listener.set_nonblocking(true).unwrap();
    let error = listener.accept().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_listener_serves_both() {
    let server = End::listening(CmTransport::Auto, PortSpace::Tcp);
    let device = |transport| {
        let client = End::towards_end(transport, &server);
        let near = match client.id.personality() {
            DeviceKind::Iwarp => crate::common::ready_side(),
            DeviceKind::Roce => side(),
        };
        client.id.connect(&params(b""), &near.qp).unwrap();
        let request = expect(&server.channel, EventKind::ConnectRequest).id;
        request.reject(b"").unwrap();
        client.expect(EventKind::Rejected);
        request.personality()
    };
    assert_eq!(device(CmTransport::Iwarp), DeviceKind::Iwarp);
    assert_eq!(device(CmTransport::Shuttle), DeviceKind::Roce);
}

/// The application has the port in TCP itself: its rdma-cm is reached by UDP.
#[test]
fn a_port_that_tcp_has_serves_shuttle() {
    let reached = || {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = End::new(CmTransport::Auto, PortSpace::Tcp);
        server.id.bind(tcp.local_addr().unwrap()).unwrap();
        server.id.listen(0).unwrap();
        let client = End::finding(&server);
        let near = side();
        client.id.connect(&params(b"hello"), &near.qp).unwrap();
        let request = expect(&server.channel, EventKind::ConnectRequest).id;
        let far = side();
        request.accept(&params(b"yes"), &far.qp).unwrap();
        assert!(client.expect(EventKind::Established).private_data.starts_with(b"yes"));
        tcp.set_nonblocking(true).unwrap();
        // Nobody was called by TCP, unless an answer was late.
        tcp.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!((0..ATTEMPTS).any(|_| reached()), "it was called by TCP");
}

/// A listener that is a little late is found; it is told apart from one that is of another kind.
#[test]
fn who_listens_soon_is_waited_for() {
    let found = || {
        let (silent, to) = raw_server();
        drop(silent);
        let client = End::new(CmTransport::Auto, PortSpace::Tcp);
        client.id.resolve_addr(None, to, DEADLINE).unwrap();
        let server = End::new(CmTransport::Auto, PortSpace::Tcp);
        server.id.bind(to).unwrap();
        server.id.listen(0).unwrap();
        client.expect(EventKind::AddrResolved);
        client.id.personality()
    };
    // One that is held up for longer than it is waited for comes too late.
    assert!((0..ATTEMPTS).any(|_| found() == DeviceKind::Roce));
}

#[test]
fn a_program_may_connect_its_queue_pair_by_itself() {
    let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
    let client = End::towards_end(CmTransport::Shuttle, &server);
    let param =
        |qp_num| ConnParam { terms: QpTerms { qp_num, ..QpTerms::default() }, ..params(b"") };
    client.id.connect_elsewhere(&param(0x1234)).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!((request.event.terms.qp_num, request.id.peer_qp_num()), (0x1234, 0x1234));
    request.id.accept_elsewhere(&param(0x5678)).unwrap();
    let event = client.expect(EventKind::ConnectResponse);
    assert_eq!((event.terms.qp_num, client.id.peer_qp_num()), (0x5678, 0x5678));
    client.id.establish().unwrap();
    expect(&server.channel, EventKind::Established);
    request.id.disconnect().unwrap();
    client.expect(EventKind::Disconnected);
    expect(&server.channel, EventKind::Disconnected);
    client.id.destroy();
    request.id.destroy();
}

#[test]
fn who_takes_datagrams_says_so_without_a_connection() {
    let server = End::listening(CmTransport::Auto, PortSpace::Udp);
    let to = server.id.local_addr().unwrap();
    let client = End::towards(CmTransport::Auto, PortSpace::Udp, to);
    client.id.connect_elsewhere(&params(b"who?")).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(&request.event.private_data[..5], b"who?\0");
    let terms = QpTerms { qp_num: 0x4321, qkey: 0x0123_4567, ..QpTerms::default() };
    request.id.accept_elsewhere(&ConnParam { terms, ..params(b"me") }).unwrap();
    let event = client.expect(EventKind::Established);
    assert_eq!((event.terms, &event.private_data[..3]), (terms, &b"me\0"[..]));
    request.id.destroy();
}

#[test]
fn an_attempt_that_nobody_has_answered_is_over_when_it_is_given_up() {
    let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
    let client = End::towards_end(CmTransport::Shuttle, &server);
    let near = side();
    client.id.connect(&params(b""), &near.qp).unwrap();
    expect(&server.channel, EventKind::ConnectRequest);
    assert!(near.qp.capabilities().is_some());
    client.id.disconnect().unwrap();
    assert!(near.qp.capabilities().is_none());
    client.id.destroy();
    server.id.destroy();
}

/// Another thread gives up as soon as the call has begun, when the queue pair may have no
/// connection yet that could be ended.
#[test]
fn an_attempt_that_is_given_up_while_it_begins_leaves_no_connection() {
    let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
    for round in 0..50 {
        let client = End::towards_end(CmTransport::Shuttle, &server);
        let near = side();
        std::thread::scope(|scope| {
            scope.spawn(|| client.id.connect(&params(b""), &near.qp).unwrap());
            while client.id.disconnect().is_err() {
                std::thread::yield_now();
            }
        });
        // Nobody answers at the other end.
        assert!(near.qp.capabilities().is_none(), "round {round}: it goes on to ask");
        client.id.destroy();
    }
    server.id.destroy();
}

#[test]
fn many_connections_come_and_go_at_one_port() {
    let server = End::listening(CmTransport::Shuttle, PortSpace::Tcp);
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let client = End::towards_end(CmTransport::Shuttle, &server);
            let near = side();
            client.id.connect(&params(b""), &near.qp).unwrap();
            (client, near)
        })
        .collect();
    let mut accepted = Vec::new();
    let mut established = 0;
    while accepted.len() < clients.len() || established < clients.len() {
        let delivery = next(&server.channel);
        match delivery.event.kind {
            EventKind::ConnectRequest => {
                let far = side();
                delivery.id.accept(&params(b""), &far.qp).unwrap();
                accepted.push((Arc::clone(&delivery.id), far));
            }
            EventKind::Established => established += 1,
            other => panic!("{other:?}"),
        }
        delivery.owner().acknowledge();
    }
    for (client, _) in &clients {
        client.expect(EventKind::Established);
        client.id.disconnect().unwrap();
        client.expect(EventKind::Disconnected);
    }
}
