//! See [`weft_fuzz::fault::fault_plan`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::fault::fault_plan(data));
