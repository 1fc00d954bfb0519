//! The vectors that contain frames: taken apart and built again byte by byte, and the start
//! frames as what our own ends say.

mod support;
#[path = "../../wire/tests/vectors/mod.rs"]
mod vectors;

use support::{Memory, Segment, Sink, Source, flatten, framed, stream};
use vectors::{MPA, Vector};
use weft_mpa::negotiate::{Initiator, MpaReply, Responder};
use weft_mpa::{MpaError, MpaOffer, Rtr, RxFault};
use weft_wire::llp::Gather;
use weft_wire::mpa::StartError;

const NO_CRC: &str = "send_nocrc";
const BAD_CRC: &str = "neg_bad_crc";

/// Whether `vector` is one FPDU without markers and with a valid CRC.
fn is_plain_fpdu(vector: &Vector) -> bool {
    let other = ["crc32c", "mpa", "sdp", "iwpm", "marker"];
    !other.contains(&vector.name.split('_').next().unwrap())
        && !vector.name.starts_with("neg_mpa")
        && ![NO_CRC, BAD_CRC].contains(&vector.name.as_str())
}

fn deframe(crc: bool, octets: &[u8]) -> Sink {
    let mut sink = Sink::default();
    assert_eq!(stream(crc, false).handle_received(octets, &mut sink), Ok(octets.len()));
    sink
}

#[test]
fn frames_without_markers() {
    let plain: Vec<Vector> = vectors::load().into_iter().filter(is_plain_fpdu).collect();
    assert_eq!(plain.len(), 35);
    for vector in plain {
        let sink = deframe(true, &vector.octets);
        assert_eq!(sink.placed, [vector.ulpdu()], "{}", vector.name);
        assert_eq!(framed(true, false, &[Segment::of(vector.ulpdu())]), vector.octets);
        let padded = vector.octets.len() - 6 - vector.ulpdu().len();
        for (field, value) in [("ULPDU_Length", vector.ulpdu().len()), ("pad", padded)] {
            assert!(vector.number(field).is_none_or(|n| n == value as u64), "{}", vector.name);
        }
    }
}

#[test]
fn crc_values_of_the_rfc() {
    for name in ["send_24_zero_crc", "marker_send_rfc5044_fig5", "marker_send_rfc5044_fig6"] {
        let vector = vectors::find(name);
        let (_, crc) = vector.fields.iter().find(|(key, _)| key == "crc_wire").unwrap();
        assert!(vector.octets.ends_with(&vectors::octets(crc)), "{name}");
    }
}

#[test]
fn a_crc_that_was_not_agreed_is_neither_made_nor_checked() {
    let vector = vectors::find(NO_CRC);
    assert_eq!(deframe(false, &vector.octets).placed, [vector.ulpdu()]);
    assert_eq!(framed(false, false, &[Segment::of(vector.ulpdu())]), vector.octets);
}

#[test]
fn a_wrong_crc_delivers_nothing() {
    let vector = vectors::find(BAD_CRC);
    let mut sink = Sink::default();
    let result = stream(true, false).handle_received(&vector.octets, &mut sink);
    assert_eq!(result, Err(RxFault::Mpa(MpaError::Crc)));
    assert_eq!((sink.placed.len(), sink.frontier), (0, 0));
}

/// The ULPDU of a frame with markers, which are where and what the vector says.
fn without_markers(vector: &Vector) -> Vec<u8> {
    let offset = vector.number("stream_offset").unwrap_or(0) as usize;
    let (_, markers) = vector.fields.iter().find(|(key, _)| key == "markers").unwrap();
    let mut octets = vector.octets.clone();
    for marker in markers.as_array().unwrap().iter().rev() {
        let at = marker[0].as_u64().unwrap() as usize - offset;
        let marker: Vec<u8> = octets.drain(at..at + 4).collect();
        let back = vectors::number(&markers_pointer(vector, at));
        assert_eq!(marker, (back as u32).to_be_bytes(), "{}", vector.name);
    }
    let len = usize::from(u16::from_be_bytes([octets[0], octets[1]]));
    octets[2..2 + len].to_vec()
}

/// The stated pointer of the marker `at` bytes into the vector.
fn markers_pointer(vector: &Vector, at: usize) -> serde_json::Value {
    let offset = vector.number("stream_offset").unwrap_or(0);
    let (_, markers) = vector.fields.iter().find(|(key, _)| key == "markers").unwrap();
    let here = |marker: &&serde_json::Value| marker[0].as_u64() == Some(offset + at as u64);
    markers.as_array().unwrap().iter().find(here).unwrap()[1].clone()
}

/// One stream from its first byte on.
const STRETCH: [&str; 5] = [
    "marker_send_rfc5044_fig5",
    "marker_write_1000",
    "marker_between_pad_and_crc",
    "marker_none_ends_on_boundary",
    "marker_between_fpdus",
];

/// Begins 492 bytes into a stream.
const FIGURE_6: &str = "marker_send_rfc5044_fig6";

