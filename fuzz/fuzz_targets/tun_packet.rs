//! See [`weft_fuzz::degen::tun_packet`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::degen::tun_packet(data));
