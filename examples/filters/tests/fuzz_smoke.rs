//! The fuzz target of frames, over mutations of good ones.

#[path = "../../../fuzz/src/filters.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

#[test]
fn frames() {
    // A Query, a Unit of three records, an End and Done.
    let seed = b"\x03\0\0\x01q\x04\0\0\x09\0\x01\x07\0\0\0\x02\x08\x09\x05\0\0\x02{}\x06\0\0\0";
    mutate::smoke("frames", &[seed.to_vec()], 20_000, bodies::frames);
}
