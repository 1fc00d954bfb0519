//! Floors: both ends of the best that plain sockets can do, of TCP or of AF_UNIX.
//!
//! A client prints one line of JSON; a server serves one client and prints nothing. The ends of a
//! floor over AF_UNIX meet by TCP, too, so that each floor is started alike.

mod both;
mod calls;
mod load;
mod many;
mod memory;
mod pingpong;
mod stream;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use rustix::net::sockopt::set_tcp_congestion;
use serde_json::Value;

/// A floor, and which end of it.
#[derive(Debug, Args)]
pub struct FloorArgs {
    /// Which floor.
    #[command(subcommand)]
    kind: FloorKind,
    /// Serve one client here.
    #[arg(long, global = true)]
    listen: Option<SocketAddr>,
    /// Connect there and measure.
    #[arg(long, global = true)]
    connect: Option<SocketAddr>,
    /// An AF_UNIX stream instead of TCP.
    #[arg(long, global = true)]
    unix: bool,
    /// For how long to measure.
    #[arg(long, global = true, default_value_t = 2.0)]
    seconds: f64,
    /// The congestion control, where it is allowed; elsewhere the default is the best there is.
    #[arg(long, global = true, default_value = "reno")]
    congestion: String,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum FloorKind {
    /// One stream out of hot memory.
    Stream {
        /// Bytes per system call.
        #[arg(long)]
        call: usize,
        /// At most so many bytes.
        #[arg(long)]
        bytes: Option<u64>,
        /// Another stream the other way at the same time.
        #[arg(long, conflicts_with = "bytes")]
        both: bool,
    },
    /// Ping-pong, blocking in the kernel or polling it.
    Pingpong {
        /// Poll.
        #[arg(long)]
        spin: bool,
        /// Bytes of a message.
        #[arg(long, default_value_t = MESSAGE)]
        bytes: usize,
    },
    /// Cost of single calls.
    Calls,
    /// 1 KB from a program that computes for so long before it answers.
    Fetch {
        /// Microseconds of computing.
        #[arg(long)]
        load: u64,
    },
    /// Ping-pong with so much computing in between.
    Overlap {
        /// Microseconds of computing.
        #[arg(long)]
        load: u64,
    },
    /// A program that computes while forty clients send to it.
    Crowd {
        /// Bytes of a message.
        #[arg(long)]
        bytes: usize,
    },
    /// Connections one after the other.
    Connect {
        /// How many.
        #[arg(long)]
        count: usize,
    },
    /// Ping-pong of 64 bytes on one of many connections, which epoll polls.
    Many {
        /// How many connections.
        #[arg(long)]
        count: usize,
        /// On all of them at once.
        #[arg(long)]
        all: bool,
    },
    /// Ping-pong, one thread receiving into memory that another polls.
    Memory,
}

/// Bytes of a message that goes to and fro.
const MESSAGE: usize = 64;

/// Runs one end.
pub fn run(floor: &FloorArgs) -> Result<()> {
    let time = Duration::from_secs_f64(floor.seconds);
    match (floor.listen, floor.connect) {
        (Some(address), None) => {
            // Before the client can connect by TCP, which is what tells it that both listen.
            let unix = floor.unix.then(|| UnixListener::bind_addr(&meeting_place(address)?));
            let unix = unix.transpose().context("listening at an abstract address")?;
            let listener = TcpListener::bind(address).context("listening")?;
            let mut socket = prepare(listener.accept()?.0, &floor.congestion)?;
            if let Some(unix) = unix {
                socket = as_stream(unix.accept()?.0);
            }
            serve(floor.kind, &listener, socket, time)
        }
        (None, Some(address)) => {
            let socket = TcpStream::connect(address).context("connecting")?;
            let mut socket = prepare(socket, &floor.congestion)?;
            if floor.unix {
                socket = as_stream(UnixStream::connect_addr(&meeting_place(address)?)?);
            }
            crate::output::print(&format!("{}\n", measure(floor.kind, socket, time)?))?;
            Ok(())
        }
        _ => bail!("a floor has one end: --listen or --connect"),
    }
}

/// Abstract address of AF_UNIX that belongs to an address of TCP.
fn meeting_place(address: SocketAddr) -> std::io::Result<unix::net::SocketAddr> {
    unix::net::SocketAddr::from_abstract_name(format!("weft-bench-{address}"))
}

/// The same stream with the type of the floors, which use nothing that only TCP has.
fn as_stream(socket: UnixStream) -> TcpStream {
    TcpStream::from(OwnedFd::from(socket))
}

/// A socket without delay, under `congestion` if that is allowed.
fn prepare(socket: TcpStream, congestion: &str) -> Result<TcpStream> {
    socket.set_nodelay(true)?;
    let _ = set_tcp_congestion(&socket, congestion);
    Ok(socket)
}

fn serve(kind: FloorKind, listener: &TcpListener, socket: TcpStream, time: Duration) -> Result<()> {
    match kind {
        FloorKind::Stream { call, both: true, .. } => both::serve(socket, call, time),
        FloorKind::Stream { call, .. } => stream::serve(socket, call),
        FloorKind::Pingpong { spin, bytes } => pingpong::serve(socket, spin, bytes),
        FloorKind::Calls => calls::serve(socket),
        FloorKind::Fetch { load } => load::serve_fetch(socket, Duration::from_micros(load)),
        FloorKind::Overlap { .. } => pingpong::serve(socket, true, load::MESSAGE),
        FloorKind::Crowd { .. } => load::serve_crowd(listener, socket, time),
        FloorKind::Connect { count } => load::serve_connect(listener, socket, count),
        FloorKind::Many { count, .. } => many::serve(listener, socket, count),
        FloorKind::Memory => memory::serve(socket),
    }
}

fn measure(kind: FloorKind, socket: TcpStream, time: Duration) -> Result<Value> {
    match kind {
        FloorKind::Stream { call, both: true, .. } => both::measure(socket, call, time),
        FloorKind::Stream { call, bytes, .. } => stream::measure(socket, call, time, bytes),
        FloorKind::Pingpong { spin, bytes } => pingpong::measure(socket, spin, bytes, time),
        FloorKind::Calls => calls::measure(socket),
        FloorKind::Fetch { .. } => load::measure_fetch(socket, time),
        FloorKind::Overlap { load } => {
            load::measure_overlap(socket, Duration::from_micros(load), time)
        }
        FloorKind::Crowd { bytes } => load::measure_crowd(socket, bytes),
        FloorKind::Connect { count } => load::measure_connect(socket, count),
        FloorKind::Many { count, all } => many::measure(socket, count, all, time),
        FloorKind::Memory => memory::measure(socket, time),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TIME: Duration = Duration::from_millis(50);

    /// Runs both ends of a floor in this process.
    fn both_ends(kind: FloorKind) -> Value {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let socket = prepare(listener.accept().unwrap().0, "reno").unwrap();
            serve(kind, &listener, socket, TIME).unwrap();
        });
        let socket = prepare(TcpStream::connect(address).unwrap(), "reno").unwrap();
        let report = measure(kind, socket, TIME).unwrap();
        server.join().unwrap();
        report
    }

