//! See [`weft_fuzz::wire::terminate`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::wire::terminate(data));
