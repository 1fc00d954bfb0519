//! What strangers send, and what was recorded, changes nothing.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use weft_testkit::SetAtEnd;
use weft_verbs::SendOp;

use super::ends::DEADLINE;
use super::line::Line;
use super::relay::Random;

const PIECE: usize = 16 << 10;
/// Garbage datagrams for each one that was made of a good one.
const KINDS: u64 = 4;

#[test]
fn a_flood_of_garbage_changes_nothing() {
    let Some(mut line) = Line::new(100 * PIECE) else { return };
    line.near.fill(|at| (at * 13 + (at >> 10)) as u8);
    line.relay.record();
    line.near.write_all(&line.far, PIECE, |_| {});
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = SetAtEnd(&over);
        scope.spawn(|| flood(&line, &over));
        for _ in 0..5 {
            line.near.write_all(&line.far, PIECE, |_| {});
        }
    });
    assert!(line.near.bytes() == line.far.bytes());
}

/// Random datagrams from a stranger to the far end, and spoilt ones as if from the peer to both.
fn flood(line: &Line, over: &AtomicBool) {
    let mut random = Random::new();
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    let good = [true, false].map(|outward| line.relay.recorded(outward));
    while !over.load(Ordering::SeqCst) {
        for outward in [true, false] {
            let octets = (random.next() % 1400) as usize;
            let mut garbage: Vec<u8> = (0..octets).map(|_| random.next() as u8).collect();
            if let Some(first) = garbage.first_mut() {
                *first = ((random.next() % 8) << 5) as u8;
            }
            // A full socket loses it.
            let _ = stranger.send_to(&garbage, ("127.0.0.2", line.far.port()));
            let Some(spoilt) = spoil(&good[usize::from(!outward)], &mut random) else { continue };
            line.relay.inject(outward, &spoilt);
            line.relay.inject(outward, &garbage);
        }
    }
}

/// A good datagram with a byte changed, or without its end.
fn spoil(good: &[Vec<u8>], random: &mut Random) -> Option<Vec<u8>> {
    let mut datagram = good.get(random.next() as usize % good.len().max(1))?.clone();
    let at = random.next() as usize % datagram.len();
    match random.next() % KINDS {
        0 => datagram.truncate(at),
        _ => datagram[at] ^= 1 << (random.next() % 8),
    }
    Some(datagram)
}

#[test]
fn what_was_recorded_and_comes_again_changes_nothing() {
    let Some(mut line) = Line::new(50 * PIECE) else { return };
    line.relay.record();
    for round in 0..3_u8 {
        line.near.fill(|at| (at as u8).wrapping_mul(round + 1));
        line.near.write_all(&line.far, PIECE, |_| {});
    }
    line.far.post_recv(1, 0, 16);
    line.near.post(7, SendOp::Send, 16, 16);
    await_completions(&line, 1);

    // Of 151 messages up to three share a datagram.
    assert!(line.relay.replay() > 50);
    // Another message behind the record arrives alone.
    line.far.post_recv(2, 0, 16);
    line.far.post_recv(3, 0, 16);
    line.near.post(8, SendOp::Send, 16, 16);
    await_completions(&line, 1);
    assert!(line.near.bytes()[16..] == line.far.bytes()[16..]);
    assert!(line.far.poll().is_empty(), "the first message came twice");
}

/// Waits for so many completions at each end.
fn await_completions(line: &Line, count: usize) {
    let start = weft_os::clock::now();
    let mut seen = [0, 0];
    while seen != [count, count] {
        for (end, seen) in [&line.near, &line.far].into_iter().zip(&mut seen) {
            *seen += end.poll().len();
            assert!(*seen <= count);
        }
        assert!(start.elapsed() < DEADLINE, "{seen:?}");
    }
}
