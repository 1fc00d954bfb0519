//! `weft pipe` and `weft forward`: their arguments, and the near end.
//!
//! Invariant: stdin, stdout and stderr of `weft pipe` are the command's, except for what weft
//! itself has to say on stderr, which begins with `weft: `.
//!
//! Order: [`pipe()`] and [`forward()`] are all.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, ensure};
use clap::{ArgGroup, Args, ValueHint};
use weft_session::SshArgs;
use weft_session::client::{self, FarSession};

use crate::forward::{self, ForwardEnd, parse_forward};
use crate::messages::StreamRequest;
use crate::process;

/// How a forward is written.
const FORWARD: &str = "[ADDR:]PORT:HOST:PORT";
/// Status of a failure of weft itself and not of the command.
const OUR_FAILURE: u8 = 125;

/// First byte of the first message of a channel that streams go over.
pub const SERVICE: u8 = b'S';

/// The arguments of `weft pipe`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = PIPE_SECTIONS)]
pub struct PipeArgs {
    /// How the far end is reached
    #[command(flatten)]
    pub ssh: SshArgs,
    /// The host, as ssh takes it
    #[arg(value_name = "[USER@]HOST", value_hint = ValueHint::Hostname)]
    pub host: String,
    /// The program to run there, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// The arguments of `weft forward`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = FORWARD_SECTIONS)]
#[command(group =
    ArgGroup::new("forwards").required(true).multiple(true).args(["local", "remote"])
)]
pub struct ForwardArgs {
    /// Listen here, and connect from the far end
    #[arg(short = 'L', value_name = FORWARD)]
    pub local: Vec<String>,
    /// Listen at the far end, and connect from here
    #[arg(short = 'R', value_name = FORWARD)]
    pub remote: Vec<String>,
    /// How the far end is reached
    #[command(flatten)]
    pub ssh: SshArgs,
    /// The host, as ssh takes it
    #[arg(value_name = "[USER@]HOST", value_hint = ValueHint::Hostname)]
    pub host: String,
}

/// Runs a command at the far end; gives its exit status.
pub fn pipe(args: &PipeArgs) -> u8 {
    let command = args.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let run = || -> Result<u8> {
        let session = start(&args.ssh, &args.host, &StreamRequest::Pipe { command })?;
        let status = process::attach(session.channel(), &say)?;
        // The status is known: what fails from here on changes nothing.
        let _ = session.close();
        Ok(status)
    };
    end(run())
}

/// Forwards connections until it is ended; gives the exit status.
pub fn forward(args: &ForwardArgs) -> u8 {
    let run = || -> Result<u8> {
        let local = args.local.iter().map(|text| parse_forward(text, false));
        let remote = args.remote.iter().map(|text| parse_forward(text, true));
        let forwards: Vec<_> = local.chain(remote).collect::<Result<_>>()?;
        ensure!(!forwards.is_empty(), "nothing is to be forwarded");
        let request = StreamRequest::Forward { forwards: forwards.clone() };
        let session = start(&args.ssh, &args.host, &request)?;
        let ready = || say("connections are forwarded");
        forward::run(session.channel(), ForwardEnd::Near, &forwards, &say, &ready)?;
        Ok(0)
    };
    end(run())
}

fn start(args: &SshArgs, host: &str, request: &StreamRequest) -> Result<FarSession> {
    let session = client::open(args, host, &say)?;
    session.ask(SERVICE, request)?;
    Ok(session)
}

fn end(outcome: Result<u8>) -> u8 {
    outcome.unwrap_or_else(|error| {
        say(&format!("{error:#}"));
        OUR_FAILURE
    })
}

fn say(what: &str) {
    let line: String = what.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    // Without a stderr the exit status must do.
    let _ = writeln!(std::io::stderr(), "weft: {line}");
}

const PIPE_SECTIONS: &str = "\
EXAMPLES
    A snapshot of a file system:
        zfs send tank/data@now | weft pipe backup -- zfs receive tank/data

    A directory, as an archive:
        tar c . | weft pipe host -- tar x -C /data
        weft pipe host -- tar c -C /data . | tar x

    A pipeline needs a shell, since CMD is executed as it stands:
        weft pipe host -- sh -c 'gzip -d | wc -c' <big.gz

EXIT STATUS
    125  weft itself failed: ssh, the path or the far end
    126  CMD was found there but could not be executed
    127  CMD was not found there
    Otherwise the status is CMD's own, 128 and its number if a signal ended it.";

const FORWARD_SECTIONS: &str = "\
EXAMPLES
    A web server there, under a port here:
        weft forward -L 8080:localhost:80 me@host
        curl http://localhost:8080/

    A database behind the host:
        weft forward -L 5432:db.internal:5432 me@host

    A port there that leads to a server here:
        weft forward -R 9000:localhost:9000 me@host

ADDRESSES
    Without ADDR it listens at localhost only; `*` is every address. [ and ] stand around addresses
    of IPv6. A connection that cannot be made at the other end is reset here.

EXIT STATUS
    125  the far end is gone, or an address could not be listened at
    It runs until a signal ends it.";
