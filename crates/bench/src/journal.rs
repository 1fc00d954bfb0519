//! A file of results: a line of JSON about the run, then a line for each measurement as it is made.
//!
//! Invariant: what the file holds is what has been measured. A run that is killed leaves a file
//! that can be reported, compared and gone on with; half a line at its end does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::machine::Disturbance;
use crate::reading::{ProbeReading, Readings, record};
use crate::rounds::{Keeper, ProbeOutcome};

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// Description of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JournalHead {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Time of its beginning, in UTC.
    pub date: String,
    /// The commit that was built.
    pub commit: String,
    /// CPU model and count, kernel, default congestion control.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
    /// The programs that take part, and their versions.
    pub versions: BTreeMap<String, String>,
    /// `WEFT_*` variables that are set.
    pub settings: Vec<String>,
    /// Seed of the random numbers of paths.
    pub seed: u64,
    /// The suites.
    pub suites: Vec<String>,
    /// What the names of its measurements have in them; all are measured without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// How many rounds there are.
    pub rounds: usize,
    /// About how long each measurement takes.
    pub seconds: f64,
    /// Whether it is a quick run and no result.
    pub quick: bool,
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// A line after the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JournalLine {
    /// Measured.
    Taken { round: usize, name: String, readings: Vec<ProbeReading> },
    /// Skipped: this machine lacks something for it.
    Missing { name: String, why: String },
    /// Failed, with the error.
    Failed { name: String, why: String },
    /// A round, or what was left of it, is over.
    Round { round: usize, disturbance: Disturbance },
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Journal {
    /// Description of the run.
    pub head: JournalHead,
    /// Series of readings.
    pub readings: Readings,
    /// What was not measured, and why.
    pub missing: BTreeMap<String, String>,
    /// What was tried, and how it failed.
    pub failed: BTreeMap<String, String>,
    /// Load by others, by round.
    pub disturbances: Vec<Disturbance>,
    rounds_over: BTreeSet<usize>,
    done: BTreeSet<(usize, String)>,
    /// Those that failed in this process; others may be tried again.
    out: BTreeSet<String>,
    file: Option<File>,
}

impl Journal {
    /// A new file; one that is there stays as it is.
    ///
    /// # Errors
    /// It is there already, or cannot be written.
    pub fn create(path: &Path, head: JournalHead) -> Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        let mut journal = Self { head, file: Some(file), ..Self::default() };
        let head = serde_json::to_string(&journal.head)?;
        journal.write(&head)?;
        Ok(journal)
    }

    /// What a file holds.
    ///
    /// # Errors
    /// It cannot be read, or is not such a file.
    pub fn read(path: &Path) -> Result<Self> {
        let mut file =
            File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::load(&mut file).with_context(|| format!("{}", path.display()))?.0)
    }

    /// Opens a file to continue its run.
    ///
    /// # Errors
    /// As [`Self::read`], or it cannot be written.
    pub fn resume(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let mut file = file.with_context(|| format!("{}", path.display()))?;
        let (mut journal, whole) =
            Self::load(&mut file).with_context(|| format!("{}", path.display()))?;
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
        journal.file = Some(file);
        Ok(journal)
    }

    /// The results, and how many bytes of the file are whole lines.
    fn load(file: &mut File) -> Result<(Self, u64)> {
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].lines();
        let first = lines.next().context("the file is empty")?;
        let head: JournalHead =
            serde_json::from_str(first).context("this is no file of results")?;
        ensure!(head.schema == SCHEMA, "its schema is {}, not {SCHEMA}", head.schema);
        let mut journal = Self { head, ..Self::default() };
        for (number, line) in lines.enumerate() {
            let line = serde_json::from_str(line);
            journal.take(line.with_context(|| format!("line {}", number + 2))?);
        }
        Ok((journal, whole as u64))
    }

    fn take(&mut self, line: JournalLine) {
        match line {
            JournalLine::Taken { round, name, readings } => {
                self.missing.remove(&name);
                self.failed.remove(&name);
                self.done.insert((round, name));
                record(&mut self.readings, round, readings);
            }
            JournalLine::Missing { name, why } => drop(self.missing.insert(name, why)),
            JournalLine::Failed { name, why } => drop(self.failed.insert(name, why)),
            JournalLine::Round { round, disturbance } => {
                self.rounds_over.insert(round);
                self.disturbances.push(disturbance);
            }
        }
    }

    fn add(&mut self, line: JournalLine) -> Result<()> {
        let text = serde_json::to_string(&line)?;
        self.take(line);
        self.write(&text)
    }

    fn write(&mut self, line: &str) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(format!("{line}\n").as_bytes()).context("writing the results")
    }

    /// The most load by others in any round; nothing before the first round is over, when it is
    /// unknown.
    pub fn disturbance(&self) -> Option<Disturbance> {
        self.disturbances.iter().copied().reduce(|worst, of| Disturbance {
            others: worst.others.max(of.others),
            host: worst.host.max(of.host),
        })
    }

    /// Whether the run was ended before its last round was over.
    pub fn is_unfinished(&self) -> bool {
        self.rounds_over.len() < self.head.rounds
    }

    /// Why the numbers are no result, one sentence each; none where they are one.
    pub fn reservations(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.is_unfinished() {
            let (over, rounds) = (self.rounds_over.len(), self.head.rounds);
            all.push(format!("The run is unfinished: {over} of {rounds} rounds are over."));
        }
        match self.disturbance() {
            None => all.push("How busy the machine was is unknown.".into()),
            Some(load) if load.is_no_result() => all.push(load.sentence()),
            Some(_) => {}
        }
        if self.head.quick {
            all.push("It is a quick look, with few points and short measurements.".into());
        }
        all
    }
}

