//! The tables of a benchmark.

use std::collections::BTreeSet;

use weft_chart::{markdown, number};

use crate::reading::{Readings, speed_sentence};
use crate::rows::{Reference, RowResult, RowVerdict};

/// The table of the rows, and what was unsteady meanwhile.
pub fn outcomes(outcomes: &[RowResult]) -> String {
    let head = [
        "#",
        "Weft",
        "against",
        "Weft's",
        "theirs",
        "their range",
        "unit",
        "ratio",
        "range",
        "target",
        "must",
        "",
    ];
    let rows: Vec<Vec<String>> = outcomes.iter().map(outcome).collect();
    markdown(&head, &rows) + &unsteady(outcomes)
}

fn outcome(outcome: &RowResult) -> Vec<String> {
    let span = |(low, high): (f64, f64)| format!("{} to {}", number(low), number(high));
    let of_reference =
        |show: &dyn Fn(&Reference) -> String| outcome.against.as_ref().map_or(String::new(), show);
    let goal = |value: Option<f64>| value.map_or(String::new(), number);
    let verdict = match outcome.verdict {
        RowVerdict::Target => "reached",
        RowVerdict::Must => "enough",
        RowVerdict::Short => "short",
        RowVerdict::None => "",
    };
    vec![
        outcome.number.to_owned(),
        outcome.weft.clone(),
        of_reference(&|against| against.name.clone()),
        number(outcome.ours),
        of_reference(&|against| number(against.median)),
        of_reference(&|against| span(against.range)),
        outcome.unit.to_owned(),
        of_reference(&|_| number(outcome.ratio)),
        span(outcome.ratio_range),
        goal(outcome.goals.map(|(target, _)| target)),
        goal(outcome.goals.map(|(_, must)| must)),
        verdict.to_owned(),
    ]
}

/// A line for each reference whose own rounds differ too much.
fn unsteady(outcomes: &[RowResult]) -> String {
    let references = outcomes.iter().filter_map(|outcome| outcome.against.as_ref());
    let lines: BTreeSet<String> = references
        .filter_map(|against| {
            let sentence = speed_sentence(against.speed_change?);
            Some(format!("\n- {}: {sentence}.", against.name))
        })
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    lines.into_iter().collect::<String>() + "\n"
}

/// The table of everything that was measured.
pub fn series(readings: &Readings) -> String {
    let head = ["series", "unit", "median", "least", "most", "spread", "rounds"];
    let row = |(name, series): (&String, &crate::reading::Series)| {
        let (low, high) = series.range();
        let median = series.median();
        let spread = if median > 0.0 { (high - low) / median * 100.0 } else { 0.0 };
        vec![
            name.clone(),
            series.unit.label().to_owned(),
            number(median),
            number(low),
            number(high),
            format!("{spread:.0} %"),
            series.values.len().to_string(),
        ]
    };
    markdown(&head, &readings.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, speed_change: Option<f64>) -> RowResult {
        let against =
            Reference { name: name.to_owned(), median: 10.0, range: (8.0, 16.0), speed_change };
        RowResult {
            number: "1",
            weft: String::from("w"),
            unit: "us",
            ours: 20.0,
            against: Some(against),
            ratio: 1.9,
            ratio_range: (1.0, 2.0),
            goals: None,
            verdict: RowVerdict::None,
        }
    }

    #[test]
    fn a_row_shows_the_range_of_its_reference() {
        let table = outcomes(&[outcome("tcp", None)]);
        let row: Vec<&str> = table.lines().nth(2).unwrap().split('|').map(str::trim).collect();
        let shown = ["1", "w", "tcp", "20.0", "10.0", "8.00 to 16.0", "us", "1.90"];
        assert_eq!(row[1..9], shown);
        assert_eq!(table.lines().count(), 3, "a steady machine has no note");
    }

    #[test]
    fn an_unsteady_reference_is_named_once() {
        let table = outcomes(&[outcome("tcp", Some(2.0)), outcome("tcp", Some(2.0))]);
        assert_eq!(table.matches("- tcp: the machine changed speed by 2.00.").count(), 1);
    }
}
