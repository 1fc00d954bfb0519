//! `weft run --scenario`: CMD under the steps of a file, judged by what the file expects.
//!
//! This process stays as CMD's parent. It reads what the processes of the run append to a file
//! ([`journal`]), and asks each of them how far it has come ([`progress`]), fifty times a second;
//! when CMD has ended it judges that ([`verdict`]). CMD leads a process group of its own, so that
//! nothing of a run that hangs is left.
//!
//! Order: [`run_scenario`] from [`crate::run`], with the environment that CMD is to have.

mod file;
mod fuzz;
mod journal;
mod progress;
mod verdict;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use weft_fault::FaultPlan;
use weft_host::JOURNAL_VARIABLE;
use weft_observe::{ReadLimits, ReaderAnswer, place, read_those};
use weft_os::{clock, sys as os_sys};

pub use file::{Expectations, ExpectedExit, ScenarioFile};
pub use fuzz::{SeedRange, fuzz};
use journal::{JournalEvent, JournalFile};
use progress::ProgressLog;
use verdict::{Judgement, RunEnd, RunRecord, TimelineEntry, show_ms};

use crate::run::Environment;
use crate::run_log;
use crate::sys::{self, Child, SpawnManner};

/// How often the processes are asked how far they are.
const PERIOD: Duration = Duration::from_millis(20);
/// How long they have for their answers.
const LIMITS: ReadLimits =
    ReadLimits { each: Duration::from_millis(20), all: Duration::from_millis(200) };

/// How a run is made and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScenarioManner {
    /// What CMD writes is discarded.
    pub silent: bool,
}

/// What came of a run.
pub struct ScenarioOutcome {
    end: RunEnd,
    judged: Vec<Judgement>,
    timeline: Vec<TimelineEntry>,
    /// Whether a process has used Weft's devices, and so read the plan.
    pub is_read: bool,
    /// The signal by which somebody wanted to end this process meanwhile.
    pub ended_by: Option<i32>,
}

#[derive(Serialize)]
struct OutcomeJson<'a> {
    scenario: &'a str,
    plan: String,
    ok: bool,
    end: String,
    expectations: &'a [Judgement],
    timeline: &'a [TimelineEntry],
}

impl ScenarioOutcome {
    /// Whether all was as expected.
    pub fn is_ok(&self) -> bool {
        self.judged.iter().all(|judgement| judgement.ok)
    }

    /// What was not as expected, in a line.
    pub fn complaint(&self) -> String {
        let bad = self.judged.iter().filter(|judgement| !judgement.ok);
        let words = bad.map(|one| format!("{}: {}", one.expectation, one.got));
        words.collect::<Vec<_>>().join("; ")
    }

    /// How CMD ended, in words.
    pub fn end(&self) -> String {
        self.end.words()
    }

    /// Writes it to stderr: a timeline, or one line of JSON.
    pub fn print(&self, name: &str, plan: &FaultPlan, json: bool) {
        if !json {
            return run_log::say_lines(&self.timeline(name));
        }
        let outcome = OutcomeJson {
            scenario: name,
            plan: plan.to_string(),
            ok: self.is_ok(),
            end: self.end(),
            expectations: &self.judged,
            timeline: &self.timeline,
        };
        let line = serde_json::to_string(&outcome).unwrap_or_default() + "\n";
        // Without a stderr the status alone must do.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    fn timeline(&self, name: &str) -> String {
        let mut text = String::from("weft: timeline, in milliseconds:\n");
        for TimelineEntry { at_ms, pid, process, rank, what } in &self.timeline {
            let pid = pid.map(|pid| format!(" [{pid}]")).unwrap_or_default();
            let rank = rank.map(|rank| format!(" rank {rank}")).unwrap_or_default();
            let who = process.as_deref().unwrap_or(if pid.is_empty() { "" } else { "?" });
            let gap = if who.is_empty() { "" } else { ": " };
            text.push_str(&format!("{at_ms:10.0}  {who}{pid}{rank}{gap}{what}\n"));
        }
        for Judgement { expectation, wanted, got, ok } in &self.judged {
            let word = if *ok { "ok" } else { "FAILED" };
            text.push_str(&format!("weft: {word}: {expectation}: {wanted}; it was {got}\n"));
        }
        let word = if self.is_ok() { "passed" } else { "FAILED" };
        text + &format!("weft: scenario {name}: {word}\n")
    }
}

/// Runs `command` under `plan` and judges it by `expect`.
///
/// # Errors
/// CMD cannot be run, or the journal not be made.
pub fn run_scenario(
    command: &[OsString],
    environment: &Environment,
    plan: &FaultPlan,
    expect: &Expectations,
    manner: ScenarioManner,
) -> Result<ScenarioOutcome> {
    let journal = JournalFile::create().context("making the journal of the run")?;
    let mut environment = environment.clone();
    environment.set("WEFT_FAULT", plan.to_string().into());
    // Without, nothing can be measured.
    environment.set("WEFT_OBSERVE", "on".into());
    environment.set(JOURNAL_VARIABLE, journal.path().as_os_str().to_owned());
    let dir = place::directory(|name| environment.get(name).map(OsString::from));
    let spawn = SpawnManner { group: true, silent: manner.silent };
    let began_ns = os_sys::monotonic_ns();
    let child = sys::spawn_in(command, environment.all(), spawn)?;
    let (end, progress) = watch(&child, &journal, &dir, Duration::from_nanos(expect.within_ns))?;
    child.end_rest();
    let record = RunRecord {
        plan,
        began_ns,
        ended_ns: os_sys::monotonic_ns(),
        end,
        journal: journal.read(),
        progress,
    };
    let (mut judged, timeline) = (record.judge(expect), record.timeline());
    if !manner.silent {
        judged.extend(record.lacks_faults());
    }
    let is_read = record.is_read();
    Ok(ScenarioOutcome { end, judged, timeline, is_read, ended_by: child.ended_by() })
}

/// Watches the run until CMD ends, or for so long.
fn watch(
    child: &Child,
    journal: &JournalFile,
    dir: &Path,
    within: Duration,
) -> io::Result<(RunEnd, ProgressLog)> {
    let deadline = clock::now() + within;
    let mut progress = ProgressLog::default();
    loop {
        if let Some(exit) = child.wait_for(PERIOD)? {
            return Ok((RunEnd::Exit(exit), progress));
        }
        sample(journal, dir, &mut progress);
        if clock::now() >= deadline {
            child.end();
            return Ok((RunEnd::TimedOut, progress));
        }
    }
}

/// Asks every process of the run how far it is.
fn sample(journal: &JournalFile, dir: &Path, progress: &mut ProgressLog) {
    let begun = journal.read().into_iter().filter_map(|entry| match entry.what {
        JournalEvent::Begin { .. } => Some(entry.pid),
        _ => None,
    });
    let own: BTreeSet<u32> = begun.collect();
    if own.is_empty() {
        return;
    }
    for seen in read_those(dir, LIMITS, |pid| own.contains(&pid)) {
        match seen.answer {
            ReaderAnswer::Report(report) => progress.note(&report),
            ReaderAnswer::Silent | ReaderAnswer::Nonsense => {
                progress.note_alive(seen.pid, os_sys::monotonic_ns());
            }
        }
    }
}

/// How long `expect` gives CMD, in words.
pub fn limit_of(expect: &Expectations) -> String {
    show_ms(expect.within_ns)
}
