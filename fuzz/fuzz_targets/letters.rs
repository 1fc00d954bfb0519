//! See [`weft_fuzz::key::letters`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::key::letters(data));
