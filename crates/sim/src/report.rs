//! What is made of outcomes: values by name, tables of them, and targets that they are to reach.
//!
//! A plan names metrics; [`Metric::of`] finds the value in an outcome. Tables come out as Markdown,
//! with what others have published in brackets beside it.

mod metric;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::SimRun;
use crate::run::RunOutcome;
pub use metric::Metric;
pub use table::TableFrame;

/// Values of what varies, by name.
type RunValues = BTreeMap<String, String>;

/// A figure that others have published.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// The runs that it is comparable to.
    pub of: RunValues,
    /// Whose it is.
    pub source: String,
    /// What it is.
    #[serde(default = "payload")]
    pub metric: String,
    /// How much; none where the source leaves it open.
    pub value: Option<f64>,
}

/// A table to be made of outcomes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeTable {
    /// What stands above it.
    #[serde(default)]
    pub title: String,
    /// What each cell says, by the names of metrics.
    pub cells: Vec<String>,
    /// What varies from row to row.
    #[serde(default)]
    pub rows: Vec<String>,
    /// What varies from column to column.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Cells are divided by those of the run that has these values and otherwise the same.
    #[serde(default)]
    pub per: RunValues,
    /// A cell says of each metric the least, the median and the most of all its runs.
    #[serde(default)]
    pub spread: bool,
    /// Runs with other values of these names are left out; `per` finds them still.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// Whether it has its place in a page, and not only in what the command prints.
    #[serde(default = "yes")]
    pub in_page: bool,
}

/// What outcomes are to reach.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimTarget {
    /// What it is called.
    pub name: String,
    /// The runs that it is about.
    #[serde(default)]
    pub of: RunValues,
    /// What is looked at.
    pub metric: String,
    /// Divided by that of the run that has these values and otherwise the same.
    #[serde(default)]
    pub per: RunValues,
    /// The least that it may be.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
}

/// Whether a target was reached.
#[derive(Clone, Debug, Serialize)]
pub struct TargetVerdict {
    /// The target's name.
    pub name: String,
    /// What was looked at.
    pub metric: String,
    /// The worst of all runs that it is about; none where there is no value.
    pub value: Option<f64>,
    /// The least that it may be.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
    /// Whether the value is a ratio of two runs, as with `per`, and has no unit.
    pub is_ratio: bool,
    /// Whether all of them are within.
    pub is_reached: bool,
}

fn payload() -> String {
    "payload".into()
}

fn yes() -> bool {
    true
}

impl PublishedFigure {
    /// Whether it is comparable to a run with these values.
    pub fn is_of(&self, values: &RunValues) -> bool {
        matches(&self.of, values)
    }
}

impl SimTarget {
    /// Whether every value would reach it.
    pub fn asks_nothing(&self) -> bool {
        self.at_least.is_none() && self.at_most.is_none()
    }

    /// What became of it; none if no outcome is of its kind.
    pub fn judge(&self, outcomes: &[RunOutcome]) -> Option<TargetVerdict> {
        let metric = Metric::parse(&self.metric)?;
        let own = outcomes.iter().filter(|outcome| matches(&self.of, &outcome.values));
        let mut reached: Vec<Option<f64>> =
            own.map(|outcome| relative(&metric, outcome, &self.per, outcomes)).collect();
        reached.sort_by(|a, b| a.unwrap_or(f64::NAN).total_cmp(&b.unwrap_or(f64::NAN)));
        let (first, last) = (*reached.first()?, *reached.last()?);
        let missing = reached.iter().any(Option::is_none);
        let is_above = self.at_most.zip(last).is_some_and(|(most, last)| last > most);
        let worst = if is_above || self.at_least.is_none() { last } else { first };
        let within = |value: f64| {
            self.at_least.is_none_or(|least| value >= least)
                && self.at_most.is_none_or(|most| value <= most)
        };
        Some(TargetVerdict {
            name: self.name.clone(),
            metric: self.metric.clone(),
            value: if missing { None } else { worst },
            at_least: self.at_least,
            at_most: self.at_most,
            is_ratio: !self.per.is_empty(),
            is_reached: !missing && first.is_some_and(within) && last.is_some_and(within),
        })
    }
}

impl TargetVerdict {
    /// A line for people.
    pub fn line(&self) -> String {
        let metric = Metric::parse(&self.metric).map(|metric| metric.as_ratio(self.is_ratio));
        let show = |value: f64| metric.as_ref().map_or_else(String::new, |m| m.show(value));
        let value = self.value.map_or("no value".into(), show);
        let least = self.at_least.map(|least| format!(", at least {}", show(least)));
        let most = self.at_most.map(|most| format!(", at most {}", show(most)));
        let verdict = if self.is_reached { "reached" } else { "missed" };
        let [least, most] = [least, most].map(Option::unwrap_or_default);
        format!("{}: {} {value}{least}{most}: {verdict}\n", self.name, self.metric)
    }
}

impl OutcomeTable {
    /// The table in Markdown.
    pub fn markdown(&self, outcomes: &[RunOutcome]) -> String {
        table::markdown(self, outcomes)
    }

    /// What it says before anything is simulated.
    pub fn frame(&self, runs: &[SimRun]) -> TableFrame {
        table::frame(self, runs.iter().map(|run| &run.values))
    }

    /// Whether it is about a run of these values.
    fn has(&self, values: &RunValues) -> bool {
        let among = |(key, some): (&String, &Vec<String>)| {
            values.get(key).is_some_and(|value| some.contains(value))
        };
        self.only.iter().all(among)
    }
}

fn matches(wanted: &RunValues, values: &RunValues) -> bool {
    wanted.iter().all(|(key, value)| values.get(key) == Some(value))
}

