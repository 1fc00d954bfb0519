//! The command line, for the program of this crate and for `weft sim`.

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;
use weft_chart::MarkedPage;

use crate::batch::simulate_all;
use crate::picture;
use crate::plan::SimPlan;
use crate::report::TargetVerdict;
use crate::run::RunOutcome;
use crate::scenarios::{self, SCENARIOS};

/// Simulate rate control over long and lossy paths
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SimArgs {
    #[command(subcommand)]
    what: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Simulate a scenario or a plan
    #[command(after_long_help = RUN_SECTIONS)]
    Run(RunArgs),
    /// Name the scenarios
    List,
    /// Print a scenario as the plan that it is
    Show {
        /// Its name
        #[arg(value_name = "SCENARIO")]
        scenario: String,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// A scenario's name, or a plan in a file that ends in .toml
    #[arg(value_name = "SCENARIO|PLAN.toml")]
    plan: String,
    /// Random seed, instead of that of the plan
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write everything that was measured here
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write pictures into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    svg: Option<PathBuf>,
    /// Put the tables into their place in this page of Markdown, between `<!-- SCENARIO -->` and
    /// `<!-- end of SCENARIO -->`
    #[arg(long, value_name = "PAGE", value_hint = ValueHint::FilePath)]
    into: Option<PathBuf>,
    /// How many runs at once [default: one for each CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

const EXAMPLES: &str = "\
EXAMPLES
    weft sim list
    weft sim run loss --json loss.json --svg pictures
    weft sim show loss > mine.toml
    weft sim run mine.toml --seed 7
    weft sim run loss --into docs/simulator.md";

const RUN_SECTIONS: &str = "\
EXIT STATUS
    0    All is written, and the plan's targets, if it has any, are reached
    1    All is written, and a target is missed
    125  weft itself failed, or was called wrongly";

/// The exit status where a target is missed.
const MISSED: u8 = 1;

/// Does what the arguments say; gives the exit status.
///
/// # Errors
/// A plan that cannot be read or makes no sense, or a file that cannot be written.
pub fn main(command: &SimArgs) -> Result<u8> {
    match &command.what {
        SimCommand::Run(args) => return run(args),
        SimCommand::List => list()?,
        SimCommand::Show { scenario } => {
            let text = scenarios::find(scenario);
            print(text.with_context(|| no_scenario(scenario))?)?;
        }
    }
    Ok(0)
}

fn list() -> Result<()> {
    let lines = SCENARIOS
        .iter()
        .map(|(name, text)| Ok(format!("{name:<14} {}\n", SimPlan::parse(text)?.about)));
    print(&lines.collect::<Result<String>>()?)
}

fn run(args: &RunArgs) -> Result<u8> {
    let mut plan = SimPlan::parse(&text_of(&args.plan)?).with_context(|| args.plan.clone())?;
    plan.seed = args.seed.unwrap_or(plan.seed);
    let runs = plan.runs().with_context(|| args.plan.clone())?;
    check_outputs(args)?;
    check_page(args, &plan)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let progress = SimProgress::new(runs.len());
    let jobs = args.jobs.map_or(processors, usize::from);
    let outcomes = simulate_all(&runs, jobs, &|number, part| progress.hear(number, part))?;
    progress.end();
    let verdicts = plan.targets.iter().filter_map(|target| target.judge(&outcomes));
    let results = PlanResults {
        name: &plan.name,
        about: &plan.about,
        published: &plan.published,
        targets: verdicts.collect(),
        outcomes: &outcomes,
    };
    if let Some(path) = &args.json {
        write(path, &(serde_json::to_string(&results)? + "\n"))?;
    }
    if let Some(directory) = &args.svg {
        draw(directory, &plan.name, &outcomes)?;
    }
    print(&text(&plan, &results))?;
    if let Some((page, tables)) = args.into.as_ref().zip(plan.page(&outcomes)) {
        // Read again: others may have changed it while this ran.
        MarkedPage::read(page)?.put(&plan.name, &tables)?;
    }
    let is_reached = results.targets.iter().all(|target| target.is_reached);
    Ok(if is_reached { 0 } else { MISSED })
}

/// Fails for outputs that cannot be written, before the runs, which may take long.
fn check_outputs(args: &RunArgs) -> Result<()> {
    if let Some(path) = &args.json {
        let is_new = !path.exists();
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.with_context(|| cannot_write(path))?;
        if is_new {
            // An interrupted call leaves no empty file.
            std::fs::remove_file(path).with_context(|| cannot_write(path))?;
        }
    }
    args.svg.as_deref().map_or(Ok(()), make_directory)
}

/// Fails where the tables have no place, before the runs too.
fn check_page(args: &RunArgs, plan: &SimPlan) -> Result<()> {
    let Some(page) = &args.into else { return Ok(()) };
    ensure!(plan.page_tables().next().is_some(), "{}: no [[table]] is for a page", args.plan);
    Ok(MarkedPage::read(page)?.check(&plan.name)?)
}

/// All that came out of a plan.
#[derive(Debug, Serialize)]
struct PlanResults<'a> {
    name: &'a str,
    about: &'a str,
    published: &'a [String],
    targets: Vec<TargetVerdict>,
    outcomes: &'a [RunOutcome],
}

fn text_of(plan: &str) -> Result<String> {
    if Path::new(plan).extension().is_some_and(|extension| extension == "toml") {
        return degen::files::read_settings(Path::new(plan))
            .with_context(|| format!("cannot read {plan}"));
    }
    match scenarios::find(plan) {
        Some(text) => Ok(text.to_owned()),
        None => bail!("{}, and the file of a plan ends in .toml", no_scenario(plan)),
    }
}

fn no_scenario(name: &str) -> String {
    format!("there is no scenario `{name}`; `weft sim list` names them")
}

fn draw(directory: &Path, name: &str, outcomes: &[RunOutcome]) -> Result<()> {
    make_directory(directory)?;
    for outcome in outcomes {
        write(&directory.join(picture_file(&outcome.name)), &picture::over_time(outcome))?;
    }
    let varied = outcomes.first().into_iter().flat_map(|outcome| outcome.values.keys());
    for along in varied {
        if let Some(svg) = picture::shares(name, outcomes, along) {
            write(&directory.join(picture_file(&format!("{name}-by-{along}"))), &svg)?;
        }
    }
    Ok(())
}

/// The name of a picture's file: in its directory, whatever a plan calls itself and its values.
fn picture_file(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && !".-_".contains(c), "-") + ".svg"
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| cannot_write(path))
}

