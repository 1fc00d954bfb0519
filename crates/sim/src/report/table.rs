//! Tables in Markdown.

use super::{Metric, OutcomeTable, PublishedFigure, RunValues, relative};
use crate::run::RunOutcome;

/// What a row or a column has in common, in the order of the keys.
type TableKey<'a> = Vec<&'a str>;

/// What a table says before anything is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFrame {
    /// What stands above it.
    pub title: String,
    /// Its first line: what varies from row to row, or along the only row, then the columns.
    pub head: Vec<String>,
    /// The first cells of its rows.
    pub rows: Vec<String>,
}

/// The frame of a table of runs that have these values.
pub fn frame<'a>(table: &OutcomeTable, values: impl Iterator<Item = &'a RunValues>) -> TableFrame {
    let values: Vec<&RunValues> = values.filter(|values| table.has(values)).collect();
    let title = |place: &TableKey<'_>| place.join(", ");
    // A single row or column says what its cells are.
    let names = |keys: &[String]| match keys.is_empty() {
        true => vec![table.cells.join(", ")],
        false => places(&values, keys).iter().map(title).collect(),
    };
    let varied = if table.rows.is_empty() { &table.columns } else { &table.rows };
    TableFrame {
        title: if table.title.is_empty() { String::new() } else { format!("{}:", table.title) },
        head: [vec![varied.join(", ")], names(&table.columns)].concat(),
        rows: names(&table.rows),
    }
}

pub fn markdown(table: &OutcomeTable, outcomes: &[RunOutcome]) -> String {
    let TableFrame { title, head, rows: names } =
        frame(table, outcomes.iter().map(|outcome| &outcome.values));
    let own: Vec<&RunOutcome> =
        outcomes.iter().filter(|outcome| table.has(&outcome.values)).collect();
    let values: Vec<&RunValues> = own.iter().map(|outcome| &outcome.values).collect();
    let columns = places(&values, &table.columns);
    let row = |(row, name): (&TableKey<'_>, &String)| {
        let cells = columns.iter().map(|column| {
            let is_here = |outcome: &&&RunOutcome| {
                place(outcome, &table.rows) == *row && place(outcome, &table.columns) == *column
            };
            let here: Vec<&RunOutcome> = own.iter().filter(is_here).copied().collect();
            if table.spread {
                return spread(table, &here, outcomes);
            }
            here.iter().map(|outcome| cell(table, outcome, outcomes)).collect::<Vec<_>>().join("; ")
        });
        std::iter::once(name.clone()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = places(&values, &table.rows).iter().zip(&names).map(row).collect();
    let text = weft_chart::markdown(&head, &rows);
    if title.is_empty() { text } else { format!("{title}\n\n{text}") }
}

/// The distinct places of runs: by the first key, then by the next, values as they come.
fn places<'a>(runs: &[&'a RunValues], keys: &[String]) -> Vec<TableKey<'a>> {
    let mut all: Vec<TableKey<'a>> = vec![Vec::new()];
    for key in keys {
        let mut values: Vec<&str> = Vec::new();
        for value in runs.iter().filter_map(|run| run.get(key)) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        let with = |before: &TableKey<'a>, value: &'a str| [&before[..], &[value]].concat();
        all = all.iter().flat_map(|place| values.iter().map(|value| with(place, value))).collect();
    }
    all
}

fn place<'a>(outcome: &'a RunOutcome, keys: &[String]) -> TableKey<'a> {
    keys.iter().filter_map(|key| outcome.values.get(key)).map(String::as_str).collect()
}

fn cell(table: &OutcomeTable, outcome: &RunOutcome, outcomes: &[RunOutcome]) -> String {
    let metrics = table.cells.iter().filter_map(|name| Some((name, Metric::parse(name)?)));
    let values = metrics.map(|(name, metric)| {
        let value = relative(&metric, outcome, &table.per, outcomes);
        let figures = outcome.published.iter().filter(|figure| figure.metric == *name);
        let beside = beside(figures, &metric);
        let own = metric.as_ratio(!table.per.is_empty());
        value.map_or("-".into(), |value| own.show(value)) + &beside
    });
    values.collect::<Vec<_>>().join(", ")
}

/// The least, the median and the most of each metric, of the runs of a cell.
fn spread(table: &OutcomeTable, here: &[&RunOutcome], outcomes: &[RunOutcome]) -> String {
    let metrics = table.cells.iter().filter_map(|name| Metric::parse(name));
    let cells = metrics.map(|metric| metric.as_ratio(!table.per.is_empty())).map(|metric| {
        let of = |outcome: &&RunOutcome| relative(&metric, outcome, &table.per, outcomes);
        let mut values: Vec<f64> = here.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return "-".into() };
        [0, last / 2, last].map(|place| metric.show(values[place])).join(" / ")
    });
    cells.collect::<Vec<String>>().join(", ")
}

/// What others have, in brackets.
fn beside<'a>(figures: impl Iterator<Item = &'a PublishedFigure>, metric: &Metric) -> String {
    let show = |value| metric.show(value);
    let text = |figure: &PublishedFigure| {
        format!("{} {}", figure.source, figure.value.map_or("Null".into(), show))
    };
    let all: Vec<String> = figures.map(text).collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}