impl Keeper for Journal {
    fn wants(&self, round: usize, name: &str) -> bool {
        !self.out.contains(name) && !self.done.contains(&(round, name.to_owned()))
    }

    fn keep(&mut self, round: usize, name: String, outcome: ProbeOutcome) -> Result<()> {
        if !matches!(outcome, ProbeOutcome::Taken(_)) {
            self.out.insert(name.clone());
        }
        self.add(match outcome {
            ProbeOutcome::Taken(readings) => JournalLine::Taken { round, name, readings },
            ProbeOutcome::Missing(why) => JournalLine::Missing { name, why },
            ProbeOutcome::Failed(why) => JournalLine::Failed { name, why },
        })
    }

    fn round_over(&mut self, round: usize, disturbance: Disturbance) -> Result<()> {
        self.add(JournalLine::Round { round, disturbance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ReadingUnit;

    fn scratch(test: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("weft-journal-{}-{test}", std::process::id()))
    }

    fn taken(value: f64) -> ProbeOutcome {
        ProbeOutcome::Taken(vec![ProbeReading::new("a", ReadingUnit::Microseconds, value)])
    }

    #[test]
    fn a_killed_run_goes_on_where_it_was() {
        let path = scratch("resume");
        let head = JournalHead { schema: SCHEMA, rounds: 2, seed: 7, ..JournalHead::default() };
        let mut journal = Journal::create(&path, head.clone()).unwrap();
        assert!(Journal::create(&path, head).is_err(), "it is there");
        journal.keep(0, "probe".into(), taken(3.0)).unwrap();
        journal.keep(0, "other".into(), ProbeOutcome::Failed("no".into())).unwrap();
        assert!(!journal.wants(1, "other"), "once is enough");
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"{"taken":{"round":1,"na"#).unwrap();

        let mut journal = Journal::resume(&path).unwrap();
        assert_eq!((journal.head.seed, journal.readings["a"].median()), (7, 3.0));
        assert!(!journal.wants(0, "probe") && journal.wants(1, "probe"));
        assert!(journal.wants(0, "other"), "another try");
        journal.keep(1, "probe".into(), taken(5.0)).unwrap();
        journal.keep(0, "other".into(), taken(7.0)).unwrap();
        let journal = Journal::read(&path).unwrap();
        assert_eq!(journal.readings["a"].values, [(0, 3.0), (1, 5.0), (0, 7.0)]);
        assert!(journal.failed.is_empty());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_run_that_was_ended_claims_nothing_about_its_load() {
        let head = JournalHead { rounds: 2, ..JournalHead::default() };
        let mut journal = Journal { head, ..Journal::default() };
        assert_eq!(journal.disturbance(), None);
        let said = journal.reservations().join(" ");
        assert!(said.contains("0 of 2 rounds") && said.contains("unknown"), "{said}");
        let load = Disturbance { others: 1.0, host: 0.0 };
        journal.round_over(0, load).unwrap();
        assert!(journal.is_unfinished() && journal.disturbance() == Some(load));
        // A round that was gone on with is over twice, and one round.
        journal.round_over(0, load).unwrap();
        assert!(journal.is_unfinished());
        journal.round_over(1, load).unwrap();
        assert!(journal.reservations().is_empty(), "{:?}", journal.reservations());
        journal.round_over(1, Disturbance { others: 50.0, host: 0.0 }).unwrap();
        assert!(journal.reservations()[0].contains("50.0 %"));
    }

    #[test]
    fn other_files_are_refused() {
        let path = scratch("other");
        for text in ["", "{}", "{\"schema\": 1}\n", "not json\n"] {
            std::fs::write(&path, text).unwrap();
            assert!(Journal::read(&path).is_err(), "{text:?}");
        }
        let future = JournalHead { schema: SCHEMA + 1, ..JournalHead::default() };
        std::fs::write(&path, serde_json::to_string(&future).unwrap() + "\n").unwrap();
        let error = format!("{:#}", Journal::read(&path).unwrap_err());
        assert!(error.contains("schema"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
