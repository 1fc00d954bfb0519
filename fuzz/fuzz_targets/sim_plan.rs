//! See [`weft_fuzz::sim::plan`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::sim::plan(data));
