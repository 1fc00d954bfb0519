//! See [`weft_fuzz::key::sealed_datagrams`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::key::sealed_datagrams(data));
