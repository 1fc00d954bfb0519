//! Memory of a reader that the peer writes, in pipelined mode (SD-44 to SD-46).

mod common;

use common::rnic::Memory;
use common::{End, pair, settle, small};
use weft_sdp::{SdpConfig, SdpEvent};
use weft_verbs::Access;
use weft_wire::sdp::Mode;

/// Ends whose first sends in pipelined mode, memory to send from, and memory to be written.
fn pipelined() -> ([End; 2], Memory, Memory) {
    let mut ends = pair(&SdpConfig { zero_copy_octets: 1000, ..small() });
    let end = &mut ends[0];
    end.connection.set_send_mode(&mut end.verbs, Mode::Pipelined).unwrap();
    settle(&mut ends);
    let mut source = ends[0].side.memory(3000, Access::empty());
    source.bytes.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64 + 77);
    let sink = ends[1].side.memory(3000, Access::empty());
    (ends, source, sink)
}

fn invite(ends: &mut [End; 2], sink: &Memory, len: u32) {
    let end = &mut ends[1];
    end.connection.invite(&mut end.verbs, sink.addr(), len).unwrap();
}

fn send_from(ends: &mut [End; 2], source: &Memory) {
    let end = &mut ends[0];
    end.connection.send_from(&mut end.verbs, source.addr(), 3000, 0).unwrap();
}

fn sound(ends: &[End; 2]) -> bool {
    ends.iter().all(|end| end.connection.fault().is_none())
}

#[test]
fn it_is_written_in_place() {
    for len in [3000, 1200] {
        let (mut ends, source, sink) = pipelined();
        invite(&mut ends, &sink, len);
        settle(&mut ends);
        assert!(ends[0].connection.is_invited());
        send_from(&mut ends, &source);
        settle(&mut ends);
        assert!(
            ends[0].took_event(SdpEvent::Sent(len)) && ends[1].took_event(SdpEvent::Received(len))
        );
        assert_eq!(sink.octets()[..len as usize], source.octets()[..len as usize]);
        assert!(!ends[0].connection.is_invited() && sound(&ends));
    }
}

#[test]
fn payload_makes_it_void_on_both_sides() {
    // Payload that was under way, and payload that was sent in spite of it.
    for crosses in [true, false] {
        let (mut ends, _, sink) = pipelined();
        if crosses {
            ends[0].send(b"words");
        }
        invite(&mut ends, &sink, 3000);
        settle(&mut ends);
        assert_eq!(ends[0].connection.is_invited(), !crosses);
        if !crosses {
            ends[0].send(b"words");
            settle(&mut ends);
        }
        assert!(ends[1].took_event(SdpEvent::Received(0)));
        assert_eq!(ends[1].receive(100), b"words");
        invite(&mut ends, &sink, 3000);
        settle(&mut ends);
        assert!(ends[0].connection.is_invited() && sound(&ends), "another may follow");
    }
}

#[test]
fn one_that_crosses_an_advertisement_is_followed() {
    let (mut ends, source, sink) = pipelined();
    invite(&mut ends, &sink, 3000);
    send_from(&mut ends, &source);
    settle(&mut ends);
    assert!(
        ends[0].took_event(SdpEvent::Sent(3000)) && ends[1].took_event(SdpEvent::Received(3000))
    );
    assert_eq!(ends[1].connection.advertised(), 0);
    assert_eq!(sink.octets()[..3000], source.octets()[..3000]);
    assert!(sound(&ends));
}

#[test]
fn it_can_be_taken_back() {
    let (mut ends, source, sink) = pipelined();
    for followed in [false, true] {
        invite(&mut ends, &sink, 3000);
        settle(&mut ends);
        if followed {
            send_from(&mut ends, &source);
        }
        let end = &mut ends[1];
        end.connection.cancel_invitation(&mut end.verbs).unwrap();
        settle(&mut ends);
        let octets = if followed { 3000 } else { 0 };
        assert!(ends[1].took_event(SdpEvent::Received(octets)), "{:?}", ends[1].events);
        assert!(!ends[0].connection.is_invited() && sound(&ends));
    }
}

#[test]
fn an_end_or_another_mode_makes_it_void() {
    for ends_it in [true, false] {
        let (mut ends, _, sink) = pipelined();
        invite(&mut ends, &sink, 3000);
        settle(&mut ends);
        if ends_it {
            ends[0].shutdown();
        } else {
            let end = &mut ends[0];
            end.connection.set_send_mode(&mut end.verbs, Mode::Combined).unwrap();
        }
        settle(&mut ends);
        assert!(ends[1].took_event(SdpEvent::Received(0)) && sound(&ends));
    }
}

#[test]
fn one_from_before_two_changes_of_mode_is_not_followed() {
    let (mut ends, source, sink) = pipelined();
    let end = &mut ends[0];
    for mode in [Mode::Combined, Mode::Pipelined] {
        end.connection.set_send_mode(&mut end.verbs, mode).unwrap();
    }
    invite(&mut ends, &sink, 3000);
    settle(&mut ends);
    assert!(!ends[0].connection.is_invited() && ends[1].took_event(SdpEvent::Received(0)));
    send_from(&mut ends, &source);
    settle(&mut ends);
    assert_eq!(ends[1].connection.advertised(), 3000);
    assert!(sound(&ends));
}

#[test]
fn there_is_none_in_another_mode() {
    let mut ends = pair(&small());
    let sink = ends[1].side.memory(3000, Access::empty());
    let end = &mut ends[1];
    assert!(end.connection.invite(&mut end.verbs, sink.addr(), 3000).is_err());
    assert!(sound(&ends));
}
