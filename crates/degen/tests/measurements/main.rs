//! What programs see on real paths: rates, delays and losses on real clocks.
//!
//! The verdict needs CPUs that nobody else uses, two at least; `cargo xtask test
//! measurements` makes a measurement again that fails, and looks at what others use meanwhile.
//! Where this machine cannot have namespaces, every check is reported as ignored, by name.

#[path = "../common/mod.rs"]
mod common;
mod honesty;

use std::process::ExitCode;

/// How the text begins that says that a measurement counts for nothing.
const UNFIT: &str = "weft: this machine did not keep up";

fn main() -> ExitCode {
    let lacks = |name: &str| name.contains("bbr") && !honesty::has_bbr();
    common::run(&honesty::CHECKS, lacks)
}
