//! See [`weft_fuzz::shuttle::packet`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::shuttle::packet(data));
