//! The command line, the same for `degen` and for `weft wan`.

mod children;
mod enter;
mod run;
mod standing;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueHint};

use crate::control::{self, ControlRequest};
use crate::measure;
use crate::profile;
use crate::spec::{PathSpec, SETTINGS, SpecError};
use crate::stats::PathReport;
use crate::wan::{Captures, PathSide};
use weft_units::{Bitrate, CONVENTION, NS_PER_SEC, number_fault, show_bytes, show_time};

/// The exit status of a failure that is ours and not CMD's, as `env` has it.
pub const OUR_FAILURE: u8 = 125;

/// The arguments.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = sections())]
pub struct DegenArgs {
    /// Something else than to run CMD
    #[command(subcommand)]
    what: Option<DegenCommand>,

    #[command(flatten)]
    path: PathArgs,

    /// The program for the near side, and its arguments; a shell if there is none
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// A path, and what goes with it.
#[derive(Clone, Debug, Args)]
struct PathArgs {
    /// The path: `70ms 0.1% 1gbit`, a profile, a .toml file, or KEY=VALUE
    #[arg(value_name = "SPEC")]
    spec: Vec<String>,

    /// A second path beside it, in the same words: '20ms 100mbit'
    #[arg(long, value_name = "SPEC", value_parser = second_spec)]
    second: Option<SecondPath>,

    /// What to run on the far side, by sh; CMD starts when it listens
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    server: Option<String>,

    /// Name of the path, for `exec`, `stat` and `down`
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Write a report in JSON here in the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Print a report on stderr in the end
    #[arg(long)]
    report: bool,

    /// Write the packets at the near side here, as pcapng
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pcap_near: Option<PathBuf>,

    /// Write the packets at the far side here, as pcapng
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pcap_far: Option<PathBuf>,
}

/// The second path, as it was written and as it was understood.
#[derive(Clone, Debug)]
struct SecondPath {
    text: String,
    spec: PathSpec,
}

fn second_spec(text: &str) -> Result<SecondPath, SpecError> {
    let words: Vec<String> = text.split_whitespace().map(String::from).collect();
    Ok(SecondPath { text: text.into(), spec: PathSpec::parse(&words)? })
}

#[derive(Debug, Subcommand)]
enum DegenCommand {
    /// Make a path that stays until `down`
    Up {
        #[command(flatten)]
        path: PathArgs,
    },
    /// Become CMD on one side of a path that is up
    Exec {
        /// Which path, if several are up
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Which side
        #[arg(default_value = "near")]
        side: PathSide,
        /// The program and its arguments; a shell if there is none
        #[arg(last = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// End a path that is up
    Down {
        /// Which path, if several are up
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Say how a path is doing: rate, queue, drops
    Stat {
        /// Which path, if several are up
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// In JSON
        #[arg(long)]
        json: bool,
    },
    /// Name the paths that are up
    List,
    /// Print the profiles, as the TOML that they are
    Profiles,
    /// Measure what the router itself can do on this machine
    Ceiling {
        /// How long each measurement takes, in seconds
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// In JSON
        #[arg(long)]
        json: bool,
    },
    #[command(hide = true)]
    Serve {
        #[command(flatten)]
        path: PathArgs,
    },
    #[command(hide = true)]
    Enter(enter::Enter),
}

/// How this program calls itself.
#[derive(Clone, Debug)]
pub struct Launcher {
    words: Vec<OsString>,
}

impl Launcher {
    /// `words` stand between the program and its subcommands: none for `degen`, `wan` for `weft`.
    pub fn new(words: &[&str]) -> Self {
        Self { words: words.iter().map(OsString::from).collect() }
    }

    /// This program, about to be called with one of its subcommands.
    fn call(&self, subcommand: &str) -> Result<std::process::Command> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = std::process::Command::new(program);
        command.args(&self.words).arg(subcommand);
        Ok(command)
    }
}

/// Prints what the parser of a command line answers, help or an error; returns the exit status.
pub fn print_answer(answer: &clap::Error) -> u8 {
    let source = std::error::Error::source(answer);
    let fault = source.and_then(|source| Some((source.to_string(), number_fault(source)?)));
    // A closed stdout or stderr leaves nowhere to say so.
    let _ = match fault {
        Some((theirs, ours)) => {
            let text = answer.render().to_string().replace(&theirs, ours);
            std::io::stderr().write_all(text.as_bytes())
        }
        None => answer.print(),
    };
    if answer.use_stderr() { OUR_FAILURE } else { 0 }
}

fn is_out_of_files(cause: &(dyn std::error::Error + 'static)) -> bool {
    let code = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    code == Some(rustix::io::Errno::MFILE.raw_os_error())
}

/// Says `text` on stderr, under the name that the command of [`DegenArgs`] belongs to. Without a
/// stderr the exit status alone must do.
fn tell(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "weft: {text}");
}

/// Does what the arguments say; the result is the exit status. The process has one thread.
pub fn main(launcher: &Launcher, command: DegenArgs) -> u8 {
    match dispatch(launcher, command) {
        Ok(status) => status,
        Err(error) => {
            let needs_files = error.chain().any(is_out_of_files);
            let advice = if needs_files { "; raise the limit of them (ulimit -n)" } else { "" };
            tell(format_args!("{error:#}{advice}"));
            OUR_FAILURE
        }
    }
}

fn dispatch(launcher: &Launcher, command: DegenArgs) -> Result<u8> {
    let Some(what) = command.what else {
        return run::run(launcher, &command.path, &or_shell(command.command));
    };
    let directory = control::directory;
    let chosen = |name: Option<String>| {
        let directory = directory()?;
        let name = control::choose(&directory, name.as_deref())?;
        anyhow::Ok((directory, name))
    };
    match what {
        DegenCommand::Up { path } => return standing::up(launcher, &path),
        DegenCommand::Serve { path } => standing::serve(launcher, &path)?,
        DegenCommand::Exec { name, side, command } => {
            let (directory, name) = chosen(name)?;
            return enter::exec(&directory, &name, side, &or_shell(command));
        }
        DegenCommand::Enter(enter) => return enter.run(),
        DegenCommand::Down { name } => {
            let (directory, name) = chosen(name)?;
            control::call(&directory, &name, ControlRequest::Down)?;
        }
        DegenCommand::Stat { name, json } => {
            let (directory, name) = chosen(name)?;
            let request = if json { ControlRequest::Stat } else { ControlRequest::Show };
            print(&control::call(&directory, &name, request)?)?;
        }
        DegenCommand::List => print(&lines(&control::names(&directory()?)))?,
        DegenCommand::Profiles => print(profile::BUILT_IN)?,
        DegenCommand::Ceiling { seconds, json } => {
            let ceiling = measure::ceiling(seconds * NS_PER_SEC)?;
            let text =
                if json { serde_json::to_string_pretty(&ceiling)? } else { ceiling.to_string() };
            print(&text)?;
        }
    }
    Ok(0)
}

impl PathArgs {
    fn spec(&self) -> Result<PathSpec> {
        Ok(PathSpec::parse(&self.spec)?)
    }

