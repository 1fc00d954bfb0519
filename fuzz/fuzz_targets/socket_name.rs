//! See [`weft_fuzz::sockets::socket_name`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::sockets::socket_name(data));
