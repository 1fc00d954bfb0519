//! The fuzz targets of the headers, over mutated vectors.

#[path = "../../../fuzz/src/wire.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
mod vectors;

use vectors::Vector;

const RUNS: u32 = 5000;

/// The octets that `part` makes of the vectors whose names begin with one of `prefixes`.
fn seeds(prefixes: &[&str], part: impl Fn(&Vector) -> Vec<u8>) -> Vec<Vec<u8>> {
    let wanted = |vector: &Vector| prefixes.iter().any(|prefix| vector.name.starts_with(prefix));
    let seeds: Vec<_> = vectors::load().iter().filter(|v| wanted(v)).map(part).collect();
    assert!(!seeds.is_empty());
    seeds
}

fn whole(vector: &Vector) -> Vec<u8> {
    vector.octets.clone()
}

fn ulpdu(vector: &Vector) -> Vec<u8> {
    vector.ulpdu().to_vec()
}

#[test]
fn start_frame() {
    mutate::smoke("start_frame", &seeds(&["mpa_"], whole), RUNS, bodies::start_frame);
}

#[test]
fn segment() {
    let prefixes = ["send_", "write_", "read_", "atomic_", "immediate"];
    mutate::smoke("segment", &seeds(&prefixes, ulpdu), RUNS, bodies::segment);
}

#[test]
fn terminate() {
    let payload = |vector: &Vector| vector.ulpdu()[18..].to_vec();
    mutate::smoke("terminate", &seeds(&["terminate_", "quirk_"], payload), RUNS, bodies::terminate);
}

#[test]
fn sdp() {
    mutate::smoke("sdp", &seeds(&["sdp_"], whole), RUNS, bodies::sdp);
}

#[test]
fn iwpm() {
    mutate::smoke("iwpm", &seeds(&["iwpm_"], whole), RUNS, bodies::iwpm);
}

#[test]
fn datagram() {
    let header = weft_wire::datagram::DatagramHeader {
        to: 0x12_3456,
        from: 0xab_cdef,
        qkey: 0x1111_1111,
        immediate: Some([1, 2, 3, 4]),
        solicited: true,
    };
    let mut whole = header.to_bytes().to_vec();
    whole.extend_from_slice(b"payload");
    let why = weft_wire::datagram::Dropped::Clear;
    let notice = weft_wire::datagram::Notice::about(&whole, why).unwrap().to_bytes().to_vec();
    mutate::smoke("datagram", &[whole, notice], RUNS, bodies::datagram);
}
