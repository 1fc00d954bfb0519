//! `weft-bench`: see [`weft_bench::tables`].
#![deny(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    weft_bench::tables::main()
}
