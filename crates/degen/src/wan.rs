//! A path between two network namespaces of its own, or two beside each other.
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
use crate::files::{CAPTURE_MAGIC, OutputKind};
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

/// Running paths: namespaces, TUN devices and router threads.
#[derive(Debug)]
pub struct Wan {
    clock: PathClock,
    sides: [Namespace; 2],
    captures: [Option<SharedCapture>; 2],
    paths: Vec<WanPath>,
    /// Closing it stops the routers.
    stop: Option<PipeWriter>,
    routers: Vec<JoinHandle<io::Result<()>>>,
}

/// One of the paths between the two sides.
#[derive(Debug)]
struct WanPath {
    spec: PathSpec,
    device: &'static str,
    stats: [Arc<Mutex<DirectionStats>>; 2],
}

/// Names of the TUN devices of the first path and of the second, the same on both sides.
pub const DEVICES: [&str; 2] = ["wan0", "wan1"];
const GATHER_NS_MAX: u64 = 50_000;
/// Least limit of a socket's buffer, the default of most kernels.
const SOCKET_BYTES_MIN: u64 = 32 << 20;
const SOCKET_BYTES_MAX: u64 = 1 << 30;

impl PathSide {
    /// IPv4 address of the side on path `path`, 0 or 1.
    pub fn v4(self, path: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, path, 1 + self as u8)
    }

    /// IPv6 address of the side on path `path`, 0 or 1.
    pub fn v6(self, path: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0, 0, path.into(), 0, 0, 0, 1 + self as u16)
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
    /// Makes a path, and a `second` one beside it. [`crate::namespace::gain_rights`] must have been
    /// called.
    ///
    /// # Errors
    /// Name spaces or devices cannot be made, or a capture cannot be written.
    pub fn build(spec: PathSpec, second: Option<PathSpec>, captures: &Captures) -> Result<Self> {
        let sides = [Namespace::create()?, Namespace::create()?];
        let paths: Vec<WanPath> =
            [spec].into_iter().chain(second).zip(DEVICES).map(WanPath::new).collect();
        let in_flight = paths.iter().map(|path| path.spec.bytes_in_flight_max()).sum();
        for side in &sides {
            side.try_set(&settings(in_flight))?;
        }
        let captures = [
            open_capture(captures.near.as_deref(), PathSide::Near)?,
            open_capture(captures.far.as_deref(), PathSide::Far)?,
        ];
        let (stopped, stop) = io::pipe()?;
        let stopped = Arc::new(stopped);
        let mut wan = Self {
            clock: PathClock::start(),
            sides,
            captures,
            paths,
            stop: Some(stop),
            routers: Vec::new(),
        };
        for number in 0..wan.paths.len() {
            wan.start(number, &stopped)?;
        }
        Ok(wan)
    }

    /// Makes the devices of a path and starts its routers.
    fn start(&mut self, number: usize, stopped: &Arc<PipeReader>) -> Result<()> {
        let path = &self.paths[number];
        let open = |side: PathSide| {
            let (v4, v6) = (side.v4(number as u8), side.v6(number as u8));
            let interface = Interface { name: path.device, mtu: path.spec.mtu, v4, v6 };
            open_device(&self.sides[side as usize], interface)
        };
        let tuns = [Arc::new(open(PathSide::Near)?), Arc::new(open(PathSide::Far)?)];
        let gather_ns = (path.spec.rtt_ns() / 40).min(GATHER_NS_MAX);
        let names = ["forward", "back"];
        for (direction, config) in path.spec.links().into_iter().enumerate() {
            let (from, to) = (direction, 1 - direction);
            let setup = DirectionSetup {
                from: Arc::clone(&tuns[from]),
                to: Arc::clone(&tuns[to]),
                config,
                // Seeds differ, so that the two directions do not lose the same packets.
                seed: path.spec.seed.wrapping_mul(2).wrapping_add(direction as u64),
                gather_ns,
                clock: self.clock,
                captures: [self.captures[from].clone(), self.captures[to].clone()],
                stats: Arc::clone(&path.stats[direction]),
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
        let second = self.paths.get(1).map(|path| Box::new(self.report_of(path, None)));
        self.report_of(&self.paths[0], second)
    }

    fn report_of(&self, path: &WanPath, second: Option<Box<PathReport>>) -> PathReport {
        let [mut forward, mut back] = [0, 1].map(|direction| path.direction(direction));
        forward.overrun = self.overrun(PathSide::Near, path.device);
        back.overrun = self.overrun(PathSide::Far, path.device);
        let complaints = [forward.complaints("forward"), back.complaints("back")].concat();
        let elapsed_ns = self.clock.now_ns();
        let (path, failures) = (path.spec.clone(), Vec::new());
        PathReport { elapsed_ns, forward, back, complaints, failures, path, second }
    }

    /// Packets that a device of `side` dropped because the router did not read them in time.
    fn overrun(&self, side: PathSide, device: &str) -> u64 {
        let read = self.namespace(side).within(|| fs::read_to_string("/proc/thread-self/net/dev"));
        let Ok(Ok(table)) = read else { return 0 };
        // Eight columns received, then eight sent: bytes, packets, errors, drops, ...
        let line =
            table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        let dropped = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
        dropped.unwrap_or(0)
    }

    /// Ends it and says how it was. A router that ended, or a capture that could not be written, is
    /// among the failures.
    pub fn stop(mut self) -> PathReport {
        self.stop = None;
        let mut failures = Vec::new();
        for router in std::mem::take(&mut self.routers) {
            let ended = router.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            failures.extend(ended.err().map(|error| format!("a router ended early: {error}")));
        }
        for capture in self.captures.iter().flatten() {
            let flushed = capture.lock().unwrap_or_else(PoisonError::into_inner).flush();
            failures.extend(flushed.err().map(|error| format!("a capture is not whole: {error}")));
        }
        PathReport { failures, ..self.report() }
    }
}

impl WanPath {
    fn new((spec, device): (PathSpec, &'static str)) -> Self {
        Self { spec, device, stats: Default::default() }
    }

    fn direction(&self, direction: usize) -> DirectionStats {
        *self.stats[direction].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_device(namespace: &Namespace, interface: Interface<'_>) -> Result<Tun> {
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
    let option = match side {
        PathSide::Near => "--pcap-near",
        PathSide::Far => "--pcap-far",
    };
    OutputKind { option, name: "no capture", magic: CAPTURE_MAGIC }.check(path)?;
    let open = || CaptureWriter::new(BufWriter::new(File::create(path)?), side.name());
    let writer = open().with_context(|| format!("{}", path.display()))?;
    Ok(Some(Arc::new(Mutex::new(writer))))
}
