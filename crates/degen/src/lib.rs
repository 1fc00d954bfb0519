//! A wide area network on one machine: a model of a link that does no I/O, and a router that
//! applies it to the real packets of two network namespaces.
//!
//! The name is that of the delay generator of Jin et al., "Performance Evaluation of RDMA over IP:
//! A Case Study with the Ammasso Gigabit Ethernet NIC" and its WAN sequel, section 3.
//!
//! ```text
//!  near namespace                                                far namespace
//!  programs                                                      programs
//!     |                                                             |
//!  kernel TCP, UDP                                               kernel TCP, UDP
//!     |                                                             |
//!  TUN device ---> packet::Frame ---> Link<Segment> ---> runs ---> TUN device     a thread
//!  TUN device <--- runs <--- Link<Segment> <--- packet::Frame <--- TUN device     a thread
//! ```
//!
//! Invariant of [`link::Link`]: what comes out, and when, is a function of its configuration, its
//! seed and the calls made to it; nothing else. Invariant of the router: the kernel hands over
//! bundles of segments, but rate, queue and loss are applied to each segment as it would stand on
//! the wire, and no segment is handed on before its time.
//!
//! A path is written in words, [`spec::PathSpec::parse`]; [`spec::PathSpec::links`] gives the
//! two configurations for [`link::Link::new`], and [`wan::Wan::build`] puts them between two
//! namespaces. Times are nanoseconds since the start of whoever counts.
#![deny(unsafe_code)]

mod clock;
pub mod command;
pub mod control;
pub mod files;
pub mod link;
pub mod measure;
pub mod namespace;
pub mod packet;
pub mod pcapng;
pub mod profile;
pub mod router;
pub mod spec;
pub mod stats;
pub mod tun;
pub mod wan;
