//! Verbs and rdma-cm as they are needed here, over whatever device answers to them.
//!
//! Order: a [`Cm`] brings ids to a connection; the first of them opens a [`VerbsDomain`], in which
//! there are [`PerfRegion`]s; each id gets a [`PerfQueuePair`] before it is connected; what
//! completes comes from [`VerbsDomain::poll`]. Invariant: what the library holds a pointer to
//! outlives its use: a queue pair keeps its domain, and a region its memory and its domain.
#![allow(unsafe_code)]

mod cm;
mod devices;
mod domain;
mod library;
mod queue_pair;
mod region;

pub use cm::{Cm, OwnedCmId};
pub use devices::check_device;
pub use domain::VerbsDomain;
pub use queue_pair::PerfQueuePair;
pub use region::PerfRegion;
