//! Any octets as a packet of a TUN device and as the words of a path: no panic, and the parts of a
//! bundle are never larger than the bundle.

use degen::link::Link;
use degen::packet::{OFFLOAD_BYTES, TunFrame};
use degen::spec::PathSpec;

/// More segments than this say nothing new, and each is built three times.
const SEGMENTS_MAX: usize = 64;

/// `data` as a packet with the header before it.
pub fn tun_packet(data: &[u8]) {
    let Some((offload, packet)) = data.split_first_chunk::<OFFLOAD_BYTES>() else { return };
    let Ok(frame) = TunFrame::parse(offload, packet.to_vec(), packet.len()) else { return };
    let mut scratch = Vec::new();
    for index in 0..frame.segments().min(SEGMENTS_MAX) {
        let octets = frame.wire_bytes(index);
        assert!(octets <= packet.len());
        assert_eq!(frame.segment(index, true, Some(index as u64)).len(), octets);
        let run = frame.run(index..frame.segments(), false, &mut scratch);
        assert!(run.headers.len() + run.payload.len() <= packet.len());
    }
}

/// `data` as the words of a path, over which a few packets then go.
pub fn path_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A word with a slash is a file, which is not what is tested here.
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.contains('/')).collect();
    let Ok(path) = PathSpec::parse(&words) else { return };
    assert!(!path.to_string().is_empty());
    path.bytes_in_flight_max();
    for config in path.links() {
        let mut link = Link::new(config, path.seed);
        for number in 0..8_u64 {
            link.handle(number * 1_000_000, 1500, true, number);
            link.poll(number * 1_000_000);
        }
    }
}
