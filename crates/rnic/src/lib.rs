//! The software RNIC, sans-IO: the objects of a device, and queue pairs bound to a lower layer.
//!
//! A [`RdmaDevice`] owns the names: keys, queue pair numbers, protection domains. A [`Conn`] is a
//! queue pair bound to what carries it: bytes in, bytes out, events, and the time when it wants to
//! be called again, in nanoseconds of one clock. It is an [`MpaQp`] over TCP, a [`ShuttleQp`] or a
//! [`UdQp`] over UDP, or a [`LoopbackQp`].
//!
//! Invariant: a queue pair fails once. From then on it places nothing, every posted request is
//! flushed, and what still goes out is the rest of a frame and at most one Terminate.
//!
//! The order of calls stands at [`conn`].
//!
//! # The path of a byte
//!
//! Two connections back to back in memory; the comments name the RFCs:
//!
//! ```
#![doc = include_str!("../examples/path_of_a_byte.rs")]
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod batch;
pub mod conn;
mod device;
mod due;
mod event;
mod lane;
mod loopback;
mod mpa_qp;
pub mod path;
mod rnr;
mod shuttle_ports;
mod shuttle_qp;
mod ud_qp;

pub use batch::{Batch, Written};
pub use conn::{Conn, Input};
pub use device::RdmaDevice;
pub use due::earliest;
pub use event::{ConnEvent, ConnectionEnd, DroppedDatagram, Established, Sending, WhenClosed};
pub use lane::{
    LANE_SEGMENT_MAX_BYTES, LENT_MAX_BYTES, LENT_MIN_BYTES, LaneFlow, LaneSegment, Loan, NotReady,
    Pushed, SegmentLane, lane_capabilities,
};
pub use loopback::LoopbackQp;
pub use mpa_qp::{MpaLink, MpaQp};
pub use rnr::RetryLimits;
pub use shuttle_qp::{Binding, ShuttleQp, give_up};
pub use ud_qp::{UdConfig, UdPolicy, UdQp, ud_capabilities};
pub use weft_cm as cm;
pub use weft_mpa as mpa;
pub use weft_rdmap::StreamStats;
pub use weft_shuttle as shuttle;
pub use weft_wire as wire;
