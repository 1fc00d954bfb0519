//! `weft cp`: its arguments, and the near end.
//!
//! Invariant: nothing is printed on stdout but what was asked for, and each end has one line.
//!
//! Order: [`main`] is all.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum, ValueHint};
use weft_os::{own_file, sys};
use weft_session::SshArgs;
use weft_session::client::{self, FarSession};
use weft_units::Bitrate;

use crate::asked_names::AskedNames;
use crate::messages::{CopyOptions, CopyRequest};
use crate::meter::{Meter, ShowStyle, get};
use crate::path_set::PathSet;
use crate::rel_path::escape;
use crate::target::CopyTarget;
use crate::{byte_stream, receive, relay, send};

/// Status of a copy of which some files were left out.
const SOME_FAILED: u8 = 1;
/// Status of a copy that ended early.
const ENDED_EARLY: u8 = 2;
/// Status of a command that cannot mean anything.
const USAGE: u8 = 125;

/// First byte of the first message of a channel that a copy goes over.
pub const SERVICE: u8 = b'C';

/// The arguments of `weft cp`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = SECTIONS, override_usage = "weft cp [OPTIONS] <SRC>... <DST>")]
pub struct CpArgs {
    /// Copy directories with all that is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Print what would be copied, and copy nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print only errors
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// Print events on stdout, one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// The most to send: 200mbit, 1.5gbit
    #[arg(long, value_name = "RATE")]
    pub limit: Option<Bitrate>,
    /// Compare files of the same size by content instead of by time
    #[arg(long)]
    pub checksum: bool,
    /// When a piece counts as there: once its hash is right as it is written, or as it is read back
    #[arg(long, value_name = "WHEN", default_value = "written")]
    pub verify: VerifyWhen,
    /// Copy extended attributes too, those of the namespace `user`
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// How the far end is reached
    #[command(flatten)]
    pub ssh: SshArgs,
    /// What to copy, and last where to: PATH, HOST:PATH, USER@HOST:PATH, or - for stdin or stdout
    #[arg(
        required = true,
        num_args = 2..,
        value_names = ["SRC", "DST"],
        value_hint = ValueHint::AnyPath
    )]
    pub paths: Vec<OsString>,
}

/// When a piece counts as there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifyWhen {
    /// As it is written
    Written,
    /// As it is read back from the disk
    Disk,
}

/// What goes where.
#[derive(Debug, PartialEq, Eq)]
enum CopyRoute {
    Up {
        sources: Vec<Vec<u8>>,
        host: String,
        destination: Vec<u8>,
    },
    Down {
        groups: Vec<(String, Vec<Vec<u8>>)>,
        destination: Vec<u8>,
    },
    Across {
        groups: Vec<(String, Vec<Vec<u8>>)>,
        host: String,
        destination: Vec<u8>,
    },
    /// Standard input into a file at a host.
    FromStdin {
        host: String,
        destination: Vec<u8>,
    },
    /// A file at a host to standard output.
    ToStdout {
        host: String,
        source: Vec<u8>,
    },
}

/// Copies; gives the exit status.
pub fn main(args: &CpArgs) -> u8 {
    let meter = Meter::new(args.style(), args.dry_run);
    let route = match route(&args.paths).and_then(|route| args.check(route)) {
        Ok(route) => route,
        Err(error) => {
            meter.end(Err(&format!("{error:#}")));
            return USAGE;
        }
    };
    // Files wait with the descriptors of their directories.
    sys::raise_descriptor_limit();
    own_file::ignore_limit_signal();
    match meter.shown(|| copy(args, &route, &meter)) {
        Err(error) => {
            meter.end(Err(&format!("{error:#}")));
            ENDED_EARLY
        }
        Ok(()) => {
            meter.end(Ok(()));
            let is_whole = get(&meter.failed) == 0 && !meter.complains_of_stdout();
            if is_whole { 0 } else { SOME_FAILED }
        }
    }
}

impl CpArgs {
    fn style(&self) -> ShowStyle {
        match (self.json, self.quiet) {
            (true, _) => ShowStyle::Json,
            (_, true) => ShowStyle::Quiet,
            _ if std::io::stderr().is_terminal() => ShowStyle::Bar,
            _ => ShowStyle::Lines,
        }
    }

    /// Refuses what would mix with a stream, or has no meaning for one.
    fn check(&self, route: CopyRoute) -> Result<CopyRoute> {
        let is_stdout = matches!(route, CopyRoute::ToStdout { .. });
        let is_stream = is_stdout || matches!(route, CopyRoute::FromStdin { .. });
        ensure!(!(self.json && is_stdout), "--json and the file would both go to stdout");
        ensure!(!(self.dry_run && is_stream), "-n lists files, and `-` is a stream");
        let reads_back = self.verify == VerifyWhen::Disk;
        ensure!(!(reads_back && is_stream), "--verify disk is for files, and `-` is a stream");
        if let CopyRoute::Up { sources, .. } = &route {
            check_sources(sources)?;
        }
        Ok(route)
    }

