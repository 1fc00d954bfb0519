//! Messages wait for receives that are posted late, and for nothing else.
#![allow(dead_code)]

mod common;

use std::io::Write;

use common::{ALL, Side, agreed, pair, sockets};
use weft_host::mpa::MpaRole;
use weft_verbs::{QpState, SendOp, Wc, WcOpcode, WcStatus};

#[test]
fn a_sender_is_held_back_until_there_are_receives() {
    const SIZE: usize = 1 << 20;
    const COUNT: u64 = 64;
    let (a, b) = pair();
    let from = a.memory(SIZE, 0x5a, ALL);
    let inbox = b.memory(SIZE, 0, ALL);
    for wr_id in 0..COUNT {
        a.send(wr_id, SendOp::Send, &[from.sge(0, SIZE)]);
    }
    for wr_id in 0..COUNT {
        b.recv(wr_id, &[inbox.sge(0, SIZE)]);
        let got = b.completions(1)[0];
        assert_eq!((got.wr_id, got.status, got.byte_len), (wr_id, 0, SIZE as u32));
    }
    assert!(inbox.bytes.iter().all(|octet| *octet == 0x5a));
    assert!(a.completions(COUNT as usize).iter().all(|wc| wc.status == 0));
}

#[test]
fn who_endures_leaves_with_tcp_what_finds_no_receive() {
    const SIZE: usize = 1 << 20;
    const COUNT: u64 = 64;
    let (a, b) = pair();
    a.qp.wait_for_recv_forever();
    b.qp.wait_for_recv_forever();
    let from = a.memory(SIZE, 0x5a, ALL);
    let inbox = b.memory(SIZE, 0, ALL);
    for wr_id in 0..COUNT {
        a.send(wr_id, SendOp::Send, &[from.sge(0, SIZE)]);
    }
    // The other direction goes on meanwhile, in memory that no message of this one is sent from.
    let answers = a.memory(8, 0, ALL);
    for wr_id in 0..COUNT {
        a.recv(wr_id, &[answers.sge(0, 8)]);
        b.send(wr_id, SendOp::Send, &[inbox.sge(0, 8)]);
    }
    b.completions(COUNT as usize);
    let mut done = Vec::new();
    let received = |wc: &&Wc| wc.opcode >= WcOpcode::Recv as u32;
    while done.iter().filter(received).count() < COUNT as usize {
        done.extend(a.completions(1));
    }
    assert!(done.len() < 2 * COUNT as usize, "TCP has taken all that nobody reads");
    for wr_id in 0..COUNT {
        b.recv(wr_id, &[inbox.sge(0, SIZE)]);
        b.completions(1);
    }
    done.extend(a.completions(2 * COUNT as usize - done.len()));
    assert!(done.iter().all(|wc| wc.status == 0));
}

#[test]
fn who_endures_and_gives_up_does_not_wait_for_a_peer_that_does_not_read() {
    const SIZE: usize = 1 << 20;
    const COUNT: u64 = 64;
    let (a, b) = pair();
    a.qp.wait_for_recv_forever();
    b.qp.wait_for_recv_forever();
    let from = a.memory(SIZE, 0x5a, ALL);
    for wr_id in 0..COUNT {
        a.send(wr_id, SendOp::Send, &[from.sge(0, SIZE)]);
    }
    a.qp.disconnect();
    assert_eq!(a.reports.wait_over(), 1);
    // Who does not read finds out by writing, as with any TCP connection.
    b.send(1, SendOp::Send, &[]);
    assert_eq!(b.reports.wait_over(), 1);
}

#[test]
fn a_receive_after_the_sender_said_good_bye_still_gets_its_message() {
    let (a, b) = pair();
    a.send(1, SendOp::Send, &[]);
    a.completions(1);
    a.qp.disconnect();
    a.reports.wait_over();
    assert_eq!(b.qp.state(), QpState::Rts);
    b.recv(7, &[]);
    assert_eq!((b.completions(1)[0].wr_id, b.reports.wait_over()), (7, 1));
}

#[test]
fn a_peer_that_resets_while_its_message_waits() {
    let (near, mut far) = sockets();
    let side = Side::new();
    side.qp.wait_for_recv_forever();
    side.attach(near, MpaRole::Initiator, &agreed());
    // A Send of four bytes, number 1.
    far.write_all(&frame(b"\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0abcd")).unwrap();
    assert_eq!(far.peek(&mut [0]).unwrap(), 1);
    drop(far);
    assert_eq!(side.reports.wait_over(), 1);
    side.recv(1, &[]);
    assert_eq!(side.completions(1)[0].status, WcStatus::WrFlushErr as u32);
}

fn frame(ulpdu: &[u8]) -> Vec<u8> {
    let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
    frame.extend_from_slice(ulpdu);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let crc = weft_rnic::wire::crc::Crc32c::of(&frame);
    frame.extend_from_slice(&crc);
    frame
}
