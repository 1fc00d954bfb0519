//! The `weft` command: runs programs over Weft (`run`), over an emulated WAN (`wan`), or in
//! simulation (`sim`).
//!
//! `weft run CMD` decides everything about CMD's environment first and then becomes CMD, so there
//! is nothing left of this process that could come between CMD and its caller; it stays only when
//! it is asked what CMD did ([`watch`]). Invariant: nothing
//! is printed on stdout that was not asked for, and the streams and signals that this process was
//! given reach CMD as they were.
#![cfg_attr(not(test), no_main)]
#![deny(unsafe_code)]

mod args;
mod capture;
mod carried;
mod cdi;
mod doctor;
#[cfg(test)]
mod documented;
mod elf;
mod far_end;
mod info;
mod key;
mod library;
mod observe;
mod perf;
mod preload;
mod program;
mod reference;
mod run;
mod run_log;
mod scenario;
mod stubs;
mod sys;
mod tally_file;
mod trace;
mod variables;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::{CommandFactory, Parser};
use degen::command::Launcher;

use crate::args::{CdiCommand, Cli, WeftCommand};

/// The exit status of a run that `--require-traffic` finds idle.
const NO_TRAFFIC: u8 = 123;
/// Exit status of a failure of `weft` itself and not of CMD, the same as that of `env` and `nohup`.
const OUR_FAILURE: u8 = 125;

/// Runs a command; returns the exit status. `run` returns only if it fails or stays as CMD's
/// parent.
fn weft(line: Vec<OsString>) -> u8 {
    let cli = match Cli::try_parse_from(&line) {
        Ok(cli) => cli,
        Err(answer) => return degen::command::print_answer(&answer),
    };
    match cli.command {
        WeftCommand::Run(run) => run::run(&run).unwrap_or_else(|failure| {
            run_log::fail(&format!("{:#}", failure.error));
            failure.status
        }),
        WeftCommand::Doctor(options) => doctor::main(&options).unwrap_or_else(failed),
        WeftCommand::Info(options) => status_of(info::main(&options)),
        WeftCommand::Wan(wan) => {
            run::allow_clear_text();
            degen::command::main(&Launcher::new(&["wan"]), *wan)
        }
        #[cfg(feature = "bench")]
        WeftCommand::Bench(bench) => {
            // Its files are removed at its end, whoever reads what it prints.
            sys::ignore_broken_pipes();
            weft_bench::command::main(&bench)
        }
        WeftCommand::Perf(perf) => perf::main(&perf, line.get(2..).unwrap_or_default()),
        WeftCommand::PerfInside(perf) => weft_perf::command::main(&perf),
        WeftCommand::Cp(cp) => over_ssh(|| weft_copy::command::main(&cp)),
        WeftCommand::Pipe(pipe) => over_ssh(|| weft_streams::command::pipe(&pipe)),
        WeftCommand::Forward(forward) => over_ssh(|| weft_streams::command::forward(&forward)),
        WeftCommand::FarEnd(options) => over_ssh(|| far_end::main(&options)),
        WeftCommand::Key(key) => status_of(key::key(&key.command)),
        WeftCommand::Cdi { command: CdiCommand::Generate(cdi) } => status_of(cdi::generate(&cdi)),
        WeftCommand::Sim(sim) => weft_sim::command::main(&sim).unwrap_or_else(failed),
        WeftCommand::Unpack { dir } => status_of(carried::write_into(&dir)),
        WeftCommand::Man { dir, markdown } => {
            status_of(write_pages(dir.as_deref(), markdown.as_deref()))
        }
        WeftCommand::Ss(options) => status_of(observe::ss::main(&options)),
        WeftCommand::Top(options) => status_of(observe::top::main(&options)),
        WeftCommand::Metrics(options) => status_of(observe::metrics::main(&options)),
        WeftCommand::Trace(options) => status_of(trace::main(&options)),
        WeftCommand::Completions { shell } => status_of(print_completions(shell)),
    }
}

/// Prints a script of `shell` that completes commands and options.
fn print_completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(&Cli::command()), "weft", &mut script);
    std::io::stdout().write_all(&script).context("writing to stdout")
}

/// Runs a command that writes to ssh, or to whoever reads what it prints: either may be gone.
fn over_ssh(command: impl FnOnce() -> u8) -> u8 {
    sys::ignore_broken_pipes();
    sys::open_streams();
    command()
}

/// Writes `weft.1` and a page for each command that is not hidden into `dir`, and the page of all
/// of them into `markdown`.
fn write_pages(dir: Option<&Path>, markdown: Option<&Path>) -> anyhow::Result<()> {
    if let Some(page) = markdown {
        let text = reference::page(Cli::command());
        std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))?;
    }
    let Some(dir) = dir else { return Ok(()) };
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("cannot write manual pages into {}", dir.display()))
}

/// `command` without the hidden ones of its subcommands, for shell completion.
fn visible(command: &clap::Command) -> clap::Command {
    let shown: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    if shown.is_empty() {
        return command.clone();
    }
    // Subcommands cannot be taken out of a command, so it is made anew, with what scripts are made
    // of. Names have to be static, and this process ends when it has printed the script.
    let name: &'static str = Box::leak(command.get_name().into());
    clap::Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().cloned())
        .subcommands(shown.into_iter().map(visible))
}

fn status_of(result: anyhow::Result<()>) -> u8 {
    result.map_or_else(failed, |()| 0)
}

fn failed(error: anyhow::Error) -> u8 {
    // Without a stderr the status alone must do.
    let _ = writeln!(std::io::stderr(), "weft: {error:#}");
    OUR_FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(line: &str) -> u8 {
        weft(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn usage_errors_are_ours() {
        for line in
            ["weft", "weft walk", "weft run", "weft run --bogus true", "weft run --log no x"]
        {
            assert_eq!(status(line), OUR_FAILURE, "{line}");
        }
    }

    #[test]
    fn every_command_that_is_shown_has_a_page() {
        let dir = std::env::temp_dir().join(format!("weft-man-{}", std::process::id()));
        assert_eq!(status(&format!("weft man {}", dir.display())), OUR_FAILURE, "no directory");
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(status(&format!("weft man {}", dir.display())), 0);
        let page = |name: &str| std::fs::read_to_string(dir.join(format!("{name}.1")));
        assert!(page("weft").unwrap().contains(env!("WEFT_VERSION")));
        for command in Cli::command().get_subcommands() {
            let shown = page(&format!("weft-{}", command.get_name())).is_ok();
            assert_eq!(shown, !command.is_hide_set(), "{}", command.get_name());
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn answers_are_not_errors() {
        assert_eq!(status("weft --version"), 0);
        assert_eq!(status("weft run --help"), 0);
    }
}
