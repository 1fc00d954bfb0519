//! The software RNIC, sans-IO: the objects of a device, and queue pairs bound to a lower layer.
//!
//! A [`Device`] owns the names: keys, queue pair numbers, protection domains. An [`Endpoint`] is
//! a queue pair with the TCP connection it was given, an [`Association`] one with a Shuttle
//! connection: bytes in, bytes out, and the time when it wants to be called again. A [`Mirror`] is
//! one that is its own peer.
//!
//! Invariant: an endpoint fails once. From then on it places nothing, every posted request is
//! flushed, and what still goes out is the rest of a frame and at most one Terminate.
//!
//! Order of calls on an endpoint: any of [`Endpoint::transmit`], [`Endpoint::receive`],
//! [`Endpoint::handle_timeout`]; after each, [`Endpoint::poll_timeout`] and
//! [`Endpoint::is_finished`].
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod association;
mod device;
mod endpoint;
mod mirror;
mod outgoing;
mod patience;

pub use association::{Association, Binding, Established, Sending, WhenClosed, give_up};
pub use device::Device;
pub use endpoint::{Endpoint, Link, Transmit};
pub use mirror::Mirror;
pub use outgoing::{Burst, Outgoing, Written};
pub use patience::Patience;
pub use weft_cm as cm;
pub use weft_mpa as mpa;
pub use weft_shuttle as shuttle;
pub use weft_wire as wire;
