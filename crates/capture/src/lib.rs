//! Packets of connections in clear, as pcapng that Wireshark dissects.
//!
//! What a connection sends and receives is not what an analyser knows: it may be sealed, and
//! Shuttle is new. A [`CaptureTap`] writes it as what it stands for: a stream of MPA as iWARP over
//! TCP, Shuttle and datagrams as RoCE v2, Shuttle also as it is, for a dissector of its own.
//!
//! Invariant: each block reaches its file by one write, so that a file is whole whenever the
//! process ends; a file that cannot be written ends the capture, and nothing else.
//!
//! Order: [`CaptureSpec`] from its text, [`PacketCapture::new`], then [`PacketCapture::tap`] for
//! each connection. Lock order: the file of a capture is locked alone.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod exported;
mod file;
mod ip;
mod iwarp;
mod pcapng;
mod roce;
mod spec;
mod tap;

pub use file::PacketCapture;
pub use spec::{CaptureSpec, CaptureSpecError, CaptureView};
pub use tap::{CaptureTap, CapturedQp};
