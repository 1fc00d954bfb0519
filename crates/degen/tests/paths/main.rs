//! The commands that make paths, and that they leave nothing behind.
//!
//! Each check runs `degen` around real programs. Where this machine cannot have namespaces, every
//! check is reported as ignored, by name.

mod commands;
#[path = "../common/mod.rs"]
mod common;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run(&commands::CHECKS, |_| false)
}