#[test]
fn frames_with_markers() {
    check_stretch(&STRETCH.map(vectors::find), &[]);
    let before = Segment::of(&[0x41; 482]);
    assert_eq!(framed(true, true, std::slice::from_ref(&before)).len(), 492);
    check_stretch(&[vectors::find(FIGURE_6)], &[before]);
}

/// Vectors that follow each other in one stream, after `before`.
fn check_stretch(stretch: &[Vector], before: &[Segment]) {
    let octets: Vec<u8> = stretch.iter().flat_map(|vector| vector.octets.clone()).collect();
    let ulpdus: Vec<Vec<u8>> = stretch.iter().map(without_markers).collect();
    let mut segments = before.to_vec();
    segments.extend(ulpdus.iter().map(|ulpdu| Segment::of(ulpdu)));
    let all = framed(true, true, &segments);
    assert!(all.ends_with(&octets));
    let mut sink = Sink::default();
    assert_eq!(stream(true, true).handle_received(&all, &mut sink), Ok(all.len()));
    assert_eq!(sink.placed[before.len()..], ulpdus);
}

#[test]
fn payload_from_memory_makes_the_same_frame() {
    let segment = Segment { header: vec![0xc1; 14], pieces: vec![2000, 100, 1024, 3] };
    for markers in [false, true] {
        let mut out = Gather::new();
        let mut source = Source::new(std::slice::from_ref(&segment));
        stream(true, markers).poll_transmit(&mut source, &Memory, &mut out, usize::MAX);
        assert_eq!(flatten(&out), framed(true, markers, &[Segment::of(&segment.ulpdu())]));
    }
}

#[test]
fn start_frames_are_what_we_say() {
    let request = |offer| Initiator::new(offer).unwrap().request();
    let rev1 = |markers| MpaOffer { enhanced: false, markers, ..MpaOffer::new(1, 1) };
    let hello = MpaOffer { private_data: b"hello".to_vec(), ..rev1(false) };
    assert_eq!(request(hello), octets("mpa_req_rev1"));
    assert_eq!(request(rev1(true)), octets("mpa_req_rev1_markers"));
    let pd = MpaOffer { private_data: b"pd".to_vec(), ..MpaOffer::new(16, 8) };
    assert_eq!(request(pd), octets("mpa_req_rev2_p2p"));
    let siw = MpaOffer { crc: false, peer_to_peer: false, ..MpaOffer::new(1, 1) };
    assert_eq!(request(siw), octets("mpa_req_rev2_siw_default"));

    let reply = |request, offer| respond(request).accept(&offer).unwrap().0;
    assert_eq!(reply("mpa_req_rev1", rev1(false)), octets("mpa_rep_rev1"));
    assert_eq!(reply("mpa_req_rev1_markers", rev1(true)), octets("mpa_rep_rev1_markers"));
    assert_eq!(reply("mpa_req_rev2_p2p", MpaOffer::new(8, 16)), octets("mpa_rep_rev2_p2p"));
    let refusal = respond("mpa_req_rev2_siw_default").reject(b"no").unwrap();
    assert_eq!(refusal, octets("mpa_rep_rev2_reject"));
}

#[test]
fn start_frames_mean_what_they_say() {
    let initiator = Initiator::new(MpaOffer::new(16, 8)).unwrap();
    let Ok(MpaReply::Accepted(agreed)) = initiator.handle_reply(&octets("mpa_rep_rev2_p2p")) else {
        panic!("not accepted");
    };
    assert_eq!((agreed.ird, agreed.ord, agreed.rtr), (16, 8, Some(Rtr::Write)));
    assert_eq!((agreed.peer_ird, agreed.peer_ord, agreed.crc), (Some(8), Some(16), true));
    let rejected =
        MpaReply::Rejected { private_data: b"no".to_vec(), peer_ird: Some(1), peer_ord: Some(1) };
    assert_eq!(initiator.handle_reply(&octets("mpa_rep_rev2_reject")), Ok(rejected));
    let request = respond("mpa_req_rev2_p2p");
    assert_eq!(
        (request.private_data(), request.ird(), request.ord()),
        (&b"pd"[..], Some(16), Some(8))
    );
}

const MALFORMED: [(&str, StartError); 3] = [
    ("neg_mpa_req_bad_key", StartError::Key),
    ("neg_mpa_req_pd513", StartError::TooMuchPrivateData(513)),
    ("neg_mpa_req_rev2_short", StartError::NoBlock),
];

#[test]
fn malformed_requests_close_the_connection() {
    for (name, error) in MALFORMED {
        let result = Responder::handle_request(&octets(name));
        assert_eq!(result.err(), Some(MpaError::Start(error)), "{name}");
    }
}

#[test]
fn every_vector_of_this_layer_is_exercised() {
    let malformed = MALFORMED.map(|(name, _)| name);
    let mut exercised = vec![FIGURE_6, NO_CRC, BAD_CRC];
    exercised.extend(STRETCH.iter().chain(&malformed));
    for name in MPA {
        assert!(exercised.contains(&name), "{name}");
    }
}

fn octets(name: &str) -> Vec<u8> {
    vectors::find(name).octets
}

fn respond(request: &str) -> Responder {
    Responder::handle_request(&octets(request)).unwrap()
}
