//! See [`weft_fuzz::wire::start_frame`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::wire::start_frame(data));
