//! The connection manager over sockets: ids, event channels, listeners and connection attempts.
//!
//! The rules are in [`weft_rnic::cm`]; here they meet TCP. A [`CmId`] owns whatever its state
//! calls for (a bound socket, a listener, an attempt, a request that waits for an answer) and
//! hands the stream to a queue pair once both sides have agreed. Everything a peer sends before
//! that is bounded in size and time ([`config`]).
//!
//! Invariant: each event reaches the channel of its id exactly once, in the order in which it
//! happened, and none does after [`CmId::destroy`] has begun.
//!
//! Order of locks: a half-open stream before nothing, a listener's id before its new ids, an id
//! before its channel's queue. No lock is held while a queue pair is called, because it calls back.

mod account;
mod attempt;
mod channel;
pub mod config;
mod error;
mod farewell;
mod frame;
mod id;
mod link;
mod listener;
mod redial;
mod refusal;
mod request;
mod socket;

pub use channel::{Delivery, EventChannel};
pub use error::Error;
pub use id::{CmId, PortSpace};
pub use weft_rnic::cm::{ConnParam, DEPTH_DEVICE_MAX, Event, EventKind, State};
