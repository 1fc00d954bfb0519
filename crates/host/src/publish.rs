//! The socket by which a process is seen from outside ([`weft_observe`]).
//!
//! Whoever connects is sent a report, made for the occasion by the reactor's thread; nothing is
//! read. A socket that cannot be made is done without.
//!
//! Order of calls: [`Publisher::begin`] once, after the reactor has started;
//! [`Publisher::end`] or [`Publisher::vanish`] when the process ends.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use weft_net::socket;
use weft_observe::{
    Counters, DeviceReport, DeviceType, PastSums, ProcessReport, REPORTED_MAX, place,
};
use weft_os::clock::Moment;
use weft_os::fds::HighFd;
use weft_os::options::set_option;
use weft_os::{clock, sys};
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_sync::Mutex;

use crate::connections::DrivenConnection;
use crate::device_kind::{DeviceId, DeviceKind};
use crate::host::{Host, Local};

/// Names tried until one is free: processes of other namespaces may have the same id.
const NAMES_MAX: u32 = 64;
/// Readers that are answered in one go.
const READERS_MAX: usize = 8;
/// Room for a report in a socket's buffer, in bytes, as far as the system grants it.
const ROOM_BYTES: libc::c_int = 1 << 20;
/// Times that a report is made anew because a connection has ended meanwhile.
const LOOKS_MAX: u32 = 8;
/// A process that ends waits no longer than this for threads that work on its connections, which
/// may wait for a processor themselves.
const LAST_LOOK: Duration = Duration::from_millis(250);

/// What a device looks like, for readers.
fn device_type(kind: DeviceKind) -> DeviceType {
    match kind {
        DeviceKind::Roce => DeviceType::Roce,
        DeviceKind::Iwarp => DeviceType::Iwarp,
    }
}

/// What was done by connections that have ended, over each device.
#[derive(Default)]
pub(crate) struct PastWork(Mutex<[Counters; DeviceId::SLOTS]>);

impl PastWork {
    /// Adds that of one.
    pub fn add(&self, device: DeviceId, counters: &Counters) {
        self.0.lock()[device.slot()].add(counters);
    }

    fn all(&self) -> [Counters; DeviceId::SLOTS] {
        *self.0.lock()
    }
}

/// The socket of a host in one process.
pub(crate) struct Publisher {
    dir: PathBuf,
    path: PathBuf,
}

struct ReportSource {
    me: Weak<ReportSource>,
    listener: HighFd,
    host: Weak<Host>,
    token: OnceLock<Token>,
}

impl Publisher {
    /// Makes the socket in `dir` and has the reactor of `host` answer.
    ///
    /// # Errors
    /// The directory is not this user's alone, or no socket can be made there.
    pub fn begin(host: &Arc<Host>, dir: &Path) -> io::Result<Self> {
        place::make(dir).inspect_err(tell_unseen)?;
        place::remove_left(dir);
        let (listener, path) = bind(dir)?;
        let listener = HighFd::new(listener);
        let source = Arc::new_cyclic(|me| ReportSource {
            me: Weak::clone(me),
            listener,
            host: Arc::downgrade(host),
            token: OnceLock::new(),
        });
        // The reactor keeps it, and its socket, as long as there is a reactor.
        let called = Arc::clone(&source) as Arc<dyn Pollable>;
        let token = host.reactor().add(source.listener.as_fd(), Interest::READ, called);
        let _first = source.token.set(token);
        Ok(Self { dir: dir.to_owned(), path })
    }

    /// The process ends without handlers, where nothing can be allocated: it is seen no more, and
    /// what it did is not counted.
    pub fn vanish(&self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.path);
    }

    /// The process ends: what it did is added to what ended processes did, and it is seen no more,
    /// both at the same time for who counts.
    pub fn end(&self, host: &Host) {
        if !self.path.exists() {
            return;
        }
        let devices: Vec<DeviceReport> = report(host, Some(clock::now() + LAST_LOOK)).devices;
        let mut is_gone = false;
        let vanish = || {
            is_gone = fs::remove_file(&self.path).is_ok();
            is_gone
        };
        if devices.iter().any(|device| device.counters != Counters::default()) {
            // Without the file its counters are lost, and nothing else.
            let _ = PastSums::add(&self.dir, &devices, vanish);
        }
        if !is_gone {
            self.vanish();
        }
    }
}

/// Says why this process is not seen. A directory that cannot be made is usual where there is no
/// place for it, as in containers; one that is not this user's alone is not.
fn tell_unseen(error: &io::Error) {
    if error.raw_os_error().is_some() {
        log::debug!("this process cannot be observed: {error}");
        return;
    }
    log::warn!("`weft ss`, `top` and `metrics` do not see this process: {error}");
}