    fn options(&self) -> CopyOptions {
        CopyOptions {
            recursive: self.recursive,
            checksum: self.checksum,
            read_back: self.verify == VerifyWhen::Disk,
            dry_run: self.dry_run,
            xattrs: self.xattrs,
            limit_bps: self.limit.map(Bitrate::bps),
        }
    }
}

/// Fails if there is none of the files to send, before another host is asked for anything.
fn check_sources(sources: &[Vec<u8>]) -> Result<()> {
    let mut missing = Ok(());
    for source in sources {
        let path = Path::new(OsStr::from_bytes(source));
        match path.symlink_metadata() {
            Ok(_) => return Ok(()),
            Err(error) => {
                missing =
                    missing.and(Err(error).context(format!("cannot read {}", escape(source))));
            }
        }
    }
    missing
}

fn copy(args: &CpArgs, route: &CopyRoute, meter: &Meter) -> Result<()> {
    let options = args.options();
    let start = |host: &str, request: &CopyRequest| start(args, host, request, meter);
    let ask_for = |sources: &[Vec<u8>]| CopyRequest::Send {
        sources: sources.to_vec(),
        options: options.clone(),
    };
    match route {
        CopyRoute::Up { sources, host, destination } => {
            let destination = destination.clone();
            let request = CopyRequest::Receive { destination, options: options.clone() };
            let session = start(host, &request)?;
            send::send(session.channel(), sources, &options, meter).context(host.clone())?;
            session.leave();
            Ok(())
        }
        CopyRoute::Down { groups, destination } => {
            let taken = (groups.len() > 1).then(PathSet::default);
            groups.iter().try_for_each(|(host, sources)| {
                let session = start(host, &ask_for(sources))?;
                let (asked, taken) = (AskedNames::of(sources, options.recursive), taken.as_ref());
                let channel = session.channel();
                receive::receive(channel, destination, &options, Some(asked), taken, meter)?;
                // All is there and durable, whether the far end hears it in time or not.
                let _ = session.close();
                Ok(())
            })
        }
        CopyRoute::FromStdin { host, destination } => {
            let request = CopyRequest::ReceiveStream { destination: destination.clone() };
            let session = start(host, &request)?;
            let (input, limit) = (std::io::stdin().lock(), options.limit_bps);
            byte_stream::send(session.channel(), input, limit, meter).context(host.clone())?;
            session.close()
        }
        CopyRoute::ToStdout { host, source } => {
            let limit_bps = options.limit_bps;
            let session =
                start(host, &CopyRequest::SendStream { source: source.clone(), limit_bps })?;
            let output = std::io::stdout().lock();
            byte_stream::receive(session.channel(), output, meter).context(host.clone())?;
            session.close()
        }
        CopyRoute::Across { groups, host, destination } => {
            let taken = (groups.len() > 1).then(PathSet::default);
            groups.iter().try_for_each(|(from, sources)| {
                let destination = destination.clone();
                let request = CopyRequest::Receive { destination, options: options.clone() };
                let receiver = start(host, &request)?;
                let sender = start(from, &ask_for(sources))?;
                let (asked, taken) = (AskedNames::of(sources, options.recursive), taken.as_ref());
                relay::relay(sender.channel(), receiver.channel(), &asked, taken, meter)?;
                sender.close()?;
                receiver.close()
            })
        }
    }
}

fn start(args: &CpArgs, host: &str, request: &CopyRequest, meter: &Meter) -> Result<FarSession> {
    let session = client::open(&args.ssh, host, &|what| meter.note(what))?;
    meter.connected(host, &session);
    if matches!(request, CopyRequest::Receive { .. } | CopyRequest::ReceiveStream { .. }) {
        meter.leaves_by(session.channel());
    }
    session.ask(SERVICE, request)?;
    Ok(session)
}

fn route(paths: &[OsString]) -> Result<CopyRoute> {
    let targets: Vec<_> = paths.iter().map(|path| CopyTarget::parse(path)).collect();
    let (destination, sources) = targets.split_last().context("no destination")?;
    if targets.contains(&CopyTarget::Stdio) {
        return stream_route(&targets);
    }
    let mut local = Vec::new();
    let mut groups: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
    for source in sources {
        match source {
            CopyTarget::Local(path) => local.push(path.clone()),
            CopyTarget::Remote { host, path } => match groups.last_mut() {
                Some((last, paths)) if last == host => paths.push(path.clone()),
                _ => groups.push((host.clone(), vec![path.clone()])),
            },
            CopyTarget::Stdio => {}
        }
    }
    ensure!(
        local.is_empty() || groups.is_empty(),
        "sources on this host and on others need two commands"
    );
    // With several groups no one of them says that a directory is meant.
    let as_directory = |path: &[u8]| match groups.len() {
        0 | 1 => path.to_vec(),
        _ if path.ends_with(b"/") => path.to_vec(),
        _ => [path, b"/"].concat(),
    };
    match destination {
        CopyTarget::Local(_) if groups.is_empty() => {
            bail!("neither end is HOST:PATH: cp(1) copies on one machine")
        }
        CopyTarget::Local(path) => {
            ensure!(!path.is_empty(), "the destination has no name");
            let destination = as_directory(path);
            Ok(CopyRoute::Down { groups, destination })
        }
        CopyTarget::Remote { host, path } if groups.is_empty() => {
            Ok(CopyRoute::Up { sources: local, host: host.clone(), destination: path.clone() })
        }
        CopyTarget::Remote { host, path } => {
            let destination = as_directory(path);
            Ok(CopyRoute::Across { groups, host: host.clone(), destination })
        }
        CopyTarget::Stdio => bail!("`-` is no destination"),
    }
}

