//! `weft doctor [CMD]` and `weft doctor --peer HOST`: why a program does not reach Weft, and
//! what of this machine, or of the path to another one, is in the way.
//!
//! Nothing is changed and nothing of CMD is run but its dynamic linker, which is asked what it
//! would load. Invariant: what does not hinder anybody is not called wrong, so that the exit
//! status can be relied upon.
//!
//! Order: [`program`] looks at CMD, [`local`] tries the key and the sockets, [`machine`] looks at
//! what is below, [`peer`] at the path, [`report`] says it.

mod exchange;
mod local;
mod machine;
mod peer;
mod program;
mod report;
mod serve;

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use crate::args::Doctor;
use crate::library;
pub use peer::DoctorPeer;
use report::{CheckResult, DoctorReport};

/// The exit status when something will not work.
const UNWELL: u8 = 1;

/// Examines, or serves who does; says on stdout what was found; gives the exit status.
///
/// # Errors
/// Stdout cannot be written, or the port cannot be had.
pub fn main(options: &Doctor) -> anyhow::Result<u8> {
    if options.serve {
        serve::main(options.port.unwrap_or(exchange::PORT))?;
    }
    let report = examine(options);
    let text = if options.json { report.to_json() } else { report.to_text() };
    io::stdout().write_all(text.as_bytes())?;
    Ok(if report.is_well() { 0 } else { UNWELL })
}

fn examine(options: &Doctor) -> DoctorReport {
    let mut report = DoctorReport::default();
    let library = find_library(options);
    match &library {
        Ok(path) => report.add(CheckResult::fine("library", format!("{}", path.display()))),
        Err(error) => report.add(
            CheckResult::wrong("library", format!("{error:#}"))
                .advise("install Weft, or name its libweft.so with --lib or WEFT_LIB"),
        ),
    }
    if let [command, arguments @ ..] = &options.command[..] {
        program::examine(command, arguments, library.as_deref().ok(), &mut report);
    }
    program::environment(&mut report);
    local::examine(&mut report);
    machine::examine(&mut report);
    if let Some(peer) = &options.peer {
        peer::examine(peer, &mut report);
    }
    report
}

fn find_library(options: &Doctor) -> anyhow::Result<std::path::PathBuf> {
    let variable = std::env::var_os("WEFT_LIB").filter(|path| !path.is_empty());
    let given = options.lib.as_deref().or(variable.as_deref().map(Path::new));
    let own = std::env::current_exe().context("finding weft itself")?;
    library::find(library::VERBS, given, own.parent().unwrap_or(Path::new("/")))
}
