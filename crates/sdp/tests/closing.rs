//! How streams end: each half by itself, in order, or all at once (SD-20 to SD-23).

mod common;

use common::{carry, pair, settle, small};
use weft_sdp::{SdpEvent, SdpFault};

#[test]
fn a_half_that_ended_leaves_the_other() {
    let mut ends = pair(&small());
    ends[0].send(b"last words");
    ends[0].shutdown();
    settle(&mut ends);
    assert!(!ends[1].connection.is_at_end(), "there is something to read");
    assert_eq!(ends[1].receive(100), b"last words");
    assert!(ends[1].connection.is_at_end());
    assert_eq!(ends[0].connection.send(&mut ends[0].verbs, b"x"), Err(SdpFault::Shut));
    assert_eq!(ends[1].send(b"an answer"), 9);
    settle(&mut ends);
    assert_eq!(ends[0].receive(100), b"an answer");
    assert!(ends.iter().all(|end| !end.connection.is_over()));
    ends[1].shutdown();
    settle(&mut ends);
    assert!(ends.iter().all(|end| end.connection.is_over() && end.connection.fault().is_none()));
}

#[test]
fn who_is_over_first_may_part() {
    let mut ends = pair(&small());
    ends[1].send(b"unread");
    ends.iter_mut().for_each(common::End::shutdown);
    settle(&mut ends);
    let end = &mut ends[0];
    end.connection.handle_disconnect(&mut end.verbs);
    ends[1].side.mpa.close();
    ends[1].settle();
    assert_eq!(ends[1].connection.fault(), None);
    assert_eq!(ends[0].receive(100), b"unread");
    assert_eq!(ends[0].connection.fault(), None);
}

#[test]
fn a_lost_connection_is_a_reset_after_what_arrived() {
    let mut ends = pair(&small());
    ends[0].send(b"arrived");
    settle(&mut ends);
    ends[1].side.mpa.close();
    ends[1].settle();
    assert!(ends[1].took_event(SdpEvent::Failed(SdpFault::Reset)));
    assert_eq!(ends[1].receive(100), b"arrived");
    let verbs = &mut ends[1].verbs;
    assert_eq!(ends[1].connection.receive(verbs, &mut [0; 9]), Err(SdpFault::Reset));
    assert_eq!(ends[1].connection.send(verbs, b"x"), Err(SdpFault::Reset));
}

#[test]
fn who_closes_without_reading_aborts() {
    let mut ends = pair(&small());
    ends[0].send(b"unread");
    settle(&mut ends);
    let end = &mut ends[1];
    end.connection.close(&mut end.verbs);
    assert_eq!(end.connection.fault(), Some(SdpFault::Aborted));
    assert!(end.connection.is_over());
}

#[test]
fn an_abort_is_told_where_the_peer_had_ended() {
    let mut ends = pair(&small());
    ends[0].send(b"unread");
    ends[0].shutdown();
    settle(&mut ends);
    let end = &mut ends[1];
    end.connection.close(&mut end.verbs);
    settle(&mut ends);
    assert_eq!(ends[0].connection.fault(), Some(SdpFault::Reset));
}

#[test]
fn data_for_nobody_is_not_taken() {
    let mut ends = pair(&small());
    let end = &mut ends[1];
    end.connection.close(&mut end.verbs);
    ends[0].send(b"too late");
    while carry(&mut ends, 0, usize::MAX) {}
    assert_eq!(ends[1].connection.fault(), Some(SdpFault::Aborted));
}

#[test]
fn what_was_sent_before_a_close_arrives() {
    let mut ends = pair(&small());
    assert_eq!(ends[0].send(&[3; 8 * 240]), 8 * 240);
    let end = &mut ends[0];
    end.connection.close(&mut end.verbs);
    let mut read = 0;
    while !ends[1].connection.is_at_end() {
        settle(&mut ends);
        let now = ends[1].receive(500).len();
        assert!(now > 0 || ends[1].connection.is_at_end());
        read += now;
    }
    assert_eq!(read, 8 * 240);
}
