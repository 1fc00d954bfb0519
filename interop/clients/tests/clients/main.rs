//! Programs of other projects as they come, on each device: the table of docs/clients.md.
//!
//! What costs seconds runs with all tests; what has to be fetched or built first
//! (`scripts/peers.sh`) is run by `make peer-suites`, which writes the table.

mod ceph;
mod direct;
mod fabrics;
mod ranks;
mod storage;
mod stores;
mod table;

use std::process::Command;

use weft_testkit::{Ended, IWARP, Lab, Program, SHUTTLE, Traffic};

/// A program of another project, and what is done with it.
struct Client {
    name: &'static str,
    /// The version that is installed.
    version: fn() -> Option<String>,
    does: &'static str,
    /// A device that it refuses, and its reason.
    refuses: Option<(&'static str, &'static str)>,
    /// Runs it on the lab's device, to success; how many operations were counted, or nothing where
    /// it is not installed.
    run: fn(&Lab) -> Option<u64>,
}

impl Client {
    /// Runs it on each device that it takes.
    fn holds(&self) {
        for transport in [SHUTTLE, IWARP] {
            let Some(lab) = Lab::with(&[]).map(|lab| lab.over(transport)) else { return };
            if self.refusal(lab.device()).is_none() {
                (self.run)(&lab);
            }
        }
    }

    /// Why it does not take `device`.
    fn refusal(&self, device: &str) -> Option<&'static str> {
        self.refuses.filter(|(refused, _)| *refused == device).map(|(_, why)| why)
    }
}

/// The program with its operations counted, and required to have had some.
fn counted(program: Program) -> Program {
    program.option("--stats").option("--require-traffic")
}

/// How many operations a program had, which succeeded, on the lab's device.
fn operations(lab: &Lab, ended: Ended) -> u64 {
    Traffic::of(&ended.success(), lab.device()).operations
}

/// The first row of the device's GID table that is an address: that of an RNIC is its own name.
fn first_gid(lab: &Lab) -> u8 {
    u8::from(lab.transport() == Some(IWARP))
}

/// The version of an installed Debian package.
fn debian(package: &str) -> Option<String> {
    let query = ["-W", "-f=${Version}", package];
    let output = Command::new("dpkg-query").args(query).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    Some(version).filter(|version| !version.is_empty())
}

/// The first word that looks like a version in what a program says.
fn said_version(program: &std::path::Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split(|c: char| c.is_whitespace() || c == '=');
    let words = words.map(|word| word.trim_start_matches('v').trim_end_matches(','));
    let mut words = words.filter(|word| word.contains('.') && word.starts_with(char::is_numeric));
    words.next().map(str::to_owned)
}
