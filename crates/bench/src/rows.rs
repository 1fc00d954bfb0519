//! Rows of the LAN table: which series is compared with which, and the targets.
//!
//! A ratio is of the two numbers of one round; a row shows the median of its rounds and their
//! range. A row without a target is there to be seen.

mod list;
pub mod series;

use serde::Serialize;

pub use self::list::rows;
use crate::reading::{PairedRatio, Readings, Series};

/// Whether more or less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Higher,
    Lower,
}

/// Denominator of Weft's series.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// Another series.
    One(&'static str),
    /// The best of several; those that were not taken do not count.
    Best(&'static [&'static str]),
    /// Two series in sequence.
    Sum(&'static str, &'static str),
    /// Nothing: the number itself is what counts.
    Nothing,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    number: &'static str,
    weft: &'static str,
    /// Appended to the names of the series: one aspect of the same runs.
    aspect: &'static str,
    beside: Beside,
    better: Better,
    /// The ambitious target and the one that must be met.
    goals: Option<(f64, f64)>,
}

const fn row(number: &'static str, weft: &'static str, beside: Beside) -> Row {
    Row { number, weft, aspect: "", beside, better: Better::Higher, goals: None }
}

impl Row {
    const fn lower(mut self) -> Self {
        self.better = Better::Lower;
        self
    }

    const fn aspect(mut self, aspect: &'static str) -> Self {
        self.aspect = aspect;
        self
    }

    const fn goals(mut self, target: f64, must: f64) -> Self {
        self.goals = Some((target, must));
        self
    }
}

/// Verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowVerdict {
    /// Ambitious target reached.
    Target,
    /// Required target reached.
    Must,
    /// Required target missed.
    Short,
    /// No target.
    None,
}

/// The denominator of a row's ratios.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// Its series.
    pub name: String,
    /// Median.
    pub median: f64,
    /// Minimum and maximum over the rounds.
    pub range: (f64, f64),
    /// As [`Series::speed_change`].
    pub speed_change: Option<f64>,
}

impl Reference {
    fn new(name: String, series: &Series) -> Self {
        let (median, range) = (series.median(), series.range());
        Self { name, median, range, speed_change: series.speed_change() }
    }
}

/// A row with its numbers.
#[derive(Clone, Debug, Serialize)]
pub struct RowResult {
    /// The row's number in the benchmark plan.
    pub number: &'static str,
    /// Weft's series.
    pub weft: String,
    /// The unit of Weft's number and its peer's.
    pub unit: &'static str,
    /// Weft's median.
    pub ours: f64,
    /// What it stands against.
    pub against: Option<Reference>,
    /// Median of the ratios of the rounds; without a reference, Weft's median itself.
    pub ratio: f64,
    /// The smallest and largest ratio of one round.
    pub ratio_range: (f64, f64),
    /// The ambitious target and the one that must be met.
    pub goals: Option<(f64, f64)>,
    /// Verdict against the targets.
    pub verdict: RowVerdict,
}

impl Row {
    /// The row's numbers, if its series were taken.
    pub fn evaluate(&self, readings: &Readings) -> Option<RowResult> {
        let weft = format!("{}{}", self.weft, self.aspect);
        let own = readings.get(&weft)?;
        let beside = match self.beside {
            Beside::Nothing => None,
            _ => Some(self.peer(readings)?),
        };
        let (ratio, against) = match beside {
            None => (PairedRatio { median: own.median(), range: own.range() }, None),
            Some((name, theirs)) => (own.ratio_to(&theirs)?, Some(Reference::new(name, &theirs))),
        };
        Some(RowResult {
            number: self.number,
            weft,
            unit: own.unit.label(),
            ours: own.median(),
            against,
            ratio: ratio.median,
            ratio_range: ratio.range,
            goals: self.goals,
            verdict: self.verdict(ratio.median),
        })
    }

