//! `weft run --fuzz-faults`: CMD under the random plans of many seeds, and the smallest plan of the
//! first that fails.

use std::ffi::OsString;

use anyhow::Result;
use weft_fault::FaultPlan;

use super::{Expectations, ScenarioManner, ScenarioOutcome, limit_of, run_scenario};
use crate::run::Environment;
use crate::run_log::{self, say};
use crate::sys;

/// Seeds from one to before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedRange {
    first: u64,
    end: u64,
}

impl SeedRange {
    /// Reads `FIRST..END`.
    ///
    /// # Errors
    /// With how a range is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no range of seeds such as 1..100, the first and one more than the last"
            )
        };
        let (first, end) = text.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let range = Self { first: number(first)?, end: number(end)? };
        if range.first < range.end { Ok(range) } else { Err(wrong()) }
    }
}

/// Runs `command` under the plan of each seed until one fails; gives the exit status: 0 if none
/// has, else 1. A signal that is to end this process ends it after the run that it came in, of
/// which nothing is said: it has reached CMD too.
///
/// # Errors
/// CMD cannot be run.
pub fn fuzz(
    command: &[OsString],
    environment: &Environment,
    seeds: SeedRange,
    expect: &Expectations,
) -> Result<u8> {
    let run = |plan: &FaultPlan| -> Result<ScenarioOutcome> {
        run_scenario(command, environment, plan, expect, ScenarioManner { silent: true })
    };
    let mut is_read = false;
    for seed in seeds.first..seeds.end {
        let plan = FaultPlan::random(seed);
        let outcome = run(&plan)?;
        if let Some(signal) = outcome.ended_by {
            return Ok(end_early(seed, signal));
        }
        is_read |= outcome.is_read;
        if outcome.is_ok() {
            say(&format!("seed {seed}: ok, {}: {plan}", outcome.end()));
            continue;
        }
        say(&format!("seed {seed}: FAILED, {}: {plan}", outcome.complaint()));
        let without = run(&FaultPlan::default())?;
        if let Some(signal) = without.ended_by {
            return Ok(end_early(seed, signal));
        }
        if !without.is_ok() {
            say(&format!("CMD fails without faults, too: {}", without.complaint()));
            return Ok(1);
        }
        let (mut tries, mut ended_by) = (0, None);
        let smallest = plan.reduced(|trial| {
            if ended_by.is_some() {
                return false;
            }
            tries += 1;
            run(trial).is_ok_and(|outcome| {
                ended_by = outcome.ended_by;
                !outcome.is_ok() && ended_by.is_none()
            })
        });
        if let Some(signal) = ended_by {
            return Ok(end_early(seed, signal));
        }
        say(&format!("the smallest plan that fails, after {tries} runs more:"));
        say(&format!("  --fault '{smallest}'"));
        say(&format!("as steps of a scenario:\n{}", as_scenario(&smallest)));
        return Ok(1);
    }
    if !is_read {
        run_log::warn("no process of CMD has used a device of Weft: nothing went wrong for any");
    }
    say(&format!(
        "no failure under the plans of seeds {} to {}, each with {} for CMD",
        seeds.first,
        seeds.end - 1,
        limit_of(expect)
    ));
    Ok(0)
}

/// Ends this process by `signal`, or gives the status that says so.
fn end_early(seed: u64, signal: i32) -> u8 {
    say(&format!("ended by signal {signal} at seed {seed}, of which nothing is known"));
    sys::die_of(signal);
    128_u8.wrapping_add(signal as u8)
}

/// The plan as a scenario file.
fn as_scenario(plan: &FaultPlan) -> String {
    let mut text = plan.seed.map(|seed| format!("seed = {seed}\n")).unwrap_or_default();
    for fault in &plan.faults {
        text.push_str(&format!("[[step]]\nfault = \"{fault}\"\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_seeds() {
        assert_eq!(SeedRange::parse("3..9"), Ok(SeedRange { first: 3, end: 9 }));
        for wrong in ["3", "9..3", "3..3", "a..b", "1..=2"] {
            assert!(SeedRange::parse(wrong).unwrap_err().contains("1..100"), "{wrong}");
        }
    }
}
