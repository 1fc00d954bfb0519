//! MPA over a byte stream: negotiation, FPDU framing, CRC, markers (RFC 5044, RFC 6581).
//!
//! Order of calls: an [`negotiate::Initiator`] or [`negotiate::Responder`] turns the exchange of
//! start frames into [`negotiate::Agreed`]; a [`MpaStream`] made from it frames what DDP has to
//! send ([`MpaStream::poll_transmit`], [`MpaStream::handle_transmitted`]) and takes frames apart
//! ([`MpaStream::handle_received`]).
//!
//! Invariant: DDP sees the bytes of an FPDU only after its bounds are known and its CRC, where
//! one was agreed, is right; after the first byte that is wrong it sees nothing more.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod capability;
mod error;
mod marker;
pub mod negotiate;
mod rx;
mod stream;
mod tx;

pub use capability::capabilities;
pub use error::{MpaError, RxFault};
pub use negotiate::{Agreed, MpaOffer, MpaRole, Rtr};
pub use stream::{MAX_FPDU_LEN, MAX_MULPDU, MIN_MULPDU, MpaStream};
