//! A path between two network namespaces of its own.
//!
//! [`Wan::build`] makes the namespaces, a TUN device in each and a thread for each direction;
//! [`Wan::namespace`] is where programs go; [`Wan::report`] says how it is, and [`Wan::stop`] how
//! it was. When a `Wan` is gone, so is all that it made.

use std::fs::{self, File};
use std::io::{self, BufWriter, PipeReader, PipeWriter};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use rustix::io::Errno;

use crate::clock::PathClock;
use crate::namespace::Namespace;
use crate::pcapng::CaptureWriter;
use crate::router::{DirectionSetup, SharedCapture, route};
use crate::spec::PathSpec;
use crate::stats::{DirectionStats, PathReport};
use crate::tun::{Interface, Tun};

/// Side of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PathSide {
    /// CMD's side.
    Near,
    /// The server's side.
    Far,
}

/// Files that packets of a path are captured to.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    /// The packets at the near side, as pcapng.
    pub near: Option<PathBuf>,
    /// The packets at the far side.
    pub far: Option<PathBuf>,
}

/// A running path: namespaces, TUN devices and router threads.
#[derive(Debug)]
pub struct Wan {
    spec: PathSpec,
    clock: PathClock,
    sides: [Namespace; 2],
    captures: [Option<SharedCapture>; 2],
    stats: [Arc<Mutex<DirectionStats>>; 2],
    /// Closing it stops the routers.
    stop: Option<PipeWriter>,
    routers: Vec<JoinHandle<io::Result<()>>>,
}

/// Name of the TUN device, the same on both sides.
pub const DEVICE: &str = "wan0";
const GATHER_NS_MAX: u64 = 50_000;
/// Least limit of a socket's buffer, the default of most kernels.
const SOCKET_BYTES_MIN: u64 = 32 << 20;
const SOCKET_BYTES_MAX: u64 = 1 << 30;

impl PathSide {
    /// IPv4 address of the side.
    pub fn v4(self) -> Ipv4Addr {
        match self {
            Self::Near => Ipv4Addr::new(10, 77, 0, 1),
            Self::Far => Ipv4Addr::new(10, 77, 0, 2),
        }
    }

    /// IPv6 address of the side.
    pub fn v6(self) -> Ipv6Addr {
        match self {
            Self::Near => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1),
            Self::Far => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2),
        }
    }

    /// Name of the side, `near` or `far`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

impl Wan {
    /// Makes the path. [`crate::namespace::gain_rights`] must have been called.
    ///
    /// # Errors
    /// Name spaces or devices cannot be made, or a capture cannot be written.
    pub fn build(spec: PathSpec, captures: &Captures) -> Result<Self> {
        let sides = [Namespace::create()?, Namespace::create()?];
        let tuns = [PathSide::Near, PathSide::Far]
            .map(|side| open_device(&sides[side as usize], &spec, side));
        let [near, far] = tuns;
        let tuns = [Arc::new(near?), Arc::new(far?)];
        let captures = [
            open_capture(captures.near.as_deref(), PathSide::Near)?,
            open_capture(captures.far.as_deref(), PathSide::Far)?,
        ];
        let (stopped, stop) = io::pipe()?;
        let mut wan = Self {
            spec,
            clock: PathClock::start(),
            sides,
            captures,
            stats: Default::default(),
            stop: Some(stop),
            routers: Vec::new(),
        };
        wan.start(&tuns, &Arc::new(stopped))?;
        Ok(wan)
    }

    fn start(&mut self, tuns: &[Arc<Tun>; 2], stopped: &Arc<PipeReader>) -> Result<()> {
        let gather_ns = (self.spec.rtt_ns() / 40).min(GATHER_NS_MAX);
        let names = ["forward", "back"];
        for (direction, config) in self.spec.links().into_iter().enumerate() {
            let (from, to) = (direction, 1 - direction);
            let setup = DirectionSetup {
                from: Arc::clone(&tuns[from]),
                to: Arc::clone(&tuns[to]),
                config,
                // Seeds differ, so that the two directions do not lose the same packets.
                seed: self.spec.seed.wrapping_mul(2).wrapping_add(direction as u64),
                gather_ns,
                clock: self.clock,
                captures: [self.captures[from].clone(), self.captures[to].clone()],
                stats: Arc::clone(&self.stats[direction]),
            };
            let stopped = Arc::clone(stopped);
            let thread = thread::Builder::new().name(format!("wan-{}", names[direction]));
            self.routers.push(thread.spawn(move || route(setup, stopped.as_fd()))?);
        }
        Ok(())
    }

