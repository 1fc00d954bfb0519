//! The fuzz targets of negotiation and deframing, over mutated vectors.

#[path = "../../../fuzz/src/mpa.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
mod support;
#[path = "../../wire/tests/vectors/mod.rs"]
mod vectors;

use support::{Segment, framed};

#[test]
fn negotiate() {
    let frames = vectors::load().into_iter().filter(|vector| vector.name.starts_with("mpa_"));
    let seeds: Vec<_> = frames.map(|vector| vector.octets).collect();
    mutate::smoke("negotiate", &seeds, 5000, bodies::negotiate);
}

#[test]
fn deframe() {
    let segments = [14, 600, 18, 1, 1300].map(|len| Segment::of(&vec![len as u8; len]));
    let mut seeds = Vec::new();
    for flags in 0..4 {
        let stream = framed(flags & 1 != 0, flags & 2 != 0, &segments);
        for part in [0, 3, 99] {
            let mut seed = vec![flags, part];
            seed.extend_from_slice(&stream);
            seeds.push(seed);
        }
    }
    mutate::smoke("deframe", &seeds, 3000, bodies::deframe);
}