    fn second_spec(&self) -> Option<PathSpec> {
        self.second.as_ref().map(|second| second.spec.clone())
    }

    fn captures(&self) -> Captures {
        Captures { near: self.pcap_near.clone(), far: self.pcap_far.clone() }
    }

    /// Whether each file that is to be written has a name of its own.
    fn check_files(&self) -> Result<()> {
        let files = [&self.pcap_near, &self.pcap_far, &self.json].map(Option::as_ref);
        let named: Vec<_> = files.into_iter().flatten().collect();
        let twice = named.iter().enumerate().find(|(index, file)| named[..*index].contains(file));
        match twice {
            Some((_, file)) => bail!("{} is to be two files; name another", file.display()),
            None => Ok(()),
        }
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("wan-{}", std::process::id()))
    }

    /// The arguments that these came from.
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.spec.iter().map(OsString::from).collect();
        let mut option = |name: &str, value: Option<OsString>| {
            words.extend(value.into_iter().flat_map(|value| [OsString::from(name), value]));
        };
        option("--second", self.second.as_ref().map(|second| OsString::from(&second.text)));
        option("--server", self.server.clone().map(OsString::from));
        option("--name", self.name.clone().map(OsString::from));
        option("--json", self.json.clone().map(OsString::from));
        option("--pcap-near", self.pcap_near.clone().map(OsString::from));
        option("--pcap-far", self.pcap_far.clone().map(OsString::from));
        words.extend(self.report.then(|| "--report".into()));
        words
    }
}

fn or_shell(command: Vec<OsString>) -> Vec<OsString> {
    if !command.is_empty() {
        return command;
    }
    vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())]
}