    #[test]
    fn every_floor_measures_and_its_server_ends() {
        let stream = both_ends(FloorKind::Stream { call: 1 << 18, bytes: None, both: false });
        assert!(stream["gbps"].as_f64().unwrap() > 0.0);
        assert!(stream["bytes"].as_f64().unwrap() > 0.0);
        let some =
            both_ends(FloorKind::Stream { call: 1 << 18, bytes: Some(300_000), both: false });
        assert_eq!(some["bytes"].as_f64(), Some(300_000.0));
        let all = both_ends(FloorKind::Stream { call: 1 << 18, bytes: Some(1 << 60), both: false });
        assert!((1.0..1e18).contains(&all["bytes"].as_f64().unwrap()), "{all}");
        let ratio = |kind| both_ends(kind)["ratio"].as_f64().unwrap();
        let overlapped = ratio(FloorKind::Overlap { load: 20_000 });
        assert!(overlapped > 0.0 && overlapped <= 1.0, "{overlapped}");
        assert!(ratio(FloorKind::Crowd { bytes: 1024 }) > 0.0);
        let fetched = both_ends(FloorKind::Fetch { load: 20_000 });
        assert!(fetched["us"].as_f64().unwrap() >= 20_000.0, "{fetched}");
        assert!(both_ends(FloorKind::Connect { count: 3 })["us"].as_f64().unwrap() > 0.0);
        let calls = both_ends(FloorKind::Calls);
        assert!(calls["calls"]["connect"].as_f64().unwrap() > 0.0, "{calls}");
        let both = both_ends(FloorKind::Stream { call: 1 << 18, bytes: None, both: true });
        assert!(both["gbps"].as_f64().unwrap() > 0.0);
        assert!(both_ends(FloorKind::Many { count: 3, all: false })["p50"].as_f64() > Some(0.0));
        let all = both_ends(FloorKind::Many { count: 3, all: true });
        assert!(all["per_second"].as_f64() > Some(0.0), "{all}");
        let pingpong = |spin, bytes| FloorKind::Pingpong { spin, bytes };
        for kind in [pingpong(false, 1), pingpong(true, MESSAGE), FloorKind::Memory] {
            let report = both_ends(kind);
            for value in ["us", "p50"] {
                assert!(report[value].as_f64().unwrap() > 0.0, "{kind:?} {report}");
            }
        }
    }

    /// Both ends in this process, each begun as its process begins it; whether the port was still
    /// free that they were given.
    fn meets(kind: FloorKind) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, crate::ports::free().unwrap()));
        let end = |listen, connect| {
            let congestion = String::from("reno");
            FloorArgs { kind, listen, connect, unix: true, seconds: 0.05, congestion }
        };
        let server = end(Some(address), None);
        let server = std::thread::spawn(move || run(&server));
        while !crate::ports::is_listening(address.port()).unwrap() && !server.is_finished() {}
        let measured = run(&end(None, Some(address)));
        match server.join().unwrap() {
            Err(error) if format!("{error:#}").contains("in use") => false,
            served => {
                served.and(measured).unwrap();
                true
            }
        }
    }

    #[test]
    fn a_floor_over_unix_sockets_meets_by_tcp() {
        for kind in [
            FloorKind::Pingpong { spin: true, bytes: MESSAGE },
            FloorKind::Stream { call: 1 << 16, bytes: None, both: false },
        ] {
            assert!((0..10).any(|_| meets(kind)), "{kind:?}");
        }
    }
}
