//! Many connections, and many operations.

use std::net::Ipv4Addr;

use weft_verbs::SendOp;

use super::ends::{DEADLINE, End};
use super::line::Line;

/// Bytes of a message.
const MESSAGE: usize = 64;
/// Receives that are posted, and messages that may be without one.
const RECEIVES: u64 = 512;

#[test]
fn a_thousand_connections_come_and_go() {
    let here = Ipv4Addr::LOCALHOST;
    for round in 0..1000_u64 {
        let (one, mut other) = (End::new(MESSAGE), End::new(MESSAGE));
        other.fill(|at| at as u8 ^ round as u8);
        one.connect(here, here, other.qp.num());
        other.connect(here, here, one.qp.num());
        one.post_recv(round, 0, MESSAGE);
        other.post(round, SendOp::Send, 0, MESSAGE);
        let start = weft_os::clock::now();
        let (mut received, mut sent) = (0, 0);
        while (received, sent) != (1, 1) {
            received += one.poll().len();
            sent += other.poll().len();
            assert!(start.elapsed() < DEADLINE, "round {round}: {received} {sent}");
        }
        assert!(one.bytes() == other.bytes());
    }
}

#[test]
fn many_operations_under_loss_and_reordering() {
    operations(100_000);
}

/// `make soak`.
#[test]
#[ignore = "ten million operations take two minutes"]
fn ten_million_operations_under_loss_and_reordering() {
    let before = resident_octets();
    operations(10_000_000);
    let grown = resident_octets().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} octets more are in use");
}

/// Sends numbered messages; each arrives once, in order.
fn operations(count: u64) {
    let Some(mut line) = Line::new(MESSAGE * RECEIVES as usize) else { return };
    line.relay.spoil(10, 50);
    let place = |number: u64| (number % RECEIVES) as usize * MESSAGE;
    for number in 0..RECEIVES {
        line.far.post_recv(number, place(number), MESSAGE);
    }
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    let mut heard = weft_os::clock::now();
    while received < count || sent < count {
        while posted < count && posted < received + RECEIVES && posted < sent + RECEIVES {
            line.near.set(place(posted), posted);
            line.near.post(posted, SendOp::Send, place(posted), MESSAGE);
            posted += 1;
        }
        for wc in line.near.poll() {
            assert_eq!(wc.wr_id, sent);
            sent += 1;
        }
        for wc in line.far.poll() {
            assert_eq!((wc.wr_id, wc.byte_len as usize), (received, MESSAGE));
            assert_eq!(line.far.get(place(received)), received);
            line.far.post_recv(received + RECEIVES, place(received), MESSAGE);
            received += 1;
            heard = weft_os::clock::now();
        }
        assert!(heard.elapsed() < DEADLINE, "{received} of {count}");
    }
}

fn resident_octets() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
