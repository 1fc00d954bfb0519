//! Peers that do not behave. Whatever they do is over in bounded time, and the next peer is
//! served.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use weft_rdmacm::{EventKind, config};

use crate::common::*;

/// Accepts a stream and resets it: so it ends when something of it was not read.
fn reset(listener: &TcpListener) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
}

#[test]
fn nonsense_is_closed_at_once_without_a_word() {
    let server = Server::new();
    let mut long = REQUEST.to_vec();
    long[18..20].copy_from_slice(&513u16.to_be_bytes());
    let mut rev3 = REQUEST.to_vec();
    rev3[17] = 3;
    let mut short_block = REQUEST[..22].to_vec();
    short_block[16] = 0x50;
    short_block[19] = 2;
    let nonsense: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        REPLY,
        &long,
        &rev3,
        &short_block,
        &[0; 4096],
    ];
    for bytes in nonsense {
        let peer = raw_peer(server.addr, bytes);
        assert_eq!(wait_closed(&peer, DEADLINE), b"");
    }
    assert!(server.channel.is_empty());
    prove_alive(&server);
}

#[test]
fn peers_that_leave_early_are_forgotten() {
    let server = Server::new();
    for cut in [0, 1, 16, 19, 20, 23] {
        drop(raw_peer(server.addr, &REQUEST[..cut]));
    }
    prove_alive(&server);
    assert!(server.channel.is_empty());
}

#[test]
fn a_peer_that_says_nothing_or_half_a_request_is_closed_in_time() {
    let server = Server::new();
    let silent = raw_peer(server.addr, b"");
    let half = raw_peer(server.addr, &REQUEST[..REQUEST.len() - 1]);
    prove_alive(&server);
    let limit = config::REQUEST_TIMEOUT * 2;
    assert_eq!(wait_closed(&silent, limit), b"");
    assert_eq!(wait_closed(&half, limit), b"");
    prove_alive(&server);
}

/// An initiator waits for the Reply (RFC 5044, section 7.1.2). An application that is told of such
/// a request could only fail to accept it.
#[test]
fn a_request_that_cannot_be_accepted_is_not_told() {
    let server = Server::new();
    let peer = raw_peer(server.addr, &[REQUEST, b"!"].concat());
    assert_eq!(wait_closed(&peer, DEADLINE), b"");
    assert!(server.channel.is_empty());
    prove_alive(&server);
}

#[test]
fn a_request_that_comes_octet_by_octet_is_a_request() {
    let server = Server::new();
    let mut peer = raw_peer(server.addr, b"");
    peer.set_nodelay(true).unwrap();
    for octet in REQUEST {
        peer.write_all(&[*octet]).unwrap();
    }
    let request = expect(&server.channel, EventKind::ConnectRequest);
    request.id.reject(b"no").unwrap();
    let reply = wait_closed(&peer, DEADLINE);
    assert_eq!(reply[..20], *b"MPA ID Rep Frame\x70\x02\x00\x06");
    assert_eq!(reply[24..], *b"no");
}

#[test]
fn a_peer_that_left_cannot_be_accepted() {
    let server = Server::new();
    let peer = raw_peer(server.addr, REQUEST);
    let request = expect(&server.channel, EventKind::ConnectRequest);
    drop(peer);
    let side = ready_side();
    let error = request.id.accept(&params(b""), &side.qp).unwrap_err();
    assert_eq!(error.errno(), libc::ECONNRESET);
    request.id.destroy();
    prove_alive(&server);
}

#[test]
fn a_peer_that_talks_before_the_reply_cannot_be_accepted() {
    let server = Server::new();
    let mut peer = raw_peer(server.addr, REQUEST);
    let request = expect(&server.channel, EventKind::ConnectRequest);
    peer.write_all(b"eager").unwrap();
    let side = ready_side();
    let error = request.id.accept(&params(b""), &side.qp).unwrap_err();
    assert_eq!(error.errno(), libc::EPROTO);
    assert_eq!(wait_closed(&peer, DEADLINE), b"");
    request.id.destroy();
    prove_alive(&server);
}

#[test]
fn a_crowd_of_silent_peers_does_not_keep_the_others_out() {
    raise_descriptor_limit();
    let server = Server::new();
    let oldest = raw_peer(server.addr, b"");
    let crowd: Vec<TcpStream> =
        (0..config::HALF_OPEN_MAX).map(|_| raw_peer(server.addr, b"")).collect();
    // Closed for being the oldest of too many, long before its time is up.
    assert_eq!(wait_closed(&oldest, config::REQUEST_TIMEOUT / 2), b"");
    prove_alive(&server);
    drop(crowd);
}

/// Both ends of the crowd are here, which is more than a process usually may have.
fn raise_descriptor_limit() {
    let process = std::process::id().to_string();
    let done = Command::new("prlimit").args(["--pid", &process, "--nofile=8192:"]).status();
    assert!(done.expect("prlimit of util-linux").success());
}

