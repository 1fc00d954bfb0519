//! Readings of probes, and their series over the rounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_chart::{number, range};

/// Quantity and unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadingUnit {
    /// 10^9 bits of payload in a second.
    #[serde(rename = "Gbit/s")]
    GigabitsPerSecond,
    /// 10^6 messages in a second.
    #[serde(rename = "M/s")]
    MegamessagesPerSecond,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Seconds of CPU time for 10^9 bytes of payload; of both processes unless the series
    /// says which.
    #[serde(rename = "CPU s/GB")]
    CpuSecondsPerGigabyte,
    /// Units of work in a second.
    #[serde(rename = "units/s")]
    UnitsPerSecond,
    /// Milliseconds of CPU time in a second.
    #[serde(rename = "CPU ms/s")]
    CpuMillisPerSecond,
    /// Ratio, without a unit.
    #[serde(rename = "ratio")]
    Ratio,
}

impl ReadingUnit {
    /// How the unit is written.
    pub fn label(self) -> &'static str {
        match self {
            Self::GigabitsPerSecond => "Gbit/s",
            Self::MegamessagesPerSecond => "M/s",
            Self::Seconds => "s",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
            Self::CpuSecondsPerGigabyte => "CPU s/GB",
            Self::UnitsPerSecond => "units/s",
            Self::CpuMillisPerSecond => "CPU ms/s",
            Self::Ratio => "ratio",
        }
    }
}

/// One number of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReading {
    /// The series that it belongs to.
    pub series: String,
    /// Quantity and unit.
    pub unit: ReadingUnit,
    /// The number.
    pub value: f64,
}

impl ProbeReading {
    /// A reading.
    pub fn new(series: impl Into<String>, unit: ReadingUnit, value: f64) -> Self {
        Self { series: series.into(), unit, value }
    }
}

/// The readings of one kind, one for each round in which it was taken.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Quantity and unit.
    pub unit: ReadingUnit,
    /// Round and number.
    pub values: Vec<(usize, f64)>,
}

impl Series {
    /// Median.
    pub fn median(&self) -> f64 {
        median(self.values.iter().map(|(_, value)| *value).collect())
    }

    /// Minimum and maximum.
    pub fn range(&self) -> (f64, f64) {
        range(self.values.iter().map(|(_, value)| *value))
    }

    /// Ratio to `reference`, of the two numbers of each round; none if no round has both.
    pub fn ratio_to(&self, reference: &Self) -> Option<PairedRatio> {
        let pair = |(round, value): &(usize, f64)| Some(value / reference.of_round(*round)?);
        let ratios: Vec<f64> = self.values.iter().filter_map(pair).collect();
        let range = range(ratios.iter().copied());
        (!ratios.is_empty()).then(|| PairedRatio { median: median(ratios), range })
    }

    /// Sum of two series, of the rounds that both have.
    pub fn plus(&self, other: &Self) -> Self {
        let sum = |(round, value): &(usize, f64)| Some((*round, value + other.of_round(*round)?));
        Self { unit: self.unit, values: self.values.iter().filter_map(sum).collect() }
    }

    /// Greatest number of a round by the least, where the machine was too unsteady for medians of
    /// several series to compare.
    pub fn speed_change(&self) -> Option<f64> {
        let (low, high) = self.range();
        Some(high / low).filter(|change| change.is_finite() && *change > STEADY)
    }

    /// The number of one round.
    pub fn of_round(&self, round: usize) -> Option<f64> {
        self.values.iter().find(|(of, _)| *of == round).map(|(_, value)| *value)
    }
}

/// Ratio of two series that were measured in turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairedRatio {
    /// Median of the ratios of the rounds.
    pub median: f64,
    /// Minimum and maximum of the ratios of the rounds.
    pub range: (f64, f64),
}

/// Largest ratio of two rounds of a reference that counts as one speed of the machine.
const STEADY: f64 = 1.5;

/// Says that a reference's rounds differ by `change`, which is a ratio.
pub fn speed_sentence(change: f64) -> String {
    format!("the machine changed speed by {}", number(change))
}

/// All series of a run, by name.
pub type Readings = BTreeMap<String, Series>;

/// Adds what a probe read in `round`.
pub fn record(readings: &mut Readings, round: usize, taken: Vec<ProbeReading>) {
    for reading in taken {
        let new = || Series { unit: reading.unit, values: Vec::new() };
        let series = readings.entry(reading.series.clone()).or_insert_with(new);
        series.values.push((round, reading.value));
    }
}

/// Median: the mean of the two middle numbers if their count is even; NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    fn series(values: &[(usize, f64)]) -> Series {
        Series { unit: ReadingUnit::Microseconds, values: values.to_vec() }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let over = series(&[(0, 1.0), (1, 30.0), (2, 4.0), (3, 900.0)]);
        let under = series(&[(0, 2.0), (1, 10.0), (2, 4.0), (4, 1.0)]);
        let ratio = PairedRatio { median: 1.0, range: (0.5, 3.0) };
        assert_eq!(over.ratio_to(&under), Some(ratio));
        assert_eq!(over.plus(&under).values, [(0, 3.0), (1, 40.0), (2, 8.0)]);
        assert_eq!(over.ratio_to(&series(&[(7, 1.0)])), None);
    }

    #[test]
    fn a_machine_that_changes_speed_is_told_of() {
        assert_eq!(series(&[(0, 10.0), (1, 15.0), (2, 12.0)]).speed_change(), None);
        let change = series(&[(0, 10.0), (1, 18.0)]).speed_change().unwrap();
        assert_eq!(speed_sentence(change), "the machine changed speed by 1.80");
    }

    #[test]
    fn rounds_stay_apart() {
        let mut readings = Readings::new();
        for (round, value) in [(0, 5.0), (2, 1.0)] {
            record(
                &mut readings,
                round,
                vec![ProbeReading::new("a", ReadingUnit::Microseconds, value)],
            );
        }
        let series = &readings["a"];
        assert_eq!(series.of_round(2), Some(1.0));
        assert_eq!(series.of_round(1), None);
        assert_eq!(series.range(), (1.0, 5.0));
    }
}
