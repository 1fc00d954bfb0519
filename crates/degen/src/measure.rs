//! Limits of the router on this machine, which bound everything measured through it.
//!
//! Traffic of our own runs over a path that loses nothing: a UDP ping-pong beside the same over
//! loopback; a TCP stream as fast as it goes; the same through bottlenecks, each narrower than the
//! one before, until the router keeps up; and both at once.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::clock::PathClock;
use crate::namespace::{self, Namespace};
use crate::spec::PathSpec;
use crate::stats::{DelayHistogram, Quantiles};
use crate::wan::{Captures, PathSide, Wan};
use weft_units::{Bitrate, NS_PER_SEC, show_time};

/// Result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Ceiling {
    /// Round trip of UDP over loopback, without the router.
    pub loopback: Quantiles,
    /// Round trip of UDP through the idle router.
    pub idle: Quantiles,
    /// Round trip of UDP during a TCP stream at half of the sustained rate.
    pub loaded: Quantiles,
    /// What one TCP stream reached without a bottleneck, in bits of payload per second.
    pub fastest_bps: u64,
    /// The widest bottleneck that was tried and through which the router kept up.
    pub sustained: Option<Sustained>,
}

/// A rate at which the router keeps up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sustained {
    /// The rate of the bottleneck.
    pub rate_bps: u64,
    /// What one TCP stream got of it, in bits of payload per second.
    pub tcp_bps: u64,
    /// The router's CPU time for a gigabyte, with the kernel's work of receiving.
    pub cpu_s_per_gb: f64,
    /// How much later than due segments were handed on.
    pub late: Quantiles,
}

/// Bottlenecks in tenths of what the stream reached without one.
const TENTHS: [u64; 8] = [10, 9, 8, 7, 6, 5, 4, 3];
const PING_BYTES: usize = 64;
const PING_PATIENCE: Duration = Duration::from_secs(1);
const CALL_BYTES: usize = 256 << 10;
/// Socket timeout, so that `stop` is noticed on a stuck path.
const STREAM_PATIENCE: Duration = Duration::from_millis(200);

/// Measures, `each_ns` for each measurement. The process has one thread.
///
/// # Errors
/// There can be no path here.
pub fn ceiling(each_ns: u64) -> Result<Ceiling> {
    namespace::gain_rights()?;
    let free = path(&[])?;
    let near = free.namespace(PathSide::Near);
    let loopback = ping(near, near, PathSide::Near, each_ns)?;
    let idle = ping(near, free.namespace(PathSide::Far), PathSide::Far, each_ns)?;
    let fastest_bps = stream(&free, each_ns)?;
    drop(free);
    let sustained = sustained(fastest_bps, each_ns)?;
    let half_bps = sustained.map_or(fastest_bps, |sustained| sustained.tcp_bps) / 2;
    let loaded = ping_beside_stream(&path(&[])?, half_bps.max(1), each_ns)?;
    Ok(Ceiling { loopback, idle, loaded, fastest_bps, sustained })
}

fn path(words: &[String]) -> Result<Wan> {
    Wan::build(PathSpec::parse(words)?, None, &Captures::default())
}

fn sustained(fastest_bps: u64, each_ns: u64) -> Result<Option<Sustained>> {
    for tenths in TENTHS {
        let rate_bps = fastest_bps / 10 * tenths;
        let wan = path(&["10ms".into(), format!("rate={}bit", rate_bps.max(1))])?;
        let tcp_bps = stream(&wan, each_ns)?;
        let report = wan.stop();
        // App-limited: a stream that does not fill the bottleneck tells nothing about it.
        if report.complaints.is_empty() && report.failures.is_empty() && tcp_bps > rate_bps / 10 * 7
        {
            let bytes = report.forward.link.delivered_bytes.max(1) as f64;
            let cpu_ns = (report.forward.cpu_ns + report.back.cpu_ns) as f64;
            let cpu_s_per_gb = cpu_ns / bytes;
            return Ok(Some(Sustained {
                rate_bps,
                tcp_bps,
                cpu_s_per_gb,
                late: report.forward.late,
            }));
        }
    }
    Ok(None)
}

