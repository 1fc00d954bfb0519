//! A path for as long as a program runs on it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, Result};
use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;

use super::children::{self, ChildProgram};
use super::{Launcher, OUR_FAILURE, PathArgs, describe, enter, tell};
use crate::control::{self, ControlRequest, ControlSocket, PathNamespaces};
use crate::namespace;
use crate::stats::PathReport;
use crate::wan::{PathSide, Wan};

/// Reasons why a path ends.
#[derive(Clone, Copy, Debug)]
pub enum EndEvent {
    /// Somebody asked for it.
    Down,
    /// A signal, and whether a process sent it and not the terminal.
    Signal { number: i32, from_process: bool },
    /// CMD has ended.
    Ended,
}

impl EndEvent {
    fn of_signal(info: &libc::siginfo_t) -> Self {
        // signal(7): codes of 0 and below are those of kill, sigqueue and tkill.
        Self::Signal { number: info.si_signo, from_process: info.si_code <= 0 }
    }
}

/// Somebody ended the path before CMD began, as by this signal.
#[derive(Debug, thiserror::Error)]
#[error("ended before CMD began")]
pub struct EndedEarly(pub i32);

/// Whether everything that was asked for about a path is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportWritten(bool);

/// A running path and its control socket.
#[derive(Debug)]
pub struct Site {
    wan: Wan,
    door: ControlSocket,
}

/// Runs `command` on the near side; the result is the exit status.
pub fn run(launcher: &Launcher, args: &PathArgs, command: &[OsString]) -> Result<u8> {
    let site = Site::open(args)?;
    let ended = site.host(launcher, args, false, |wan, events, sender| {
        let call = enter::call(launcher, wan, PathSide::Near, command)?;
        follow(call, events, sender)
    });
    match ended {
        Err(error) => error.downcast::<EndedEarly>().map(|EndedEarly(signal)| 128 + signal as u8),
        Ok((status, ReportWritten(false))) if status.success() => Ok(OUR_FAILURE),
        Ok((status, _)) => Ok(exit_status(status)),
    }
}

impl Site {
    /// Makes the path that `args` ask for. The process has one thread.
    pub fn open(args: &PathArgs) -> Result<Self> {
        let spec = args.spec()?;
        args.check_files()?;
        let directory = control::directory()?;
        namespace::gain_rights()?;
        children::adopt()?;
        let door = ControlSocket::open(&directory, &args.name())?;
        if let Some(path) = &args.json {
            // Checked first, so that a long run does not fail at its report; an earlier one stays
            // until there is another.
            let open = OpenOptions::new().append(true).create(true).open(path);
            open.with_context(|| format!("{}", path.display()))?;
        }
        let wan = Wan::build(spec, args.second_spec(), &args.captures())?;
        Ok(Self { wan, door })
    }

    /// Does `work` while the path is up and its server, if there is one, runs; then ends it. Gives
    /// also whether the report was written, which has been told if not.
    pub fn host<T>(
        self,
        launcher: &Launcher,
        args: &PathArgs,
        silent: bool,
        work: impl FnOnce(&Wan, &Receiver<EndEvent>, &Sender<EndEvent>) -> Result<T>,
    ) -> Result<(T, ReportWritten)> {
        let Self { wan, door } = self;
        let (sender, events) = channel();
        let mut signals =
            SignalsInfo::<WithRawSiginfo>::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD])?;
        let no_more_signals = signals.handle();
        let (result, last_caller) = thread::scope(|scope| {
            let answers = scope.spawn(|| answer(&door, &wan, &sender));
            scope.spawn(|| {
                for signal in signals.forever() {
                    if signal.si_signo == SIGCHLD {
                        children::bury_orphans();
                    } else {
                        let _ = sender.send(EndEvent::of_signal(&signal));
                    }
                }
            });
            let mut server = None;
            let host = || {
                if let Some(command) = &args.server {
                    server = Some(children::serve(launcher, &wan, (command, silent), &events)?);
                }
                work(&wan, &events, &sender)
            };
            let result = host();
            children::sweep(server, &wan);
            no_more_signals.close();
            door.close();
            (result, answers.join())
        });
        let reported = conclude(args, &wan.stop());
        // Now it is down and cannot be found, and whoever asked for that may know.
        drop(door);
        drop(last_caller);
        Ok((result?, reported))
    }
}

/// Answers requests until one is to end; who asked that is told when the stream closes.
fn answer(door: &ControlSocket, wan: &Wan, events: &Sender<EndEvent>) -> Option<UnixStream> {
    while let Ok(Some((request, mut stream))) = door.next() {
        let text = match request {
            ControlRequest::Stat => serde_json::to_string_pretty(&wan.report()),
            ControlRequest::Show => Ok(describe(&wan.report())),
            ControlRequest::Where => serde_json::to_string(&PathNamespaces {
                pid: std::process::id(),
                sides: [PathSide::Near, PathSide::Far].map(|side| wan.namespace(side).number()),
            }),
            ControlRequest::Down => {
                let _ = events.send(EndEvent::Down);
                return Some(stream);
            }
        };
        // Whoever asked may have gone.
        let _ = stream.write_all(text.unwrap_or_default().as_bytes());
    }
    None
}

/// Starts CMD and waits for its end. What the terminal sends reaches CMD by itself, in the same
/// process group; an interrupt from a process is passed on, and so is a request to end.
fn follow(
    call: std::process::Command,
    events: &Receiver<EndEvent>,
    sender: &Sender<EndEvent>,
) -> Result<ExitStatus> {
    let mut program = ChildProgram::start(call).context("CMD")?;
    thread::scope(|scope| {
        scope.spawn(|| {
            program.await_end();
            let _ = sender.send(EndEvent::Ended);
        });
        for event in events {
            match event {
                EndEvent::Ended => break,
                EndEvent::Signal { number: SIGINT | SIGQUIT, from_process: false } => {}
                EndEvent::Signal { number: SIGINT, .. } => program.signal(Signal::INT),
                EndEvent::Signal { number: SIGQUIT, .. } => program.signal(Signal::QUIT),
                EndEvent::Signal { .. } => program.signal(Signal::TERM),
                EndEvent::Down => program.end(),
            }
        }
    });
    program.wait()
}

fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    code as u8
}

/// Says how it was, as far as that was asked for. What CMD did counts more than that this fails.
fn conclude(args: &PathArgs, report: &PathReport) -> ReportWritten {
    let written = args.json.as_ref().map_or(Ok(()), |path| {
        write_json(path, report).with_context(|| format!("{}", path.display()))
    });
    if let Err(error) = &written {
        tell(format_args!("{error:#}"));
    }
    let reported = ReportWritten(written.is_ok());
    if args.report {
        let _ = write!(std::io::stderr(), "{}", describe(report));
        return reported;
    }
    let second = report.second.iter().flat_map(|second| &second.complaints);
    for complaint in report.complaints.iter().chain(second) {
        tell(format_args!("this machine did not keep up; {complaint}"));
    }
    for failure in &report.failures {
        tell(format_args!("{failure}"));
    }
    reported
}

fn write_json(path: &Path, report: &PathReport) -> Result<()> {
    Ok(fs::write(path, serde_json::to_string_pretty(report)? + "\n")?)
}
