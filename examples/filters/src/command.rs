//! What the commands of all programs of filters share: options, exit statuses, and the three ways
//! to run a chain.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::failure::Failure;
use crate::group::launch;
use crate::member::Member;
use crate::report::Report;
use crate::{Asked, Filter, Program, UnitSize, alone};

pub use crate::member::Ends;

/// The status of a program that failed.
pub const FAILED: u8 = 1;
/// The status of a filter that ended because another one failed.
pub const ELSEWHERE: u8 = 3;

/// How a query is asked.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The size of units of work: 1K, 8K, or octets from 1024 to 65536
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

/// A program and what it is to do.
pub struct Job<'a> {
    /// The program.
    pub program: &'a Program,
    /// How its query is asked.
    pub options: &'a Options,
    /// The query.
    pub query: Vec<u8>,
    /// Makes the filter of a name.
    pub filter: &'a dyn Fn(&str) -> Result<Box<dyn Filter>>,
}

impl Job<'_> {
    /// Runs the whole chain in this process, and prints the report.
    ///
    /// # Errors
    /// A filter fails.
    pub fn alone(&self) -> Result<ExitCode> {
        let filters = self.program.filters.iter().map(|name| (self.filter)(name));
        let report = alone(self.program, filters.collect::<Result<_>>()?, &self.asked())?;
        self.print(&report)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Runs each filter in a process of its own, which gets the arguments that this one had behind
    /// its command, and prints the report.
    ///
    /// # Errors
    /// A filter fails; if it did not say so itself.
    pub fn launch(&self) -> Result<ExitCode> {
        let arguments: Vec<OsString> = std::env::args_os().skip(2).collect();
        let Some(report) = launch(self.program, &arguments)? else {
            return Ok(FAILED.into());
        };
        print!("{report}");
        Ok(ExitCode::SUCCESS)
    }

    /// Runs the filter `name`.
    ///
    /// # Errors
    /// It fails itself; when another one does, unless `run` started this one, which it tells.
    pub fn filter(&self, name: &str, ends: &Ends) -> Result<ExitCode> {
        let index = self.program.filters.iter().position(|filter| *filter == name);
        let index = index.with_context(|| format!("there is no filter {name}"))?;
        let filter = (self.filter)(name).map_err(|error| error.context(name.to_owned()))?;
        let member = Member { program: self.program, index, ends, filter };
        let result = if index == 0 { member.ask(&self.asked()) } else { member.serve() };
        match result {
            Ok(report) if index == 0 => self.print(&report)?,
            Ok(_) => {}
            Err(error) if Failure::is_here(&error) => return Err(error),
            Err(error) if ends.launched => {
                println!("{error:#}");
                return Ok(ELSEWHERE.into());
            }
            Err(error) => {
                eprintln!("{}: {error:#}", self.program.name);
                return Ok(ELSEWHERE.into());
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn asked(&self) -> Asked {
        let Options { unit, repeat, .. } = *self.options;
        Asked { query: self.query.clone(), times: repeat, unit }
    }

    fn print(&self, report: &Report) -> Result<()> {
        match self.options.json {
            true => println!("{}", serde_json::to_string_pretty(report)?),
            false => print!("{}", report.text()),
        }
        Ok(())
    }
}

/// The exit status of `program`, whose error goes to stderr.
pub fn status(program: &Program, result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("{}: {error:#}", program.name);
        FAILED.into()
    })
}
