//! Packets of connections in clear, as pcapng that Wireshark dissects, and what happens in a
//! process, as qlog.
//!
//! What a connection sends and receives is not what an analyser knows: it may be sealed, and
//! Shuttle is new. A [`CaptureTap`] writes it as what it stands for: a stream of MPA as iWARP over
//! TCP, Shuttle and datagrams as RoCE v2, Shuttle also as it is, for a dissector of its own.
//!
//! An [`EventTrace`] has the same packets without their payload, and what applications do by verbs.
//!
//! Invariant: each block or record reaches its file by one write, so that a file is whole
//! whenever the process ends; a file that cannot be written ends the capture, and nothing else.
//!
//! Order: [`EventTrace::new`], then [`EventTrace::tap`] for each connection; or [`CaptureSpec`]
//! from its text, [`PacketCapture::new`], then [`PacketCapture::tap`]. Lock order: the file of
//! either is locked alone.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod exported;
mod file;
mod ip;
mod iwarp;
mod names;
mod pcapng;
mod qlog;
mod roce;
mod spec;
mod tap;
mod trace;

pub use file::PacketCapture;
pub use qlog::TraceTap;
pub use spec::{CaptureSpec, CaptureSpecError, CaptureView};
pub use tap::{CaptureTap, CapturedQp};
pub use trace::{EventTrace, json_text};
