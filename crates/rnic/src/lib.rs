//! The software RNIC, sans-IO: the objects of a device, and queue pairs bound to a lower layer.
//!
//! A [`Device`] owns the names: keys, queue pair numbers, protection domains. An [`MpaQp`] is a
//! queue pair with the TCP connection it was given, a [`ShuttleQp`] one with a Shuttle connection:
//! bytes in, bytes out, and the time when it wants to be called again, in nanoseconds of one clock.
//! A [`LoopbackQp`] is one that is its own peer.
//!
//! Invariant: a queue pair fails once. From then on it places nothing, every posted request is
//! flushed, and what still goes out is the rest of a frame and at most one Terminate.
//!
//! Order of calls over MPA: any of [`MpaQp::transmit`], [`MpaQp::receive`],
//! [`MpaQp::handle_timeout`]; after each, [`MpaQp::poll_timeout`] and [`MpaQp::is_finished`].
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod batch;
mod device;
mod loopback;
mod mpa_qp;
mod rnr;
mod shuttle_qp;

pub use batch::{Burst, Outgoing, Written};
pub use device::Device;
pub use loopback::LoopbackQp;
pub use mpa_qp::{MpaLink, MpaQp, Transmit};
pub use rnr::RetryLimits;
pub use shuttle_qp::{Binding, Established, Sending, ShuttleQp, WhenClosed, give_up};
pub use weft_cm as cm;
pub use weft_mpa as mpa;
pub use weft_shuttle as shuttle;
pub use weft_wire as wire;
