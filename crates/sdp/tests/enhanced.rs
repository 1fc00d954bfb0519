//! Enhanced style: what waits grows, nobody counts, and the layer below holds senders back
//! (SD-13 to SD-15).

mod common;

use common::{holding, pair, pair_over, settle, small};
use weft_sdp::{Choice, SdpConfig, SdpEvent, SdpStyle};

#[test]
fn it_is_chosen_where_the_layer_below_holds() {
    assert_eq!(pair(&holding())[0].connection.style(), SdpStyle::Enhanced);
    assert_eq!(pair(&small())[0].connection.style(), SdpStyle::Basic);
    let basic = SdpConfig { style: Choice::Only(SdpStyle::Basic), ..holding() };
    let ends = pair_over(&holding(), &basic, 1460);
    assert!(ends.iter().all(|end| end.connection.style() == SdpStyle::Basic));
}

#[test]
fn words_that_wait_become_one_message() {
    let mut ends = pair(&holding());
    // As much as may be with the layer below, then words.
    ends[0].send(&[0; 3 * 240]);
    for _ in 0..50 {
        assert_eq!(ends[0].send(b"word"), 4);
    }
    settle(&mut ends);
    assert_eq!(ends[1].messages, 4, "three full ones, and one of all words");
    assert_eq!(ends[1].receive(2000)[720..], b"word".repeat(50));
}

#[test]
fn a_word_is_not_held_back_for_others() {
    let mut ends = pair(&holding());
    for _ in 0..3 {
        ends[0].send(b"word");
        settle(&mut ends);
        assert_eq!(ends[1].receive(100), b"word");
    }
    assert_eq!(ends[1].messages, 3);
}

#[test]
fn credits_are_never_told_alone() {
    let mut ends = pair(&holding());
    let mut heard = ends[0].messages;
    for _ in 0..200 {
        ends[0].send(&[1; 240]);
        settle(&mut ends);
        assert_eq!(ends[1].receive(500).len(), 240);
        settle(&mut ends);
    }
    heard = ends[0].messages - heard;
    assert_eq!(heard, 0);
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender() {
    let mut ends = pair(&holding());
    let mut sent = 0;
    loop {
        let taken = ends[0].send(&[1; 100]);
        sent += taken;
        settle(&mut ends);
        if taken == 0 {
            break;
        }
    }
    assert_eq!(ends[1].messages, 8, "as many as it has receives");
    assert!(sent <= 24 * 240, "{sent} octets are under way");
    ends[0].took_event(SdpEvent::Writable);
    let mut read = 0;
    while read < sent {
        let now = ends[1].receive(300).len();
        settle(&mut ends);
        assert!(now > 0, "{read} of {sent} octets");
        read += now;
    }
    assert!(ends[0].took_event(SdpEvent::Writable));
}

/// One buffer serves both layers: what is put into it is sent from there, behind what waits.
#[test]
fn octets_are_put_where_they_are_sent_from_and_taken_where_they_arrived() {
    let mut ends = pair(&holding());
    assert_eq!(ends[0].send(b"sent, "), 6);
    let long = b"put where it is sent from, ".repeat(20);
    assert_eq!(ends[0].put(&long), long.len());
    settle(&mut ends);
    assert_eq!(ends[1].take(6), b"sent, ");
    assert_eq!(ends[1].take(2000), long);
    assert_eq!(ends[1].take(2000), b"");
    while ends[0].put(&[1; 5000]) > 0 {}
    settle(&mut ends);
    assert_eq!(ends[1].take(5000).len(), 8 * 240, "what there are receives for");
}

#[test]
fn private_buffers_are_not_shared_in_basic_style() {
    let mut ends = pair(&small());
    assert_eq!(ends[0].put(b"word"), 0);
    assert_eq!(ends[0].send(b"word"), 4);
    settle(&mut ends);
    assert_eq!(ends[1].take(9), b"");
    assert_eq!(ends[1].receive(9), b"word");
}
