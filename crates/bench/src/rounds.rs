//! Every probe in each of several rounds.
//!
//! The order of the probes turns by one with each round, so that none always runs after the same
//! other.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::lab::{Lab, is_installed};
use crate::machine::{self, Usage};
use crate::probes::Probe;
use crate::progress::Progress;
use crate::reading::{Readings, record};
use crate::sys;

/// What a run came to.
pub struct Results {
    /// How many rounds there were.
    pub rounds: usize,
    /// How long each measurement took, about.
    pub seconds: f64,
    /// What was read.
    pub readings: Readings,
    /// What was not measured, and why.
    missing: Vec<String>,
    failed: Vec<String>,
    disturbance: machine::Disturbance,
}

/// Takes every probe with `only` in its name in each round. One that fails is not tried again.
///
/// # Errors
/// No probe has such a name, or the user interrupts.
pub fn measure(
    lab: &Lab,
    mut probes: Vec<Box<dyn Probe>>,
    only: Option<&str>,
    rounds: usize,
) -> Result<Results> {
    probes.retain(|probe| only.is_none_or(|text| probe.name().contains(text)));
    ensure!(!probes.is_empty(), "no measurement has {:?} in its name", only.unwrap_or_default());
    let before = Usage::now();
    let mut results = Results {
        disturbance: before.disturbance(&before),
        rounds,
        seconds: lab.seconds,
        readings: Readings::new(),
        missing: Vec::new(),
        failed: Vec::new(),
    };
    probes.retain(|probe| {
        let absent = probe.program().filter(|program| !is_installed(program));
        results.missing.extend(absent.map(|p| format!("{}: {p} is not installed", probe.name())));
        absent.is_none()
    });
    let progress = Progress::new();
    let mut out = vec![false; probes.len()];
    for round in 0..rounds {
        for turn in 0..probes.len() {
            let index = (turn + round) % probes.len();
            if out[index] {
                continue;
            }
            let probe = &mut probes[index];
            let name = probe.name();
            progress.show(&format!("round {} of {rounds}: {name}", round + 1));
            match probe.run(lab) {
                Ok(taken) => record(&mut results.readings, round, taken),
                Err(error) if sys::interrupted() => return Err(error),
                Err(error) => {
                    out[index] = true;
                    let list =
                        if probe.is_peer() { &mut results.missing } else { &mut results.failed };
                    list.push(format!("{name}: {error:#}"));
                }
            }
        }
    }
    results.disturbance = before.disturbance(&Usage::now());
    Ok(results)
}

impl Results {
    /// What was measured where, with a sentence about how to read it.
    pub fn head(&self, sentence: &str) -> String {
        let (rounds, seconds) = (self.rounds, self.seconds);
        let mut text = format!("{}; commit {}", machine::describe(), machine::commit());
        for setting in machine::settings() {
            text += &format!("; {setting}");
        }
        text += &format!(
            ".\n{rounds} rounds, the measurements in turn, about {seconds} s each. {sentence}\n\
             {}\n",
            self.disturbance.sentence(),
        );
        text
    }

    /// What is not in the tables.
    pub fn gaps(&self) -> String {
        let mut text = String::new();
        for gap in &self.missing {
            text += &format!("\nNot measured: {gap}.");
        }
        if !self.missing.is_empty() {
            text.push('\n');
        }
        text
    }

    /// All of it.
    pub fn json(&self) -> Value {
        json!({
            "machine": machine::describe(),
            "commit": machine::commit(),
            "settings": machine::settings(),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "disturbance": self.disturbance,
            "series": self.readings,
            "missing": self.missing,
            "failed": self.failed,
        })
    }

    /// Writes the report to `out`, or prints it.
    ///
    /// # Errors
    /// It cannot be written, or a measurement failed.
    pub fn hand_in(&self, report: &str, out: Option<&Path>) -> Result<()> {
        match out {
            Some(file) => fs::write(file, report).with_context(|| format!("{}", file.display()))?,
            None => print!("{report}"),
        }
        match self.failed.len() {
            0 => Ok(()),
            count => bail!("{count} measurements failed:\n{}", self.failed.join("\n")),
        }
    }
}
