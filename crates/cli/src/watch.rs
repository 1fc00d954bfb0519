//! `weft run` that stays as CMD's parent and reports its traffic: `--stats`, `--require-traffic`,
//! and in CI.
//!
//! Not the library in CMD decides at its end. The programs that an idle run is to be found out
//! for are those that the library never got into; one that is killed, or ends without its
//! handlers as shells do, says nothing more; and a program may have children that did the work.
//! So this process stays as CMD's parent ([`crate::sys::spawn`]) and reads a file that every
//! process of the run counts into ([`Tally`]).
//!
//! Order: [`Watch::wanted`] before CMD starts, [`Watch::conclude`] when it has ended.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weft_host::tally::{self, DeviceWork, Tally, Totals};
use weft_host::{DeviceId, Devices};

use crate::args::RunOptions;
use crate::run::Environment;
use crate::run_log::say;
use crate::sys::{self, ChildExit};
use crate::tally_file::TallyFile;
use crate::{NO_TRAFFIC, variables};

/// What to report and to require when CMD has ended.
pub struct Watch {
    tally: TallyFile,
    /// The tally of the run that this one is part of.
    outer: Option<PathBuf>,
    devices: Devices,
    line: bool,
    traffic: bool,
}

impl Watch {
    /// What the options and the environment ask for, if anything; the environment then names the
    /// tally.
    ///
    /// # Errors
    /// The tally cannot be made, and `--require-traffic` could not be judged without it.
    pub fn wanted(options: &RunOptions, environment: &mut Environment) -> Result<Option<Self>> {
        let outer = environment.get(tally::VARIABLE).map(PathBuf::from);
        let line = options.stats || outer.is_none() && is_line_usual(environment);
        let wanted = line || options.require_traffic;
        // What other devices do is not counted.
        if !wanted || environment.passes_through() {
            return Ok(None);
        }
        let tally = match TallyFile::create() {
            Ok(file) => file,
            // A line that is missing is no reason to keep CMD from running.
            Err(error) if !options.require_traffic => {
                say(&format!("what CMD does is not counted: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error).context("counting what CMD does"),
        };
        environment.set(tally::VARIABLE, tally.path().as_os_str().to_owned());
        let devices =
            Devices::read(|name| Some(environment.get(name)?.to_string_lossy().into_owned()));
        Ok(Some(Self { tally, outer, devices, line, traffic: options.require_traffic }))
    }

    /// Says what CMD did, and gives the status that this process is to end with; or ends it by
    /// the signal that ended CMD.
    pub fn conclude(self, end: ChildExit) -> u8 {
        let Self { tally, outer, devices, line, traffic } = self;
        let totals = tally.totals().map_err(|error| gone(tally.path(), &error));
        if let (Some(outer), Ok(totals)) = (&outer, &totals) {
            let _ = Tally::add(outer, totals);
        }
        // Before this process may end by a signal.
        drop(tally);
        if line {
            say(&match &totals {
                Ok(totals) => summary(totals, &devices),
                Err(gone) => format!("what CMD did is not known: {gone}"),
            });
        }
        match end {
            ChildExit::Signal(signal) => {
                sys::die_of(signal);
                128_u8.wrapping_add(signal as u8)
            }
            ChildExit::Status(0) if traffic => match missing(&totals) {
                Some(text) => {
                    say(&text);
                    NO_TRAFFIC
                }
                None => 0,
            },
            ChildExit::Status(status) => status,
        }
    }
}

/// Whether the line is to be said without an option: asked for by `WEFT_STATS`, or in CI, where
/// nobody looks whether the tests that passed were the ones that were meant.
fn is_line_usual(environment: &Environment) -> bool {
    let has = |name: &str, value: &str| environment.get(name).is_some_and(|v| v == value);
    let in_ci = has("CI", "true") && !environment.is_quiet();
    let off = variables::switched_off(environment.get("WEFT"));
    has("WEFT_STATS", "on") || in_ci && !has("WEFT_STATS", "off") && !off
}

/// The line: `weft0: 1 connection, 5 operations, 320 bytes sent, 0 bytes received`.
fn summary(totals: &Totals, devices: &Devices) -> String {
    let mut line = String::new();
    for (slot, work) in totals.0.iter().enumerate() {
        let name = devices.name(DeviceId::of_slot(slot));
        if *work == DeviceWork::default() {
            continue;
        }
        let gap = if line.is_empty() { "" } else { "; " };
        let DeviceWork { connections, lanes, operations, octets_out, octets_in, .. } = work;
        let plural = if *connections == 1 { "" } else { "s" };
        let by = if *lanes > 0 { format!(" ({lanes} by shared memory)") } else { String::new() };
        let operation = if *operations == 1 { "operation" } else { "operations" };
        let _ = write!(
            line,
            "{gap}{name}: {connections} connection{plural}{by}, {operations} {operation}, \
             {octets_out} bytes sent, {octets_in} bytes received"
        );
    }
    if line.is_empty() { "no RDMA device was opened".to_owned() } else { line }
}

/// What has become of a tally that cannot be read.
fn gone(path: &Path, error: &io::Error) -> String {
    format!("the tally {} was removed or changed: {error}", path.display())
}

/// What `--require-traffic` does not find, if anything.
fn missing(totals: &Result<Totals, String>) -> Option<String> {
    match totals {
        Ok(totals) => {
            let is_traffic = totals.0.iter().any(DeviceWork::is_traffic);
            (!is_traffic).then(|| idle(totals))
        }
        Err(gone) => Some(format!(
            "whether an RDMA operation ran, as --require-traffic asks, is not known: {gone}"
        )),
    }
}

/// Why there was no traffic, as far as the tally knows.
fn idle(totals: &Totals) -> String {
    let any = |number: fn(&DeviceWork) -> u64| totals.0.iter().any(|work| number(work) > 0);
    let how_far = if any(|work| work.connections) {
        "connections were made, and nothing was sent over them"
    } else if any(|work| work.contexts) {
        "devices were opened, and no connection was made"
    } else {
        "no RDMA device was opened; `weft doctor CMD` says what may keep Weft out of CMD"
    };
    format!("no RDMA operation ran, as --require-traffic asks: {how_far}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: DeviceWork = DeviceWork {
        contexts: 0,
        connections: 0,
        lanes: 0,
        operations: 0,
        octets_out: 0,
        octets_in: 0,
    };

    /// Over the first adapter and the first RNIC.
    fn totals(adapter: DeviceWork, rnic: DeviceWork) -> Totals {
        let mut totals = Totals::default();
        (totals.0[0], totals.0[1]) = (adapter, rnic);
        totals
    }

    fn said(adapter: DeviceWork, rnic: DeviceWork) -> String {
        summary(&totals(adapter, rnic), &Devices::read(|_| None))
    }

    #[test]
    fn the_line_names_what_was_used() {
        assert_eq!(said(NONE, NONE), "no RDMA device was opened");
        let rnic = DeviceWork { connections: 2, operations: 1, octets_out: 64, ..NONE };
        let words = "weft_iw0: 2 connections, 1 operation, 64 bytes sent, 0 bytes received";
        assert_eq!(said(NONE, rnic), words);
        let adapter = DeviceWork { contexts: 1, connections: 1, ..NONE };
        let both = said(adapter, rnic);
        let words = "weft0: 1 connection, 0 operations, 0 bytes sent, 0 bytes received; weft_iw0: ";
        assert!(both.starts_with(words), "{both}");
    }

    #[test]
    fn an_idle_run_says_how_far_it_came() {
        let adapter = |work| idle(&totals(work, NONE));
        assert!(adapter(NONE).contains("weft doctor"));
        assert!(adapter(DeviceWork { contexts: 1, ..NONE }).contains("no connection was made"));
        let linked = DeviceWork { contexts: 1, connections: 1, ..NONE };
        assert!(adapter(linked).contains("nothing was sent"));
    }
}
