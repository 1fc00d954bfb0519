//! See [`weft_fuzz::key::key_file`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::key::key_file(data));
