//! Shuttle over datagrams: a lower layer for DDP on long, fat, lossy paths (`docs/shuttle.md`).
#![forbid(unsafe_code)]

mod ack;
pub mod cc;
mod flight;
mod pacer;
mod ranges;
mod recovery;
mod reorder;
mod rtt;
mod stream;
mod window;

pub use recovery::RecoveryStats;
pub use stream::Placement;