fn lines(names: &[String]) -> String {
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// Prints what was asked for, as whole lines; a reader that has had enough is no failure.
fn print(text: &str) -> Result<()> {
    let is_whole = text.is_empty() || text.ends_with('\n');
    let end = if is_whole { "" } else { "\n" };
    match write!(std::io::stdout(), "{text}{end}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A report for people.
fn describe(report: &PathReport) -> String {
    let seconds = report.elapsed_ns as f64 / NS_PER_SEC as f64;
    let mut text = format!("{}; up for {seconds:.1} s\n", report.path);
    text += &format!("{:<26}{:>16}{:>16}\n", "", "forward", "back");
    let mut row = |name: &str, of: &dyn Fn(&crate::stats::DirectionStats) -> String| {
        text += &format!("{name:<26}{:>16}{:>16}\n", of(&report.forward), of(&report.back));
    };
    row("packets offered", &|way| way.link.offered.to_string());
    row("packets delivered", &|way| way.link.delivered.to_string());
    row("mean rate delivered", &|way| {
        let bps = way.link.delivered_bytes as f64 * 8.0 / seconds;
        if bps < 1.0 { "0".into() } else { Bitrate::new(bps as u64).to_string() }
    });
    row("queue now", &|way| show_bytes(way.queue_bytes));
    row("queue at most", &|way| show_bytes(way.link.queue_bytes_peak));
    row("dropped, queue full", &|way| way.link.dropped_queue.to_string());
    row("dropped by the policer", &|way| way.link.dropped_policer.to_string());
    row("lost at random", &|way| way.link.lost.to_string());
    row("lost in an outage", &|way| way.link.lost_outage.to_string());
    row("reordered", &|way| way.link.reordered.to_string());
    row("duplicated", &|way| way.link.duplicated.to_string());
    row("corrupted", &|way| way.link.corrupted.to_string());
    row("marked", &|way| way.link.marked.to_string());
    row("handed on late, median", &|way| show_time(way.late.p50_ns));
    row("handed on late, 99 %", &|way| show_time(way.late.p99_ns));
    row("router's processor time", &|way| show_time(way.cpu_ns));
    text += &lines(&report.complaints);
    text += &lines(&report.failures);
    if let Some(second) = &report.second {
        text += &format!("\nThe second path: {}", describe(second));
    }
    text
}

fn sections() -> String {
    let settings: String = SETTINGS
        .iter()
        .map(|(key, value, about)| format!("    {:<26} {about}\n", format!("{key}={value}")))
        .collect();
    let units: String = CONVENTION.lines().map(|line| format!("    {line}\n")).collect();
    format!("{EXAMPLES}\n\nSETTINGS\n{settings}\nUNITS\n{units}{NOTES}")
}

const EXAMPLES: &str = "\
EXAMPLES
    TCP over 70 ms, 0.1 % loss, 1 Gbit/s:
        weft wan 70ms 0.1% 1gbit --server 'iperf3 -s' -- iperf3 -c 10.77.0.2 -t 20

    Two shells, in two terminals:
        weft wan transatlantic
        weft wan exec far

    Two paths between the same hosts, used by one connection:
        export WEFT_MULTIPATH=on
        weft wan 40ms 100mbit --second '20ms 50mbit' \\
            --server 'weft run ib_write_bw' -- weft run ib_write_bw 10.77.0.2

    A path that stays:
        weft wan up satellite --name sky
        weft wan exec --name sky -- ping 10.77.0.2
        weft wan stat sky
        weft wan down sky";

const NOTES: &str = "
    `forward:` or `back:` before a setting means that direction only: back:rate=10mbit
    `outage` and `step` add up; other settings override those before them.

PROFILES
    Sets of settings with a name; `weft wan profiles` prints them. A SPEC that ends in .toml is a
    file in the same form.

THE TWO SIDES
    near  10.77.0.1  fd77::1  where CMD runs
    far   10.77.0.2  fd77::2  where --server and `exec far` run
    Each is a network of its own, with nothing but the path and a loopback. With --second there
    is another path between 10.77.1.1 and 10.77.1.2, fd77:0:0:1::1 and fd77:0:0:1::2. Programs
    find the addresses of the first one in WAN_NEAR, WAN_FAR, WAN_NEAR6 and WAN_FAR6, and their
    side in WAN_SIDE. What still runs on either side when CMD ends is killed. Without root,
    programs see themselves as root of a user namespace; files stay the user's own.

EXIT STATUS
    125  the WAN could not be made, or was called wrongly
    126  CMD was found but could not be executed
    127  CMD was not found
    Otherwise the status is CMD's own, or 128 and the number of the signal that ended it.";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        command: DegenArgs,
    }

    fn parse(line: &str) -> DegenArgs {
        Whole::try_parse_from(line.split_whitespace()).unwrap().command
    }

    #[test]
    fn the_definition_is_sound() {
        Whole::command().debug_assert();
    }

    #[test]
    fn words_before_the_dashes_are_the_path() {
        let command = parse("wan 70ms 0.1% 1gbit --name a -- ping -c 1 -- x");
        assert_eq!(command.path.spec, ["70ms", "0.1%", "1gbit"]);
        assert_eq!(command.command, ["ping", "-c", "1", "--", "x"]);
        assert!(command.what.is_none());
        assert!(matches!(parse("wan down sky").what, Some(DegenCommand::Down { name: Some(_) })));
        assert!(matches!(
            parse("wan exec far -- ls").what,
            Some(DegenCommand::Exec { side: PathSide::Far, .. })
        ));
    }

    #[test]
    fn arguments_can_be_handed_on() {
        let line = "wan up 70ms --second 20ms --server s --name a --json j --pcap-near n \
            --pcap-far f --report";
        let Some(DegenCommand::Up { path }) = parse(line).what else { panic!() };
        let words = path.words();
        let given: Vec<&str> = line.split_whitespace().skip(2).collect();
        assert_eq!(words, given);
    }

    #[test]
    fn the_help_has_every_setting() {
        let help = Whole::command().render_long_help().to_string();
        assert!(SETTINGS.iter().all(|(key, ..)| help.contains(key)), "{help}");
    }
}
