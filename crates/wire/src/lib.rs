//! What travels: the headers of MPA, DDP, RDMAP and SDP as typed views, and the seam between DDP
//! and its lower layers.
//!
//! Invariant: nothing here keeps state or touches anything but its arguments; what one function
//! encodes its counterpart parses back to the same value.
#![forbid(unsafe_code)]

pub mod crc;
pub mod llp;
