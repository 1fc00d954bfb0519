//! Ids in one process, and peers that speak MPA by hand.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use weft_host::CmTransport;
use weft_rdmacm::{CmId, ConnParam, EventChannel, EventKind, IdEvent, PortSpace};

pub use crate::side::{DEADLINE, Side};

/// A Request of RFC 6581 with CRCs and without a ready-to-receive indication, depths 1.
pub const REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x04\x00\x01\x00\x01";
/// The Reply to it.
pub const REPLY: &[u8] = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x01\x00\x01";

pub fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The next event of a channel.
pub fn next(channel: &Arc<EventChannel>) -> IdEvent {
    let waiting = Arc::clone(channel);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(waiting.wait());
    });
    receiver.recv_timeout(DEADLINE).expect("an event in time").expect("an event")
}

/// The next event, which must be of this kind; acknowledged.
pub fn expect(channel: &Arc<EventChannel>, kind: EventKind) -> IdEvent {
    let delivery = next(channel);
    assert_eq!(delivery.event.kind, kind, "{:?}", delivery.event);
    delivery.owner().acknowledge();
    delivery
}

pub fn params(private_data: &[u8]) -> ConnParam {
    ConnParam {
        responder_resources: 4,
        initiator_depth: 2,
        private_data: private_data.to_vec(),
        ..ConnParam::default()
    }
}

/// A listener and the channel of its events.
pub struct Server {
    pub channel: Arc<EventChannel>,
    pub id: Arc<CmId>,
    pub addr: SocketAddr,
}

impl Server {
    pub fn new() -> Server {
        Server::at(loopback(), 0)
    }

    pub fn at(addr: SocketAddr, backlog: usize) -> Server {
        let channel = EventChannel::new(crate::side::host()).unwrap();
        let id = CmId::new(Arc::clone(&channel), PortSpace::Tcp, CmTransport::Iwarp);
        id.bind(addr).unwrap();
        id.listen(backlog).unwrap();
        let addr = id.local_addr().unwrap();
        Server { channel, id, addr }
    }

    /// Accepts the next request with a new queue pair.
    pub fn accept(&self, param: &ConnParam) -> (Arc<CmId>, Side) {
        let request = expect(&self.channel, EventKind::ConnectRequest);
        let side = ready_side();
        request.id.accept(param, &side.qp).unwrap();
        (request.id, side)
    }
}

/// A queue pair that may be connected.
pub fn ready_side() -> Side {
    use weft_verbs::{QpAttrMask, QpState};
    let side = Side::new();
    let mut attr = side.qp.query();
    attr.state = QpState::Init;
    side.qp.modify(&attr, QpAttrMask::STATE).unwrap();
    side
}

/// An id on the way to a connection.
pub struct Client {
    pub channel: Arc<EventChannel>,
    pub id: Arc<CmId>,
    pub side: Side,
}

impl Client {
    /// An id that has a route to `to`.
    pub fn towards(to: SocketAddr) -> Client {
        let channel = EventChannel::new(crate::side::host()).unwrap();
        let id = CmId::new(Arc::clone(&channel), PortSpace::Tcp, CmTransport::Iwarp);
        id.resolve_addr(None, to, DEADLINE).unwrap();
        expect(&channel, EventKind::AddrResolved);
        id.resolve_route().unwrap();
        expect(&channel, EventKind::RouteResolved);
        Client { channel, id, side: ready_side() }
    }

    /// An id that has begun to connect to `to`.
    pub fn connecting(to: SocketAddr, private_data: &[u8]) -> Client {
        let client = Client::towards(to);
        client.id.connect(&params(private_data), &client.side.qp).unwrap();
        client
    }
}

/// A TCP server that is no connection manager.
pub fn raw_server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Accepts a stream by hand and reads the Request on it.
pub fn raw_accept(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut request = vec![0; 20];
    stream.read_exact(&mut request).unwrap();
    let len = usize::from(u16::from_be_bytes([request[18], request[19]]));
    let mut private_data = vec![0; len];
    stream.read_exact(&mut private_data).unwrap();
    request.extend(private_data);
    (stream, request)
}

/// A peer that sends `bytes` to `to`.
pub fn raw_peer(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// Waits until the other end has closed or reset; gives what it said before.
pub fn wait_closed(mut stream: &TcpStream, limit: Duration) -> Vec<u8> {
    stream.set_read_timeout(Some(limit)).unwrap();
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("still open: {e}"),
    }
    let _ = stream.shutdown(Shutdown::Both);
    said
}

/// Proves that a listener still serves.
pub fn prove_alive(server: &Server) {
    let client = Client::connecting(server.addr, b"alive?");
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(request.event.private_data, b"alive?");
    let side = ready_side();
    request.id.accept(&params(b"yes"), &side.qp).unwrap();
    let established = expect(&client.channel, EventKind::Established);
    assert_eq!(established.event.private_data, b"yes");
    expect(&server.channel, EventKind::Established);
    client.id.destroy();
    expect(&server.channel, EventKind::Disconnected);
    request.id.destroy();
}
