//! See [`weft_fuzz::mpa::negotiate`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::mpa::negotiate(data));
