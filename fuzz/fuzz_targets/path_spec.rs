//! See [`weft_fuzz::degen::path_spec`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::degen::path_spec(data));