    /// The namespace of a side.
    pub fn namespace(&self, side: PathSide) -> &Namespace {
        &self.sides[side as usize]
    }

    /// Statistics up to now.
    pub fn report(&self) -> PathReport {
        let [mut forward, mut back] = [0, 1].map(|direction| self.direction(direction));
        forward.overrun = self.overrun(PathSide::Near);
        back.overrun = self.overrun(PathSide::Far);
        let complaints = [forward.complaints("forward"), back.complaints("back")].concat();
        let elapsed_ns = self.clock.now_ns();
        PathReport { elapsed_ns, forward, back, complaints, path: self.spec.clone() }
    }

    fn direction(&self, direction: usize) -> DirectionStats {
        *self.stats[direction].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets that the device of `side` dropped because the router did not read them in time.
    fn overrun(&self, side: PathSide) -> u64 {
        let read = self.namespace(side).within(|| fs::read_to_string("/proc/thread-self/net/dev"));
        let Ok(Ok(table)) = read else { return 0 };
        // Eight columns received, then eight sent: bytes, packets, errors, drops, ...
        let line =
            table.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'));
        let dropped = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
        dropped.unwrap_or(0)
    }

    /// Ends it and says how it was. What went wrong meanwhile, a router that ended or a capture
    /// that could not be written, is among the complaints.
    pub fn stop(mut self) -> PathReport {
        self.stop = None;
        let mut faults = Vec::new();
        for router in std::mem::take(&mut self.routers) {
            let ended = router.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            faults.extend(ended.err().map(|error| format!("a router ended early: {error}")));
        }
        for capture in self.captures.iter().flatten() {
            let flushed = capture.lock().unwrap_or_else(PoisonError::into_inner).flush();
            faults.extend(flushed.err().map(|error| format!("a capture is not whole: {error}")));
        }
        let mut report = self.report();
        report.complaints.extend(faults);
        report
    }
}

fn open_device(namespace: &Namespace, spec: &PathSpec, side: PathSide) -> Result<Tun> {
    namespace.try_set(&settings(spec.bytes_in_flight_max()))?;
    let interface = Interface { name: DEVICE, mtu: spec.mtu, v4: side.v4(), v6: side.v6() };
    let made = namespace.within(|| Tun::create(interface))?;
    made.map_err(|error| {
        anyhow!("/dev/net/tun: no device can be made ({error}); {}", remedy(&error))
    })
}

fn remedy(error: &io::Error) -> &'static str {
    if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) {
        return "raise the limit of them (ulimit -n)";
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "as root: chmod 666 /dev/net/tun; in a container, start it with --cap-add NET_ADMIN \
             --device /dev/net/tun"
        }
        _ => "as root: modprobe tun; in a container, start it with --device /dev/net/tun",
    }
}

/// Sysctls of both sides: socket buffers of three times what may be in flight, no TCP metrics
/// cached between connections, unprivileged `ping`, no packets of IPv6 autoconfiguration.
fn settings(bytes_in_flight: u64) -> [(&'static str, String); 7] {
    let bytes = bytes_in_flight.saturating_mul(3).clamp(SOCKET_BYTES_MIN, SOCKET_BYTES_MAX);
    [
        ("net/ipv4/tcp_rmem", format!("4096 131072 {bytes}")),
        ("net/ipv4/tcp_wmem", format!("4096 65536 {bytes}")),
        ("net/ipv4/tcp_no_metrics_save", "1".into()),
        ("net/ipv4/ping_group_range", "0 2147483647".into()),
        ("net/ipv6/conf/default/accept_dad", "0".into()),
        ("net/ipv6/conf/default/router_solicitations", "0".into()),
        ("net/ipv6/conf/default/addr_gen_mode", "1".into()),
    ]
}

fn open_capture(path: Option<&Path>, side: PathSide) -> Result<Option<SharedCapture>> {
    let Some(path) = path else { return Ok(None) };
    let open = || CaptureWriter::new(BufWriter::new(File::create(path)?), side.name());
    let writer = open().with_context(|| format!("{}", path.display()))?;
    Ok(Some(Arc::new(Mutex::new(writer))))
}
