//! Shuttle over datagrams: a lower layer for DDP on long, fat, lossy paths (`docs/shuttle.md`).
//!
//! A [`ShuttleConnection`] takes segments from an [`UlpduSource`](weft_wire::llp::UlpduSource),
//! carries them in datagrams, and hands each one up to an [`UlpduSink`](weft_wire::llp::UlpduSink)
//! the moment it arrives, in whatever order; it says how far the unbroken prefix reaches. It knows
//! no socket, no clock and no randomness: datagrams, times and seeds are arguments. The order of
//! calls stands at [`ShuttleConnection`]. An [`Endpoint`] stands before the connections that share
//! a socket.
//!
//! Invariant: every segment is placed once, whatever the network does; its source hears that when
//! it and all before it are placed.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod ack;
mod ack_path;
mod capability;
pub mod cc;
mod config;
mod connection;
mod csprng;
mod endpoint;
mod error;
mod flight;
mod flight_builder;
mod key;
mod mtu;
mod mtu_suspect;
mod noise;
mod pacer;
mod path;
mod path_budget;
mod protect;
mod ranges;
mod recovery;
mod reorder;
pub mod reply_habit;
mod rtt;
mod scheduler;
mod seal;
mod sealed_datagram;
mod stream;
mod transmit;
mod window;

pub use capability::capabilities;
pub use config::{
    Identity, MAX_DATAGRAM, MAX_PATHS, MAX_STREAMS, MIN_DATAGRAM, PACKETS_PER_KEY, ShuttleConfig,
};
pub use connection::{
    ConnectionStats, PeerRequest, Ports, ShuttleConnection, ShuttleEvent, TimeWait,
};
pub use endpoint::{Arrival, Endpoint, EndpointStats, Gate, Listen, Passage, Ticket};
pub use error::{ConnectionEnd, Refusal, ShuttleMisuse};
pub use key::{KEY_FILE_OCTETS_MAX, Key, KeyError, KeyName};
pub use noise::Credentials;
pub use path::Route;
pub use recovery::RecoveryStats;
pub use sealed_datagram::{AddressPair, Opener, SEALED_OVERHEAD, Sealer, Unopened};
pub use stream::{Credit, Placement, Profile};
pub use transmit::Transmit;