/// What goes where if one of the targets is `-`.
fn stream_route(targets: &[CopyTarget]) -> Result<CopyRoute> {
    match targets {
        [CopyTarget::Stdio, CopyTarget::Remote { host, path }] => {
            Ok(CopyRoute::FromStdin { host: host.clone(), destination: path.clone() })
        }
        [CopyTarget::Remote { host, path }, CopyTarget::Stdio] => {
            Ok(CopyRoute::ToStdout { host: host.clone(), source: path.clone() })
        }
        _ => bail!("`-` goes with one HOST:PATH: `- HOST:FILE` or `HOST:FILE -`; ./- names a file"),
    }
}

/// A text as an argument, for tests and messages.
#[cfg(test)]
fn arguments(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

const SECTIONS: &str = "\
EXAMPLES
    A file to a host, and back under another name:
        weft cp results.tar host:
        weft cp host:results.tar copy.tar

    A directory into another one, or only what is in it:
        weft cp -r data host:/srv
        weft cp -r data/ host:/srv/data

    What is missing only, since files of the same size and time are skipped; the same after a
    copy that was interrupted:
        weft cp -r host:/srv/data .

    From host to host through this one:
        weft cp a:big.iso b:/tmp

    A stream into a file, or a file as a stream:
        tar c . | weft cp - host:backup.tar
        weft cp host:backup.tar - | tar t

    Behind a jump host, with another key, not faster than 200 Mbit/s:
        weft cp -J gate -i ~/.ssh/other --limit 200mbit big.iso me@inside:

NAMES
    HOST:PATH is relative to the home directory at HOST. A `/` before the first `:` makes it a path
    here: ./a:b. A directory goes into the destination under its own name; with a `/` at its end
    only what is in it does. A single file takes the destination's name unless that is a directory
    or ends in `/`. Links in a directory are copied as links.

    Names of sources elsewhere may have wildcards, which the far end expands: `*`, `?`, `[a-z]`,
    `[!a-z]`, and `\\` before a character that is meant itself. A name that exists as it stands is
    meant as it stands. Quote them, so that the shell here leaves them alone.

    - is standard input, or standard output, and goes with one HOST:PATH. The file is whole or not
    there; an interrupted stream is not resumed.

WHAT STAYS AFTER AN INTERRUPTION
    .NAME.HASH.weft-part and .NAME.HASH.weft-record beside the file: what has arrived, and which
    bytes of it are right. The same command goes on there; the file has its name once it is whole.

WHAT IS REMEMBERED
    The end that sends keeps the rate and the round trip of the path to the other's address for a
    day, in weft/paths in XDG_STATE_HOME or ~/.local/state, and begins the next copy with half of
    that rate. WEFT_PATHS=off, in the environment of that end, forbids it.

EXIT STATUS
    0    All is there
    1    Some files could not be copied; a line on stderr names each
    2    The copy ended early; run the same command again to resume it
    125  weft was called wrongly";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_goes_where() {
        let path = |text: &str| text.as_bytes().to_vec();
        let of = |line: &str| route(&arguments(line));
        assert_eq!(
            of("a b h:c").unwrap(),
            CopyRoute::Up {
                sources: vec![path("a"), path("b")],
                host: "h".into(),
                destination: path("c"),
            }
        );
        assert_eq!(
            of("h:a h:b g:c d").unwrap(),
            CopyRoute::Down {
                groups: vec![
                    ("h".into(), vec![path("a"), path("b")]),
                    ("g".into(), vec![path("c")]),
                ],
                destination: path("d/"),
            }
        );
        assert!(matches!(of("h:a g:b").unwrap(), CopyRoute::Across { .. }));
        assert_eq!(
            of("- h:b").unwrap(),
            CopyRoute::FromStdin { host: "h".into(), destination: path("b") }
        );
        assert_eq!(
            of("h:a -").unwrap(),
            CopyRoute::ToStdout { host: "h".into(), source: path("a") }
        );
        let mut unnamed = arguments("h:a g:b");
        unnamed.push(OsString::new());
        assert!(route(&unnamed).is_err());
        let CopyRoute::Down { destination, .. } = of("h:a g:b d/").unwrap() else { panic!() };
        assert_eq!(destination, b"d/");
        for line in ["a b", "a h:b c", "- b", "a -", "- -", "- a h:b", "h:a h:b -"] {
            assert!(of(line).is_err(), "{line}");
        }
    }
}
