//! Tables in Markdown, with their columns aligned, so that they also read as text.

use crate::reading::Readings;
use crate::rows::{RowResult, RowVerdict};

/// A table of `rows` under `head`; columns of numbers stand to the right.
pub fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let right: Vec<bool> = (0..head.len()).map(|column| is_numeric(rows, column)).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).zip(&right);
        let padded = cells.map(|((cell, width), right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rules = widths.iter().zip(&right).map(|(width, right)| match right {
        true => format!("{}:", "-".repeat(width + 1)),
        false => "-".repeat(width + 2),
    });
    let mut table = line(head.to_vec());
    table += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
    table.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    table
}

fn is_numeric(rows: &[Vec<String>], column: usize) -> bool {
    let numeric = |cell: &str| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit());
    !rows.is_empty() && rows.iter().all(|row| numeric(&row[column]))
}

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

/// A number with three digits that mean something.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => String::from("-"),
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec![String::from("a"), String::from("1.5")], vec!["bcd".into(), "10".into()]];
        let table = markdown(&["name", "x"], &rows);
        let expected = "\
| name |   x |
|------|----:|
| a    | 1.5 |
| bcd  |  10 |
";
        assert_eq!(table, expected);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [1234.5, 45.67, 1.234, 0.12345, 0.0, f64::NAN].map(number);
        assert_eq!(shown, ["1234", "45.7", "1.23", "0.123", "0", "-"]);
    }
}