/// Round trips of a small datagram for `each_ns`.
fn ping(near: &Namespace, far: &Namespace, side: PathSide, each_ns: u64) -> Result<Quantiles> {
    let bind = |side: PathSide| UdpSocket::bind((side.v4(0), 0));
    let server = far.within(|| bind(side))??;
    let client = near.within(|| bind(PathSide::Near))??;
    client.set_read_timeout(Some(PING_PATIENCE))?;
    server.set_read_timeout(Some(PING_PATIENCE))?;
    let to = server.local_addr()?;
    let is_over = AtomicBool::new(false);
    let clock = PathClock::start();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut datagram = [0; PING_BYTES];
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((bytes, from)) = server.recv_from(&mut datagram) {
                    let _ = server.send_to(&datagram[..bytes], from);
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
    clock: &PathClock,
    each_ns: u64,
) -> Result<Quantiles> {
    let mut times = DelayHistogram::default();
    let mut datagram = [0; PING_BYTES];
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
    let clock = PathClock::start();
    let bytes = thread::scope(|scope| {
        let receiver = start_stream(scope, wan, u64::MAX, &is_over)?;
        while clock.now_ns() < each_ns {
            thread::park_timeout(Duration::from_nanos(each_ns - clock.now_ns().min(each_ns)));
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let bits = u128::from(bytes) * 8 * u128::from(NS_PER_SEC) / u128::from(each_ns);
    Ok(u64::try_from(bits).unwrap_or(u64::MAX))
}

fn ping_beside_stream(wan: &Wan, stream_bps: u64, each_ns: u64) -> Result<Quantiles> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = start_stream(scope, wan, stream_bps, &is_over)?;
        let near = wan.namespace(PathSide::Near);
        let times = ping(near, wan.namespace(PathSide::Far), PathSide::Far, each_ns);
        is_over.store(true, Ordering::Relaxed);
        drop(receiver);
        times
    })
}

/// Starts a sender of `bps` at most and a receiver; the receiver's result is how many bytes came.
fn start_stream<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    wan: &Wan,
    bps: u64,
    is_over: &'scope AtomicBool,
) -> Result<thread::ScopedJoinHandle<'scope, u64>> {
    let far = wan.namespace(PathSide::Far);
    let listener = far.within(|| TcpListener::bind((PathSide::Far.v4(0), 0)))??;
    let to = listener.local_addr()?;
    let near = wan.namespace(PathSide::Near);
    let mut sending = near.within(|| TcpStream::connect(to))?.context("a connection")?;
    let (mut receiving, _) = listener.accept()?;
    sending.set_write_timeout(Some(STREAM_PATIENCE))?;
    receiving.set_read_timeout(Some(STREAM_PATIENCE))?;
    scope.spawn(move || {
        let data = vec![0x5a; CALL_BYTES];
        let (clock, rate, mut sent) = (PathClock::start(), Bitrate::new(bps), 0);
        while !is_over.load(Ordering::Relaxed) {
            let early_ns = rate.ns_for(sent).saturating_sub(clock.now_ns());
            thread::park_timeout(Duration::from_nanos(early_ns));
            // A timeout is a slow path, and looks again whether it is over.
            sent += sending.write(&data).unwrap_or(0) as u64;
        }
    });
    Ok(scope.spawn(move || {
        let (mut data, mut total) = (vec![0; CALL_BYTES], 0);
        while !is_over.load(Ordering::Relaxed) {
            total += receiving.read(&mut data).unwrap_or(0) as u64;
        }
        total
    }))
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one_way = |through: u64, without: u64| show_time(through.saturating_sub(without) / 2);
        writeln!(f, "one TCP stream at most    {}", Bitrate::new(self.fastest_bps.max(1)))?;
        match self.sustained {
            Some(sustained) => sustained.fmt(f)?,
            None => writeln!(f, "the router kept up with nothing that was tried")?,
        }
        for (name, times) in [("idle", self.idle), ("beside half of that", self.loaded)] {
            writeln!(
                f,
                "added delay {name:<20} {} one way at the median, {} in 99 %",
                one_way(times.p50_ns, self.loopback.p50_ns),
                one_way(times.p99_ns, self.loopback.p50_ns),
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Sustained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |bps: u64| Bitrate::new(bps.max(1));
        let Self { rate_bps, tcp_bps, cpu_s_per_gb, late } = *self;
        writeln!(f, "it keeps up with          {}, {} of TCP", rate(rate_bps), rate(tcp_bps))?;
        writeln!(f, "processor time then       {cpu_s_per_gb:.3} s/GB")?;
        let (median, most) = (show_time(late.p50_ns), show_time(late.p99_ns));
        writeln!(f, "handed on late then       {median} at the median, {most} in 99 %")
    }
}
