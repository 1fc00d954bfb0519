//! Credits: a reader that does not read stops the sender of payload and nobody else (SD-9 to
//! SD-12).

mod common;

use common::{Stream, pair, settle, small};
use weft_sdp::SdpEvent;

#[test]
fn payload_stops_before_the_buffers_are_full() {
    let mut ends = pair(&small());
    let sent = ends[0].send(&[7; 8 * 240]);
    assert_eq!(sent, 8 * 240, "our own buffers take as much as the peer's would");
    assert_eq!(ends[0].send(b"more"), 0);
    settle(&mut ends);
    assert_eq!(ends[1].messages, 5);
    assert_eq!(ends[1].connection.readable(), 5 * 240);
    assert!(ends[0].took_event(SdpEvent::Writable));
}

#[test]
fn an_end_reaches_a_peer_that_does_not_read() {
    let mut ends = pair(&small());
    for end in &mut ends {
        end.send(&[7; 5 * 240]);
    }
    settle(&mut ends);
    for end in &mut ends {
        end.shutdown();
    }
    settle(&mut ends);
    assert!(ends.iter_mut().all(|end| end.took_event(SdpEvent::End)));
    assert!(ends.iter().all(|end| end.connection.is_over()));
}

#[test]
fn a_reader_tells_of_room_when_it_has_enough() {
    let mut ends = pair(&small());
    ends[0].send(&[7; 8 * 240]);
    settle(&mut ends);
    let told = ends[0].messages;
    ends[1].receive(3 * 240);
    settle(&mut ends);
    assert_eq!((ends[0].messages, ends[1].messages), (told, 5), "three are not half of eight");
    ends[1].receive(240);
    settle(&mut ends);
    assert_eq!((ends[0].messages, ends[1].messages), (told + 1, 8));
    let rest = ends[1].receive(4000).len();
    assert_eq!(rest, 4 * 240);
}

#[test]
fn each_send_is_a_message() {
    let mut ends = pair(&small());
    for _ in 0..4 {
        ends[0].send(b"word");
    }
    settle(&mut ends);
    assert_eq!(ends[1].messages, 4);
    assert_eq!(ends[1].receive(100), b"wordwordwordword");
}

#[test]
fn two_ends_that_say_much_both_ways_never_stand_still() {
    let mut ends = pair(&small());
    let mut streams = [Stream::new(1), Stream::new(2)];
    let mut left = [100_000_usize; 2];
    while left.iter().any(|left| *left > 0) {
        let mut moved = false;
        for by in 0..2 {
            let taken = streams[by].send(&mut ends[by], left[by].min(700));
            left[by] -= taken;
            moved |= common::carry(&mut ends, by, 2000) | (taken > 0);
            moved |= streams[1 - by].receive(&mut ends[by], 500) > 0;
        }
        assert!(moved, "{left:?} octets are left");
    }
}