/// The metric of `outcome`, divided by that of the one that has the values `per` and otherwise
/// the same.
fn relative(
    metric: &Metric,
    outcome: &RunOutcome,
    per: &RunValues,
    outcomes: &[RunOutcome],
) -> Option<f64> {
    let value = metric.of(outcome)?;
    if per.is_empty() {
        return Some(value);
    }
    let mut wanted = outcome.values.clone();
    wanted.extend(per.clone());
    let base = metric.of(outcomes.iter().find(|other| other.values == wanted)?)?;
    (base != 0.0).then(|| value / base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SimPlan;
    use crate::run::simulate;

    fn runs() -> Vec<SimRun> {
        let text = r#"
            name = "t"
            about = ""
            duration = "1s"
            [vary]
            rate = ["1mbit", "2mbit"]
            loss = ["0%", "50%"]
            [[figure]]
            of = { rate = "1mbit" }
            source = "somebody"
            value = 8e5
            [[figure]]
            of = { rate = "1mbit" }
            source = "another"
            [[link]]
            name = "core"
            path = "10ms forward:loss={loss} 10mbit"
            [[flow]]
            controller = "fixed:{rate}"
        "#;
        SimPlan::parse(text).unwrap().runs().unwrap()
    }

    fn outcomes() -> Vec<RunOutcome> {
        runs().iter().map(|run| simulate(run, |_| ()).unwrap()).collect()
    }

    fn table(text: &str) -> OutcomeTable {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn tables_have_a_cell_for_each_run_and_figures_beside() {
        let table = table(
            r#"
            title = "T"
            cells = ["part", "payload"]
            rows = ["rate"]
            columns = ["loss"]
            "#,
        );
        let text = table.markdown(&outcomes());
        let lines: Vec<&str> = text.lines().collect();
        let plain: Vec<String> = lines.iter().map(|line| line.replace([' ', '-'], "")).collect();
        assert_eq!(plain[..4], ["T:", "", "|rate|0%|50%|", "|:|:|:|"], "{text}");
        assert!(plain[4].starts_with("|1mbit|1.000,"), "{text}");
        assert_eq!(lines[4].matches(" (somebody 800 k, another Null)").count(), 2, "{text}");
        assert_eq!((lines.len(), lines[5].matches('(').count()), (6, 0), "{text}");
    }

    #[test]
    fn what_a_table_says_before_is_what_it_says_after() {
        for (more, head, rows) in [
            (
                "rows = ['rate']\ncolumns = ['loss']",
                vec!["rate", "0%", "50%"],
                vec!["1mbit", "2mbit"],
            ),
            ("rows = ['rate']\nonly = { rate = ['2mbit'] }", vec!["rate", "share"], vec!["2mbit"]),
            ("columns = ['loss']\nspread = true", vec!["loss", "0%", "50%"], vec!["share"]),
        ] {
            let table = table(&format!("cells = ['share']\n{more}"));
            let frame = table.frame(&runs());
            assert!(frame.head == head && frame.rows == rows, "{frame:?}");
            let text = table.markdown(&outcomes());
            let first = |line: &str| line.split('|').nth(1).unwrap().trim().to_owned();
            assert_eq!(text.lines().skip(2).map(first).collect::<Vec<_>>(), rows, "{text}");
        }
    }

    #[test]
    fn a_page_has_the_tables_that_are_for_one() {
        let plan = |tables: &str| {
            SimPlan::parse(&format!("{tables}\nlink = []\nflow = []")).unwrap().page(&outcomes())
        };
        let head = "name = \"t\"\nabout = \"\"\nduration = \"1s\"";
        let two = [("A", true), ("B", false)].map(|(title, in_page)| {
            format!("{{ title = \"{title}\", cells = [\"part\"], in_page = {in_page} }}")
        });
        let text = plan(&format!("{head}\ntable = [{}]", two.join(", "))).unwrap();
        assert!(text.contains("A:") && !text.contains("B:"), "{text}");
        assert_eq!(plan(&format!("{head}\ntable = [{}]", two[1])), None);
    }

    #[test]
    fn a_cell_says_how_far_its_runs_are_apart() {
        let table = table("cells = [\"part\"]\ncolumns = [\"loss\"]\nspread = true");
        let text = table.markdown(&outcomes());
        let cell = text.lines().last().unwrap().replace(' ', "");
        assert!(cell.contains("1.000/1.000/1.000"), "{text}");
    }

    #[test]
    fn targets_are_judged_by_the_worst_run() {
        let per = RunValues::from([("loss".to_owned(), "0%".to_owned())]);
        let of = RunValues::from([("rate".to_owned(), "1mbit".to_owned())]);
        let target = |at_least| SimTarget {
            name: "half".into(),
            of: of.clone(),
            metric: "payload".into(),
            per: per.clone(),
            at_least: Some(at_least),
            at_most: None,
        };
        let outcomes = outcomes();
        let verdict = target(0.9).judge(&outcomes).unwrap();
        assert!(!verdict.is_reached && verdict.value.unwrap() < 0.6, "{verdict:?}");
        assert!(target(0.3).judge(&outcomes).unwrap().is_reached);
        let both = |at_least, at_most| {
            let target = SimTarget { at_most: Some(at_most), ..target(at_least) };
            target.judge(&outcomes).unwrap().value.unwrap()
        };
        assert!(both(0.9, 2.0) < 0.6, "the run that is too low");
        assert!((both(0.1, 0.9) - 1.0).abs() < 0.1, "the run that is too high");
        let nothing =
            SimTarget { of: RunValues::from([("rate".into(), "3".into())]), ..target(0.1) };
        assert!(nothing.judge(&outcomes).is_none());
    }
}
