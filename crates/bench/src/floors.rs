//! Floors: both ends of the best that plain TCP sockets can do.
//!
//! A client prints one line of JSON; a server serves one client and prints nothing.

mod both;
mod calls;
mod load;
mod memory;
mod pingpong;
mod stream;

use std::net::{SocketAddr, TcpListener, TcpStream};
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
    /// Ping-pong, one thread receiving into memory that another polls.
    Memory,
}

/// Bytes of a message that goes to and fro.
const MESSAGE: usize = 64;

/// Runs one end.
pub fn run(floor: &FloorArgs) -> Result<()> {
    match (floor.listen, floor.connect) {
        (Some(address), None) => {
            let listener = TcpListener::bind(address).context("listening")?;
            let socket = prepare(listener.accept()?.0, &floor.congestion)?;
            serve(floor.kind, &listener, socket, Duration::from_secs_f64(floor.seconds))
        }
        (None, Some(address)) => {
            let socket = TcpStream::connect(address).context("connecting")?;
            let socket = prepare(socket, &floor.congestion)?;
            let report = measure(floor.kind, socket, Duration::from_secs_f64(floor.seconds))?;
            println!("{report}");
            Ok(())
        }
        _ => bail!("a floor has one end: --listen or --connect"),
    }
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
        let pingpong = |spin, bytes| FloorKind::Pingpong { spin, bytes };
        for kind in [pingpong(false, 1), pingpong(true, MESSAGE), FloorKind::Memory] {
            assert!(both_ends(kind)["us"].as_f64().unwrap() > 0.0, "{kind:?}");
        }
    }
}