/// A socket that listens, under a name of its own. It has that name only once it listens: a reader
/// that is refused takes the process for gone, and removes the socket.
fn bind(dir: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    for number in 0..NAMES_MAX {
        let path = place::socket_path(dir, process::id(), number);
        let unnamed = place::unnamed_path(dir, process::id(), number);
        let made = socket::listen_at(&unnamed).and_then(|listener| {
            let named = fs::hard_link(&unnamed, &path);
            // Who makes its own may have removed it already ([`place::remove_left`]).
            let _ = fs::remove_file(&unnamed);
            named.map(|()| listener)
        });
        match made {
            Ok(listener) => return Ok((listener, path)),
            Err(error) if is_another_tried(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Whether another process, or another host of this one, has the name; or a process of another PID
/// namespace has taken the socket for one that was left.
fn is_another_tried(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AlreadyExists, NotFound};
    matches!(error.kind(), AddrInUse | AlreadyExists | NotFound)
}

impl Pollable for ReportSource {
    fn ready(&self, _: Readiness) {
        let Some(host) = self.host.upgrade() else { return };
        for _ in 0..READERS_MAX {
            let reader = match socket::accept(self.listener.as_fd()) {
                Ok(reader) => reader,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.rest(&host),
            };
            set_option(reader.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, ROOM_BYTES);
            let text = report(&host, None).to_text();
            answer(reader.as_fd(), text.as_bytes());
        }
    }

    fn timeout(&self, _: Moment) {
        if let (Some(token), Some(host)) = (self.token.get(), self.host.upgrade()) {
            host.reactor().modify(*token, Interest::READ);
        }
    }
}

impl ReportSource {
    /// Lets readers wait who cannot be accepted.
    fn rest(&self, host: &Host) {
        if let Some(token) = self.token.get() {
            let me: Weak<Self> = self.me.clone();
            host.reactor().rest(*token, me);
        }
    }
}

/// Sends as much as there is room for. Nobody is waited for: who reads sees by the last line that
/// something is missing.
fn answer(reader: BorrowedFd<'_>, mut left: &[u8]) {
    while !left.is_empty() {
        match socket::send_quietly(reader, left) {
            Ok(sent) if sent > 0 => left = left.get(sent..).unwrap_or_default(),
            _ => break,
        }
    }
}

/// What there is to see of `host` in this process; with a limit, of what can be had until then.
fn report(host: &Host, until: Option<Moment>) -> ProcessReport {
    let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let Some(local) = host.running() else { return ProcessReport::default() };
    let mut report = ProcessReport {
        pid: process::id(),
        name: name.trim_end().to_owned(),
        at_ns: sys::monotonic_ns(),
        cpu_ns: sys::cpu_ns(),
        ..ProcessReport::default()
    };
    let sums = look(local, &mut report, until);
    let device = |device: DeviceId| {
        let (kind, name) = (device_type(device.kind), host.devices().name(device).to_owned());
        DeviceReport { kind, name, counters: sums[device.slot()] }
    };
    report.devices = host.devices().used().into_iter().map(device).collect();
    report
}

/// Notes the connections of `local` in the report; what was done over each device, by these and by
/// those that have ended. One that ends meanwhile is counted once.
fn look(
    local: &Local,
    report: &mut ProcessReport,
    until: Option<Moment>,
) -> [Counters; DeviceId::SLOTS] {
    let mut looks = 0;
    loop {
        looks += 1;
        report.connections.clear();
        report.left_out = 0;
        let past = local.past_work.all();
        let mut sums = past;
        let add = |connection: &Arc<dyn DrivenConnection>| {
            let told = report.connections.len() < REPORTED_MAX;
            let Some((device, counters, conn)) = connection.report(told, until) else { return };
            sums[device.slot()].add(&counters);
            match conn {
                Some(conn) => report.connections.push(conn),
                None => report.left_out += 1,
            }
        };
        match until {
            None => local.connections.all().iter().for_each(add),
            Some(until) => local.connections.each(until, add),
        }
        if looks == LOOKS_MAX || local.past_work.all() == past {
            return sums;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use weft_observe::{ReadLimits, read_all};
    use weft_testkit::SetAtEnd;

    use super::*;

    #[test]
    fn a_reader_never_finds_a_socket_that_does_not_listen() {
        let dir = std::env::temp_dir().join(format!("weft-publish-{}", process::id()));
        place::make(&dir).unwrap();
        let is_over = AtomicBool::new(false);
        let limits = ReadLimits { each: Duration::ZERO, all: Duration::ZERO };
        thread::scope(|scope| {
            let _over = SetAtEnd(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    read_all(&dir, limits);
                }
            });
            let missing = (0..3000).filter(|_| {
                let (listener, path) = bind(&dir).unwrap();
                let is_there = fs::remove_file(&path).is_ok();
                drop(listener);
                !is_there
            });
            assert_eq!(missing.count(), 0, "a reader has removed it");
        });
        fs::remove_dir_all(&dir).unwrap();
    }
}
