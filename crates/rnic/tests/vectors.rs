//! The byte-exact vectors whose refusal needs registered memory or the state of queues.

mod common;
#[path = "../../wire/tests/vectors/mod.rs"]
mod vectors;

use common::{ALL, Side, agreed, fpdu, terminate_in, ulpdus};
use weft_rnic::mpa::MpaRole;
use weft_rnic::wire::terminate::TerminateCode as T;

/// The vector's frame is sound in itself, so only its content can be refused.
fn frame(name: &str) -> Vec<u8> {
    let vector = vectors::find(name);
    assert_eq!(vector.octets, fpdu(&ulpdus(&vector.octets)[0]), "{name} is a good frame");
    vector.octets
}

/// What a responder with one receive answers to the vector.
fn answer(name: &str) -> Option<T> {
    let mut side = Side::new(MpaRole::Responder, &agreed(), 1460);
    let memory = side.memory(64, ALL);
    side.recv(1, &[memory.sge(0, 64)]);
    side.input(&frame(name));
    assert!(memory.bytes.iter().all(|word| *word == 0), "{name} changed memory");
    assert_eq!(side.statuses().len(), 1);
    terminate_in(&side.output(usize::MAX)).map(|terminate| terminate.code)
}

#[test]
fn refused_with_the_terminate_that_the_vectors_name() {
    let expected = [
        // The vector's STag names nothing here, and an STag comes before a wrap.
        ("neg_write_to_wrap", T::TaggedInvalidStag),
        ("neg_send_bad_msn", T::UntaggedInvalidMsn),
        ("neg_send_bad_mo", T::UntaggedInvalidMo),
        ("neg_atomic_unaligned", T::RdmapStreamCatastrophic),
    ];
    assert_eq!(expected.map(|(name, _)| name), vectors::RDMAP);
    for (name, code) in expected {
        assert_eq!(answer(name), Some(code), "{name}");
    }
}

#[test]
fn a_wrap_is_found_before_the_bounds_when_the_stag_is_good() {
    let mut side = Side::new(MpaRole::Responder, &agreed(), 1460);
    let memory = side.memory(64, ALL);
    let mut ulpdu = ulpdus(&frame("neg_write_to_wrap"))[0].clone();
    ulpdu[2..6].copy_from_slice(&memory.key.to_be_bytes());
    side.input(&fpdu(&ulpdu));
    let code = terminate_in(&side.output(usize::MAX)).map(|terminate| terminate.code);
    assert_eq!(code, Some(T::TaggedToWrap));
}
