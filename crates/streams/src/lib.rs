//! `weft pipe` and `weft forward`: byte streams to another host, over a channel of `weft-session`.
//!
//! One thread at each end moves bytes between descriptors and the channel ([`event_loop`]); what it
//! may send on each stream, and when, is decided without I/O ([`window`]). A stream that nobody
//! reads stops its own sender and no other.
//!
//! Invariant: bytes of a stream come out in order, each once; its end comes after its last byte;
//! and both ends together hold no more of it than its window.
//!
//! Order of calls: [`command::pipe`] or [`command::forward`] here, [`far::serve`] there.
#![forbid(unsafe_code)]

pub mod command;
mod dialer;
pub mod event_loop;
pub mod event_queue;
pub mod far;
pub mod forward;
pub mod messages;
pub mod process;
pub mod pump;
pub mod stream;
pub mod window;
