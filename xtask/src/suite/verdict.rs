//! Verdicts on measurements, independent of load by others.
//!
//! A measurement that fails is made again. It has failed when it did so [`FIT_FAILURES`] times
//! while others left the machine alone. Where they never did, there is no verdict, and that is
//! said.

/// Attempts at a measurement, at most.
pub const ATTEMPTS_MAX: usize = 5;
/// Failures on a machine that others left alone which make a verdict.
const FIT_FAILURES: usize = 2;
/// Largest load by others, in CPUs, at which an attempt counts.
const LOAD_MAX: f64 = 0.25;

/// Verdict on a measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum MeasurementVerdict {
    /// Another attempt is needed.
    Open,
    /// Passed.
    Passed,
    /// Failed.
    Failed,
    /// No verdict: others used at least so many CPUs during each attempt that failed.
    Unfit(f64),
}

/// Attempts at a measurement.
#[derive(Debug, Default)]
pub struct Attempts {
    passed: bool,
    fit_failures: usize,
    loads: Vec<f64>,
}

impl Attempts {
    /// An attempt has ended, while others used `load` CPUs.
    pub fn add(&mut self, passed: bool, load: f64) {
        self.passed |= passed;
        self.fit_failures += usize::from(!passed && load <= LOAD_MAX);
        self.loads.push(load);
    }

    /// The verdict so far.
    pub fn verdict(&self) -> MeasurementVerdict {
        if self.passed {
            MeasurementVerdict::Passed
        } else if self.fit_failures >= FIT_FAILURES {
            MeasurementVerdict::Failed
        } else if self.loads.len() < ATTEMPTS_MAX {
            MeasurementVerdict::Open
        } else {
            let unfit = self.loads.iter().copied().filter(|load| *load > LOAD_MAX);
            MeasurementVerdict::Unfit(unfit.fold(f64::INFINITY, f64::min))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(attempts: &[(bool, f64)]) -> MeasurementVerdict {
        let mut all = Attempts::default();
        for (passed, load) in attempts {
            assert_eq!(all.verdict(), MeasurementVerdict::Open);
            all.add(*passed, *load);
        }
        all.verdict()
    }

    #[test]
    fn one_success_is_enough_on_any_machine() {
        assert_eq!(verdict(&[(true, 2.0)]), MeasurementVerdict::Passed);
        assert_eq!(verdict(&[(false, 0.0), (true, 0.0)]), MeasurementVerdict::Passed);
    }

    #[test]
    fn failures_count_where_others_leave_the_machine_alone() {
        assert_eq!(verdict(&[(false, 0.0), (false, 0.1)]), MeasurementVerdict::Failed);
        assert_eq!(
            verdict(&[(false, 0.0), (false, 1.0), (false, 0.1)]),
            MeasurementVerdict::Failed
        );
    }

    #[test]
    fn a_busy_machine_gives_no_verdict() {
        let busy = [(false, 2.0), (false, 1.5), (false, 0.1), (false, 3.0), (false, 2.0)];
        assert_eq!(verdict(&busy), MeasurementVerdict::Unfit(1.5));
    }
}
