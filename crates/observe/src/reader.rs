//! Readers: what every process of this user says.
//!
//! Invariant: no process can hold a reader up for longer than its [`ReadLimits`] say.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_os::clock::{self, Moment};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::ended::PastSums;
use crate::place;
use crate::report::ProcessReport;
use crate::text::TEXT_MAX;

/// Times that all processes are asked anew because one has ended meanwhile.
const LOOKS_MAX: u32 = 8;

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

/// What every process says that has a socket in `dir`, and what those did that have ended. One that
/// ends meanwhile is in one of the two.
pub fn read_with_ended(dir: &Path, limits: ReadLimits) -> (Vec<SeenProcess>, PastSums) {
    let mut ended = PastSums::read_settled(dir);
    let mut looks = 0;
    loop {
        looks += 1;
        let seen = read_all(dir, limits);
        let before = std::mem::replace(&mut ended, PastSums::read_settled(dir));
        if looks == LOOKS_MAX || before == ended {
            return (seen, ended);
        }
    }
}

/// As [`read_all`], of those that are `wanted`, by their ids.
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
                // Nobody listens there any more.
                place::remove_socket(&path);
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
fn ask(path: &PathBuf, deadline: Moment) -> io::Result<Option<ProcessReport>> {
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
    use std::fs;
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::{self, TryRecvError};

    use super::*;
    use crate::report::{Counters, DeviceReport, DeviceType};

    const SOON: ReadLimits =
        ReadLimits { each: Duration::from_millis(50), all: Duration::from_secs(5) };

    /// Long enough for whatever has yet to get a processor.
    const LATE: ReadLimits =
        ReadLimits { each: Duration::from_secs(20), all: Duration::from_secs(60) };

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

    /// A process that answers, and ends when it is told to.
    fn process(dir: &Path, pid: u32, ends: mpsc::Receiver<()>) {
        let device = DeviceReport {
            kind: DeviceType::Iwarp,
            name: "x".into(),
            counters: Counters { bytes_out: 7, ..Counters::default() },
        };
        let devices = vec![device];
        let report = ProcessReport { pid, devices: devices.clone(), ..ProcessReport::default() };
        let (path, text) = (place::socket_path(dir, pid, 0), report.to_text());
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let answer = || {
            if let Ok((mut peer, _)) = listener.accept() {
                // The reader may have had enough.
                let _ = peer.write_all(text.as_bytes());
            }
            std::thread::yield_now();
        };
        while ends.try_recv() == Err(TryRecvError::Empty) {
            answer();
        }
        PastSums::add(dir, &devices, || fs::remove_file(&path).is_ok()).unwrap();
        answer();
    }

    #[test]
    fn a_process_that_ends_while_all_are_asked_is_counted_once() {
        const PROCESSES: u32 = 16;
        let dir = directory("ending");
        let total = || {
            let (seen, ended) = read_with_ended(&dir, LATE);
            let live = seen.iter().map(|seen| match &seen.answer {
                ReaderAnswer::Report(report) => report.devices[0].counters.bytes_out,
                ReaderAnswer::Silent | ReaderAnswer::Nonsense => 0,
            });
            live.sum::<u64>() + ended.of("x").bytes_out
        };
        std::thread::scope(|scope| {
            let tells: Vec<_> = (1..=PROCESSES)
                .map(|pid| {
                    let (tell, ends) = mpsc::channel();
                    let dir = &dir;
                    scope.spawn(move || process(dir, pid, ends));
                    tell
                })
                .collect();
            while place::sockets(&dir).len() < PROCESSES as usize {
                std::thread::yield_now();
            }
            for tell in tells {
                tell.send(()).unwrap();
                assert_eq!(total(), 7 * u64::from(PROCESSES));
            }
        });
        assert_eq!(total(), 7 * u64::from(PROCESSES));
        fs::remove_dir_all(&dir).unwrap();
    }
}
