//! How far the processes of a run have come, from moment to moment: what they report of themselves
//! ([`weft_observe`]), and the longest time in which that did not grow.

use std::collections::BTreeMap;

use weft_observe::ProcessReport;

/// One moment of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressPoint {
    /// When, on the monotonic clock.
    pub at_ns: u64,
    /// Requests completed.
    pub operations: u64,
    /// Bytes of payload, both ways.
    pub bytes: u64,
}

/// The moments at which each process had come further, and the last at which it was asked.
#[derive(Debug, Default)]
pub struct ProgressLog {
    processes: BTreeMap<u32, ProcessProgress>,
}

#[derive(Debug)]
struct ProcessProgress {
    points: Vec<ProgressPoint>,
    seen_ns: u64,
}

/// A time without progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Which process.
    pub pid: u32,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub until_ns: u64,
}

impl Stall {
    /// How long it was, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.from_ns)
    }
}

impl ProgressLog {
    /// Notes what a process says of itself.
    pub fn note(&mut self, report: &ProcessReport) {
        let mut point = ProgressPoint { at_ns: report.at_ns, operations: 0, bytes: 0 };
        for device in &report.devices {
            point.operations += device.counters.operations;
            point.bytes += device.counters.bytes_out + device.counters.bytes_in;
        }
        self.add(report.pid, point);
    }

    fn add(&mut self, pid: u32, point: ProgressPoint) {
        let empty = || ProcessProgress { points: Vec::new(), seen_ns: 0 };
        let process = self.processes.entry(pid).or_insert_with(empty);
        process.seen_ns = process.seen_ns.max(point.at_ns);
        let is_news = process
            .points
            .last()
            .is_none_or(|last| (last.operations, last.bytes) != (point.operations, point.bytes));
        if is_news {
            process.points.push(point);
        }
    }

