//! What a group has done: how much went over each of its streams, and how long it took.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What went out of a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterTraffic {
    /// The filter.
    pub from: String,
    /// Units of work.
    pub units: u64,
    /// Bytes of them, headers included.
    pub bytes: u64,
}

/// What a group has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The program.
    pub program: String,
    /// Bytes of a unit of work, at most.
    pub unit: usize,
    /// How many queries were answered.
    pub queries: u64,
    /// From the first query until the last filter had all of the last one: without the time in
    /// which the chain came together, and that in which the picture was written.
    pub seconds: f64,
    /// Units of work in a second, over all streams.
    pub units_per_second: f64,
    /// Millions of bytes in a second, over all streams.
    pub megabytes_per_second: f64,
    /// The streams, from the first to the last.
    pub streams: Vec<FilterTraffic>,
}

impl GroupReport {
    /// A report of `queries`, after which the last filter took so long to finish.
    pub(crate) fn new(
        program: &str,
        unit: usize,
        queries: u64,
        finishing: Duration,
        streams: Vec<FilterTraffic>,
    ) -> Self {
        let program = program.into();
        let seconds = -finishing.as_secs_f64();
        let (units_per_second, megabytes_per_second) = (0.0, 0.0);
        Self { program, unit, queries, seconds, units_per_second, megabytes_per_second, streams }
    }

    /// The same, when everything together took so long.
    pub(crate) fn timed(mut self, took: Duration) -> Self {
        self.seconds = (self.seconds + took.as_secs_f64()).max(1e-9);
        let sum = |of: fn(&FilterTraffic) -> u64| {
            self.streams.iter().map(of).sum::<u64>() as f64 / self.seconds
        };
        self.units_per_second = sum(|flow| flow.units);
        self.megabytes_per_second = sum(|flow| flow.bytes) / 1e6;
        self
    }

    /// The same as text.
    pub fn text(&self) -> String {
        let Self { program, unit, queries, seconds, .. } = self;
        let times = if *queries == 1 { "query" } else { "queries" };
        let mut text =
            format!("{program}: {queries} {times} in {seconds:.3} s, units of {unit} bytes\n");
        let mut line = |name: &str, units: f64, megabytes: f64| {
            let _ = writeln!(text, "{name:<14} {units:>9.0} units/s {megabytes:>9.1} MB/s");
        };
        for flow in &self.streams {
            let per_second = |count: u64| count as f64 / seconds;
            line(&flow.from, per_second(flow.units), per_second(flow.bytes) / 1e6);
        }
        line("all streams", self.units_per_second, self.megabytes_per_second);
        text
    }
}

/// What time it is: the only place that asks.
#[expect(clippy::disallowed_methods, reason = "measuring is what the clock is for")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_sums_over_time() {
        let flow = |units| FilterTraffic { from: "a".into(), units, bytes: units * 1000 };
        let report =
            GroupReport::new("p", 1024, 1, Duration::from_secs(1), vec![flow(100), flow(300)]);
        let report = report.timed(Duration::from_secs(3));
        assert_eq!((report.units_per_second, report.megabytes_per_second), (200.0, 0.2));
        let text = report.text();
        assert!(text.starts_with("p: 1 query in 2.000 s, units of 1024 bytes\n"), "{text}");
        assert!(text.ends_with("all streams          200 units/s       0.2 MB/s\n"), "{text}");
    }
}
