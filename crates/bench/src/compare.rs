//! `weft bench compare`: two files of results, point by point.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueHint};
use serde::Serialize;
use weft_chart::number;

use crate::arguments::wrong_argument;
use crate::journal::{Journal, JournalHead};
use crate::output;
use crate::reading::Series;

/// Which files.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The earlier results
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    earlier: PathBuf,
    /// The later results
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    later: PathBuf,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A series that both files have.
#[derive(Debug, Serialize)]
struct Change<'a> {
    series: &'a str,
    unit: &'static str,
    earlier: f64,
    later: f64,
    ratio: f64,
    /// Whether the ranges over the rounds are apart.
    apart: bool,
}

/// Prints what changed.
///
/// # Errors
/// A file cannot be read, or they have nothing in common.
pub fn run(options: &CompareArgs) -> Result<()> {
    let read = |path| Journal::read(path).map_err(wrong_argument);
    let (earlier, later) = (read(&options.earlier)?, read(&options.later)?);
    let changes = changes(&earlier, &later);
    ensure!(!changes.is_empty(), "the files have no measurement in common");
    if options.json {
        return output::print(&format!("{}\n", serde_json::to_string_pretty(&changes)?));
    }
    let mut text = String::new();
    for (name, JournalHead { machine, commit, date, .. }) in
        [("A", &earlier.head), ("B", &later.head)]
    {
        text += &format!("{name}: {machine}; commit {commit}; {date}.\n");
    }
    text += &format!("\n{}\n", markdown(&changes));
    let apart = changes.iter().filter(|change| change.apart).count();
    text += &format!("{apart} of {} series are apart: their ranges do not touch.\n", changes.len());
    output::print(&text)
}

fn changes<'a>(earlier: &'a Journal, later: &Journal) -> Vec<Change<'a>> {
    let both = earlier.readings.iter().filter_map(|(name, series)| {
        later.readings.get(name).map(|other| change(name, series, other))
    });
    both.collect()
}

fn change<'a>(series: &'a str, earlier: &Series, later: &Series) -> Change<'a> {
    let ((low, high), (other_low, other_high)) = (earlier.range(), later.range());
    let (before, after) = (earlier.median(), later.median());
    Change {
        series,
        unit: earlier.unit.label(),
        earlier: before,
        later: after,
        ratio: after / before,
        apart: other_low > high || other_high < low,
    }
}

fn markdown(changes: &[Change<'_>]) -> String {
    let row = |change: &Change<'_>| {
        let mark = if change.apart { "apart" } else { "" };
        let numbers = [change.earlier, change.later, change.ratio].map(number);
        let [earlier, later, ratio] = numbers;
        vec![change.series.into(), change.unit.into(), earlier, later, ratio, mark.into()]
    };
    let rows: Vec<Vec<String>> = changes.iter().map(row).collect();
    weft_chart::markdown(&["series", "unit", "A", "B", "B / A", ""], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ReadingUnit;

    fn series(values: &[f64]) -> Series {
        Series {
            unit: ReadingUnit::Microseconds,
            values: values.iter().copied().enumerate().collect(),
        }
    }

    #[test]
    fn a_change_counts_when_ranges_are_apart() {
        let before = series(&[1.0, 2.0, 3.0]);
        let near = change("a", &before, &series(&[3.0, 4.0, 5.0]));
        assert_eq!((near.ratio, near.apart), (2.0, false));
        assert!(change("a", &before, &series(&[3.1, 4.0])).apart);
        assert!(change("a", &before, &series(&[0.5, 0.9])).apart);
    }
}
