//! Tables in Markdown.

use super::{Metric, OutcomeTable, PublishedFigure, relative};
use crate::run::RunOutcome;

/// What a row or a column has in common, in the order of the keys.
type TableKey<'a> = Vec<&'a str>;

pub fn markdown(table: &OutcomeTable, outcomes: &[RunOutcome]) -> String {
    let rows = places(outcomes, &table.rows);
    let columns = places(outcomes, &table.columns);
    let title = |place: &TableKey<'_>| place.join(" ");
    let head: Vec<String> =
        std::iter::once(table.rows.join(", ")).chain(columns.iter().map(title)).collect();
    let row = |row: &TableKey<'_>| {
        let cells = columns.iter().map(|column| {
            let is_here = |outcome: &&RunOutcome| {
                place(outcome, &table.rows) == *row && place(outcome, &table.columns) == *column
            };
            let here = outcomes.iter().filter(is_here);
            if table.spread {
                return spread(table, &here.collect::<Vec<_>>(), outcomes);
            }
            here.map(|outcome| cell(table, outcome, outcomes)).collect::<Vec<_>>().join("; ")
        });
        std::iter::once(title(row)).chain(cells).collect()
    };
    let text = weft_chart::markdown(&head, &rows.iter().map(row).collect::<Vec<_>>());
    if table.title.is_empty() { text } else { format!("{}\n\n{text}", table.title) }
}

/// The distinct places of outcomes: by the first key, then by the next, values as they come.
fn places<'a>(outcomes: &'a [RunOutcome], keys: &[String]) -> Vec<TableKey<'a>> {
    let mut all: Vec<TableKey<'a>> = vec![Vec::new()];
    for key in keys {
        let mut values: Vec<&str> = Vec::new();
        for value in outcomes.iter().filter_map(|outcome| outcome.values.get(key)) {
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
        let beside: String = figures.map(|figure| beside(figure, &metric)).collect();
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

fn beside(figure: &PublishedFigure, metric: &Metric) -> String {
    let value = figure.value.map_or("Null".into(), |value| metric.show(value));
    format!(" ({} {value})", figure.source)
}
