//! Sockets Direct Protocol: a byte stream, as sockets have it, out of the verbs' messages.
//! [docs/sdp.md](../../../docs/sdp.md) has the rules that comments cite as `SD-n`.
//!
//! Invariant: every byte that [`SdpConnection::send`] took arrives at the peer's
//! [`SdpConnection::receive`] once and in order, followed by the end of the stream if this side was
//! shut down, or the connection fails on both sides.
//!
//! Order of calls: an [`Opening`] makes the Hello, or a [`HelloRequest`] is made of one that
//! arrived; both post receives first and give a [`SdpConnection`]. From then on, in any order:
//! [`SdpConnection::handle_completion`] for each completion of its queue pair, commands, and
//! [`SdpConnection::handle_timeout`]; after each, [`SdpConnection::poll_event`] until there is
//! none, and [`SdpConnection::is_over`], after which the caller disconnects.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod config;
mod connection;
mod credits;
mod error;
mod event;
mod hello;
mod inbox;
mod layout;
mod outbox;
mod queue_pair;
mod verbs;

pub use config::{Choice, SdpConfig, SdpStyle};
pub use connection::SdpConnection;
pub use error::{SdpFault, Violation};
pub use event::SdpEvent;
pub use hello::{HelloRequest, Names, Opening};
pub use layout::Stretch;
pub use queue_pair::{KeyEntropy, SdpQueuePair};
pub use verbs::{AppMemory, SdpCompletion, SdpWork, Verbs};
