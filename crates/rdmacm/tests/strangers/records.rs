//! Connections of queue pairs by number: what was recorded of one takes no place from another.

use weft_rnic::wire::shuttle::Packet;
use weft_rnic::wire::shuttle::hello::{Hello, HelloKind};

use super::ends::DEADLINE;
use super::line::Line;
use super::outside::{KEY_TEXT, apart};

const PIECE: usize = 4096;
/// How often a record is played.
const TIMES: usize = 3;

fn kind(datagram: &[u8]) -> Option<HelloKind> {
    Hello::parse(datagram).ok().map(|hello| hello.kind)
}

fn is_request(datagram: &[u8]) -> bool {
    kind(datagram) == Some(HelloKind::Request)
}

/// Waits until the near end has asked, behind what the record had `before`, and then said something
/// for which it must be connected; gives what the record has then. Words of an earlier connection
/// may come late.
fn await_connected(line: &Line, before: usize) -> usize {
    let start = weft_os::clock::now();
    loop {
        let record = line.relay.recorded(true);
        let protected =
            |datagram: &Vec<u8>| !matches!(Packet::parse(datagram), Ok(Packet::Hello { .. }));
        let mut since = record[before..].iter().skip_while(|one| !is_request(one));
        if since.any(protected) {
            return record.len();
        }
        assert!(start.elapsed() < DEADLINE, "the near end is not connected");
        std::thread::yield_now();
    }
}

/// Waits until the record has an answer of this kind, behind `before`.
fn await_answer(line: &Line, before: usize, wanted: HelloKind) {
    let start = weft_os::clock::now();
    while !line.relay.recorded(false)[before..].iter().any(|one| kind(one) == Some(wanted)) {
        assert!(start.elapsed() < DEADLINE, "no {wanted:?}");
        std::thread::yield_now();
    }
}

/// Says again to the far end what the near one asked when `asked` was recorded, while a connection
/// waits for a sign of it; then lets everything pass, and moves data.
fn play(line: &mut Line, asked: &[Vec<u8>]) {
    assert!(!asked.is_empty());
    for request in asked.iter().cycle().take(TIMES * asked.len()) {
        line.relay.inject(true, request);
    }
    line.relay.filter(|_, _| true);
    line.near.fill(|at| at as u8 ^ 0x5a);
    line.near.write_all(&line.far, PIECE, |_| {});
    assert!(line.near.bytes() == line.far.bytes());
}

#[test]
fn a_request_of_an_earlier_connection_displaces_none() {
    let test = "records::a_request_of_an_earlier_connection_displaces_none";
    if apart(test, &[("WEFT_KEY", KEY_TEXT)]).is_none() {
        return;
    }
    let mut line = Line::new(10 * PIECE).expect("this process may make name spaces");
    line.relay.record();
    line.near.write_all(&line.far, PIECE, |_| {});
    // The first connection's Requests may have passed before the record began.
    let begin_again = |line: &Line, passes: fn(bool, &[u8]) -> bool| {
        line.near.reset();
        line.far.reset();
        line.relay.filter(passes);
        let before = line.relay.recorded(true).len();
        line.connect_far();
        line.connect_near();
        before
    };
    let before = begin_again(&line, |_, _| true);
    let after = await_connected(&line, before);
    line.near.write_all(&line.far, PIECE, |_| {});
    let mut asked = line.relay.recorded(true)[before..after].to_vec();
    asked.retain(|datagram| is_request(datagram));

    let before = begin_again(&line, |outward, datagram| !outward || is_request(datagram));
    await_connected(&line, before);
    play(&mut line, &asked);
}

#[test]
fn a_request_that_was_granted_before_displaces_none() {
    let test = "records::a_request_that_was_granted_before_displaces_none";
    if apart(test, &[("WEFT_KEY", KEY_TEXT)]).is_none() {
        return;
    }
    let mut line = Line::new(10 * PIECE).expect("this process may make name spaces");
    line.relay.record();
    line.near.write_all(&line.far, PIECE, |_| {});
    line.near.reset();
    line.far.reset();
    line.connect_far();
    // The far end's answer is lost, and the near end begins anew.
    let (before, answers) = (line.relay.recorded(true).len(), line.relay.recorded(false).len());
    line.relay.filter(|outward, datagram| outward || kind(datagram) == Some(HelloKind::Retry));
    line.connect_near();
    await_answer(&line, answers, HelloKind::Reply);
    line.near.reset();
    let mut asked = line.relay.recorded(true)[before..].to_vec();
    asked.retain(|datagram| is_request(datagram));
    let before = line.relay.recorded(true).len();
    line.relay.filter(|outward, datagram| !outward || is_request(datagram));
    line.connect_near();
    await_connected(&line, before);
    play(&mut line, &asked);
}
