//! `weft perf`: RDMA bandwidth and latency between two hosts, with options like iperf3's and
//! perftest's.
//!
//! It is a program of verbs like any other: `verbs` opens libibverbs and librdmacm at run time,
//! and the command runs itself under `libweft.so` unless an adapter of the machine is asked for.
//! So it measures what users get. With the feature `own`, as in the static program, the module of
//! that name has Weft's devices in this process instead.
//!
//! Order: [`command`] makes [tests](mod@test) of its arguments; the client tells the server of each
//! over [`control`]; both meet on the streams (`meeting`), do the test (`run`, with `bandwidth` or
//! `latency`), and the client says what came out (`report`).
//! Invariant: a rate counts only what was delivered.
#![deny(unsafe_code)]
// Measuring is what the clock is for.
#![allow(clippy::disallowed_methods)]

mod bandwidth;
mod client;
pub mod command;
pub mod control;
pub mod histogram;
mod latency;
mod link;
mod meeting;
#[cfg(feature = "own")]
mod own;
mod pattern;
mod report;
mod run;
mod server;
mod terms;
pub mod test;
#[cfg(not(feature = "own"))]
mod verbs;

#[cfg(feature = "own")]
use own as verbs;

/// Whether it can use adapters of the machine, and Weft's devices through `libweft.so` alone.
pub const USES_LIBRARIES: bool = cfg!(not(feature = "own"));
