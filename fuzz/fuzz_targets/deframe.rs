//! See [`weft_fuzz::mpa::deframe`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::mpa::deframe(data));
