//! Readings of probes, and their series over the rounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_chart::range;

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

    /// The number of one round.
    pub fn of_round(&self, round: usize) -> Option<f64> {
        self.values.iter().find(|(of, _)| *of == round).map(|(_, value)| *value)
    }
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
