//! The tables of a benchmark.

use weft_chart::{markdown, number};

use crate::reading::Readings;
use crate::rows::{RowResult, RowVerdict};

/// The table of the rows.
pub fn outcomes(outcomes: &[RowResult]) -> String {
    let head =
        ["#", "Weft", "beside", "Weft's", "theirs", "unit", "ratio", "range", "target", "must", ""];
    let rows: Vec<Vec<String>> = outcomes.iter().map(outcome).collect();
    markdown(&head, &rows)
}

fn outcome(outcome: &RowResult) -> Vec<String> {
    let (beside, theirs) = match &outcome.beside {
        Some((name, value)) => (name.clone(), number(*value)),
        None => (String::new(), String::new()),
    };
    let ratio = outcome.beside.as_ref().map_or(String::new(), |_| number(outcome.ratio));
    let (low, high) = outcome.ratio_range;
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
        beside,
        number(outcome.ours),
        theirs,
        outcome.unit.to_owned(),
        ratio,
        format!("{} to {}", number(low), number(high)),
        goal(outcome.goals.map(|(target, _)| target)),
        goal(outcome.goals.map(|(_, must)| must)),
        verdict.to_owned(),
    ]
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
