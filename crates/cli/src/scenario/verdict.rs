//! Whether a run was as a scenario expects, and the timeline of it.

use serde::Serialize;
use weft_fault::{FaultKind, FaultPlan, PlannedFault, When};

use super::file::{Expectations, ExpectedExit};
use super::journal::{JournalEntry, JournalEvent};
use super::progress::{ProgressLog, Stall};
use crate::sys::ChildExit;

/// Stalls that the timeline has, in nanoseconds.
const TOLD_STALL_NS: u64 = 200_000_000;
/// Over how long a rate after the faults is measured, in nanoseconds.
const WINDOW_NS: u64 = 500_000_000;

/// How CMD ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// By itself or by a signal.
    Exit(ChildExit),
    /// It did not, and was killed.
    TimedOut,
}

impl RunEnd {
    /// In words.
    pub fn words(self) -> String {
        match self {
            Self::Exit(ChildExit::Status(status)) => format!("exit status {status}"),
            Self::Exit(ChildExit::Signal(signal)) => format!("killed by signal {signal}"),
            Self::TimedOut => "no end in time".to_owned(),
        }
    }
}

/// What is known of a run.
pub struct RunRecord<'a> {
    /// What was to go wrong.
    pub plan: &'a FaultPlan,
    /// When CMD was started and ended, on the monotonic clock.
    pub began_ns: u64,
    /// See above.
    pub ended_ns: u64,
    /// How it ended.
    pub end: RunEnd,
    /// What its processes said of their faults.
    pub journal: Vec<JournalEntry>,
    /// How far they came.
    pub progress: ProgressLog,
}

/// One expectation, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// Its key in the file.
    pub expectation: &'static str,
    /// What was expected.
    pub wanted: String,
    /// What was.
    pub got: String,
    /// Whether that is as expected.
    pub ok: bool,
}

/// An entry of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineEntry {
    /// Milliseconds since CMD was started.
    pub at_ms: f64,
    /// The process, if it is one's.
    pub pid: Option<u32>,
    /// Its program.
    pub process: Option<String>,
    /// Its rank in its job.
    pub rank: Option<u32>,
    /// What happened.
    pub what: String,
}

