//! What travels: the headers of MPA, Shuttle, DDP, RDMAP and SDP as typed views, and the seam
//! between DDP and its lower layers.
//!
//! Invariant: nothing here keeps state or touches anything but its arguments; what one function
//! encodes its counterpart parses back to the same value. Parsing is total: it neither panics nor
//! allocates by a length that the peer declared.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

pub mod capability;
pub mod crc;
pub mod datagram;
pub mod ddp;
pub mod ids;
pub mod iwpm;
pub mod llp;
pub mod mpa;
pub mod rdmap;
pub mod sdp;
pub mod shuttle;
pub mod tap;
pub mod terminate;
