//! Whatever a peer does, the queue pair fails once, every request completes once, and the next
//! connection works.
#![allow(dead_code)]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use common::{ALL, Side, agreed, pair, sockets};
use weft_host::mpa::MpaRole;
use weft_verbs::{QpState, SendOp, WcStatus};

const FLUSHED: u32 = WcStatus::WrFlushErr as u32;

/// A queue pair whose peer is a bare socket, with eight receives posted.
fn victim(role: MpaRole) -> (Side, TcpStream) {
    let (near, far) = sockets();
    let side = Side::new();
    for wr_id in 0..8 {
        side.recv(wr_id, &[]);
    }
    side.attach(near, role, &agreed());
    (side, far)
}

/// The end of a connection as every test expects it.
fn ended(side: &Side) {
    let flushed = side.completions(8);
    let ids: Vec<_> = flushed.iter().map(|w| (w.wr_id, w.status)).collect();
    assert_eq!(ids, (0..8).map(|id| (id, FLUSHED)).collect::<Vec<_>>());
    assert_eq!(side.reports.wait_over(), 1);
    assert_eq!(side.qp.state(), QpState::Err);
    assert_eq!(side.cq.poll(&mut [Default::default()]), Ok(0));
    side.recv(9, &[]);
    assert_eq!(side.completions(1)[0].status, FLUSHED);
    a_new_connection_works();
}

fn a_new_connection_works() {
    let (a, b) = pair();
    let memory = b.memory(16, 0, ALL);
    b.recv(1, &[memory.sge(0, 16)]);
    a.send(2, SendOp::Send, &[]);
    assert_eq!((a.completions(1)[0].status, b.completions(1)[0].status), (0, 0));
}

#[test]
fn a_peer_that_closes() {
    let (side, far) = victim(MpaRole::Responder);
    drop(far);
    ended(&side);
}

#[test]
fn a_peer_that_resets() {
    let (side, far) = victim(MpaRole::Initiator);
    // A socket that is closed with unread bytes resets the connection.
    assert_eq!(far.peek(&mut [0]).unwrap(), 1);
    drop(far);
    ended(&side);
}

#[test]
fn a_peer_that_sends_garbage_hears_a_terminate() {
    let (side, mut far) = victim(MpaRole::Responder);
    let mut garbage = 64u16.to_be_bytes().to_vec();
    garbage.extend_from_slice(&[0xa5; 70]);
    far.write_all(&garbage).unwrap();
    ended(&side);
    let mut answer = Vec::new();
    far.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[3] & 0x0f, 7, "a Terminate: {answer:02x?}");
    assert_eq!(&answer[20..22], [0x20, 0x02], "for a wrong CRC");
}

#[test]
fn a_peer_that_announces_more_than_it_sends() {
    let (side, mut far) = victim(MpaRole::Responder);
    far.write_all(&[0xff; 1000]).unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    ended(&side);
}

#[test]
fn a_peer_that_terminates() {
    let (side, mut far) = victim(MpaRole::Responder);
    let frame = [
        0x00, 0x16, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x20, 0x02, 0, 0,
        0x7f, 0xe4, 0x25, 0x85,
    ];
    far.write_all(&frame).unwrap();
    ended(&side);
}

#[test]
fn a_peer_that_dies_under_load_never_hangs_the_program() {
    for round in 0..20 {
        let (near, far) = sockets();
        let side = Side::new();
        let source = side.memory(32 << 10, 1, ALL);
        side.attach(near, MpaRole::Initiator, &agreed());
        let peer = std::thread::spawn(move || {
            let mut far = far;
            let mut sink = vec![0; 1 << 16];
            for _ in 0..round {
                far.read_exact(&mut sink).unwrap();
            }
        });
        for wr_id in 0..256 {
            side.send(wr_id, SendOp::Write { to: 0, stag: 1 << 20 }, &[source.sge(0, 32 << 10)]);
        }
        let all = side.completions(256);
        peer.join().unwrap();
        let ids: Vec<_> = all.iter().map(|w| w.wr_id).collect();
        assert_eq!(ids, (0..256).collect::<Vec<_>>(), "each completes once, in order");
        let first_bad = all.iter().position(|w| w.status != 0).unwrap_or(256);
        assert!(all[first_bad..].iter().all(|w| w.status == FLUSHED));
        assert_eq!(side.reports.wait_over(), 1);
    }
}

#[test]
fn a_refused_write_reaches_both_sides() {
    let (a, b) = pair();
    let source = a.memory(64, 1, ALL);
    let read_only = b.memory(64, 0, weft_verbs::Access::REMOTE_READ);
    let to = read_only.addr();
    let sge = source.sge(0, 64);
    a.send(1, SendOp::Write { to, stag: read_only.key }, &[sge]);
    assert_eq!(a.reports.wait_over(), 1);
    assert_eq!(b.reports.wait_over(), 1);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Err, QpState::Err));
    assert!(read_only.bytes.iter().all(|octet| *octet == 0));
}

#[test]
fn a_refused_read_completes_with_a_remote_access_error() {
    let (a, b) = pair();
    let sink = a.memory(64, 0, ALL);
    let closed = b.memory(64, 7, weft_verbs::Access::LOCAL_WRITE);
    a.send(1, SendOp::Read { to: closed.addr(), stag: closed.key }, &[sink.sge(0, 64)]);
    a.send(2, SendOp::Send, &[]);
    let done: Vec<_> = a.completions(2).iter().map(|w| (w.wr_id, w.status)).collect();
    assert_eq!(done[0], (1, WcStatus::RemAccessErr as u32));
    assert_eq!(done[1].0, 2);
    assert!(sink.bytes.iter().all(|octet| *octet == 0));
}

#[test]
fn a_bad_local_key_fails_its_request_and_flushes_the_rest() {
    let (a, b) = pair();
    let source = a.memory(64, 1, ALL);
    let mut bad = source.sge(0, 64);
    bad.lkey ^= 1;
    a.send(1, SendOp::Send, &[bad]);
    a.send(2, SendOp::Send, &[]);
    let done: Vec<_> = a.completions(2).iter().map(|w| (w.wr_id, w.status)).collect();
    assert_eq!(done, [(1, WcStatus::LocProtErr as u32), (2, FLUSHED)]);
    assert_eq!(b.reports.wait_over(), 1);
}

#[test]
fn what_completed_before_a_disconnect_arrives() {
    for _ in 0..50 {
        let (a, b) = pair();
        let source = a.memory(100_000, 3, ALL);
        let target = b.memory(100_000, 0, ALL);
        b.recv(1, &[target.sge(0, 100_000)]);
        a.send(2, SendOp::Send, &[source.sge(0, 100_000)]);
        assert_eq!(a.completions(1)[0].status, 0);
        a.qp.destroy().unwrap();
        assert_eq!(b.completions(1)[0].status, 0);
        assert_eq!(b.reports.wait_over(), 1);
        assert_eq!(target.bytes, source.bytes);
    }
}
