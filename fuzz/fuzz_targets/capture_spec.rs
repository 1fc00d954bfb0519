//! See [`weft_fuzz::capture::capture_spec`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::capture::capture_spec(data));
