//! See [`weft_fuzz::ud::datagrams`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::ud::datagrams(data));
