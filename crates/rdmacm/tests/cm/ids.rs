//! Ids, channels and accounts, without a peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_host::CmTransport;
use weft_rdmacm::{CmId, CmState, EventChannel, EventKind, PortSpace};

use crate::common::*;

fn id() -> (Arc<EventChannel>, Arc<CmId>) {
    let channel = EventChannel::new(crate::side::host()).unwrap();
    let id = CmId::new(Arc::clone(&channel), PortSpace::Tcp, CmTransport::Iwarp);
    (channel, id)
}

/// Whether the descriptor is readable: an eventfd is when its count is not zero.
fn readable(channel: &EventChannel) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", channel.fd())).unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix("eventfd-count:")).unwrap();
    u64::from_str_radix(count.trim(), 16).unwrap() > 0
}

#[test]
fn commands_in_the_wrong_state_are_refused() {
    let (channel, id) = id();
    let side = ready_side();
    let refused = [
        id.resolve_route(),
        id.connect(&params(b""), &side.qp),
        id.accept(&params(b""), &side.qp),
        id.reject(b""),
        id.disconnect(),
        id.establish(),
        id.notify(),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().errno(), libc::EINVAL);
    }
    id.bind(loopback()).unwrap();
    assert_eq!(id.bind(loopback()).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(id.set_shared(false).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(id.state(), CmState::AddrBound);
    assert!(channel.is_empty());
}

#[test]
fn a_port_belongs_to_one_id_at_a_time() {
    let (_channel, first) = id();
    first.bind(loopback()).unwrap();
    let addr = first.local_addr().unwrap();
    assert_ne!(addr.port(), 0);
    let (_channel, second) = id();
    assert_eq!(second.bind(addr).unwrap_err().errno(), libc::EADDRINUSE);
    assert_eq!(
        std::net::TcpListener::bind(addr).unwrap_err().raw_os_error(),
        Some(libc::EADDRINUSE)
    );
    first.destroy();
    second.bind(addr).unwrap();
}

#[test]
fn a_wildcard_whose_port_is_taken_is_not_available() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        for transport in [CmTransport::Iwarp, CmTransport::Shuttle, CmTransport::Auto] {
            let id = || {
                CmId::new(
                    EventChannel::new(crate::side::host()).unwrap(),
                    PortSpace::Tcp,
                    transport,
                )
            };
            let first = id();
            first.bind(any.parse().unwrap()).unwrap();
            let addr = first.local_addr().unwrap();
            assert_eq!(id().bind(addr).unwrap_err().errno(), libc::EADDRNOTAVAIL, "{addr}");
        }
    }
}

#[test]
fn a_port_may_be_shared_until_one_listens() {
    let ((_c1, first), (_c2, second)) = (id(), id());
    first.set_shared(true).unwrap();
    second.set_shared(true).unwrap();
    first.bind(loopback()).unwrap();
    second.bind(first.local_addr().unwrap()).unwrap();
    first.listen(0).unwrap();
    assert_eq!(second.listen(0).unwrap_err().errno(), libc::EADDRINUSE);
    assert_eq!(second.state(), CmState::AddrBound);
}

#[test]
fn a_port_can_be_taken_again_at_once_after_its_connections() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"");
    let (accepted, _side) = server.accept(&params(b""));
    expect(&client.channel, EventKind::Established);
    // The side that closes first is the one that TCP keeps the port for.
    accepted.destroy();
    server.id.destroy();
    expect(&client.channel, EventKind::Disconnected);
    let again = Server::at(server.addr, 0);
    assert_eq!(again.addr, server.addr);
    prove_alive(&again);
}

#[test]
fn foreign_addresses_are_not_available() {
    let (_channel, id) = id();
    let foreign = "192.0.2.77:0".parse().unwrap();
    assert_eq!(id.bind(foreign).unwrap_err().errno(), libc::EADDRNOTAVAIL);
    let error = id.resolve_addr(Some(foreign), loopback(), DEADLINE).unwrap_err();
    assert_eq!(error.errno(), libc::EADDRNOTAVAIL);
    let error =
        id.resolve_addr(Some("[::1]:0".parse().unwrap()), loopback(), DEADLINE).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    assert_eq!(id.state(), CmState::Idle);
}

