//! A host and its queue pairs: connection slots, the driver, leases, doorbells, and the objects
//! that the verbs ABI hands out.
//!
//! A [`Host`] is a value: a process may have several, with other keys and settings. Whoever posts
//! or polls drives a queue pair on its own thread if it gets the pair's lock; the threads of the
//! host's reactor do what nobody is there to do, and sleep when nothing is due.
//!
//! Invariant: a queue pair is driven by one thread at a time, and whoever cannot take its lock
//! leaves a flag that the holder sees before it goes: no doorbell is lost.
//!
//! A resource that is lacking is reported as the errno of the verb that needs it: the first thread
//! and descriptors of the reactor are taken when a device or an event channel is opened, those of a
//! queue pair when it is made or connected. Further threads are done without. Nothing here may
//! panic, since it runs in other processes: a lint denies it, and `cargo xtask arch` the lack of
//! that lint.
//!
//! Order of calls: [`Host::new`]; [`Context::open`], objects from it; then [`HostQp::attach`] when
//! the connection manager (`weft-rdmacm`) has a stream for the queue pair, or [`HostQp::modify`] up
//! to RTS where the application names the peer itself.
//!
//! Lock order: driver of a queue pair, then what `weft_verbs` says, then the reactor's tables.
//! Nothing is locked while a [`LinkWatcher`] or a [`weft_reactor::Pollable`] is called, nor while
//! an application thread is woken ([`after_lock`]).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod backoff;
pub mod capability;
mod config;
mod conn_slot;
mod connections;
mod context;
mod cq;
mod device_kind;
mod devices;
pub mod diagnostics;
mod driver;
mod event_wait;
mod events;
mod faults;
mod group;
mod host;
mod iwarp_connect;
mod iwarp_ports;
mod known_paths;
mod lease;
mod link;
mod log_line;
mod look_habit;
pub mod managed;
mod multipath;
mod poll_group;
mod poll_history;
mod process;
mod publish;
mod qp;
mod qp_faults;
mod roce_connect;
mod slot;
mod srq;
mod sync;
pub mod tally;
mod tap;
mod tcp_ports;
mod time_wait;
mod wakes;
mod xrcd;

pub use weft_capture::json_text;

pub use config::{CmTransport, ProgressMode, STALL_TIMEOUT_MS_MAX, Settings, VARIABLES};
pub use conn_slot::Attachment;
pub use context::Context;
pub use context::memory::Advice;
pub use cq::HostCq;
pub use device_kind::{DEVICES_MAX, DeviceId, DeviceKind};
pub use devices::Devices;
pub use driver::LinkWatcher;
pub use event_wait::{EventCounter, EventWaiter};
pub use faults::{
    CqLimit, DeviceChanges, DeviceState, DeviceUser, DrawnFault, Faults, JOURNAL_VARIABLE, Outages,
    PORT_COOKIE, ToldDevice, Window,
};
pub use host::{Host, HostSetup};
pub use known_paths::KnownPaths;
pub use log_line::{LogFormat, abridged};
pub use multipath::Multipath;
pub use process::{HostHome, HostPlace};
pub use qp::{HostPosting, HostQp, HostQpInit};
pub use srq::{HostSrq, SrqInit};
pub use tcp_ports::TcpPortHolder;
pub use wakes::{PostponingGuard, after_lock};
pub use weft_reactor::THREADS_MAX;
pub use weft_rnic::mpa;
pub use weft_verbs::Pd;
pub use xrcd::{HostXrcd, XrcdFile};
