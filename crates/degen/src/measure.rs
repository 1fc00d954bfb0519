//! What the router itself can do on this machine: the limits of everything measured through it.
//!
//! Traffic of our own runs over a path that does nothing: a UDP ping-pong beside the same over
//! loopback, a TCP stream as fast as it goes, and both at once.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::clock::Clock;
use crate::namespace::{self, Namespace};
use crate::spec::PathSpec;
use crate::stats::{Histogram, Quantiles, Report};
use crate::units::{Bitrate, NS_PER_SEC, show_time};
use crate::wan::{Captures, Side, Wan};

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Ceiling {
    /// A UDP round trip over loopback, without the router.
    pub loopback: Quantiles,
    /// The same through the router, which has nothing else to do.
    pub idle: Quantiles,
    /// The same beside a TCP stream through a bottleneck of half the highest rate.
    pub loaded: Quantiles,
    /// The highest rate of one TCP stream, over its payload.
    pub tcp_bps: u64,
    /// The router's processor time for a gigabyte of it, with the kernel's work of receiving.
    pub cpu_s_per_gb: f64,
    /// Bundles that were lost although the path loses nothing.
    pub unwanted_losses: u64,
    /// Why the router fell behind, if it did.
    pub complaints: Vec<String>,
}

const PING_OCTETS: usize = 64;
const PING_PATIENCE: Duration = Duration::from_secs(1);
const CALL_OCTETS: usize = 256 << 10;
/// So that stopping a stream is noticed on a path that is stuck.
const STREAM_PATIENCE: Duration = Duration::from_millis(200);

/// Measures, `each_ns` for each of four measurements. The process has one thread.
///
/// # Errors
/// There can be no path here.
pub fn ceiling(each_ns: u64) -> Result<Ceiling> {
    namespace::gain_rights()?;
    let fast = Wan::build(PathSpec::default(), &Captures::default())?;
    let near = fast.namespace(Side::Near);
    let loopback = ping(near, near, Side::Near, each_ns)?;
    let idle = ping(near, fast.namespace(Side::Far), Side::Far, each_ns)?;
    let tcp_bps = stream(&fast, each_ns)?;
    let report = fast.stop()?;
    let half = PathSpec::parse(&[format!("{}bit", (tcp_bps / 2).max(1)), "queue=150kB".into()])?;
    let loaded = ping_beside_stream(&Wan::build(half, &Captures::default())?, each_ns)?;
    let octets = (report.forward.link.delivered_octets as f64).max(1.0);
    let cpu_ns = (report.forward.cpu_ns + report.back.cpu_ns) as f64;
    Ok(Ceiling {
        loopback,
        idle,
        loaded,
        tcp_bps,
        cpu_s_per_gb: cpu_ns / octets,
        unwanted_losses: unwanted_losses(&report),
        complaints: report.complaints,
    })
}

fn unwanted_losses(report: &Report) -> u64 {
    let of = |way: &crate::stats::DirectionStats| way.overrun + way.refused + way.damaged;
    of(&report.forward) + of(&report.back)
}

/// Round trips of a small datagram for `each_ns`.
fn ping(near: &Namespace, far: &Namespace, side: Side, each_ns: u64) -> Result<Quantiles> {
    let bind = |side: Side| UdpSocket::bind((side.v4(), 0));
    let server = far.within(|| bind(side))??;
    let client = near.within(|| bind(Side::Near))??;
    client.set_read_timeout(Some(PING_PATIENCE))?;
    server.set_read_timeout(Some(PING_PATIENCE))?;
    let to = server.local_addr()?;
    let is_over = AtomicBool::new(false);
    let clock = Clock::start();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut datagram = [0; PING_OCTETS];
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((octets, from)) = server.recv_from(&mut datagram) {
                    let _ = server.send_to(&datagram[..octets], from);
                }
            }
        });
        let times = round_trips(&client, to, &clock, each_ns);
        is_over.store(true, Ordering::Relaxed);
        // The last word, for the server to hear that it is over.
        let _ = client.send_to(&[], to);
        times
    })
}

