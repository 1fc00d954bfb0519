//! Readers: what every process of this user says.
//!
//! Invariant: no process can hold a reader up for longer than its [`ReadLimits`] say.

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft_os::clock;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::place;
use crate::report::ProcessReport;
use crate::text::TEXT_MAX;

/// How long a reader waits.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// For one process.
    pub each: Duration,
    /// For all of them.
    pub all: Duration,
}

/// What one process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenProcess {
    /// Its id, as it or the name of its socket says.
    pub pid: u32,
    /// What it has answered.
    pub answer: ReaderAnswer,
}

/// What has come of asking a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderAnswer {
    /// Its report.
    Report(Box<ProcessReport>),
    /// Nothing in time: it is stopped, or has no time.
    Silent,
    /// Something else.
    Nonsense,
}

/// Asks every process that has a socket in `dir`. Sockets of processes that are gone are removed.
pub fn read_all(dir: &Path, limits: ReadLimits) -> Vec<SeenProcess> {
    read_those(dir, limits, |_| true)
}

/// The same of those that are `wanted`, by their ids.
pub fn read_those(
    dir: &Path,
    limits: ReadLimits,
    wanted: impl Fn(u32) -> bool,
) -> Vec<SeenProcess> {
    let until = clock::now() + limits.all;
    let mut seen = Vec::new();
    for path in place::sockets(dir) {
        let deadline = until.min(clock::now() + limits.each);
        let Some(pid) = place::pid_of(&path).filter(|pid| wanted(*pid)) else { continue };
        let answer = match ask(&path, deadline) {
            Ok(Some(report)) => ReaderAnswer::Report(Box::new(report)),
            Ok(None) => ReaderAnswer::Nonsense,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Nobody listens there any more. It may be gone already.
                let _ = fs::remove_file(&path);
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => ReaderAnswer::Silent,
        };
        let pid = if let ReaderAnswer::Report(report) = &answer { report.pid } else { pid };
        seen.push(SeenProcess { pid, answer });
    }
    seen
}

/// The report of the process at `path`; `None` if it says something else.
fn ask(path: &PathBuf, deadline: Instant) -> io::Result<Option<ProcessReport>> {
    let mut stream = open(path)?;
    let mut bytes = Vec::new();
    let mut room = vec![0; 16 << 10];
    loop {
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(len) => bytes.extend_from_slice(&room[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > TEXT_MAX {
            return Ok(None);
        }
    }
    Ok(std::str::from_utf8(&bytes).ok().and_then(ProcessReport::parse))
}

/// Connects, unless that has to wait.
fn open(path: &PathBuf) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use super::*;

    const SOON: ReadLimits =
        ReadLimits { each: Duration::from_millis(50), all: Duration::from_secs(5) };

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weft-read-{name}-{}", std::process::id()));
        place::make(&dir).unwrap();
        dir
    }

    fn answer(dir: &Path, pid: u32, text: &str) -> std::thread::JoinHandle<()> {
        let listener = UnixListener::bind(place::socket_path(dir, pid, 0)).unwrap();
        let text = text.to_owned();
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            // The reader may have had enough.
            let _ = peer.write_all(text.as_bytes());
        })
    }

    #[test]
    fn whatever_processes_say_is_sorted_out() {
        let dir = directory("all");
        let well = ProcessReport { pid: 1, name: "x".into(), ..ProcessReport::default() };
        let _stopped = UnixListener::bind(place::socket_path(&dir, 2, 0)).unwrap();
        drop(UnixListener::bind(place::socket_path(&dir, 3, 0)).unwrap());
        let peers = [
            answer(&dir, 1, &well.to_text()),
            answer(&dir, 4, "hello\n"),
            answer(&dir, 5, &"x".repeat(2 * TEXT_MAX)),
        ];
        let seen = read_all(&dir, SOON);
        let expected = [
            SeenProcess { pid: 1, answer: ReaderAnswer::Report(Box::new(well)) },
            SeenProcess { pid: 2, answer: ReaderAnswer::Silent },
            SeenProcess { pid: 4, answer: ReaderAnswer::Nonsense },
            SeenProcess { pid: 5, answer: ReaderAnswer::Nonsense },
        ];
        assert_eq!(seen, expected);
        assert_eq!(read_those(&dir, SOON, |pid| pid == 6), []);
        assert!(!place::socket_path(&dir, 3, 0).exists(), "its process is gone");
        for peer in peers {
            peer.join().unwrap();
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
