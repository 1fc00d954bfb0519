//! Shuttle over datagrams: a lower layer for DDP on long, fat, lossy paths (`docs/shuttle.md`).
//!
//! A [`Connection`] takes segments from an [`UlpduSource`](weft_wire::llp::UlpduSource), carries
//! them in datagrams, and hands each one up to an [`UlpduSink`](weft_wire::llp::UlpduSink) the
//! moment it arrives, in whatever order; it says how far the unbroken prefix reaches. It knows no
//! socket, no clock and no randomness: datagrams, times and seeds are arguments. The order of
//! calls stands at [`Connection`]. An [`Endpoint`] stands before the connections that share a
//! socket.
//!
//! Invariant: every segment is placed once, whatever the network does; its source hears that when
//! it and all before it are placed.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod account;
mod ack;
mod capability;
pub mod cc;
mod config;
mod connection;
mod draws;
mod endpoint;
mod error;
mod flight;
mod grey;
mod key;
mod letter;
mod mtu;
mod noise;
mod pacer;
mod path;
mod protect;
mod ranges;
mod recovery;
mod reorder;
mod rtt;
mod seal;
mod spread;
mod stream;
mod way_back;
mod window;

pub use capability::capabilities;
pub use config::{
    Config, Identity, MAX_DATAGRAM, MAX_PATHS, MAX_STREAMS, MIN_DATAGRAM, PACKETS_PER_KEY,
};
pub use connection::{Connection, Event, Ports, Request, Stats, TimeWait, Transmit};
pub use endpoint::{Arrival, Endpoint, EndpointStats, Gate, Listen, Passage, Ticket};
pub use error::{End, Misuse, Refusal};
pub use key::{KEY_FILE_OCTETS_MAX, Key, KeyError, KeyName};
pub use letter::{Ends, LETTER_OVERHEAD, Opener, Sealer, Unopened};
pub use noise::Credentials;
pub use path::Route;
pub use recovery::RecoveryStats;
pub use stream::{Credit, Placement, Profile};
