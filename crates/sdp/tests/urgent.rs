//! Urgent bytes: told ahead of what is before them, and read apart (SD-30, SD-31).

mod common;

use common::{holding, pair, settle, small};
use weft_sdp::SdpEvent;

#[test]
fn it_is_told_before_it_can_be_sent() {
    let mut ends = pair(&small());
    ends[0].send(&[1; 7 * 240]);
    settle(&mut ends);
    assert!(!ends[1].took_event(SdpEvent::Urgent));
    let end = &mut ends[0];
    assert!(end.connection.send_urgent(&mut end.verbs, b'!').unwrap());
    settle(&mut ends);
    assert!(ends[1].took_event(SdpEvent::Urgent));
    assert_eq!(ends[1].connection.receive_urgent(), None, "it waits behind the others");
    ends[1].receive(2000);
    settle(&mut ends);
    assert_eq!(ends[1].receive(2000).len(), 2 * 240);
    assert_eq!(ends[1].connection.receive_urgent(), Some(b'!'));
}

#[test]
fn reads_stop_before_it() {
    for config in [small(), holding()] {
        let mut ends = pair(&config);
        ends[0].send(b"before");
        let end = &mut ends[0];
        end.connection.send_urgent(&mut end.verbs, b'!').unwrap();
        ends[0].send(b"after");
        settle(&mut ends);
        assert_eq!(ends[1].receive(100), b"before");
        assert!(ends[1].connection.is_at_mark());
        assert_eq!(ends[1].receive(100), b"after");
        assert!(!ends[1].connection.is_at_mark());
        assert_eq!(ends[1].connection.receive_urgent(), Some(b'!'));
    }
}

#[test]
fn it_is_part_of_the_stream_if_so_asked() {
    let mut ends = pair(&small());
    ends[1].connection.set_urgent_inline(true);
    let end = &mut ends[0];
    end.connection.send_urgent(&mut end.verbs, b'!').unwrap();
    ends[0].send(b"after");
    settle(&mut ends);
    assert!(ends[1].connection.is_at_mark());
    assert_eq!(ends[1].receive(100), b"!after");
}
