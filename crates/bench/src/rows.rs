//! Rows of the LAN table: which series is compared with which, and the targets.
//!
//! The numbers of the rows and their targets are those of the benchmark plan; a row without a
//! target is there to be seen.

use serde::Serialize;
use weft_chart::range;

use crate::probes::api;
use crate::reading::{Readings, median};

/// The series that the rows speak of.
pub mod series {
    /// Weft, by perftest.
    pub const WRITE_1M: &str = "ib_write_bw 1 MiB";
    /// Weft, by perftest.
    pub const WRITE_64K: &str = "ib_write_bw 64 KiB";
    /// Weft, by perftest.
    pub const WRITE_4K: &str = "ib_write_bw 4 KiB";
    /// Weft, by perftest, posted in lists.
    pub const WRITE_64: &str = "ib_write_bw 64 B in lists";
    /// Weft, by perftest.
    pub const READ_1M: &str = "ib_read_bw 1 MiB";
    /// Weft, by perftest.
    pub const SEND_1M: &str = "ib_send_bw 1 MiB";
    /// Weft, by perftest, the completion queue polled.
    pub const SEND_LAT: &str = "ib_send_lat 64 B";
    /// Weft, by perftest, the memory polled.
    pub const WRITE_LAT: &str = "ib_write_lat 64 B";
    /// Weft, by perftest; a whole round trip.
    pub const READ_LAT: &str = "ib_read_lat 64 B";
    /// Weft over Shuttle, by perftest.
    pub const SHUTTLE_WRITE_1M: &str = "ib_write_bw 1 MiB, weft0";
    /// Weft over Shuttle under a key, by perftest.
    pub const SEALED_WRITE_1M: &str = "ib_write_bw 1 MiB, weft0 under a key";
    /// Weft over Shuttle, by perftest, the completion queue polled.
    pub const SHUTTLE_SEND_LAT: &str = "ib_send_lat 64 B, weft0";
    /// TCP alone.
    pub const STREAM_256K: &str = "floor: TCP stream, 256 KiB calls";
    /// TCP alone.
    pub const STREAM_1M: &str = "floor: TCP stream, 1 MiB calls";
    /// TCP alone.
    pub const SPIN: &str = "floor: TCP ping-pong, spinning";
    /// TCP alone.
    pub const BLOCK: &str = "floor: TCP ping-pong, blocking";
    /// TCP alone, a thread receiving for another.
    pub const MEMORY: &str = "floor: TCP ping-pong, memory watched";
    /// iperf3 with Weft's own congestion control.
    pub const IPERF_RENO: &str = "iperf3 -C reno";
    /// iperf3 as it comes.
    pub const IPERF: &str = "iperf3";
    /// sockperf.
    pub const SOCKPERF: &str = "sockperf --nonblocked 64 B";
    /// libfabric.
    pub const FABRIC_LAT: &str = "fi_pingpong 64 B";
    /// libfabric.
    pub const FABRIC_1M: &str = "libfabric RMA write 1 MiB";
    /// libfabric.
    pub const FABRIC_64K: &str = "libfabric RMA write 64 KiB";
    /// libfabric.
    pub const FABRIC_4K: &str = "libfabric RMA write 4 KiB";
    /// libfabric.
    pub const FABRIC_64: &str = "libfabric RMA write 64 B";
    /// UCX.
    pub const UCX_PUT_1M: &str = "ucp_put_bw 1 MiB";
    /// UCX.
    pub const UCX_PUT_64K: &str = "ucp_put_bw 64 KiB";
    /// UCX.
    pub const UCX_PUT_4K: &str = "ucp_put_bw 4 KiB";
    /// UCX.
    pub const UCX_PUT_64: &str = "ucp_put_bw 64 B";
    /// UCX.
    pub const UCX_TAG_1M: &str = "tag_bw 1 MiB";
    /// UCX.
    pub const UCX_TAG_LAT: &str = "tag_lat 64 B";
    /// UCX.
    pub const UCX_PUT_LAT: &str = "ucp_put_lat 64 B";
}
use series::*;

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
    /// What is appended to the names of the series: another aspect of the same runs.
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

