//! See [`weft_fuzz::perf::perf_control`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::perf::perf_control(data));
