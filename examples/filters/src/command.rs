//! The command line that all programs of filters share: options, exit statuses, and the three ways
//! to run a chain. A program says by [`QueryArgs`] what is its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::failure::FilterFailure;
use crate::group::launch;
use crate::member::GroupMember;
use crate::report::GroupReport;
use crate::{Filter, FilterProgram, GroupQuery, UnitSize, alone};

pub use crate::member::StreamAddrs;

/// The status of a program that failed.
pub const FAILED: u8 = 1;
/// The status of a filter that ended because another one failed.
pub const ELSEWHERE: u8 = 3;

const STATUSES: &str = "\
EXIT STATUS
    0  The picture is written
    1  Something failed; stderr says in which filter, and why
    2  The command was called wrongly
    3  This filter ended because another one failed";

/// How a query is asked.
#[derive(Clone, Debug, Args)]
pub struct GroupOptions {
    /// The size of units of work: 1K, 8K, or bytes from 1024 to 65536
    #[arg(long, value_name = "SIZE", default_value = "8K")]
    pub unit: UnitSize,

    /// Ask the query so often, one after the other; each answer must be the same
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: u64,

    /// Where the last filter writes the picture
    #[arg(long, value_name = "FILE", default_value = "picture.png")]
    pub out: PathBuf,

    /// Report in JSON: an object with `seconds`, `units_per_second`, `megabytes_per_second` and
    /// `streams`
    #[arg(long)]
    pub json: bool,
}

/// What a program is asked, as its command line has it.
pub trait QueryArgs: Args {
    /// The program.
    const PROGRAM: FilterProgram;
    /// What it looks at: a file of this kind.
    const DATA: &'static str;
    /// Examples for its help.
    const EXAMPLES: &'static str;

    /// How the query is asked.
    fn options(&self) -> &GroupOptions;

    /// The query about `data`.
    ///
    /// # Errors
    /// It cannot be asked.
    fn query(&self, data: &Path) -> Result<Vec<u8>>;

    /// The filter `name`; the first one has `data`.
    ///
    /// # Errors
    /// The data cannot be had.
    fn filter(&self, name: &str, data: Option<&Path>) -> Result<Box<dyn Filter>>;
}

/// What stands behind a program's help.
pub fn sections<L: QueryArgs>() -> String {
    format!("{}\n\n{STATUSES}", L::EXAMPLES)
}

/// A query that all filters on this machine answer.
#[derive(Debug, Args)]
#[command(after_long_help = sections::<L>())]
pub struct GroupRunArgs<L: QueryArgs> {
    /// What to look at
    #[arg(value_name = L::DATA)]
    data: PathBuf,
    #[command(flatten)]
    look: L,
    /// Run all filters in one process, without sockets
    #[arg(long)]
    single: bool,
}

impl<L: QueryArgs> GroupRunArgs<L> {
    /// Runs the whole chain, and prints the report.
    ///
    /// # Errors
    /// A filter fails; if it did not say so itself.
    pub fn work(&self) -> Result<ExitCode> {
        let job = QueryJob::new(&self.look, Some(&self.data))?;
        if self.single { job.alone() } else { job.launch() }
    }
}

/// One filter of a query.
#[derive(Debug, Args)]
#[command(after_long_help = sections::<L>())]
pub struct One<L: QueryArgs> {
    /// Which one
    #[arg(value_parser = L::PROGRAM.filters.to_vec())]
    name: String,
    /// What to look at, for the first filter
    #[arg(value_name = L::DATA, required_if_eq("name", L::PROGRAM.filters[0]))]
    data: Option<PathBuf>,
    #[command(flatten)]
    ends: StreamAddrs,
    #[command(flatten)]
    look: L,
}

impl<L: QueryArgs> One<L> {
    /// Runs it.
    ///
    /// # Errors
    /// It fails itself; when another one does, unless `run` started this one, which it tells.
    pub fn work(&self) -> Result<ExitCode> {
        QueryJob::new(&self.look, self.data.as_deref())?.filter(&self.name, &self.ends)
    }
}

/// What is to be done.
struct QueryJob<'a, L> {
    look: &'a L,
    data: Option<&'a Path>,
    asked: GroupQuery,
}

impl<'a, L: QueryArgs> QueryJob<'a, L> {
    fn new(look: &'a L, data: Option<&'a Path>) -> Result<Self> {
        let query = data.map_or(Ok(Vec::new()), |data| look.query(data))?;
        let GroupOptions { unit, repeat, .. } = *look.options();
        Ok(Self { look, data, asked: GroupQuery { query, times: repeat, unit } })
    }

    fn make(&self, name: &str) -> Result<Box<dyn Filter>> {
        self.look.filter(name, self.data)
    }

    /// Runs the whole chain in this process.
    fn alone(&self) -> Result<ExitCode> {
        let filters = L::PROGRAM.filters.iter().map(|name| self.make(name));
        let report = alone(&L::PROGRAM, filters.collect::<Result<_>>()?, &self.asked)?;
        self.print(&report)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Runs each filter in a process of its own, which gets the arguments that this one had behind
    /// its command.
    fn launch(&self) -> Result<ExitCode> {
        let arguments: Vec<OsString> = std::env::args_os().skip(2).collect();
        let Some(report) = launch(&L::PROGRAM, &arguments)? else {
            return Ok(FAILED.into());
        };
        print!("{report}");
        Ok(ExitCode::SUCCESS)
    }

    fn filter(&self, name: &str, ends: &StreamAddrs) -> Result<ExitCode> {
        let index = L::PROGRAM.filters.iter().position(|filter| *filter == name);
        let index = index.with_context(|| format!("there is no filter {name}"))?;
        let filter = self.make(name).map_err(|error| error.context(name.to_owned()))?;
        let member = GroupMember { program: &L::PROGRAM, index, ends, filter };
        let result = if index == 0 { member.ask(&self.asked) } else { member.serve() };
        match result {
            Ok(report) if index == 0 => self.print(&report)?,
            Ok(_) => {}
            Err(error) if FilterFailure::is_here(&error) => return Err(error),
            Err(error) if ends.launched => {
                println!("{error:#}");
                return Ok(ELSEWHERE.into());
            }
            Err(error) => {
                eprintln!("{}: {error:#}", L::PROGRAM.name);
                return Ok(ELSEWHERE.into());
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, report: &GroupReport) -> Result<()> {
        match self.look.options().json {
            true => println!("{}", serde_json::to_string_pretty(report)?),
            false => print!("{}", report.text()),
        }
        Ok(())
    }
}

/// The exit status of `program`, whose error goes to stderr.
pub fn status(program: &FilterProgram, result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("{}: {error:#}", program.name);
        FAILED.into()
    })
}
