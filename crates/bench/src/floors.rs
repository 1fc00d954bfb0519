//! The floor probes' two ends: what a program could do at best with plain TCP sockets.
//!
//! A client prints one line of JSON; a server serves one client and prints nothing.

mod memory;
mod pingpong;
mod stream;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::sys;

/// A floor, and which end of it.
#[derive(Debug, Args)]
pub struct Floor {
    /// Which floor.
    #[command(subcommand)]
    kind: Kind,
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
enum Kind {
    /// One stream out of hot memory.
    Stream {
        /// Octets per system call.
        #[arg(long)]
        call: usize,
        /// At most so many octets.
        #[arg(long)]
        octets: Option<u64>,
    },
    /// Messages to and fro, waiting in the kernel or asking it again and again.
    Pingpong {
        /// Ask again and again.
        #[arg(long)]
        spin: bool,
    },
    /// To and fro, one thread receiving into memory that another watches.
    Memory,
}

/// Octets of a message that goes to and fro.
const MESSAGE: usize = 64;

/// Runs one end.
pub fn run(floor: &Floor) -> Result<()> {
    match (floor.listen, floor.connect) {
        (Some(address), None) => {
            let listener = TcpListener::bind(address).context("listening")?;
            serve(floor.kind, prepare(listener.accept()?.0, &floor.congestion)?)
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
    let _ = sys::set_congestion(socket.as_fd(), congestion);
    Ok(socket)
}

fn serve(kind: Kind, socket: TcpStream) -> Result<()> {
    match kind {
        Kind::Stream { call, .. } => stream::serve(socket, call),
        Kind::Pingpong { spin } => pingpong::serve(socket, spin),
        Kind::Memory => memory::serve(socket),
    }
}

fn measure(kind: Kind, socket: TcpStream, time: Duration) -> Result<Value> {
    match kind {
        Kind::Stream { call, octets } => stream::measure(socket, call, time, octets),
        Kind::Pingpong { spin } => pingpong::measure(socket, spin, time),
        Kind::Memory => memory::measure(socket, time),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Runs both ends of a floor in this process.
    fn both_ends(kind: Kind) -> Value {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            serve(kind, prepare(listener.accept().unwrap().0, "reno").unwrap()).unwrap();
        });
        let socket = prepare(TcpStream::connect(address).unwrap(), "reno").unwrap();
        let report = measure(kind, socket, Duration::from_millis(50)).unwrap();
        server.join().unwrap();
        report
    }

    #[test]
    fn every_floor_measures_and_its_server_ends() {
        let stream = both_ends(Kind::Stream { call: 1 << 18, octets: None });
        assert!(stream["gbps"].as_f64().unwrap() > 0.0);
        assert!(stream["octets"].as_f64().unwrap() > 0.0);
        let some = both_ends(Kind::Stream { call: 1 << 18, octets: Some(300_000) });
        assert_eq!(some["octets"].as_f64(), Some(300_000.0));
        let all = both_ends(Kind::Stream { call: 1 << 18, octets: Some(1 << 60) });
        assert!((1.0..1e18).contains(&all["octets"].as_f64().unwrap()), "{all}");
        for kind in [Kind::Pingpong { spin: false }, Kind::Pingpong { spin: true }, Kind::Memory] {
            assert!(both_ends(kind)["us"].as_f64().unwrap() > 0.0, "{kind:?}");
        }
    }
}
