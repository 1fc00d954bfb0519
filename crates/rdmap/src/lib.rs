//! RDMAP over DDP: work requests to segments, segments to placement, delivery and completions
//! (RFC 5040, RFC 5041, RFC 7306).
//!
//! A [`RdmapStream`] is the protocol state of one connected queue pair. Together with the queue
//! pair it makes a [`TxPort`], which hands segments to the lower layer, or an [`RxPort`], which
//! takes them.
//!
//! Invariant: segments of two messages never interleave, and a work request completes once: when
//! the lower layer took responsibility for its last segment and its response, if any, is placed.
//!
//! Order of calls: [`RdmapStream::new`] when the lower layer is agreed; then [`TxPort`] and
//! [`RxPort`] as bytes flow; after a fault from either, [`RdmapStream::fail`] once, and [`TxPort`]
//! until the Terminate is out.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod answers;
mod atomic;
mod capability;
mod coverage;
mod early;
mod fault;
mod gather;
mod inbound;
mod outbound;
mod progress;
mod rx;
mod sink;
mod source_gone;
mod state;
mod stream;
mod tx;

pub use capability::PeerExtensions;
pub use fault::StreamFault;
pub use rx::RxPort;
pub use stream::{LlpKind, RdmapStream, RnrWait, Role, RtrMessage, StreamConfig, StreamStats};
pub use tx::{TxPort, request_of};