#[test]
fn what_cannot_be_reached_is_an_address_error_and_may_be_tried_again() {
    let (channel, id) = id();
    // Nobody connects to everybody.
    id.resolve_addr(None, "255.255.255.255:7".parse().unwrap(), DEADLINE).unwrap();
    let event = expect(&channel, EventKind::AddrError).event;
    assert_eq!(event.status, -libc::EACCES);
    assert_eq!(id.state(), CmState::AddrBound);
    id.resolve_addr(None, loopback(), DEADLINE).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.destroy();
}

#[test]
fn datagram_ids_have_ports_of_their_own() {
    let (_channel, tcp) = id();
    tcp.bind(loopback()).unwrap();
    let channel = EventChannel::new(crate::side::host()).unwrap();
    let udp = CmId::new(Arc::clone(&channel), PortSpace::Udp, CmTransport::Iwarp);
    udp.bind(tcp.local_addr().unwrap()).unwrap();
    udp.listen(0).unwrap();
}

#[test]
fn the_descriptor_is_readable_while_events_wait() {
    let (channel, id) = id();
    assert!(!readable(&channel));
    id.resolve_addr(None, loopback(), DEADLINE).unwrap();
    id.resolve_route().unwrap();
    assert!(readable(&channel));
    channel.wait().unwrap();
    assert!(readable(&channel));
    channel.wait().unwrap();
    assert!(!readable(&channel));
    id.acknowledge();
    id.acknowledge();
    id.destroy();
}

#[test]
fn destroying_drops_what_was_not_read_and_waits_for_what_was() {
    let (channel, id) = id();
    id.resolve_addr(None, loopback(), DEADLINE).unwrap();
    id.resolve_route().unwrap();
    let read = channel.wait().unwrap();
    let acknowledged = Arc::new(AtomicBool::new(false));
    let destroyer = {
        let (id, acknowledged) = (Arc::clone(&id), Arc::clone(&acknowledged));
        std::thread::spawn(move || {
            id.destroy();
            assert!(acknowledged.load(Ordering::SeqCst), "destroyed before the acknowledgement");
        })
    };
    // The other event leaves the queue before the destroyer begins to wait.
    while !channel.is_empty() {
        std::thread::yield_now();
    }
    acknowledged.store(true, Ordering::SeqCst);
    read.owner().acknowledge();
    destroyer.join().unwrap();
    assert!(!readable(&channel));
}

#[test]
fn a_listener_answers_for_the_requests_that_nobody_read() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"");
    while server.channel.is_empty() {
        std::thread::yield_now();
    }
    server.id.destroy();
    assert!(server.channel.is_empty() && !readable(&server.channel));
    let event = expect(&client.channel, EventKind::Rejected).event;
    assert_eq!(event.status, -libc::ECONNREFUSED);
}

#[test]
fn a_request_counts_on_its_listener() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"");
    let request = next(&server.channel);
    // Not yet acknowledged, and still no hindrance for the new id.
    request.id.destroy();
    request.owner().acknowledge();
    expect(&client.channel, EventKind::Rejected);
    server.id.destroy();
}

#[test]
fn moving_an_id_moves_its_events_and_no_others() {
    let (old, first) = id();
    let second = CmId::new(Arc::clone(&old), PortSpace::Tcp, CmTransport::Iwarp);
    first.resolve_addr(None, loopback(), DEADLINE).unwrap();
    second.resolve_addr(None, loopback(), DEADLINE).unwrap();
    first.resolve_route().unwrap();
    let new = EventChannel::new(crate::side::host()).unwrap();
    first.migrate(&new);
    for kind in [EventKind::AddrResolved, EventKind::RouteResolved] {
        assert!(Arc::ptr_eq(&expect(&new, kind).id, &first));
    }
    assert!(Arc::ptr_eq(&expect(&old, EventKind::AddrResolved).id, &second));
    assert!(!readable(&old) && !readable(&new));
    first.destroy();
    second.resolve_route().unwrap();
    expect(&old, EventKind::RouteResolved);
}

#[test]
fn a_closed_channel_takes_events_in_silence() {
    let (channel, id) = id();
    channel.close();
    id.resolve_addr(None, loopback(), DEADLINE).unwrap();
    id.destroy();
    assert!(channel.is_empty());
}