fn round_trips(
    client: &UdpSocket,
    to: SocketAddr,
    clock: &Clock,
    each_ns: u64,
) -> Result<Quantiles> {
    let mut times = Histogram::default();
    let mut datagram = [0; PING_OCTETS];
    while clock.now_ns() < each_ns {
        let sent_ns = clock.now_ns();
        client.send_to(&datagram, to)?;
        // A datagram that was dropped in the bottleneck's queue has no time.
        if client.recv(&mut datagram).is_ok() {
            times.record(clock.now_ns() - sent_ns);
        }
    }
    Ok(times.summary())
}

/// The rate of one TCP stream over `wan`, in bits per second.
fn stream(wan: &Wan, each_ns: u64) -> Result<u64> {
    let is_over = AtomicBool::new(false);
    let clock = Clock::start();
    let octets = thread::scope(|scope| {
        let receiver = start_stream(scope, wan, &is_over)?;
        while clock.now_ns() < each_ns {
            thread::park_timeout(Duration::from_nanos(each_ns - clock.now_ns().min(each_ns)));
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let bits = u128::from(octets) * 8 * u128::from(NS_PER_SEC) / u128::from(each_ns);
    Ok(u64::try_from(bits).unwrap_or(u64::MAX))
}

fn ping_beside_stream(wan: &Wan, each_ns: u64) -> Result<Quantiles> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = start_stream(scope, wan, &is_over)?;
        let near = wan.namespace(Side::Near);
        let times = ping(near, wan.namespace(Side::Far), Side::Far, each_ns);
        is_over.store(true, Ordering::Relaxed);
        drop(receiver);
        times
    })
}

/// Starts a sender and a receiver; the receiver's result is how many octets came.
fn start_stream<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    wan: &Wan,
    is_over: &'scope AtomicBool,
) -> Result<thread::ScopedJoinHandle<'scope, u64>> {
    let far = wan.namespace(Side::Far);
    let listener = far.within(|| TcpListener::bind((Side::Far.v4(), 0)))??;
    let to = listener.local_addr()?;
    let near = wan.namespace(Side::Near);
    let mut sending = near.within(|| TcpStream::connect(to))?.context("a connection")?;
    let (mut receiving, _) = listener.accept()?;
    sending.set_write_timeout(Some(STREAM_PATIENCE))?;
    receiving.set_read_timeout(Some(STREAM_PATIENCE))?;
    scope.spawn(move || {
        let data = vec![0x5a; CALL_OCTETS];
        while !is_over.load(Ordering::Relaxed) {
            // A timeout is a slow path, and looks again whether it is over.
            let _ = sending.write(&data);
        }
    });
    Ok(scope.spawn(move || {
        let (mut data, mut total) = (vec![0; CALL_OCTETS], 0);
        while !is_over.load(Ordering::Relaxed) {
            total += receiving.read(&mut data).unwrap_or(0) as u64;
        }
        total
    }))
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one_way = |through: u64, without: u64| show_time(through.saturating_sub(without) / 2);
        writeln!(f, "one TCP stream            {}", Bitrate::new(self.tcp_bps.max(1)))?;
        writeln!(f, "router's processor time   {:.3} s/GB", self.cpu_s_per_gb)?;
        writeln!(f, "unwanted losses           {} bundles", self.unwanted_losses)?;
        for (name, times) in [("idle", self.idle), ("at half that rate", self.loaded)] {
            writeln!(
                f,
                "added delay, {name:<18} {} one way at the median, {} in 99 %",
                one_way(times.p50_ns, self.loopback.p50_ns),
                one_way(times.p99_ns, self.loopback.p50_ns),
            )?;
        }
        self.complaints.iter().try_for_each(|complaint| writeln!(f, "{complaint}"))
    }
}
