//! See [`weft_fuzz::capture::capture_tap`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::capture::capture_tap(data));
