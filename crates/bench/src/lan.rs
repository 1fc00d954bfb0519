//! `weft bench table lan`: what one machine reaches over loopback, and the table of the rows.

mod probes;

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::arguments::{self, wrong_argument};
use crate::lab::BenchLab;
use crate::output::OutputArgs;
use crate::rounds::{self, BenchResults};
use crate::rows::{self, RowResult};
use crate::{sys, table};

/// The options of the LAN benchmark.
#[derive(Debug, Args)]
pub struct LanArgs {
    /// How many rounds; medians need five
    #[arg(long, value_name = "N", default_value = "5", value_parser = arguments::rounds)]
    rounds: NonZeroUsize,
    /// About how many seconds each measurement takes in a round
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = arguments::seconds)]
    seconds: f64,
    /// Two short rounds: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only the measurements with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The address of this machine that servers are reached at
    #[arg(long, default_value = "127.0.0.1")]
    address: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// The table's name in a page of Markdown.
const NAME: &str = "lan";

/// Runs the benchmark and prints its result.
///
/// # Errors
/// A measurement failed, the result cannot be written, or the user interrupted.
pub fn run(options: &LanArgs) -> Result<()> {
    let (rounds, seconds) =
        if options.quick { (2, 0.15) } else { (options.rounds.get(), options.seconds) };
    options.output.check(NAME).map_err(wrong_argument)?;
    sys::catch_interrupts()?;
    let lab = BenchLab::new(&options.address, seconds)?;
    let results = rounds::measure(&lab, probes::probes(), options.only.as_deref(), rounds)?;
    let text = if options.output.json { json(&results)? } else { markdown(&results) };
    options.output.write(NAME, &text)?;
    results.check()
}

/// How the rows are to be read.
const RATIOS: &str = "A ratio is of the two numbers of one round; shown are the median of \
                      these and their range, and the reference's own range.\nSeries called \
                      network are with WEFT_LANE=off, the others of Weft are as it comes: by \
                      shared memory where both ends may.";

fn markdown(results: &BenchResults) -> String {
    let outcomes = outcomes(results);
    let table = if outcomes.is_empty() { String::new() } else { table::outcomes(&outcomes) };
    let head = results.head(RATIOS);
    let series = table::series(&results.readings);
    format!("{head}\n{table}\n{series}{}", results.gaps())
}

fn json(results: &BenchResults) -> Result<String> {
    let mut report = results.json();
    report["rows"] = json!(outcomes(results));
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn outcomes(results: &BenchResults) -> Vec<RowResult> {
    rows::rows().filter_map(|row| row.evaluate(&results.readings)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::probes::api;

    #[test]
    fn every_series_of_the_rows_has_a_probe() {
        let names: Vec<String> = probes::probes().iter().map(|probe| probe.name()).collect();
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        let calls = [api::POLL, api::POST_LIST, api::REGISTER, api::IDLE];
        for series in rows::rows().flat_map(|row| row.series()) {
            let known = calls.contains(&series) || names.iter().any(|name| name == series);
            assert!(known, "{series}");
        }
    }
}