    /// The peer's name and numbers.
    fn peer(&self, readings: &Readings) -> Option<(String, Series)> {
        let of = |name: &'static str| {
            let name = format!("{name}{}", self.aspect);
            readings.get(&name).map(|series| (name, series.clone()))
        };
        match self.beside {
            Beside::One(name) => of(name),
            Beside::Sum(a, b) => {
                let ((a, one), (b, other)) = (of(a)?, of(b)?);
                Some((format!("{a} + {b}"), one.plus(&other)))
            }
            Beside::Best(names) => {
                let taken = names.iter().filter_map(|name| of(name));
                let order = |a: &(String, Series), b: &(String, Series)| {
                    a.1.median().total_cmp(&b.1.median())
                };
                match self.better {
                    Better::Higher => taken.max_by(order),
                    Better::Lower => taken.min_by(order),
                }
            }
            Beside::Nothing => None,
        }
    }

    /// The series that it compares, without their aspect.
    #[cfg(test)]
    pub fn series(&self) -> Vec<&'static str> {
        let mut all = vec![self.weft];
        match self.beside {
            Beside::One(name) => all.push(name),
            Beside::Best(names) => all.extend(names),
            Beside::Sum(a, b) => all.extend([a, b]),
            Beside::Nothing => {}
        }
        all
    }

    fn verdict(&self, ratio: f64) -> RowVerdict {
        let Some((target, must)) = self.goals else { return RowVerdict::None };
        let meets = |goal: f64| match self.better {
            Better::Higher => ratio >= goal,
            Better::Lower => ratio <= goal,
        };
        if meets(target) {
            RowVerdict::Target
        } else if meets(must) {
            RowVerdict::Must
        } else {
            RowVerdict::Short
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{ProbeReading, ReadingUnit, record};

    const WEFT: &str = "weft";
    const A: &str = "a";
    const B: &str = "b";

    fn readings(rounds: &[&[(&str, f64)]]) -> Readings {
        let mut readings = Readings::new();
        for (round, taken) in rounds.iter().enumerate() {
            let taken =
                taken.iter().map(|(s, v)| ProbeReading::new(*s, ReadingUnit::Microseconds, *v));
            record(&mut readings, round, taken.collect());
        }
        readings
    }

    #[test]
    fn ratios_are_of_rounds_and_the_reference_has_its_range() {
        let taken = readings(&[
            &[(WEFT, 10.0), (A, 10.0)],
            &[(WEFT, 40.0), (A, 20.0)],
            &[(WEFT, 30.0), (A, 60.0)],
        ]);
        let outcome = row("", WEFT, Beside::One(A)).goals(1.0, 0.9).evaluate(&taken).unwrap();
        assert_eq!((outcome.ours, outcome.ratio, outcome.ratio_range), (30.0, 1.0, (0.5, 2.0)));
        assert_eq!(outcome.verdict, RowVerdict::Target);
        let against = outcome.against.unwrap();
        assert_eq!((against.median, against.range), (20.0, (10.0, 60.0)));
        assert_eq!(against.speed_change, Some(6.0));
    }

    #[test]
    fn verdicts_know_which_way_is_better() {
        let higher = row("", "", Beside::Nothing).goals(2.0, 1.0);
        let verdicts = [2.0, 1.5, 0.9].map(|ratio| higher.verdict(ratio));
        assert_eq!(verdicts, [RowVerdict::Target, RowVerdict::Must, RowVerdict::Short]);
        let lower = row("", "", Beside::Nothing).lower().goals(1.0, 2.0);
        let verdicts = [1.0, 1.5, 2.1].map(|ratio| lower.verdict(ratio));
        assert_eq!(verdicts, [RowVerdict::Target, RowVerdict::Must, RowVerdict::Short]);
    }

    #[test]
    fn the_best_peer_is_the_one_that_was_taken_and_is_best() {
        let row = row("", WEFT, Beside::Best(&[A, B, "c"])).lower();
        let taken = readings(&[&[(WEFT, 6.0), (A, 5.0), (B, 4.0)]]);
        let outcome = row.evaluate(&taken).unwrap();
        assert_eq!(outcome.against.map(|best| (best.name, best.median)), Some((B.into(), 4.0)));
        assert_eq!(outcome.ratio, 1.5);
        assert!(row.evaluate(&readings(&[&[(WEFT, 6.0)]])).is_none());
    }

    #[test]
    fn sums_add_up() {
        let row = row("", WEFT, Beside::Sum(A, B)).lower();
        let taken = readings(&[&[(WEFT, 30.0), (A, 5.0), (B, 10.0)]]);
        assert_eq!(row.evaluate(&taken).unwrap().ratio, 2.0);
    }

    #[test]
    fn must_is_never_harder_than_the_target() {
        for row in rows() {
            let Some((target, must)) = row.goals else { continue };
            assert_eq!(row.verdict(target), RowVerdict::Target, "{row:?}");
            assert_ne!(row.verdict(must), RowVerdict::Short, "{row:?}");
        }
    }
}
