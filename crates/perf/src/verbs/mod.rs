//! Verbs and rdma-cm as they are needed here, over whatever device answers to them.
//!
//! Order: a [`Cm`] brings ids to a connection; the first of them opens a [`Domain`], in which there
//! are [`Region`]s; each id gets a [`QueuePair`] before it is connected; what completes comes from
//! [`Domain::poll`]. Invariant: what the library holds a pointer to outlives its use: a queue pair
//! keeps its domain, and a region its memory and its domain.
#![allow(unsafe_code)]

mod cm;
mod domain;
mod library;
mod queue_pair;
mod region;

pub use cm::{Cm, Happened, Id, Terms};
pub use domain::Domain;
pub use queue_pair::{Act, QueuePair, Remote, Sizes};
pub use region::Region;