#[test]
fn a_server_that_hangs_up_is_asked_once_more_in_the_old_way() {
    let (listener, addr) = raw_server();
    let client = Client::connecting(addr, b"hello");
    let (stream, request) = raw_accept(&listener);
    assert_eq!(request[16..20], [0x50, 2, 0, 9]);
    assert_eq!(request[24..], *b"hello");
    drop(stream);
    let (mut stream, request) = raw_accept(&listener);
    assert_eq!(request[16..20], [0x40, 1, 0, 5]);
    assert_eq!(request[20..], *b"hello");
    stream.write_all(b"MPA ID Rep Frame\x40\x01\x00\x02ok").unwrap();
    let established = expect(&client.channel, EventKind::Established);
    assert_eq!(established.event.private_data, b"ok");
    drop(stream);
    expect(&client.channel, EventKind::Disconnected);
}

#[test]
fn a_server_that_resets_twice_has_rejected() {
    let (listener, addr) = raw_server();
    let client = Client::connecting(addr, b"");
    reset(&listener);
    reset(&listener);
    let rejected = expect(&client.channel, EventKind::Rejected);
    assert_eq!(rejected.event.status, -libc::ECONNRESET);
}

#[test]
fn a_reply_that_is_none_is_an_error() {
    let mut long = REPLY.to_vec();
    long[18..20].copy_from_slice(&513u16.to_be_bytes());
    let replies: [&[u8]; 3] = [b"HTTP/1.1 400 Bad Request\r\n\r\n", REQUEST, &long];
    for reply in replies {
        let (listener, addr) = raw_server();
        let client = Client::connecting(addr, b"");
        let (mut stream, _) = raw_accept(&listener);
        stream.write_all(reply).unwrap();
        let failed = expect(&client.channel, EventKind::ConnectError);
        assert_eq!(failed.event.status, -libc::EPROTO);
        assert_eq!(wait_closed(&stream, DEADLINE), b"");
    }
}

#[test]
fn half_a_reply_is_a_reset() {
    let (listener, addr) = raw_server();
    let client = Client::connecting(addr, b"");
    let (mut stream, _) = raw_accept(&listener);
    stream.write_all(&REPLY[..21]).unwrap();
    drop(stream);
    let rejected = expect(&client.channel, EventKind::Rejected);
    assert_eq!(rejected.event.status, -libc::ECONNRESET);
}

#[test]
fn terms_that_cannot_be_met_are_answered_with_a_terminate() {
    // The peer wants 300 Reads outstanding here, and offers no indication that we can give.
    let cases: [(&[u8], u8); 2] = [(b"\x80\x01\x81\x2C", 6), (b"\xC0\x01\x00\x01", 7)];
    for (block, code) in cases {
        let (listener, addr) = raw_server();
        let client = Client::connecting(addr, b"");
        let (mut stream, _) = raw_accept(&listener);
        let mut reply = REPLY[..20].to_vec();
        reply.extend_from_slice(block);
        stream.write_all(&reply).unwrap();
        let failed = expect(&client.channel, EventKind::ConnectError);
        assert_eq!(failed.event.status, -libc::EPROTO);
        let said = wait_closed(&stream, DEADLINE);
        assert_eq!(said[2..4], [0x41, 0x47]);
        assert_eq!(said[20..22], [0x20, code]);
    }
}

/// Linux siw as a responder goes to RTS at once, so its first message may share a segment with its
/// Reply.
#[test]
fn the_first_message_may_come_with_the_reply() {
    const SEND_HELLO: &[u8] = b"\x00\x17\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0hello\0\0\0";
    let (listener, addr) = raw_server();
    let client = Client::towards(addr);
    let inbox = client.side.memory(16, 0, crate::side::ALL);
    client.side.recv(3, &[inbox.sge(0, 16)]);
    client.id.connect(&params(b""), &client.side.qp).unwrap();
    let (mut stream, _) = raw_accept(&listener);
    let mut both = REPLY.to_vec();
    both.extend_from_slice(SEND_HELLO);
    both.extend_from_slice(&crc32c(SEND_HELLO).to_le_bytes());
    stream.write_all(&both).unwrap();
    expect(&client.channel, EventKind::Established);
    assert_eq!(client.side.completions(1)[0].byte_len, 5);
    assert_eq!(&inbox.bytes[..5], b"hello");
    let mut rest = Vec::new();
    client.id.destroy();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.read_to_end(&mut rest).unwrap();
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let odd = crc & 1 != 0;
            crc = crc >> 1 ^ if odd { 0x82F6_3B78 } else { 0 };
        }
    }
    !crc
}

#[test]
fn a_server_that_never_answers_is_unreachable() {
    let (listener, addr) = raw_server();
    let client = Client::connecting(addr, b"");
    let (stream, _) = raw_accept(&listener);
    let delivery = expect(&client.channel, EventKind::Unreachable);
    assert_eq!(delivery.event.status, -libc::ETIMEDOUT);
    assert_eq!(wait_closed(&stream, DEADLINE), b"");
}

#[test]
fn a_peer_that_never_confirms_is_unreachable() {
    // Peer to peer, with a Write of no bytes to come.
    let request = b"MPA ID Req Frame\x50\x02\x00\x04\x80\x01\x80\x01";
    let server = Server::new();
    let peer = raw_peer(server.addr, request);
    let (_accepted, _side) = server.accept(&params(b""));
    let delivery = expect(&server.channel, EventKind::Unreachable);
    assert_eq!(delivery.event.status, -libc::ETIMEDOUT);
    let limit = DEADLINE.max(Duration::from_secs(1));
    assert_eq!(wait_closed(&peer, limit).len(), 24);
}
