//! The probes: each runs one program, or a pair, and reads its numbers.
//!
//! A probe tunes itself the first time it runs, so that a measurement takes the time the lab asks
//! for whatever the speed.

pub mod api;
pub mod copies;
pub mod examples;
pub mod fio;
pub mod floor;
pub mod iperf;
pub mod libfabric;
pub mod mpi;
pub mod pattern;
pub mod perftest;
pub mod route;
pub mod sockperf;
pub mod ucx;
pub mod wan;

use std::cell::Cell;

use anyhow::{Context, Result};

use crate::lab::{BenchLab, is_installed};
use crate::reading::{ProbeReading, ReadingUnit};

/// One thing to measure in each round.
pub trait BenchProbe {
    /// Name in the progress line.
    fn name(&self) -> String;

    /// The series that stands for it in a figure.
    fn main_series(&self) -> String {
        self.name()
    }

    /// The program that must be installed for it.
    fn program(&self) -> Option<&str>;

    /// What the probe needs and this machine lacks.
    fn lacks(&self) -> Option<String> {
        let absent = self.program().filter(|program| !is_installed(program));
        absent.map(|program| format!("{program} is not installed"))
    }

    /// Whether all of it is other people's: then that it fails is something to report, and no
    /// failure of the benchmark.
    fn is_peer(&self) -> bool {
        false
    }

    /// Measures once.
    ///
    /// # Errors
    /// A program failed, or said something that is not understood.
    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>>;
}

/// Latency of one run: of a message one way, or of a whole operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTaken {
    /// Median, in microseconds, of programs that say it.
    pub p50_us: Option<f64>,
    /// Mean, in microseconds.
    pub mean_us: f64,
}

/// Ends the names of the series of medians.
pub const P50: &str = ", p50";
/// Ends the names of the series of means.
pub const MEAN: &str = ", mean";

impl LatencyTaken {
    /// The series of `label`.
    pub fn readings(&self, label: &str) -> Vec<ProbeReading> {
        let both = [(P50, self.p50_us), (MEAN, Some(self.mean_us))];
        let reading = |(aspect, us): (&str, Option<f64>)| {
            let series = format!("{label}{aspect}");
            us.map(|us| ProbeReading::new(series, ReadingUnit::Microseconds, us))
        };
        both.into_iter().filter_map(reading).collect()
    }
}

/// How many operations fill the time that a measurement is to take.
#[derive(Debug)]
pub struct Pace {
    count: Cell<u64>,
    tuned: Cell<bool>,
}

/// A count is a multiple of this, because posting in lists wants whole lists.
const MULTIPLE: u64 = 64;
const COUNT_MAX: f64 = 50e6;

impl Pace {
    /// Starts with `count` operations, to measure their rate.
    pub fn beginning_with(count: u64) -> Self {
        Self { count: count.next_multiple_of(MULTIPLE).into(), tuned: false.into() }
    }

    /// Measures with the right count; `rate` reads from a result how many were done in a second.
    pub fn measure<T>(
        &self,
        seconds: f64,
        mut run: impl FnMut(u64) -> Result<T>,
        rate: impl Fn(&T) -> f64,
    ) -> Result<T> {
        if !self.tuned.get() {
            let count = (rate(&run(self.count.get())?) * seconds).clamp(MULTIPLE as f64, COUNT_MAX);
            self.count.set((count as u64).next_multiple_of(MULTIPLE));
            self.tuned.set(true);
        }
        run(self.count.get())
    }
}

/// The numbers in the last line of `text` that begins with a number and has at least `least`.
pub fn last_numbers(text: &str, least: usize) -> Result<Vec<f64>> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let numbers: Vec<f64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        (numbers.len() >= least).then_some(numbers)
    };
    let found = text.lines().rev().find_map(numbers);
    found.with_context(|| format!("no line of {least} numbers in\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_found_once() {
        let pace = Pace::beginning_with(100);
        let mut counts = Vec::new();
        for _ in 0..2 {
            let run = |count| {
                counts.push(count);
                Ok(1000.0)
            };
            pace.measure(2.0, run, |rate| *rate).unwrap();
        }
        assert_eq!(counts, [128, 2048, 2048]);
    }

    #[test]
    fn a_failure_leaves_the_pace_untuned() {
        let pace = Pace::beginning_with(64);
        assert!(pace.measure(1.0, |_| anyhow::bail!("no"), |(): &()| 1.0).is_err());
        assert!(!pace.tuned.get());
    }

    #[test]
    fn numbers_are_found_at_the_end() {
        let text = "# a\n 65536 5000 1.5 2.5 3.5\n---\ndone 1 2 3\n";
        assert_eq!(last_numbers(text, 5).unwrap(), [65536.0, 5000.0, 1.5, 2.5, 3.5]);
        assert!(last_numbers(text, 6).is_err());
    }
}
