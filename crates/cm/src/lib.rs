//! The rdma-cm state machines, for connections over whatever the device has below it.
//!
//! One [`IdMachine`] is what librdmacm calls an `rdma_cm_id`: it is bound, it resolves, it listens
//! or connects, it accepts or rejects, it is disconnected. Nothing here opens a socket or waits:
//! the caller does what a command asks for and reports the outcome by a `handle_*` method.
//!
//! Invariant: a command that returns an error has changed nothing, and each connection that was
//! reported as established is reported as disconnected exactly once.
//!
//! Order of calls: [`IdMachine::may`] before doing what a command needs from the operating system,
//! the command itself once that has worked, `handle_*` as outcomes arrive, and
//! [`IdMachine::poll_event`] until it is empty after each of these.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod error;
mod event;
mod id;
mod param;
mod state;

pub use error::{CmMisuse, Failure};
pub use event::{CmEvent, EventKind};
pub use id::{Close, IdMachine};
pub use param::{
    CmConvention, ConnParam, DEPTH_DEVICE_MAX, Depths, DeviceProperties, PRIVATE_DATA_MAX, QpTerms,
    RETRIES_MAX,
};
pub use state::{CmCommand, CmState};