const PUTS_1M: &[&str] = &[UCX_PUT_1M, FABRIC_1M];
const PUTS_4K: &[&str] = &[UCX_PUT_4K, FABRIC_4K];
const PUTS_64: &[&str] = &[UCX_PUT_64, FABRIC_64];
const LATENCIES: &[&str] = &[UCX_TAG_LAT, FABRIC_LAT, SOCKPERF];
const CPU: &str = ", CPU";
const MESSAGES: &str = ", messages";

/// Every row, in the order of the table.
pub const ROWS: [Row; 27] = [
    row("1", WRITE_1M, Beside::One(IPERF_RENO)).goals(1.15, 0.95),
    row("1", WRITE_1M, Beside::One(IPERF)),
    row("1", WRITE_1M, Beside::One(STREAM_256K)),
    row("1", WRITE_1M, Beside::One(STREAM_1M)),
    row("1", READ_1M, Beside::One(IPERF_RENO)),
    row("1", SEND_1M, Beside::One(IPERF_RENO)),
    row("2", WRITE_1M, Beside::One(FABRIC_1M)).goals(2.0, 1.2),
    row("3", WRITE_1M, Beside::Best(PUTS_1M)).goals(1.0, 0.8),
    row("3", WRITE_1M, Beside::One(UCX_TAG_1M)),
    row("4", WRITE_1M, Beside::One(IPERF_RENO)).aspect(CPU).lower().goals(0.85, 1.05),
    row("5", WRITE_64K, Beside::One(FABRIC_64K)).goals(2.0, 1.3),
    row("5", WRITE_64K, Beside::One(UCX_PUT_64K)).goals(1.3, 1.0),
    row("6", WRITE_4K, Beside::Best(PUTS_4K)).goals(3.0, 1.5),
    row("7", WRITE_64, Beside::Best(PUTS_64)).aspect(MESSAGES).goals(8.0, 3.0),
    row("8", SEND_LAT, Beside::One(SPIN)).lower().goals(1.15, 1.35),
    row("9", SEND_LAT, Beside::One(BLOCK)).lower().goals(0.55, 0.65),
    row("10", SEND_LAT, Beside::Best(LATENCIES)).lower().goals(1.0, 1.15),
    row("11", WRITE_LAT, Beside::One(MEMORY)).lower().goals(1.05, 1.2),
    row("11", WRITE_LAT, Beside::One(UCX_PUT_LAT)).lower().goals(1.1, 1.35),
    row("12", READ_LAT, Beside::Sum(SPIN, BLOCK)).lower().goals(1.1, 1.3),
    row("14", SHUTTLE_WRITE_1M, Beside::One(IPERF_RENO)).goals(0.65, 0.5),
    row("15", SEALED_WRITE_1M, Beside::One(SHUTTLE_WRITE_1M)).goals(0.75, 0.6),
    row("16", SHUTTLE_SEND_LAT, Beside::One(SPIN)).lower().goals(0.75, 1.0),
    row("21", api::POLL, Beside::Nothing).lower().goals(25.0, 250.0),
    row("21", api::POST_LIST, Beside::Nothing).lower().goals(150.0, 2000.0),
    row("21", api::REGISTER, Beside::Nothing).lower().goals(1000.0, 20_000.0),
    row("idle", api::IDLE, Beside::Nothing).lower().goals(0.0, 0.1),
];

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
    /// The peer's name and median.
    pub beside: Option<(String, f64)>,
    /// The ratio of the medians; without a peer, Weft's number itself.
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
        let ours = own.median();
        let beside = match self.beside {
            Beside::Nothing => None,
            _ => Some(self.peer(readings)?),
        };
        let values = own.values.iter();
        let ratios = values.filter_map(|&(round, value)| match &beside {
            None => Some(value),
            Some((_, parts)) => Some(value / sum_of_round(readings, parts, round)?),
        });
        let ratio_range = range(ratios);
        let peer = beside.map(|(name, parts)| (name, sum_of_medians(readings, &parts)));
        let ratio = peer.as_ref().map_or(ours, |(_, theirs)| ours / theirs);
        Some(RowResult {
            number: self.number,
            weft,
            unit: own.unit.label(),
            ours,
            beside: peer,
            ratio,
            ratio_range,
            goals: self.goals,
            verdict: self.verdict(ratio),
        })
    }

    /// The peer's name, and the series that make up its number.
    fn peer(&self, readings: &Readings) -> Option<(String, Vec<String>)> {
        let full = |name: &str| format!("{name}{}", self.aspect);
        let taken = |name: &&str| readings.contains_key(&full(name));
        let median = |name: &&&str| readings[&full(name)].median();
        let parts = match self.beside {
            Beside::One(name) => vec![name],
            Beside::Sum(a, b) => vec![a, b],
            Beside::Best(names) => {
                let names = names.iter().filter(|name| taken(name));
                let order = |a: &&&str, b: &&&str| median(a).total_cmp(&median(b));
                let best = match self.better {
                    Better::Higher => names.max_by(order),
                    Better::Lower => names.min_by(order),
                };
                vec![*best?]
            }
            Beside::Nothing => return None,
        };
        let all = parts.iter().all(taken);
        all.then(|| (parts.join(" + "), parts.iter().map(|name| full(name)).collect()))
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

fn sum_of_round(readings: &Readings, parts: &[String], round: usize) -> Option<f64> {
    parts.iter().map(|name| readings.get(name)?.of_round(round)).sum()
}

fn sum_of_medians(readings: &Readings, parts: &[String]) -> f64 {
    let values = |name: &String| readings[name].values.iter().map(|(_, value)| *value).collect();
    parts.iter().map(|name| median(values(name))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{ProbeReading, ReadingUnit, record};

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
    fn ratios_are_of_medians_and_ranges_of_rounds() {
        let taken = readings(&[
            &[(WRITE_1M, 10.0), (IPERF_RENO, 10.0)],
            &[(WRITE_1M, 40.0), (IPERF_RENO, 20.0)],
            &[(WRITE_1M, 30.0), (IPERF_RENO, 60.0)],
        ]);
        let outcome = ROWS[0].evaluate(&taken).unwrap();
        assert_eq!((outcome.ours, outcome.ratio), (30.0, 1.5));
        assert_eq!(outcome.ratio_range, (0.5, 2.0));
        assert_eq!(outcome.verdict, RowVerdict::Target);
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
        let row = row("", SEND_LAT, Beside::Best(LATENCIES)).lower();
        let taken = readings(&[&[(SEND_LAT, 6.0), (FABRIC_LAT, 5.0), (SOCKPERF, 4.0)]]);
        let outcome = row.evaluate(&taken).unwrap();
        assert_eq!(outcome.beside, Some((String::from(SOCKPERF), 4.0)));
        assert_eq!(outcome.ratio, 1.5);
        assert!(row.evaluate(&readings(&[&[(SEND_LAT, 6.0)]])).is_none());
    }

    #[test]
    fn sums_add_up() {
        let row = row("", READ_LAT, Beside::Sum(SPIN, BLOCK)).lower();
        let taken = readings(&[&[(READ_LAT, 30.0), (SPIN, 5.0), (BLOCK, 10.0)]]);
        assert_eq!(row.evaluate(&taken).unwrap().ratio, 2.0);
    }

    #[test]
    fn must_is_never_harder_than_the_target() {
        for row in ROWS {
            let Some((target, must)) = row.goals else { continue };
            assert_eq!(row.verdict(target), RowVerdict::Target, "{row:?}");
            assert_ne!(row.verdict(must), RowVerdict::Short, "{row:?}");
        }
    }
}
