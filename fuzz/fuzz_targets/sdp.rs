//! See [`weft_fuzz::wire::sdp`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::wire::sdp(data));
