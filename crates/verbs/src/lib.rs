//! The verbs objects: protection domains, memory regions, queues, completions and events.
//!
//! Invariant: registered memory is read and written in [`mr`] alone, after key, protection
//! domain, bounds and rights were checked under the lock that deregistration takes, so a region
//! that is gone is never touched.
//!
//! An application makes a [`pd::Pd`], registers regions in a [`mr::RegionTable`], makes a
//! [`cq::Cq`] and a [`qp::Qp`], posts, and polls. RDMAP below takes work requests out of the queues
//! of a [`qp::Qp`] and completes them there. Every object may be used from any thread.
//!
//! Lock order: receive queue, then send queue, then region table, then completion queue, then
//! channel.
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

pub mod access;
pub mod channel;
pub mod cq;
pub mod event;
pub mod limits;
pub mod misuse;
pub mod mr;
pub mod pd;
pub mod qp;
pub mod sge;
pub mod srq;
pub mod usage;
pub mod wc;
pub mod wr;
pub mod xrcd;

pub use access::Access;
pub use channel::{CompChannel, Wake};
pub use cq::{Cq, CqError};
pub use event::{AsyncEvent, AsyncKind, AsyncQueue};
pub use limits::Limits;
pub use misuse::Misuse;
pub use mr::{RegionFault, RegionTable};
pub use pd::Pd;
pub use qp::{AddressVector, AlternatePath, QpType};
pub use qp::{Qp, QpAttr, QpAttrMask, QpCap, QpFailure, QpInit, QpState};
pub use sge::Sge;
pub use srq::Srq;
pub use wc::{Wc, WcFlags, WcOpcode, WcStatus};
pub use wr::{Destination, RecvWr, SendFlags, SendOp, SendWr};
pub use xrcd::Xrcd;
