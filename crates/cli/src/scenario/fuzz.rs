//! `weft run --fuzz-faults`: CMD under the random plans of many seeds, and the smallest plan of the
//! first that fails.

use std::ffi::OsString;
use std::io::{self, Write};

use anyhow::Result;
use weft_fault::FaultPlan;

use super::{Expectations, ScenarioManner, ScenarioOutcome, limit_of, run_scenario};
use crate::run::Environment;

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
/// has, else 1.
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
    for seed in seeds.first..seeds.end {
        let plan = FaultPlan::random(seed);
        let outcome = run(&plan)?;
        if outcome.is_ok() {
            say(&format!("seed {seed}: ok, {}: {plan}", outcome.end()));
            continue;
        }
        say(&format!("seed {seed}: FAILED, {}: {plan}", outcome.complaint()));
        let mut tries = 0;
        let smallest = plan.reduced(|trial| {
            tries += 1;
            run(trial).is_ok_and(|outcome| !outcome.is_ok())
        });
        say(&format!("the smallest plan that fails, after {tries} runs more:"));
        say(&format!("  --fault '{smallest}'"));
        say(&format!("as steps of a scenario:\n{}", as_scenario(&smallest)));
        return Ok(1);
    }
    say(&format!(
        "no failure under the plans of seeds {} to {}, each with {} for CMD",
        seeds.first,
        seeds.end - 1,
        limit_of(expect)
    ));
    Ok(0)
}

/// The plan as a scenario file.
fn as_scenario(plan: &FaultPlan) -> String {
    let mut text = plan.seed.map(|seed| format!("seed = {seed}\n")).unwrap_or_default();
    for fault in &plan.faults {
        text.push_str(&format!("[[step]]\nfault = \"{fault}\"\n"));
    }
    text
}

fn say(text: &str) {
    // Without a stderr the status alone must do.
    let _ = writeln!(io::stderr(), "weft: {text}");
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
