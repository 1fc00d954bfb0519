//! The connection manager over sockets: ids, event channels, listeners and connection attempts.
//!
//! The rules are in [`weft_rnic::cm`]; here they meet TCP and UDP. A [`CmId`] owns whatever its
//! state calls for (bound sockets, a listener, an attempt, a request that waits for an answer).
//! Over TCP it hands the stream to a queue pair once both sides have agreed; over UDP the queue
//! pair's connection of Shuttle makes the handshake itself. Everything a peer sends before that is
//! bounded in size and time ([`config`]).
//!
//! Which of the two it is, is found out when an address is resolved (`probe`). A listener serves
//! both, at one number.
//!
//! Invariant: each event reaches the channel of its id exactly once, in the order in which it
//! happened, and none does after [`CmId::destroy`] has begun.
//!
//! Order of locks: a half-open stream before nothing, a listener's id before its new ids, an id
//! before its channel's queue. No lock is held while a queue pair is called, because it calls back.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod accept;
mod attempt;
mod call;
mod channel;
pub mod config;
mod connect;
mod device;
mod error;
mod groups;
mod id;
mod lingering_reject;
mod link;
mod listen;
mod listener;
mod locked;
mod multicast;
mod posted;
mod probe;
mod refusal;
mod request;
mod resolve;
mod shuttle_listener;
mod sockets;
mod source;
mod stand_in;
mod unacked;
mod words;

pub use channel::{EventChannel, IdEvent};
pub use device::{HOP_LIMIT, PortSpace};
pub use error::CmError;
pub use groups::Join;
pub use id::CmId;
pub use weft_rnic::cm::{
    CmCommand, CmEvent, CmState, ConnParam, DEPTH_DEVICE_MAX, EventKind, QpTerms, RETRIES_MAX,
};
pub use words::private_data_max;
