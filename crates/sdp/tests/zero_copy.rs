//! Memory that the peer reads instead of being sent it (SD-40 to SD-43).

mod common;

use common::rnic::Memory;
use common::{End, carry, holding, pair, settle, small};
use weft_sdp::{SdpConfig, SdpEvent, SdpFault};
use weft_verbs::Access;

const LEN: u32 = 5000;
const SECOND_NS: u64 = 1_000_000_000;

fn config() -> SdpConfig {
    SdpConfig { zero_copy_octets: 1000, ..small() }
}

/// Memory of a program, whose words are numbered.
fn numbered(end: &End) -> Memory {
    let mut memory = end.side.memory(u64::from(LEN), Access::LOCAL_WRITE);
    memory.bytes.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64 ^ 0x5aa5_0ff0);
    memory
}

fn send_from(end: &mut End, memory: &Memory) {
    assert!(end.connection.prefers_source(u64::from(LEN)));
    end.connection.send_from(&mut end.verbs, memory.addr(), LEN, 0).unwrap();
}

/// Reads all that is there, in place as far as possible, `step` bytes at a time.
fn fetch(ends: &mut [End; 2], memory: &Memory, step: u32) -> u32 {
    let mut done = 0;
    loop {
        settle(ends);
        let end = &mut ends[1];
        let read = end.receive(end.connection.readable().min(u64::from(step)) as usize);
        done += read.len() as u32;
        settle(ends);
        let end = &mut ends[1];
        if end.connection.advertised() == 0 {
            return done;
        }
        let (addr, room) = (memory.addr() + u64::from(done), step.min(LEN - done));
        end.connection.receive_into(&mut end.verbs, addr, room).unwrap();
        settle(ends);
        let Some(SdpEvent::Received(octets)) =
            ends[1].events.iter().find(|e| matches!(e, SdpEvent::Received(_))).copied()
        else {
            panic!("{:?}", ends[1].events);
        };
        ends[1].took_event(SdpEvent::Received(octets));
        done += octets;
    }
}

#[test]
fn a_reader_fetches_it_into_place() {
    for step in [LEN, 700, 1] {
        let mut ends = pair(&config());
        let source = numbered(&ends[0]);
        let sink = ends[1].side.memory(u64::from(LEN), Access::empty());
        send_from(&mut ends[0], &source);
        settle(&mut ends);
        assert_eq!(ends[1].messages, 1);
        assert_eq!((ends[1].connection.readable(), ends[1].connection.advertised()), (1, LEN - 1));
        let before = ends[0].messages;
        if step == 1 {
            // Byte by byte would take long; one is enough to see that it is counted.
            fetch_one(&mut ends, &sink);
            continue;
        }
        assert_eq!(fetch(&mut ends, &sink, step), LEN);
        assert!(ends[0].took_event(SdpEvent::Sent(LEN)));
        assert_eq!(sink.octets()[1..LEN as usize], source.octets()[1..LEN as usize]);
        assert_eq!(ends[0].messages - before, LEN.div_ceil(step) as usize);
        assert!(ends[0].connection.prefers_source(u64::from(LEN)), "another may follow");
    }
}

fn fetch_one(ends: &mut [End; 2], sink: &Memory) {
    let end = &mut ends[1];
    assert_eq!(end.receive(1).len(), 1);
    end.connection.receive_into(&mut end.verbs, sink.addr(), 1).unwrap();
    settle(ends);
    assert!(ends[1].took_event(SdpEvent::Received(1)));
    assert_eq!(ends[1].connection.advertised(), LEN - 2);
    let end = &mut ends[0];
    end.connection.cancel_source(&mut end.verbs, 0).unwrap();
    settle(ends);
    assert!(ends[0].took_event(SdpEvent::Sent(2)));
}

#[test]
fn a_reader_without_memory_has_it_sent() {
    let mut ends = pair(&config());
    let source = numbered(&ends[0]);
    send_from(&mut ends[0], &source);
    assert_eq!(ends[0].send(b"x"), 0, "it follows, once all is known");
    settle(&mut ends);
    assert_eq!(ends[1].receive(LEN as usize).len(), 1);
    assert_eq!(ends[1].receive(LEN as usize).len(), 0);
    settle(&mut ends);
    assert!(ends[0].took_event(SdpEvent::Sent(1)));
    assert!(ends[0].took_event(SdpEvent::Writable));
    let rest = source.octets()[1..LEN as usize].to_vec();
    let taken = ends[0].send(&rest);
    settle(&mut ends);
    let read = ends[1].receive(LEN as usize);
    assert!(taken > 0 && !read.is_empty());
    assert_eq!(read, rest[..read.len()]);
}

