//! Sockets Direct Protocol: a byte stream, as sockets have it, out of the verbs' messages.
//! [docs/sdp.md](../../../docs/sdp.md) has the rules that comments cite as `SD-n`.
//!
//! Invariant: every byte that [`Connection::send`] took arrives at the peer's
//! [`Connection::receive`] once and in order, followed by the end of the stream if this side was
//! shut down, or the connection fails on both sides.
//!
//! Order of calls: an [`Opening`] makes the Hello, or a [`Request`] is made of one that arrived;
//! both post receives first and give a [`Connection`]. From then on, in any order:
//! [`Connection::handle_completion`] for each completion of its queue pair, commands, and
//! [`Connection::handle_timeout`]; after each, [`Connection::poll_event`] until there is none, and
//! [`Connection::is_over`], after which the caller disconnects.
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

pub use config::{Choice, Config, Style};
pub use connection::Connection;
pub use error::{Fault, Violation};
pub use event::Event;
pub use hello::{Names, Opening, Request};
pub use layout::Stretch;
pub use queue_pair::{Entropy, QueuePair};
pub use verbs::{Completion, Memory, Verbs, Work};
