//! `weft bench SUITE...`: measures suites into a file and prints a summary.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueHint};

use crate::arguments::{self, wrong_argument};
use crate::figure::Figure;
use crate::journal::{Journal, JournalHead, SCHEMA};
use crate::lab::BenchLab;
use crate::output::{self, IntoArgs};
use crate::probes::BenchProbe;
use crate::reasons::by_reason;
use crate::suites::{BenchSuite, FigureDraft, SUITES, Scope};
use crate::{machine, rounds, summary, sys};

/// What to measure, and how.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Suites, or `all` of them
    #[arg(value_name = "SUITE", value_parser = names(), hide_possible_values = true)]
    #[arg(required_unless_present_any = ["list", "resume"])]
    suites: Vec<String>,
    /// Say which suites there are, what each figure is, and what this machine lacks for it
    #[arg(long)]
    list: bool,
    /// Few points, two short rounds: a look, not a result
    #[arg(long)]
    quick: bool,
    /// How many rounds; medians need five [default: 5, or 2 with --quick]
    #[arg(long, value_name = "N", value_parser = arguments::rounds)]
    rounds: Option<NonZeroUsize>,
    /// About how many seconds each measurement takes [default: 0.5, or 0.15 with --quick]
    #[arg(long, value_name = "S", value_parser = arguments::seconds)]
    seconds: Option<f64>,
    /// Seed of all random decisions on paths
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Only the measurements with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the results here [default: weft-bench-DATE.jsonl]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    #[command(flatten)]
    into: IntoArgs,
    /// Continue the run of this file, with the options that it began with
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["suites", "quick", "rounds", "seconds", "seed", "out", "list"])]
    resume: Option<PathBuf>,
}

const ALL: &str = "all";
/// The name of the figures' place in a page of Markdown.
const FIGURES: &str = "figures";

/// Rounds, and the seconds of a measurement.
const WHOLE: (usize, f64) = (5, 0.5);
const LOOK: (usize, f64) = (2, 0.15);

fn names() -> PossibleValuesParser {
    let suites = SUITES.iter().map(|suite| PossibleValue::new(suite.name).help(suite.about));
    suites.chain([PossibleValue::new(ALL).help("every suite")]).collect::<Vec<_>>().into()
}

/// Measures, or lists.
///
/// # Errors
/// A file cannot be written or read, a measurement failed, or the user interrupted.
pub fn run(options: &MeasureArgs) -> Result<()> {
    if options.list {
        return output::print(&list(options));
    }
    options.into.check(FIGURES).map_err(wrong_argument)?;
    let opened = match &options.resume {
        Some(path) => Journal::resume(path).map(|journal| (journal, path.clone())),
        None => options.begin(),
    };
    let (mut journal, path) = opened.map_err(wrong_argument)?;
    let mut probes = options.wanted(&journal.head)?;
    let rounds = journal.head.rounds;
    sys::catch_interrupts()?;
    let lab = BenchLab::new("127.0.0.1", journal.head.seconds)?;
    let ended = rounds::take_turns(&lab, &mut probes, rounds, &mut journal);
    if sys::interrupted() {
        let _ = writeln!(
            io::stderr(),
            "weft bench: `weft bench --resume {}` goes on with it",
            path.display()
        );
    }
    ended?;
    hand_in(&journal, &path, &options.into)
}

fn hand_in(journal: &Journal, path: &Path, into: &IntoArgs) -> Result<()> {
    let text = summary::text(journal);
    // In a page the figures are parts of a section.
    if !into.write(FIGURES, &text.replace("\n## ", "\n### "))? {
        output::print(&text)?;
    }
    let _ = writeln!(io::stderr(), "The results are in {}.", path.display());
    match journal.failed.len() {
        0 => Ok(()),
        count => {
            let reasons = by_reason(journal.failed.iter());
            bail!("{count} measurements failed:\n{}", reasons.join("\n"))
        }
    }
}

impl MeasureArgs {
    /// The probes of the run that `head` describes. An `--only` of this call goes before that of
    /// the call that began the run.
    fn wanted(&self, head: &JournalHead) -> Result<Vec<Box<dyn BenchProbe>>> {
        let scope = Scope { quick: head.quick, seed: head.seed };
        let all = probes(chosen(&head.suites)?.iter().flat_map(|suite| suite.drafts(&scope)));
        rounds::named(all, self.only.as_deref().or(head.only.as_deref()))
    }

