//! All filters of a program on this machine, each a process of its own.
//!
//! Invariant: when [`launch`] returns, every process that it started has ended.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::FilterProgram;
use crate::command::{ELSEWHERE, FAILED};

/// A filter's process.
struct Process {
    name: &'static str,
    child: Child,
    /// Its stdin: while this is open, it waits to be called.
    leash: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// How it ended.
struct MemberExit {
    name: &'static str,
    status: std::process::ExitStatus,
    said: String,
}

/// Starts all filters of `program` from the last to the first, each with the arguments that `run`
/// had. Gives what the first one says, its report; nothing if one failed, which has said so itself.
///
/// # Errors
/// A filter could not be started, or ended without a word.
pub(crate) fn launch(program: &FilterProgram, arguments: &[OsString]) -> Result<Option<String>> {
    let mut processes = start(program, arguments)?;
    let mut ended = Vec::new();
    while let Some(process) = processes.pop() {
        ended.push(process.wait()?);
        // The first has ended: who still waits to be called never is.
        processes.iter_mut().for_each(|process| process.leash = None);
    }
    verdict(ended)
}

/// The processes, from the last filter to the first.
fn start(program: &FilterProgram, arguments: &[OsString]) -> Result<Vec<Process>> {
    let mut processes: Vec<Process> = Vec::new();
    let mut to = None;
    for (index, name) in program.filters.iter().enumerate().rev() {
        let mut process = Process::start(name, arguments, index > 0, to.as_deref())?;
        if index > 0 {
            to = Some(process.address()?);
        }
        processes.push(process);
    }
    Ok(processes)
}

impl Process {
    fn start(
        name: &'static str,
        arguments: &[OsString],
        listens: bool,
        to: Option<&str>,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args(["filter", name, "--launched"]).args(arguments);
        if listens {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(to.iter().flat_map(|to| ["--to", to]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let stdout = BufReader::new(child.stdout.take().context("no pipe from it")?);
        Ok(Self { name, leash: child.stdin.take(), child, stdout })
    }

    fn address(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).with_context(|| format!("hearing of {}", self.name))?;
        ensure!(line.ends_with('\n'), "{} does not start", self.name);
        Ok(line.trim().to_owned())
    }

    fn wait(mut self) -> Result<MemberExit> {
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).with_context(|| format!("hearing {}", self.name))?;
        Ok(MemberExit { name: self.name, status: self.child.wait()?, said })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Without its leash it does not wait to be called; if it has been, its stream ends.
        drop(self.leash.take());
        let _ = self.child.wait();
    }
}

fn verdict(ended: Vec<MemberExit>) -> Result<Option<String>> {
    let code = |ended: &MemberExit| ended.status.code();
    if ended.iter().any(|ended| code(ended) == Some(FAILED.into())) {
        return Ok(None);
    }
    let strange = |ended: &&MemberExit| ![Some(0), Some(ELSEWHERE.into())].contains(&code(ended));
    if let Some(ended) = ended.iter().find(strange) {
        bail!("{} ended without a word: {}", ended.name, ended.status);
    }
    let broken = ended.iter().find(|ended| !ended.status.success());
    ensure!(broken.is_none(), "{}", broken.map_or("", |ended| &ended.said).trim_end());
    Ok(ended.into_iter().next().map(|first| first.said))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn verdict_of(raw: [i32; 2]) -> Result<Option<String>> {
        let ended = |(raw, name): (i32, &'static str)| MemberExit {
            name,
            status: ExitStatus::from_raw(raw),
            said: format!("{name} says\n"),
        };
        verdict(raw.into_iter().zip(["read", "view"]).map(ended).collect())
    }

    #[test]
    fn the_one_to_blame_is_found() {
        let (failed, elsewhere, killed) = (1 << 8, 3 << 8, 9);
        assert_eq!(verdict_of([0, 0]).unwrap().as_deref(), Some("read says\n"));
        assert_eq!(verdict_of([elsewhere, failed]).unwrap(), None);
        let said = verdict_of([elsewhere, killed]).unwrap_err().to_string();
        assert!(said.contains("view ended without a word: signal: 9"), "{said}");
        assert_eq!(verdict_of([elsewhere; 2]).unwrap_err().to_string(), "read says");
    }
}
