//! Who is woken by what happens in a lane, and who is told what.

use std::thread;

use weft_rnic::{LaneFlow, SegmentLane};

use super::tests::{pair, send, take};
use super::{AckWake, ShmLane};

use LaneFlow::{Requests, Responses};

#[test]
fn who_sleeps_is_woken_and_who_polls_costs_no_call() {
    let (mut here, mut there) = pair();
    let rung = |lane: &ShmLane| crate::tcp::ready(lane.bell()).read;
    send(&mut here, Requests, b"polled");
    assert!(!rung(&there));
    assert!(take(&mut there, Requests).is_some());
    assert!(!there.sleep(AckWake::Never), "nothing is there");
    send(&mut here, Requests, b"woken");
    assert!(rung(&there));
    send(&mut here, Responses, b"again");
    assert!(take(&mut there, Requests).is_some() && take(&mut there, Responses).is_some());
    assert!(there.heed_bell(true) && !there.heed_bell(true), "one bell for both");
}

#[test]
fn who_sleeps_is_woken_by_acknowledgements_if_it_waits_for_them() {
    let rung = |lane: &ShmLane| crate::tcp::ready(lane.bell()).read;
    for (for_acks, is_woken) in [(AckWake::Never, false), (AckWake::Next, true)] {
        let (mut here, mut there) = pair();
        send(&mut here, Requests, b"placed");
        assert!(!here.sleep(for_acks));
        assert!(take(&mut there, Requests).is_some());
        assert_eq!(rung(&here), is_woken);
        assert!(here.sleep(AckWake::Next), "they are there already");
    }
}

#[test]
fn who_waits_for_a_later_segment_is_not_woken_for_those_before() {
    let rung = |lane: &ShmLane| crate::tcp::ready(lane.bell()).read;
    let (mut here, mut there) = pair();
    for _ in 0..4 {
        send(&mut here, Requests, b"placed");
    }
    assert!(!here.sleep(AckWake::Requests(3)));
    for _ in 0..2 {
        assert!(!there.waits_for_acks());
        assert!(take(&mut there, Requests).is_some());
        assert!(!rung(&here) && !here.sleep(AckWake::Requests(3)));
    }
    assert!(there.front(Requests).is_some());
    there.pop(Requests);
    assert!(there.waits_for_acks(), "also before it is told");
    there.release();
    assert!(rung(&here) && here.sleep(AckWake::Requests(3)));
    assert!(here.heed_bell(true) && !here.sleep(AckWake::Requests(4)));
    assert!(!here.sleep(AckWake::Requests(5)), "it may change its mind");
    assert!(take(&mut there, Requests).is_some());
    assert!(!rung(&here) && here.sleep(AckWake::Next));
}

#[test]
fn who_waits_for_requests_is_not_woken_by_responses_taken() {
    let rung = |lane: &ShmLane| crate::tcp::ready(lane.bell()).read;
    let (mut here, mut there) = pair();
    send(&mut here, Responses, b"placed");
    send(&mut here, Requests, b"placed");
    assert!(!here.sleep(AckWake::Requests(1)));
    assert!(take(&mut there, Responses).is_some());
    assert!(!rung(&here));
    assert!(take(&mut there, Requests).is_some());
    assert!(rung(&here));
}

#[test]
fn what_was_taken_is_told_with_the_segment_that_answers_it() {
    let (mut here, mut there) = pair();
    let room = here.room_bytes(Requests);
    for round in 1..=3 {
        send(&mut here, Requests, b"asks");
        assert!(there.front(Requests).is_some());
        there.pop(Requests);
        there.announce();
        send(&mut there, Requests, b"answers");
        assert!(
            !here.has_acks(),
            "that would make a peer that polls stop before it has the answer"
        );
        assert!(take(&mut here, Requests).is_some());
        assert_eq!(here.placed()[0], round);
        there.release();
        assert_eq!((here.placed()[0], here.is_abandoned()), (round, false));
        assert!(!here.has_acks() && here.room_bytes(Requests) + 4096 > room);
    }
}

/// The peer gives room back and then counts it, while this side reads the two in the other order.
#[test]
fn a_count_that_is_late_is_seen_although_the_room_is_known() {
    let (mut here, there) = pair();
    for _ in 0..2 {
        send(&mut here, Requests, b"x");
    }
    for placed in [1, 2] {
        there.readers[0].corrupt(128, placed);
        assert!(here.has_acks());
        assert_eq!((here.placed()[0], here.is_abandoned()), (placed, false));
    }
}

/// What is taken because the connection has failed is not acknowledged, whatever is written after.
#[test]
fn what_was_taken_is_told_only_if_it_is_announced() {
    let (mut here, mut there) = pair();
    send(&mut here, Requests, b"fails");
    assert!(there.front(Requests).is_some());
    there.pop(Requests);
    send(&mut there, Requests, b"Terminate");
    assert!(take(&mut here, Requests).is_some());
    assert_eq!(here.placed(), [0, 0]);
}

#[test]
fn nothing_is_taken_that_was_not_written() {
    let (mut here, mut there) = pair();
    send(&mut here, Requests, b"asks");
    send(&mut there, Responses, b"answers");
    there.writers[1].corrupt_taken(7);
    assert!(take(&mut here, Responses).is_some());
    assert_eq!(here.placed()[0], 0);
}

#[test]
fn acknowledgements_are_news_until_they_are_told() {
    let (mut here, mut there) = pair();
    send(&mut here, Requests, b"placed");
    assert!(take(&mut there, Requests).is_some());
    for _ in 0..2 {
        assert!(here.has_acks() && here.has_news() && here.sleep(AckWake::Next));
    }
    assert_eq!(here.placed()[0], 1);
    assert!(!here.has_acks() && !here.sleep(AckWake::Next));
}

#[test]
fn a_sleeping_reader_is_never_missed() {
    let (mut here, mut there) = pair();
    const ROUNDS: u32 = 3_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let message = loop {
                    if let Some(message) = take(&mut there, Requests) {
                        break message;
                    }
                    if !there.sleep(AckWake::Never) {
                        wait_forever(&there);
                        there.heed_bell(true);
                    }
                };
                assert_eq!(message, round.to_ne_bytes());
                there.wake();
                send(&mut there, Requests, &message);
            }
        });
        for round in 0..ROUNDS {
            send(&mut here, Requests, &round.to_ne_bytes());
            while take(&mut here, Requests).is_none() {
                thread::yield_now();
            }
        }
    });
}

/// Waits for the bell alone: a bell that is missed is a test without end.
fn wait_forever(lane: &ShmLane) {
    while !crate::tcp::ready(lane.bell()).read {
        crate::tcp::wait(lane.bell(), false);
    }
}
