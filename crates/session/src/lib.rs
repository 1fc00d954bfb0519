//! A sealed channel of messages to another host, set up by the user's own ssh.
//!
//! ssh starts `weft` at the far end and carries a fresh key to it; then both ends meet over UDP, by
//! a reliable connection of `weft0` under that key, and ssh carries nothing more. Where UDP is
//! blocked the same messages go through ssh.
//!
//! Which layer carries it: Sends of verbs, by `weft-rdma`. A receive that is posted is memory at a
//! known place, so segments of a Send land out of order where they belong, without a second copy
//! of what has arrived; and threads, pacing, recovery, sealing and migration are those of every
//! other application of Weft. Writes into a registered file would save one copy and cost more: the
//! receiver must hash and check what it writes anyway, and a full disk under a mapped file is a
//! signal instead of an error.
//!
//! Invariant: neither end holds more than [`MEMORY_MAX`] bytes of messages for each direction: a
//! message leaves only when the peer has said that it has room ([`window`]).
//!
//! Order of calls: [`client::open`] here and [`server::serve`] there; [`ChannelSender::send`] from
//! any thread, [`ChannelReceiver::recv`] from one; [`MessageChannel::finish`] when all is said.
#![forbid(unsafe_code)]

use std::time::Duration;

mod carried;
mod channel;
pub mod client;
mod codec;
mod hello;
mod peer_life;
mod pipe;
mod push;
pub mod server;
mod ssh;
mod udp;
pub mod window;

pub use carried::CarriedFiles;
pub use channel::{ChannelReceiver, ChannelSender, ChannelTraffic, Message, MessageChannel};
pub use codec::{parse_message, send_message};
pub use hello::PROTOCOL;
pub use ssh::{SshArgs, shell_quote};

/// How long a far end outlives a near end that was killed with its ssh.
pub const OUTLIVES_MAX: Duration = peer_life::UNCLEAR_SILENCE_MAX;

/// How long a peer may take to hear the last word.
pub const END_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of a message, at most.
pub const MESSAGE_MAX: usize = 264 * 1024;

/// Bytes of messages that an end holds for one direction, at most.
pub const MEMORY_MAX: usize = 256 << 20;