#[test]
fn what_was_sent_before_comes_before() {
    let mut ends = pair(&config());
    let source = numbered(&ends[0]);
    ends[0].send(&[9; 8 * 240]);
    send_from(&mut ends[0], &source);
    settle(&mut ends);
    assert_eq!(ends[1].connection.advertised(), 0);
    assert_eq!(ends[1].receive(4000), [9; 5 * 240]);
    settle(&mut ends);
    assert_eq!(ends[1].receive(3 * 240), [9; 3 * 240]);
    settle(&mut ends);
    assert_eq!(ends[1].connection.advertised(), LEN - 1);
}

#[test]
fn an_end_waits_for_it() {
    let mut ends = pair(&config());
    let source = numbered(&ends[0]);
    let sink = ends[1].side.memory(u64::from(LEN), Access::empty());
    send_from(&mut ends[0], &source);
    ends[0].shutdown();
    settle(&mut ends);
    assert!(!ends[1].took_event(SdpEvent::End));
    assert_eq!(fetch(&mut ends, &sink, 2000), LEN);
    settle(&mut ends);
    assert!(ends[1].took_event(SdpEvent::End) && ends[1].connection.is_at_end());
}

#[test]
fn one_that_nobody_reads_is_taken_back_in_time() {
    let mut ends = pair(&config());
    let source = numbered(&ends[0]);
    send_from(&mut ends[0], &source);
    settle(&mut ends);
    let end = &mut ends[0];
    assert_eq!(end.connection.poll_timeout(), Some(SECOND_NS));
    end.connection.handle_timeout(&mut end.verbs, SECOND_NS - 1);
    assert_eq!(end.connection.poll_timeout(), Some(SECOND_NS));
    end.connection.handle_timeout(&mut end.verbs, SECOND_NS);
    assert_eq!(end.connection.poll_timeout(), Some(6 * SECOND_NS));
    let mut silent = pair(&config());
    settle(&mut ends);
    assert!(ends[0].took_event(SdpEvent::Sent(1)));
    assert_eq!(ends[0].connection.poll_timeout(), None);
    // A peer that does not even answer that is gone.
    let source = numbered(&silent[0]);
    send_from(&mut silent[0], &source);
    let end = &mut silent[0];
    for due in [SECOND_NS, 6 * SECOND_NS] {
        end.connection.handle_timeout(&mut end.verbs, due);
    }
    end.settle();
    assert!(end.took_event(SdpEvent::Sent(1)) && end.took_event(SdpEvent::Failed(SdpFault::Reset)));
}

#[test]
fn two_that_cross_are_both_taken_back() {
    let mut ends = pair(&config());
    let memories = [numbered(&ends[0]), numbered(&ends[1])];
    for by in 0..2 {
        send_from(&mut ends[by], &memories[by]);
    }
    settle(&mut ends);
    for end in &mut ends {
        assert!(end.took_event(SdpEvent::Sent(1)));
        assert_eq!(end.connection.advertised(), 0);
    }
}

#[test]
fn a_cancel_during_a_read_ends_after_it() {
    let mut ends = pair(&config());
    let source = numbered(&ends[0]);
    let sink = ends[1].side.memory(u64::from(LEN), Access::empty());
    send_from(&mut ends[0], &source);
    settle(&mut ends);
    ends[1].receive(1);
    let end = &mut ends[1];
    end.connection.receive_into(&mut end.verbs, sink.addr(), 1500).unwrap();
    let end = &mut ends[0];
    end.connection.cancel_source(&mut end.verbs, 0).unwrap();
    carry(&mut ends, 0, usize::MAX);
    settle(&mut ends);
    assert!(ends[1].took_event(SdpEvent::Received(1500)));
    assert!(ends[0].took_event(SdpEvent::Sent(1501)));
    assert_eq!(sink.octets()[..1500], source.octets()[1..1501]);
}

#[test]
fn memory_is_the_owners_again_when_the_connection_fails() {
    let mut ends = pair(&config());
    let source = numbered(&ends[0]);
    let sink = ends[1].side.memory(u64::from(LEN), Access::empty());
    send_from(&mut ends[0], &source);
    settle(&mut ends);
    ends[1].receive(1);
    let end = &mut ends[1];
    end.connection.receive_into(&mut end.verbs, sink.addr(), LEN - 1).unwrap();
    for end in &mut ends {
        end.connection.abort(&mut end.verbs);
        end.settle();
    }
    assert!(ends[0].took_event(SdpEvent::Sent(1)) && ends[1].took_event(SdpEvent::Received(0)));
    // What is still under way finds no memory.
    while carry(&mut ends, 0, usize::MAX) | carry(&mut ends, 1, usize::MAX) {}
    assert!(sink.octets().iter().all(|octet| *octet == 0));
}

#[test]
fn enhanced_style_has_none() {
    let ends = pair(&SdpConfig { zero_copy_octets: 1000, ..holding() });
    assert!(!ends[0].connection.prefers_source(u64::from(LEN)));
}
