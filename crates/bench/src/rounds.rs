//! Rounds: every probe runs once in each.
//!
//! The order of the probes rotates by one with each round, so that none always runs after the same
//! other one.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use weft_units::WrongArgument;

use crate::lab::BenchLab;
use crate::machine::{self, Disturbance, Usage};
use crate::probes::BenchProbe;
use crate::progress::BenchProgress;
use crate::reading::{ProbeReading, Readings, record};
use crate::reasons::by_reason;
use crate::sys;

/// Rounds whose medians are a result.
const ENOUGH: usize = 5;

/// Results of a run.
pub struct BenchResults {
    /// Number of rounds.
    pub rounds: usize,
    /// How long each measurement took, about.
    pub seconds: f64,
    /// Series of readings.
    pub readings: Readings,
    /// What was not measured, and why.
    missing: Vec<(String, String)>,
    failed: Vec<(String, String)>,
    /// Probes that have failed and are not run again.
    out: BTreeSet<String>,
    disturbance: Disturbance,
}

/// Outcome of a measurement.
#[derive(Debug)]
pub enum ProbeOutcome {
    /// Readings.
    Taken(Vec<ProbeReading>),
    /// Skipped, because this machine or a peer lacks something.
    Missing(String),
    /// Failure of the benchmark.
    Failed(String),
}

/// Sink of measurements.
pub trait Keeper {
    /// Whether the probe `name` is to run in this round.
    fn wants(&self, round: usize, name: &str) -> bool;

    /// Keeps what came of it.
    ///
    /// # Errors
    /// It cannot be written.
    fn keep(&mut self, round: usize, name: String, outcome: ProbeOutcome) -> Result<()>;

    /// A round is over, and what it was disturbed by.
    ///
    /// # Errors
    /// It cannot be written.
    fn round_over(&mut self, _round: usize, _disturbance: Disturbance) -> Result<()> {
        Ok(())
    }
}

/// The probes with `only` in their name, in capitals or not.
///
/// # Errors
/// There is none; the text has the names that there are.
pub fn named(
    mut probes: Vec<Box<dyn BenchProbe>>,
    only: Option<&str>,
) -> Result<Vec<Box<dyn BenchProbe>>> {
    let text = only.unwrap_or_default();
    let names: Vec<String> = probes.iter().map(|probe| probe.name()).collect();
    let part = text.to_lowercase();
    probes.retain(|probe| probe.name().to_lowercase().contains(&part));
    if !probes.is_empty() {
        return Ok(probes);
    }
    let names = names.join("\n    ");
    Err(WrongArgument(format!("no measurement has `{text}` in its name, of\n    {names}")).into())
}

/// Takes every probe with `only` in its name in each round. One that fails is not tried again.
///
/// # Errors
/// No probe has such a name, or the user interrupts.
pub fn measure(
    lab: &BenchLab,
    probes: Vec<Box<dyn BenchProbe>>,
    only: Option<&str>,
    rounds: usize,
) -> Result<BenchResults> {
    let mut probes = named(probes, only)?;
    let before = Usage::now();
    let mut results = BenchResults {
        disturbance: before.disturbance(&before),
        rounds,
        seconds: lab.seconds,
        readings: Readings::new(),
        missing: Vec::new(),
        failed: Vec::new(),
        out: BTreeSet::new(),
    };
    take_turns(lab, &mut probes, rounds, &mut results)?;
    results.disturbance = before.disturbance(&Usage::now());
    Ok(results)
}

/// Takes every probe that `keeper` wants in each round.
///
/// # Errors
/// The keeper cannot keep, or the user interrupts.
pub fn take_turns(
    lab: &BenchLab,
    probes: &mut [Box<dyn BenchProbe>],
    rounds: usize,
    keeper: &mut dyn Keeper,
) -> Result<()> {
    for probe in probes.iter() {
        if let Some(lack) = probe.lacks() {
            keeper.keep(0, probe.name(), ProbeOutcome::Missing(lack))?;
        }
    }
    let count = probes.len();
    let mut turns: Vec<(usize, usize)> = (0..rounds)
        .flat_map(|round| (0..count).map(move |turn| (round, (turn + round) % count)))
        .collect();
    turns.retain(|(round, index)| keeper.wants(*round, &probes[*index].name()));
    let progress = BenchProgress::new(turns.len());
    let mut before = Usage::now();
    for (done, (round, index)) in turns.iter().copied().enumerate() {
        let probe = &mut probes[index];
        let name = probe.name();
        if keeper.wants(round, &name) {
            progress.show(done, &format!("round {} of {rounds}: {name}", round + 1));
            let outcome = attempt(probe.as_mut(), lab)?;
            keeper.keep(round, name, outcome)?;
        }
        if turns.get(done + 1).is_none_or(|(next, _)| *next != round) {
            let now = Usage::now();
            keeper.round_over(round, before.disturbance(&now))?;
            before = now;
        }
    }
    Ok(())
}

fn attempt(probe: &mut dyn BenchProbe, lab: &BenchLab) -> Result<ProbeOutcome> {
    match probe.run(lab) {
        Ok(taken) => Ok(ProbeOutcome::Taken(taken)),
        Err(error) if sys::interrupted() => Err(error),
        Err(error) if probe.is_peer() => Ok(ProbeOutcome::Missing(format!("{error:#}"))),
        Err(error) => Ok(ProbeOutcome::Failed(format!("{error:#}"))),
    }
}

impl Keeper for BenchResults {
    fn wants(&self, _round: usize, name: &str) -> bool {
        !self.out.contains(name)
    }

    fn keep(&mut self, round: usize, name: String, outcome: ProbeOutcome) -> Result<()> {
        let (list, why) = match outcome {
            ProbeOutcome::Taken(taken) => {
                record(&mut self.readings, round, taken);
                return Ok(());
            }
            ProbeOutcome::Missing(why) => (&mut self.missing, why),
            ProbeOutcome::Failed(why) => (&mut self.failed, why),
        };
        self.out.insert(name.clone());
        list.push((name, why));
        Ok(())
    }
}

impl BenchResults {
    /// What was measured where, with a sentence about how to read it.
    pub fn head(&self, sentence: &str) -> String {
        let (rounds, seconds) = (self.rounds, self.seconds);
        let mut text = format!("{}; commit {}", machine::describe(), machine::commit());
        for setting in machine::settings() {
            text += &format!("; {setting}");
        }
        let look = if rounds < ENOUGH { " A look, not a result." } else { "" };
        text += &format!(
            ".\n{rounds} rounds, the measurements in turn, about {seconds} s each.{look}\n\
             {sentence}\n{}\n",
            self.disturbance.sentence(),
        );
        text
    }

    /// What is not in the tables.
    pub fn gaps(&self) -> String {
        let mut text = String::new();
        for gap in by_reason(pairs(&self.missing)) {
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
            "missing": sentences(&self.missing),
            "failed": sentences(&self.failed),
        })
    }

    /// Whether all was measured.
    ///
    /// # Errors
    /// A measurement failed.
    pub fn check(&self) -> Result<()> {
        match self.failed.len() {
            0 => Ok(()),
            count => {
                let reasons = by_reason(pairs(&self.failed));
                bail!("{count} measurements failed:\n{}", reasons.join("\n"))
            }
        }
    }
}

fn pairs(gaps: &[(String, String)]) -> impl Iterator<Item = (&String, &String)> {
    gaps.iter().map(|(name, why)| (name, why))
}

/// One for each, for programs.
fn sentences(gaps: &[(String, String)]) -> Vec<String> {
    gaps.iter().map(|(name, why)| format!("{name}: {why}")).collect()
}