fn make_directory(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Prints what was asked for; a reader that has had enough is no failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The outcomes for people: each run, tables, targets, and what others have published.
fn text(plan: &SimPlan, results: &PlanResults<'_>) -> String {
    let outcomes = results.outcomes;
    let width = outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or(0);
    let mut text = format!("{} (seed {})\n", plan.about, plan.seed);
    text += &format!(
        "{:width$}  ceiling  payload Mbit/s  t90 ms  queue mean/p99 ms  sent/lost  flows\n",
        ""
    );
    for outcome in outcomes {
        text += &row(outcome, width);
    }
    for table in &plan.tables {
        text += &format!("\n{}", table.markdown(outcomes));
    }
    if !plan.tables.is_empty() && !results.targets.is_empty() {
        text.push('\n');
    }
    text += &results.targets.iter().map(TargetVerdict::line).collect::<String>();
    text += &plan.published.iter().map(|line| format!("published: {line}\n")).collect::<String>();
    text
}

fn row(outcome: &RunOutcome, width: usize) -> String {
    let total = &outcome.total;
    let payload: u64 = outcome.flows.iter().map(|flow| flow.payload_bps).sum();
    let t90 = total.t90_ns.map_or("-".into(), |t90_ns| (t90_ns / 1_000_000).to_string());
    let queue = outcome.links.iter().max_by_key(|link| link.queue_mean_ns);
    let queue = queue.map_or(String::new(), |link| {
        let ms = |ns: u64| ns as f64 / 1e6;
        format!("{:.2}/{:.2}", ms(link.queue_mean_ns), ms(link.queue_p99_ns))
    });
    let resent = total.resent_per_loss.map_or("-".into(), |share| format!("{share:.3}"));
    let groups = outcome.groups.iter().map(|group| {
        let share = group.share * 100.0;
        format!("{} {} {share:.1}% Jain {:.3}", group.flows, group.label, group.jain)
    });
    format!(
        "{:<width$}  {:7.4}  {:14.2}  {t90:>6}  {queue:>17}  {resent:>9}  {}\n",
        outcome.name,
        total.share_of_ceiling,
        payload as f64 / 1e6,
        groups.collect::<Vec<_>>().join(", ")
    )
}

/// How far the runs are: in place on a terminal, as a line now and then in a log.
struct SimProgress {
    began: Instant,
    state: Mutex<(Vec<f64>, Instant)>,
    is_terminal: bool,
}

/// Time between two updates of a terminal, and between two lines of a log.
const SHOW_EVERY: Duration = Duration::from_millis(200);
const LOG_EVERY: Duration = Duration::from_secs(15);

impl SimProgress {
    fn new(runs: usize) -> Self {
        let now = clock();
        let is_terminal = std::io::stderr().is_terminal();
        Self { began: now, state: Mutex::new((vec![0.0; runs], now)), is_terminal }
    }

    fn hear(&self, number: usize, part: f64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (parts, shown) = &mut *state;
        parts[number] = part;
        let now = clock();
        let every = if self.is_terminal { SHOW_EVERY } else { LOG_EVERY };
        if now - *shown < every {
            return;
        }
        *shown = now;
        let line = progress_line(parts, now - self.began);
        // Without a stderr there is nobody to tell.
        let _ = if self.is_terminal {
            write!(std::io::stderr(), "\r\x1b[K{line}")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
    }

    fn end(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn progress_line(parts: &[f64], elapsed: Duration) -> String {
    let done = parts.iter().sum::<f64>() / parts.len() as f64;
    let left_s = elapsed.as_secs_f64() * (1.0 - done) / done.max(1e-6);
    let ended = parts.iter().filter(|part| **part >= 1.0).count();
    format!("{:.0}%, {ended} of {} runs, {left_s:.0} s left", done * 100.0, parts.len())
}

#[expect(clippy::disallowed_methods, reason = "people wait by the clock; simulations do not")]
fn clock() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        command: SimArgs,
    }

    #[test]
    fn the_definition_is_sound() {
        Whole::command().debug_assert();
        let line = "x run loss --seed 3 --jobs 2 --svg d --json f";
        let command = Whole::try_parse_from(line.split(' ')).unwrap().command;
        assert!(matches!(command.what, SimCommand::Run(RunArgs { seed: Some(3), .. })));
    }

    #[test]
    fn a_picture_stays_in_its_directory() {
        assert_eq!(picture_file("../a/b 1%"), "..-a-b-1-.svg");
        assert_eq!(picture_file("long-fat-by-loss"), "long-fat-by-loss.svg");
    }

    #[test]
    fn an_output_that_is_checked_is_left_as_it_was() {
        let path = std::env::temp_dir().join(format!("weft-sim-json-{}", std::process::id()));
        let line = format!("x run loss --json {}", path.display());
        let command = Whole::try_parse_from(line.split(' ')).unwrap().command;
        let SimCommand::Run(args) = command.what else { panic!("{command:?}") };
        check_outputs(&args).unwrap();
        assert!(!path.exists(), "an interrupted call would leave it");
        std::fs::write(&path, "earlier").unwrap();
        check_outputs(&args).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "earlier");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn progress_is_said_in_a_line() {
        let line = progress_line(&[1.0, 0.5, 0.0, 0.5], Duration::from_secs(10));
        assert_eq!(line, "50%, 1 of 4 runs, 10 s left");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = text_of("nothing").unwrap_err().to_string();
        assert!(error.contains("`nothing`") && error.contains("list"), "{error}");
    }
}
