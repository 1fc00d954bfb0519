//! Peers that behave as the Linux kernel's siw does on a socket, byte by byte.

#[path = "../../host/tests/common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

#[path = "cm/common.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::*;
use side::ALL;
use weft_rdmacm::EventKind;
use weft_verbs::{SendOp, WcStatus};

/// siw's Request by default: enhanced, no CRC, no peer-to-peer set-up, one Read each way.
const DEFAULT_REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";
/// Bytes of a frame around a Write of nothing.
const EMPTY_WRITE: usize = 20;

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// A frame with one untagged segment in it.
fn untagged(opcode: u8, queue: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = (18 + payload.len() as u16).to_be_bytes().to_vec();
    frame.extend([0x41, 0x40 | opcode, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend_from_slice(payload);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let crc = crc32c(&frame);
    frame.extend(crc.to_le_bytes());
    frame
}

/// The Reply of siw to `request`: what was asked for, a Write to begin with, and the reserved flags
/// as `flags` has them.
fn reply_to(request: &[u8], flags: u8) -> Vec<u8> {
    let mut reply = request[..24].to_vec();
    reply[..16].copy_from_slice(b"MPA ID Rep Frame");
    reply[16] |= flags;
    reply[18..20].copy_from_slice(&[0, 4]);
    reply[22] &= 0xbf;
    reply
}

fn read_exact(stream: &mut TcpStream, octets: usize) -> Vec<u8> {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut bytes = vec![0; octets];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_terminate_counts_although_a_reset_follows_it() {
    for _ in 0..20 {
        let (listener, addr) = raw_server();
        let client = Client::connecting(addr, b"");
        let (mut stream, request) = raw_accept(&listener);
        stream.write_all(&reply_to(&request, 0)).unwrap();
        expect(&client.channel, EventKind::Established);
        let memory = client.side.memory(64, 0, ALL);
        let bad = SendOp::Read { to: 0x1000, stag: 0xdead_be00 };
        client.side.send(1, bad, &[memory.sge(0, 64)]);
        let frame = read_exact(&mut stream, EMPTY_WRITE + 52)[EMPTY_WRITE..].to_vec();
        for wr_id in 2..40 {
            client.side.send(wr_id, SendOp::Send, &[memory.sge(0, 64)]);
        }
        // What siw says of a Read from memory that it does not have; closing with bytes unread
        // is what resets the connection.
        let mut refusal = vec![0x10, 0x00, 0x07, 0x00, 0, 0];
        refusal.extend_from_slice(&frame[2..48]);
        assert!(stream.peek(&mut [0]).unwrap() > 0);
        stream.write_all(&untagged(7, 2, &refusal)).unwrap();
        drop(stream);
        let done = client.side.completions(39);
        assert_eq!((done[0].wr_id, done[0].status), (1, WcStatus::RemAccessErr as u32));
        expect(&client.channel, EventKind::Disconnected);
        client.id.destroy();
    }
}

#[test]
fn a_server_that_missed_the_first_message_gets_another() {
    let (listener, addr) = raw_server();
    let client = Client::connecting(addr, b"");
    let inbox = client.side.memory(16, 0, ALL);
    client.side.recv(1, &[inbox.sge(0, 16)]);
    let (mut stream, request) = raw_accept(&listener);
    stream.write_all(&reply_to(&request, 0)).unwrap();
    expect(&client.channel, EventKind::Established);
    read_exact(&mut stream, EMPTY_WRITE);
    // siw looks at its socket when something arrives that comes after its callback is in place.
    let second = read_exact(&mut stream, EMPTY_WRITE);
    assert_eq!(second[..4], [0, 14, 0xc1, 0x40]);
    stream.write_all(&untagged(3, 0, b"at last")).unwrap();
    assert_eq!(client.side.completions(1)[0].byte_len, 7);
    client.id.destroy();
}

#[test]
fn a_reply_may_repeat_reserved_flags() {
    let (listener, addr) = raw_server();
    let client = Client::connecting(addr, b"");
    let (mut stream, request) = raw_accept(&listener);
    stream.write_all(&reply_to(&request, 0x0f)).unwrap();
    expect(&client.channel, EventKind::Established);
    client.id.destroy();
}

#[test]
fn a_reply_may_have_lost_its_length() {
    let (listener, addr) = raw_server();
    let client = Client::connecting(addr, b"");
    let (mut stream, request) = raw_accept(&listener);
    let mut reply = reply_to(&request, 0);
    reply[19] = 0;
    reply.extend([b'p'; 252]);
    stream.write_all(&reply).unwrap();
    let established = expect(&client.channel, EventKind::Established);
    assert_eq!(established.event.private_data, [b'p'; 252]);
    client.id.destroy();
}

#[test]
fn a_request_may_have_lost_its_length() {
    let server = Server::new();
    let mut request = DEFAULT_REQUEST.to_vec();
    request[19] = 3;
    request.extend([b'p'; 255]);
    let _peer = raw_peer(server.addr, &request);
    let announced = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(announced.event.private_data, [b'p'; 255]);
}

#[test]
fn a_server_speaks_first_to_a_client_that_says_nothing() {
    let server = Server::new();
    let mut peer = raw_peer(server.addr, DEFAULT_REQUEST);
    let (_id, side) = server.accept(&params(b""));
    expect(&server.channel, EventKind::Established);
    let outbox = side.memory(5, b'x', ALL);
    side.send(1, SendOp::Send, &[outbox.sge(0, 5)]);
    let reply = read_exact(&mut peer, DEFAULT_REQUEST.len());
    assert_eq!((&reply[..16], reply[16] & 0x10), (&b"MPA ID Rep Frame"[..], 0x10));
    let message = read_exact(&mut peer, 32);
    assert_eq!((&message[2..4], &message[20..25]), (&[0x41, 0x43][..], &b"xxxxx"[..]));
    assert_eq!(side.completions(1)[0].status, 0);
}

#[test]
fn a_rejected_peer_may_close_first() {
    // siw forgets the private data of a rejection that ends with the stream.
    let server = Server::new();
    let mut peer = raw_peer(server.addr, DEFAULT_REQUEST);
    let request = expect(&server.channel, EventKind::ConnectRequest);
    let start = weft_os::clock::now();
    request.id.reject(b"no").unwrap();
    let reply = read_exact(&mut peer, DEFAULT_REQUEST.len() + 2);
    assert_eq!((reply[16] & 0x20, &reply[24..]), (0x20, &b"no"[..]));
    assert_eq!(wait_closed(&peer, DEADLINE), b"");
    assert!(start.elapsed() >= weft_rdmacm::config::FAREWELL);
}
