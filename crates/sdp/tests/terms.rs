//! Modes and sizes that change while the connection is open (SD-50, SD-51).

mod common;

use common::{holding, pair, pair_over, settle, small};
use weft_sdp::{SdpConfig, SdpEvent, SdpFault};
use weft_verbs::{Access, Misuse};
use weft_wire::sdp::Mode;

fn config() -> SdpConfig {
    SdpConfig { zero_copy_octets: 1000, ..small() }
}

#[test]
fn modes_change_from_and_to_combined() {
    let mut ends = pair(&config());
    assert_eq!(ends[0].connection.modes(), (Mode::Combined, Mode::Combined));
    let end = &mut ends[0];
    end.connection.set_send_mode(&mut end.verbs, Mode::Pipelined).unwrap();
    let refused = end.connection.set_send_mode(&mut end.verbs, Mode::Buffered);
    assert!(matches!(refused, Err(SdpFault::Verbs(Misuse::Invalid(_)))), "{refused:?}");
    settle(&mut ends);
    assert_eq!(ends[1].connection.modes(), (Mode::Combined, Mode::Pipelined));
    for mode in [Mode::Combined, Mode::Buffered] {
        let end = &mut ends[0];
        end.connection.set_send_mode(&mut end.verbs, mode).unwrap();
    }
    settle(&mut ends);
    assert!(!ends[0].connection.prefers_source(5000));
    let end = &mut ends[1];
    end.connection.allow_source(&mut end.verbs).unwrap();
    settle(&mut ends);
    assert_eq!(ends[0].connection.modes(), (Mode::Combined, Mode::Combined));
    assert!(ends[0].connection.prefers_source(5000));
    assert!(ends.iter().all(|end| end.connection.fault().is_none()));
}

#[test]
fn nothing_goes_along_in_pipelined_mode() {
    let mut ends = pair(&config());
    let source = ends[0].side.memory(2000, Access::empty());
    let sink = ends[1].side.memory(2000, Access::empty());
    let end = &mut ends[0];
    end.connection.set_send_mode(&mut end.verbs, Mode::Pipelined).unwrap();
    end.connection.send_from(&mut end.verbs, source.addr(), 2000, 0).unwrap();
    settle(&mut ends);
    assert!(ends[1].took_event(SdpEvent::Readable));
    assert_eq!((ends[1].connection.readable(), ends[1].connection.advertised()), (0, 2000));
    let end = &mut ends[1];
    end.connection.receive_into(&mut end.verbs, sink.addr(), 2000).unwrap();
    settle(&mut ends);
    assert!(
        ends[0].took_event(SdpEvent::Sent(2000)) && ends[1].took_event(SdpEvent::Received(2000))
    );
}

#[test]
fn enhanced_style_has_one_mode() {
    let mut ends = pair(&holding());
    let end = &mut ends[0];
    assert_eq!(end.connection.modes(), (Mode::Buffered, Mode::Buffered));
    assert!(end.connection.set_send_mode(&mut end.verbs, Mode::Combined).is_err());
    assert!(end.connection.allow_source(&mut end.verbs).is_err());
    assert_eq!(end.connection.fault(), None);
}

#[test]
fn large_sends_have_buffers_enlarged_once() {
    let fixed = SdpConfig { buffers: 32, ..small() };
    let large = SdpConfig { buffer_octets_max: 1000, ..fixed };
    for (far, second) in [(large, 984), (fixed, 240)] {
        let mut ends = pair_over(&large, &far, 1460);
        ends[0].send(&[1; 2000]);
        settle(&mut ends);
        assert_eq!(ends[1].messages, 1 + 9, "the question, and messages of the old size");
        assert_eq!(ends[1].receive(2000).len(), 2000);
        let before = ends[1].messages;
        ends[0].send(&[2; 984]);
        settle(&mut ends);
        assert_eq!(ends[1].messages - before, 984_usize.div_ceil(second));
        assert_eq!(ends[1].receive(2000), [2; 984]);
    }
}
