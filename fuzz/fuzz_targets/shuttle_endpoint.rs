//! See [`weft_fuzz::endpoint::datagrams`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::endpoint::datagrams(data));
