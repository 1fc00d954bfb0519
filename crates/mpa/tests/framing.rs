//! Framing and deframing against each other and against hostile input.

mod support;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use support::{Memory, Segment, Sink, Source, agreed, flatten, framed, seed, stream};
use weft_mpa::{MAX_FPDU_LEN, MpaError, MpaRole, MpaStream, RxFault};
use weft_wire::crc::Crc32c;
use weft_wire::llp::{Gather, Piece};

fn runner(cases: u32) -> TestRunner {
    let rng_seed = RngSeed::Fixed(seed());
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

fn segment() -> impl Strategy<Value = Segment> {
    let piece = prop_oneof![4 => 0..200_u32, 2 => 1000..1500_u32, 1 => 5000..15000_u32];
    (1..60_usize, prop::collection::vec(piece, 0..4)).prop_map(|(header, pieces)| Segment {
        header: (0..header).map(|i| (i * 37 + header) as u8).collect(),
        pieces,
    })
}

/// Feeds `octets` in parts that end at `cuts`, the way a socket's reader does.
fn receive(stream: &mut MpaStream, octets: &[u8], mut cuts: Vec<usize>, sink: &mut Sink) {
    cuts.push(octets.len());
    cuts.sort_unstable();
    let mut consumed = 0;
    for cut in cuts {
        consumed += stream.handle_received(&octets[consumed..cut], sink).unwrap();
        assert!(cut - consumed < MAX_FPDU_LEN);
    }
    assert_eq!(consumed, octets.len());
}

#[test]
fn what_is_framed_is_deframed_wherever_it_is_cut() {
    let input = (
        prop::collection::vec(segment(), 1..12),
        any::<(bool, bool)>(),
        prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    );
    runner(150)
        .run(&input, |(segments, (crc, markers), cuts)| {
            let octets = framed(crc, markers, &segments);
            let cuts = cuts.iter().map(|cut| cut.index(octets.len() + 1)).collect();
            let mut sink = Sink::default();
            receive(&mut stream(crc, markers), &octets, cuts, &mut sink);
            let expected: Vec<_> = segments.iter().map(Segment::ulpdu).collect();
            prop_assert_eq!(sink.placed, expected);
            prop_assert_eq!(sink.frontier, segments.len() as u64);
            Ok(())
        })
        .unwrap();
}

#[test]
fn batches_of_any_size_make_one_stream_and_acknowledge_each_segment_once() {
    let input = (
        prop::collection::vec(segment(), 1..20),
        any::<(bool, bool)>(),
        prop::collection::vec((1..8000_usize, 1..5000_usize), 1..200),
    );
    runner(60)
        .run(&input, |(segments, (crc, markers), steps)| {
            let whole = framed(crc, markers, &segments);
            let mut ends = Vec::new();
            for frames in 1..=segments.len() {
                ends.push(framed(crc, markers, &segments[..frames]).len());
            }
            let mut stream = stream(crc, markers);
            let mut source = Source::new(&segments);
            let (mut octets, mut taken) = (Vec::new(), 0);
            for (limit, take) in steps {
                let mut out = Gather::new();
                stream.poll_transmit(&mut source, &Memory, &mut out, limit);
                octets.extend(flatten(&out));
                let take = take.min(octets.len() - taken);
                taken += take;
                stream.handle_transmitted(take, &mut source);
                let complete = ends.iter().filter(|end| **end <= taken).count();
                prop_assert_eq!(&source.acked, &(0..complete as u32).collect::<Vec<_>>());
            }
            prop_assert!(whole.starts_with(&octets));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_batch_stops_at_its_limit() {
    let segments = vec![Segment::of(&[1; 64]); 10];
    let mut source = Source::new(&segments);
    let mut out = Gather::new();
    let mut stream = stream(true, false);
    assert_eq!(stream.poll_transmit(&mut source, &Memory, &mut out, 100), 2);
    assert_eq!(out.len(), 2 * 72);
    assert_eq!(stream.poll_transmit(&mut source, &Memory, &mut out, 144), 0);
}

#[test]
fn large_payload_stays_where_it_is() {
    let segment = Segment { header: vec![0xc1; 14], pieces: vec![1023, 1024] };
    for markers in [false, true] {
        let mut source = Source::new(std::slice::from_ref(&segment));
        let mut out = Gather::new();
        stream(true, markers).poll_transmit(&mut source, &Memory, &mut out, usize::MAX);
        let in_place = out.pieces().iter().map(|piece| match piece {
            Piece::Memory(piece) => piece.len,
            Piece::Slab { .. } => 0,
        });
        assert_eq!(in_place.sum::<u32>(), 1024);
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    // What follows completes a frame whose length grew.
    let rest = vec![Segment::of(&[0x5a; 1000]); 70];
    for (markers, len) in [(false, 5), (false, 64), (true, 18), (true, 700)] {
        let mut segments = vec![Segment::of(&(0..len).map(|i| i as u8).collect::<Vec<_>>())];
        let first = framed(true, markers, &segments).len();
        segments.extend_from_slice(&rest);
        let mut octets = framed(true, markers, &segments);
        for bit in 0..first * 8 {
            octets[bit / 8] ^= 1 << (bit % 8);
            let mut sink = Sink::default();
            let result = stream(true, markers).handle_received(&octets, &mut sink);
            assert_eq!(result, Err(RxFault::Mpa(MpaError::Crc)), "bit {bit} of {len}");
            assert_eq!((sink.placed.len(), sink.frontier), (0, 0));
            octets[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn a_marker_that_points_elsewhere_is_noticed() {
    let segments = [Segment::of(&[7; 600])];
    for crc in [false, true] {
        for at in [2, 3, 514, 515] {
            let mut octets = framed(crc, true, &segments);
            octets[at] ^= 0x04;
            let end = octets.len() - 4;
            let fixed = Crc32c::of(&octets[..end]);
            octets[end..].copy_from_slice(&fixed);
            let result = stream(crc, true).handle_received(&octets, &mut Sink::default());
            assert_eq!(result, Err(RxFault::Mpa(MpaError::Marker)));
        }
    }
}

#[test]
fn segments_before_a_fault_are_delivered_and_none_after_it() {
    let segments: Vec<_> = (0..4_u8).map(|i| Segment::of(&[i; 20])).collect();
    let octets = framed(true, false, &segments);
    let frame = octets.len() / 4;

    let mut broken = octets.clone();
    broken[2 * frame + 9] ^= 1;
    let mut sink = Sink::default();
    let mut half = stream(true, false);
    assert_eq!(half.handle_received(&broken, &mut sink), Err(RxFault::Mpa(MpaError::Crc)));
    assert_eq!((sink.placed.len(), sink.frontier), (2, 2));
    assert_eq!(half.handle_received(&octets[..30], &mut sink), Ok(30));
    assert_eq!(sink.placed.len(), 2);

    let mut sink = Sink { refuse: Some(3), ..Sink::default() };
    let mut half = stream(true, false);
    assert_eq!(half.handle_received(&octets, &mut sink), Err(RxFault::Sink("refused")));
    assert_eq!((sink.placed.len(), sink.frontier), (3, 3));
}

#[test]
fn a_responder_waits_for_the_first_frame() {
    let first = framed(true, false, &[Segment::of(&[1; 14])]);
    let mut source = Source::new(&[Segment::of(&[2; 14])]);
    let mut out = Gather::new();
    let mut responder = MpaStream::new(MpaRole::Responder, &agreed(true, false));

    assert_eq!(responder.poll_transmit(&mut source, &Memory, &mut out, 1000), 0);
    assert_eq!(responder.handle_received(&first[..19], &mut Sink::default()), Ok(0));
    assert!(responder.is_held());
    let mut broken = first.clone();
    broken[3] ^= 1;
    let mut misled = MpaStream::new(MpaRole::Responder, &agreed(true, false));
    misled.handle_received(&broken, &mut Sink::default()).unwrap_err();
    assert!(misled.is_held());

    // Its content may be refused: the answer to that, a Terminate, must be able to leave.
    let mut sink = Sink { refuse: Some(0), ..Sink::default() };
    responder.handle_received(&first, &mut sink).unwrap_err();
    assert!(responder.has_received_first());
    assert_eq!(responder.poll_transmit(&mut source, &Memory, &mut out, 1000), 1);
}

/// What TCP has taken nothing of can be taken back, whole frames only, and what is framed instead
/// continues the stream: its markers are where they belong.
#[test]
fn frames_that_were_not_sent_can_be_replaced() {
    for markers in [false, true] {
        let segments: Vec<_> = (1..=4_u8).map(|i| Segment::of(&[i; 700])).collect();
        let (mut source, mut out) = (Source::new(&segments[..3]), Gather::new());
        let mut sender = stream(true, markers);
        assert_eq!(sender.poll_transmit(&mut source, &Memory, &mut out, usize::MAX), 3);
        let octets = flatten(&out);
        let first = framed(true, markers, &segments[..1]).len();
        let two = framed(true, markers, &segments[..2]).len();
        sender.handle_transmitted(first + 10, &mut source);
        assert!(!sender.forget_unsent());
        sender.handle_transmitted(two - first - 10, &mut source);
        assert!(sender.forget_unsent());
        assert_eq!(source.acked, [0, 1]);

        let (mut last, mut out) = (Source::new(&segments[3..]), Gather::new());
        assert_eq!(sender.poll_transmit(&mut last, &Memory, &mut out, usize::MAX), 1);
        let sent = [&octets[..two], &flatten(&out)].concat();
        sender.handle_transmitted(sent.len() - two, &mut last);
        assert_eq!(last.acked, [0]);
        let mut sink = Sink::default();
        assert_eq!(stream(true, markers).handle_received(&sent, &mut sink), Ok(sent.len()));
        assert_eq!(sink.placed, [0, 1, 3].map(|at: usize| segments[at].ulpdu()));
    }
}

#[test]
fn a_released_responder_speaks_first() {
    let mut source = Source::new(&[Segment::of(&[2; 14])]);
    let mut out = Gather::new();
    let mut responder = MpaStream::new(MpaRole::Responder, &agreed(true, false));
    responder.release();
    assert!(!responder.is_held() && !responder.has_received_first());
    assert_eq!(responder.poll_transmit(&mut source, &Memory, &mut out, 1000), 1);
}

#[test]
fn the_longest_frame_is_taken_apart() {
    for markers in [false, true] {
        let segment = Segment::of(&vec![3; 65535]);
        let octets = framed(true, markers, std::slice::from_ref(&segment));
        assert!(octets.len() <= MAX_FPDU_LEN);
        let mut sink = Sink::default();
        let mut stream = stream(true, markers);
        assert_eq!(stream.handle_received(&octets[..octets.len() - 1], &mut sink), Ok(0));
        assert_eq!(stream.handle_received(&octets, &mut sink), Ok(octets.len()));
        assert_eq!(sink.placed, [segment.ulpdu()]);
    }
}
