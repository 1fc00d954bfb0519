//! See [`weft_fuzz::wire::datagram`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::wire::datagram(data));