    /// A new file of results, and where it is.
    fn begin(&self) -> Result<(Journal, PathBuf)> {
        let scope = Scope { quick: self.quick, seed: self.seed };
        let (rounds, seconds) = if self.quick { LOOK } else { WHOLE };
        let suites = chosen(&self.suites)?;
        let drafts = suites.iter().flat_map(|suite| suite.drafts(&scope));
        let figures: Vec<Figure> = drafts.map(|draft| draft.figure).collect();
        let head = JournalHead {
            schema: SCHEMA,
            date: machine::date(),
            commit: machine::commit(),
            machine: machine::describe(),
            kernel: machine::kernel(),
            versions: machine::versions(),
            settings: machine::settings(),
            seed: self.seed,
            suites: suites.iter().map(|suite| suite.name.to_owned()).collect(),
            only: self.only.clone(),
            rounds: self.rounds.map_or(rounds, NonZeroUsize::get),
            seconds: self.seconds.unwrap_or(seconds),
            quick: self.quick,
            figures,
        };
        // No file is made for a run that measures nothing.
        self.wanted(&head)?;
        let name = format!("weft-bench-{}.jsonl", head.date.replace(':', ""));
        let path = self.out.clone().unwrap_or_else(|| PathBuf::from(name));
        Ok((Journal::create(&path, head)?, path))
    }
}

/// The suites of these names, each once, in their own order.
fn chosen(names: &[String]) -> Result<Vec<&'static BenchSuite>> {
    for name in names {
        let known = name == ALL || SUITES.iter().any(|suite| suite.name == name);
        ensure!(known, "there is no suite {name}; `weft bench --list` has them");
    }
    let wanted = |name: &str| names.iter().any(|wanted| wanted == name || wanted == ALL);
    Ok(SUITES.iter().filter(|suite| wanted(suite.name)).collect())
}

/// The probes of all drafts, each once.
fn probes(drafts: impl Iterator<Item = FigureDraft>) -> Vec<Box<dyn BenchProbe>> {
    let mut known = BTreeSet::new();
    drafts.flat_map(|draft| draft.probes).filter(|probe| known.insert(probe.name())).collect()
}

/// Every suite, its figures, and what is missing for them.
fn list(options: &MeasureArgs) -> String {
    let scope = Scope { quick: options.quick, seed: options.seed };
    let mut text = String::new();
    for suite in &SUITES {
        text += &format!("{}: {}\n", suite.name, suite.about);
        for FigureDraft { figure, probes } in suite.drafts(&scope) {
            let Figure { title, paper, .. } = &figure;
            text += &format!("    {title}\n        after {paper}; {} points\n", probes.len());
            for probe in &probes {
                text += &format!("            {}\n", probe.name());
            }
            let lacks: BTreeSet<String> = probes.iter().filter_map(|probe| probe.lacks()).collect();
            for lack in lacks {
                text += &format!("        lacking here: {lack}\n");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct MeasureCall {
        #[command(flatten)]
        options: MeasureArgs,
    }

    fn parsed(words: &[&str]) -> MeasureArgs {
        let words = std::iter::once("bench").chain(words.iter().copied());
        MeasureCall::try_parse_from(words).unwrap().options
    }

    #[test]
    fn names_of_measurements_are_listed_and_found_in_any_case() {
        let options = parsed(&["latency", "--quick", "--only", "SHUTTLE"]);
        let head = JournalHead {
            suites: vec!["latency".into()],
            quick: true,
            seed: options.seed,
            ..JournalHead::default()
        };
        let found = options.wanted(&head).unwrap();
        let listed = list(&options);
        assert!(found.iter().all(|probe| listed.contains(&probe.name())), "{listed}");
        let head = JournalHead { only: Some("nothing like it".into()), ..head };
        let error = parsed(&["latency"]).wanted(&head).err().unwrap().to_string();
        assert!(error.contains(&found[0].name()), "{error}");
    }

    #[test]
    fn a_resumed_run_measures_what_it_began_with() {
        let path = std::env::temp_dir().join(format!("weft-only-{}", std::process::id()));
        let file = path.to_str().unwrap();
        let names = |options: &MeasureArgs, head: &JournalHead| -> Vec<String> {
            options.wanted(head).unwrap().iter().map(|probe| probe.name()).collect()
        };
        let begun = parsed(&["latency", "--quick", "--only", "Shuttle", "--out", file]);
        let first = names(&begun, &begun.begin().unwrap().0.head);
        let resumed = parsed(&["--resume", file]);
        let mut head = Journal::resume(&path).unwrap().head;
        std::fs::remove_file(path).unwrap();
        assert_eq!(names(&resumed, &head), first);
        head.only = None;
        assert!(names(&resumed, &head).len() > first.len(), "a file without it has all");
    }

    #[test]
    fn suites_are_chosen_once_and_in_order() {
        let chosen = |names: &[&str]| -> Result<Vec<&str>> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Ok(super::chosen(&names)?.iter().map(|suite| suite.name).collect())
        };
        assert_eq!(chosen(&["api", "latency", "api"]).unwrap(), ["latency", "api"]);
        assert_eq!(chosen(&["all"]).unwrap().len(), SUITES.len());
        assert!(chosen(&["nothing"]).is_err());
    }

    #[test]
    fn shared_series_are_measured_once() {
        let scope = Scope { quick: false, seed: 1 };
        let drafts = || SUITES.iter().flat_map(|suite| suite.drafts(&scope));
        let all = drafts().map(|draft| draft.probes.len()).sum::<usize>();
        assert!(probes(drafts()).len() < all);
    }
}