    /// A process is there at this time, although it does not say how far it is.
    pub fn note_alive(&mut self, pid: u32, at_ns: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.seen_ns = process.seen_ns.max(at_ns);
        }
    }

    /// The times without progress of at least `least_ns`: from the first of a process to its last,
    /// and from there to when it was last seen.
    pub fn stalls(&self, least_ns: u64) -> Vec<Stall> {
        let mut stalls = Vec::new();
        for (pid, process) in &self.processes {
            let begun = process.points.iter().skip_while(|p| p.operations == 0 && p.bytes == 0);
            let times: Vec<u64> = begun.map(|point| point.at_ns).collect();
            if times.is_empty() {
                continue;
            }
            let ends = times.iter().skip(1).copied().chain([process.seen_ns]);
            let gaps = times.iter().zip(ends);
            let gaps = gaps.map(|(from, until)| Stall {
                pid: *pid,
                from_ns: *from,
                until_ns: until.max(*from),
            });
            stalls.extend(gaps.filter(|stall| stall.ns() >= least_ns));
        }
        stalls
    }

    fn first_ns(&self) -> Option<u64> {
        let moved = |point: &&ProgressPoint| point.operations > 0 || point.bytes > 0;
        let firsts = self.processes.values().filter_map(|p| p.points.iter().find(moved));
        firsts.map(|point| point.at_ns).min()
    }

    fn last_ns(&self) -> Option<u64> {
        self.processes.values().filter_map(|p| p.points.last()).map(|point| point.at_ns).max()
    }

    /// What all processes together had done until then: bytes, or requests where none has bytes.
    fn done_until(&self, at_ns: u64) -> f64 {
        let has_bytes = self.processes.values().any(|p| p.points.iter().any(|p| p.bytes > 0));
        let measure =
            |point: &ProgressPoint| if has_bytes { point.bytes } else { point.operations };
        let done = |process: &ProcessProgress| {
            let next = process.points.partition_point(|point| point.at_ns <= at_ns);
            let Some(before) = next.checked_sub(1).map(|place| process.points[place]) else {
                return 0.0;
            };
            let Some(after) = process.points.get(next) else { return measure(&before) as f64 };
            // Between two reports as if it had been steady.
            let share = (at_ns - before.at_ns) as f64 / (after.at_ns - before.at_ns).max(1) as f64;
            let (from, to) = (measure(&before) as f64, measure(after) as f64);
            from + (to - from) * share
        };
        self.processes.values().map(done).sum()
    }

    /// What was done per second from one time to another.
    pub fn rate(&self, from_ns: u64, until_ns: u64) -> f64 {
        let seconds = until_ns.saturating_sub(from_ns) as f64 / 1e9;
        if seconds <= 0.0 {
            return 0.0;
        }
        (self.done_until(until_ns) - self.done_until(from_ns)) / seconds
    }

    /// The rate from the first progress to `until_ns`; none if there was none before.
    pub fn rate_before(&self, until_ns: u64) -> Option<f64> {
        let first = self.first_ns().filter(|first| *first < until_ns)?;
        Some(self.rate(first, until_ns)).filter(|rate| *rate > 0.0)
    }

    /// The highest rate over `window_ns` after `from_ns`, or over what there is if that is less,
    /// and when such a window began first whose rate is at least `wanted`.
    pub fn recovery(
        &self,
        from_ns: u64,
        window_ns: u64,
        wanted: f64,
    ) -> Option<(f64, Option<u64>)> {
        let last = self.last_ns().filter(|last| *last > from_ns)?;
        let window = window_ns.min(last - from_ns);
        let step = (window / 10).max(1);
        let (mut best, mut first) = (0.0_f64, None);
        let mut at = from_ns;
        while at + window <= last {
            let rate = self.rate(at, at + window);
            best = best.max(rate);
            if rate >= wanted && first.is_none() {
                first = Some(at);
            }
            at += step;
        }
        Some((best, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A process that moves 100 bytes each 10 ms, but for the times between.
    fn log(until_ms: u64, gap: std::ops::Range<u64>) -> ProgressLog {
        let mut log = ProgressLog::default();
        let mut bytes = 0;
        for ms in (0..=until_ms).step_by(10) {
            if !gap.contains(&ms) {
                bytes += 100;
            }
            log.add(1, ProgressPoint { at_ns: ms * MS, operations: 0, bytes });
        }
        log
    }

    #[test]
    fn the_longest_gap_is_found_with_its_ends() {
        let stalls = log(1000, 200..500).stalls(100 * MS);
        assert_eq!(stalls, [Stall { pid: 1, from_ns: 190 * MS, until_ns: 500 * MS }]);
        assert_eq!(log(1000, 0..0).stalls(100 * MS), []);
    }

    #[test]
    fn a_process_that_never_moves_again_stalls_until_it_is_gone() {
        let mut log = log(500, 300..501);
        log.note_alive(1, 900 * MS);
        assert_eq!(log.stalls(1), {
            let mut all = log.stalls(100 * MS);
            assert_eq!(all[0], Stall { pid: 1, from_ns: 290 * MS, until_ns: 900 * MS });
            let steady = log.stalls(1).into_iter().filter(|stall| stall.ns() < 100 * MS);
            all.splice(0..0, steady);
            all
        });
    }

    #[test]
    fn who_has_not_begun_does_not_stall() {
        let mut log = ProgressLog::default();
        log.add(1, ProgressPoint { at_ns: 0, operations: 0, bytes: 0 });
        log.note_alive(1, 900 * MS);
        assert_eq!((log.stalls(1), log.first_ns()), (vec![], None));
    }

    #[test]
    fn rates_before_and_after_are_compared() {
        let log = log(2000, 500..1000);
        let before = log.rate_before(500 * MS).unwrap();
        assert!((before - 10_000.0).abs() < 500.0, "{before}");
        let (best, first) = log.recovery(1000 * MS, 500 * MS, before * 0.9).unwrap();
        assert!((best / before - 1.0).abs() < 0.05, "{best}");
        assert!(first.is_some_and(|at| at < 1100 * MS));
        let (_, never) = log.recovery(1000 * MS, 500 * MS, before * 2.0).unwrap();
        assert_eq!(never, None);
        assert_eq!(log.recovery(3000 * MS, 500 * MS, 1.0), None);
        assert_eq!(log.rate_before(0), None);
    }
}