impl RunRecord<'_> {
    /// Judges the run.
    pub fn judge(&self, expect: &Expectations) -> Vec<Judgement> {
        let mut all = vec![self.judge_exit(&expect.exit), self.judge_time(expect.within_ns)];
        all.extend(expect.max_stall_ns.map(|most| self.judge_stall(most)));
        all.extend(
            expect.recovers_to.map(|share| self.judge_recovery(share, expect.recovers_within_ns)),
        );
        all
    }

    /// Whether a process has read the plan: only those that use Weft's devices do.
    pub fn is_read(&self) -> bool {
        self.journal.iter().any(|entry| matches!(entry.what, JournalEvent::Begin { .. }))
    }

    /// What a run without faults has shown, which is nothing. One that happens with a probability,
    /// or to a share of the packets from the start, may have had no occasion.
    pub fn lacks_faults(&self) -> Option<Judgement> {
        let is_certain = |fault: &PlannedFault| match fault.when {
            When::Chance(_) => false,
            When::AtNs(at_ns) => at_ns > 0 || !fault.kind.has_window(),
            When::After(_) => true,
        };
        let got = match (self.is_read(), self.plan.faults.is_empty()) {
            (_, true) => return None,
            (false, _) => "none: no process has used a device of Weft",
            (true, _) if !self.plan.faults.iter().any(is_certain) => return None,
            (true, _) if !self.fault_spans().is_empty() => return None,
            (true, _) => "none: all ended before a step took place",
        };
        let wanted = "a fault of the plan".to_owned();
        Some(Judgement { expectation: "faults", wanted, got: got.to_owned(), ok: false })
    }

    fn judge_exit(&self, wanted: &ExpectedExit) -> Judgement {
        let (words, ok) = match (wanted, self.end) {
            (ExpectedExit::ByItself, end) => {
                let ok = matches!(end, RunEnd::Exit(ChildExit::Status(_)));
                ("any exit status".to_owned(), ok)
            }
            (ExpectedExit::Statuses(statuses), end) => {
                let list: Vec<String> = statuses.iter().map(u8::to_string).collect();
                let ok = match end {
                    RunEnd::Exit(ChildExit::Status(status)) => statuses.contains(&status),
                    _ => false,
                };
                (format!("exit status {}", list.join(" or ")), ok)
            }
        };
        Judgement { expectation: "exit", wanted: words, got: self.end.words(), ok }
    }

    fn judge_time(&self, within_ns: u64) -> Judgement {
        let took = self.ended_ns.saturating_sub(self.began_ns);
        Judgement {
            expectation: "within",
            wanted: format!("an end within {}", show_ms(within_ns)),
            got: show_ms(took),
            ok: self.end != RunEnd::TimedOut,
        }
    }

    fn judge_stall(&self, most_ns: u64) -> Judgement {
        let worst = self.progress.stalls(0).into_iter().max_by_key(Stall::ns);
        let (got, ok) = match worst {
            Some(stall) => {
                let who = self.name(stall.pid);
                (format!("{} ({who})", show_ms(stall.ns())), stall.ns() <= most_ns)
            }
            None => ("nothing to measure: no process moved data".to_owned(), false),
        };
        let wanted = format!("no more than {} without progress", show_ms(most_ns));
        Judgement { expectation: "max_stall", wanted, got, ok }
    }

    fn judge_recovery(&self, share: f64, within_ns: Option<u64>) -> Judgement {
        let limit = within_ns.map(|ns| format!(" within {}", show_ms(ns))).unwrap_or_default();
        let wanted = format!("{:.0}% of the rate before the first fault{limit}", share * 100.0);
        let (got, ok) = match self.recovery(share) {
            Err(why) => (format!("nothing to measure: {why}"), false),
            Ok((reached, after_ns)) => {
                let in_time = match (after_ns, within_ns) {
                    (Some(after), Some(within)) => after <= within,
                    (after, _) => after.is_some(),
                };
                let when = after_ns.map(|ns| format!(" after {}", show_ms(ns)));
                (format!("{:.0}%{}", reached * 100.0, when.unwrap_or_default()), in_time)
            }
        };
        Judgement { expectation: "recovers_to", wanted, got, ok }
    }

    /// The highest share of the rate before the first fault that was reached after the last, and
    /// how long after it `share` of it was, if it was.
    fn recovery(&self, share: f64) -> Result<(f64, Option<u64>), &'static str> {
        let spans = self.fault_spans();
        let first = spans.iter().map(|(_, from, _)| *from).min().ok_or("no fault happened")?;
        let last = spans.iter().map(|(_, from, until)| until.unwrap_or(*from)).max();
        let last = last.unwrap_or(first);
        let before =
            self.progress.rate_before(first).ok_or("no data was moved before the first fault")?;
        let (best, reached) = self
            .progress
            .recovery(last, WINDOW_NS, before * share)
            .ok_or("no data was moved after the last fault")?;
        Ok((best / before, reached.map(|at| at - last)))
    }

    /// When each fault happened in each process and, if it has an end, until when.
    fn fault_spans(&self) -> Vec<(usize, u64, Option<u64>)> {
        let mut spans = Vec::new();
        for entry in &self.journal {
            match entry.what {
                JournalEvent::Fault(place) => {
                    if let Some(fault) = self.plan.faults.get(place) {
                        let until = lasts_ns(fault).map(|ns| entry.at_ns + ns);
                        spans.push((place, entry.at_ns, until));
                    }
                }
                JournalEvent::Start => {
                    let windows = self.plan.faults.iter().enumerate();
                    for (place, fault) in windows.filter(|(_, fault)| fault.kind.has_window()) {
                        let When::AtNs(at) = fault.when else { continue };
                        let until = fault.until_ns.map(|ns| entry.at_ns + ns);
                        spans.push((place, entry.at_ns + at, until));
                    }
                }
                JournalEvent::Begin { .. } => {}
            }
        }
        spans.retain(|(_, from, _)| *from <= self.ended_ns);
        spans
    }

    fn begin(&self, pid: u32) -> Option<(&str, Option<u32>)> {
        self.journal.iter().find_map(|entry| match &entry.what {
            JournalEvent::Begin { rank, name } if entry.pid == pid => Some((name.as_str(), *rank)),
            _ => None,
        })
    }

    fn name(&self, pid: u32) -> String {
        match self.begin(pid) {
            Some((name, Some(rank))) => format!("{name} of rank {rank}, process {pid}"),
            Some((name, None)) => format!("{name}, process {pid}"),
            None => format!("process {pid}"),
        }
    }

    fn entry(&self, at_ns: u64, pid: Option<u32>, what: String) -> TimelineEntry {
        let known = pid.and_then(|pid| self.begin(pid));
        TimelineEntry {
            at_ms: at_ns.saturating_sub(self.began_ns) as f64 / 1e6,
            pid,
            process: known.map(|(name, _)| name.to_owned()),
            rank: known.and_then(|(_, rank)| rank),
            what,
        }
    }

    /// What happened, in the order of time.
    pub fn timeline(&self) -> Vec<TimelineEntry> {
        let mut entries = Vec::new();
        for entry in &self.journal {
            let what = match &entry.what {
                JournalEvent::Begin { .. } => "opens Weft".to_owned(),
                JournalEvent::Start => continue,
                JournalEvent::Fault(place) => match self.plan.faults.get(*place) {
                    Some(fault) => format!("fault {fault}"),
                    None => continue,
                },
            };
            entries.push(self.entry(entry.at_ns, Some(entry.pid), what));
        }
        let ended = self.fault_spans().into_iter().filter_map(|(place, _, until)| {
            let fault = self.plan.faults.get(place)?;
            let until = until.filter(|until| *until <= self.ended_ns)?;
            Some(self.entry(until, None, format!("end of {fault}")))
        });
        entries.extend(ended);
        for stall in self.progress.stalls(TOLD_STALL_NS) {
            let what = format!("no progress for {}", show_ms(stall.ns()));
            entries.push(self.entry(stall.from_ns, Some(stall.pid), what));
        }
        entries.push(self.entry(self.ended_ns, None, self.end.words()));
        entries.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        entries.dedup();
        entries
    }
}

