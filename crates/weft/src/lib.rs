//! RDMA over any IP network, in user space: verbs and rdma-cm as a safe Rust API.
//!
//! There are two devices. [`DeviceKind::Iwarp`] (`weft_iw0`) is an RNIC over TCP, by the iWARP
//! RFCs; [`DeviceKind::Roce`] (`weft0`) is a channel adapter over UDP, by Weft's own protocol
//! Shuttle, and it also has unreliable connections and datagrams. Neither needs hardware, a kernel
//! module or root. Peers may be C programs under `weft run`; over TCP also any other RNIC.
//!
//! # The invariant
//!
//! A peer writes into registered memory at any time. So a [`Region`] owns its memory, no reference
//! into it is ever handed out, and it is deregistered before it is freed. A request that was posted
//! keeps its regions until its [`Completion`] was taken or its queue pair is gone. Use after
//! deregistration cannot be written down, in whatever order objects are dropped.
//!
//! # Order of calls
//!
//! 1. [`LocalHost::from_environment`] or [`LocalHost::new`], [`Device::open`],
//!    [`Device::protection_domain`], [`Device::completion_queue`];
//! 2. [`ProtectionDomain::register`] for regions, [`ProtectionDomain::queue_pair`] for queue pairs;
//! 3. [`Listener::bind`] and [`Listener::accept`] at one end, [`Connection::open`] at the other; or
//!    [`QueuePair::address`] and [`QueuePair::connect_to`] where the application carries addresses
//!    itself;
//! 4. [`QueuePair::recv`] before the peer sends; [`QueuePair::send`], [`QueuePair::write`],
//!    [`QueuePair::read`], or [`QueuePair::post`] with any [`Work`];
//! 5. completions by [`CompletionQueue::poll`], [`CompletionQueue::wait`] or, in `async` code,
//!    [`CompletionQueue::next`].
//!
//! Calls that block have futures too: [`Listener::accept_async`], [`Incoming::accept_async`],
//! [`Connection::open_async`], [`Connection::ended`], [`Device::next_event`]. Any executor may
//! drive them. The threads that serve connections wake them, and none is started for a future.
//!
//! All objects are handles: cloning one is cheap, any thread may use it, and what it stands for
//! ends with its last handle. Only an [`Incoming`] cannot be cloned, because it is answered once.
//!
//! # Environment
//!
//! A [`LocalHost`] has the keys and settings, of the environment or by [`HostOptions`]. Between
//! machines `weft0` needs the same key (`WEFT_KEY`) at both ends; over loopback it needs none.
//!
//! # Examples
//!
//! They are programs in the directory `examples`, and run as they stand here.
//!
//! ```
#![doc = include_str!("../examples/send_recv.rs")]
//! ```
//!
//! ```
#![doc = include_str!("../examples/write.rs")]
//! ```
//!
//! A server and its client:
//!
//! ```
//! # mod server {
#![doc = include_str!("../examples/cm_server.rs")]
//! # }
//! # mod client {
#![doc = include_str!("../examples/cm_client.rs")]
//! # }
//! # fn main() -> weft_rdma::Result<()> {
//! #     for kind in [weft_rdma::DeviceKind::Iwarp, weft_rdma::DeviceKind::Roce] {
//! #         let host = weft_rdma::LocalHost::from_environment();
//! #         let device = weft_rdma::Device::open(&host, kind)?;
//! #         let listener = weft_rdma::Listener::bind(&device, ([127, 0, 0, 1], 0).into())?;
//! #         let to = listener.local_addr();
//! #         let server = {
//! #             let device = device.clone();
//! #             std::thread::spawn(move || server::serve(&device, &listener))
//! #         };
//! #         assert_eq!(client::ask(&device, to)?, b"42");
//! #         server.join().expect("the server did not panic")?;
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! ```
#![doc = include_str!("../examples/futures.rs")]
//! ```
//!
//! ```
#![doc = include_str!("../examples/cm_futures.rs")]
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod address;
mod bell;
mod cm;
mod completion;
mod cq;
mod device;
#[cfg(test)]
mod drop_order;
mod error;
mod events;
mod exchange;
mod host;
mod posted;
mod qp;
mod region;
#[cfg(test)]
mod reset;
mod srq;
mod wait;
#[cfg(test)]
mod wakers;
mod work;

pub use address::Address;
pub use cm::{Connection, Incoming, Listener};
pub use completion::Completion;
pub use cq::{CompletionQueue, Next};
pub use device::{Device, ProtectionDomain};
pub use error::Error;
pub use events::{DeviceEvent, ObjectId};
pub use host::{DeviceKind, HostOptions, LocalHost};
pub use qp::{QueuePair, QueuePairOptions};
pub use region::{Region, RegionSlice, RemoteKey};
pub use srq::SharedReceiveQueue;
pub use weft_verbs::{Access, AsyncKind, QpState, QpType, WcOpcode, WcStatus};
pub use work::{Slices, Work};

/// What a call of this crate gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