/// How long a fault goes on once it has happened.
fn lasts_ns(fault: &PlannedFault) -> Option<u64> {
    match fault.kind {
        FaultKind::PortDown(ns) | FaultKind::AddrGone(ns) | FaultKind::DeviceFatal(ns) => Some(ns),
        _ => None,
    }
}

/// A time in milliseconds, as people read it.
pub fn show_ms(ns: u64) -> String {
    match ns / 1_000_000 {
        ms @ 10_000.. => format!("{:.1} s", ms as f64 / 1e3),
        ms => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use weft_observe::{Counters, DeviceReport, ProcessReport};

    use super::*;

    const MS: u64 = 1_000_000;

    /// One process that moves 100 bytes each 10 ms for two seconds, but for the times between.
    fn progress(gap: std::ops::Range<u64>) -> ProgressLog {
        let mut log = ProgressLog::default();
        let mut bytes_in = 0;
        for ms in (0..=2000).step_by(10) {
            bytes_in += if gap.contains(&ms) { 0 } else { 100 };
            let counters = Counters { bytes_in, ..Counters::default() };
            let device = DeviceReport { counters, ..DeviceReport::default() };
            let at_ns = ms * MS;
            log.note(&ProcessReport {
                pid: 7,
                at_ns,
                devices: vec![device],
                ..ProcessReport::default()
            });
        }
        log
    }

    fn judge(plan: &str, gap: std::ops::Range<u64>, expect: &str) -> Vec<(String, bool)> {
        let plan = FaultPlan::parse(plan).unwrap();
        let begin = JournalEvent::Begin { rank: Some(1), name: "x".into() };
        let entry = |at_ns, what| JournalEntry { pid: 7, at_ns, what };
        let record = RunRecord {
            plan: &plan,
            began_ns: 0,
            ended_ns: 2000 * MS,
            end: RunEnd::Exit(ChildExit::Status(0)),
            journal: vec![entry(0, begin), entry(500 * MS, JournalEvent::Fault(0))],
            progress: progress(gap),
        };
        let timeline = record.timeline();
        assert!(timeline.iter().any(|entry| entry.what.starts_with("fault port-down")));
        let thread = std::thread::current();
        let dir = weft_testkit::Dir::new(thread.name().expect("the name of the test"));
        let path = dir.write("expect.toml", format!("[expect]\n{expect}"));
        let expect = super::super::file::ScenarioFile::read(&path).unwrap().expect;
        let judged = record.judge(&expect).into_iter().skip(2);
        judged.map(|one| (one.got, one.ok)).collect()
    }

    #[test]
    fn a_stall_is_judged_by_its_length() {
        let gap = || 500..900;
        let judged = judge("port-down=300ms", gap(), "max_stall = \"500ms\"");
        assert_eq!(judged, [("410 ms (x of rank 1, process 7)".to_owned(), true)]);
        let judged = judge("port-down=300ms", gap(), "max_stall = \"300ms\"");
        assert!(!judged[0].1);
    }

    #[test]
    fn recovery_is_measured_after_the_last_fault() {
        let judged = judge("port-down=300ms", 500..900, "recovers_to = 0.9");
        assert!(judged[0].1, "{judged:?}");
        let late = "recovers_to = 0.9\nrecovers_within = \"10ms\"";
        assert!(!judge("port-down=300ms", 500..1200, late)[0].1);
        let never = judge("port-down=300ms", 500..2001, "recovers_to = 0.9");
        assert!(!never[0].1);
        assert!(never[0].0.contains("no data was moved after"), "{never:?}");
    }
}
