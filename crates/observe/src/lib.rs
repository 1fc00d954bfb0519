//! What processes say of their devices and connections to who watches them: `weft top`, `weft ss`,
//! `weft metrics`, and the counters of devices in sysfs.
//!
//! A process that uses a device has a Unix socket in a directory of its user's ([`place`]). Whoever
//! connects is sent a [`ProcessReport`], made for the occasion, and the end of the stream; nothing
//! is read from it. So a process that nobody watches does no work for it, and one that is stopped
//! or gone is seen to be so. What ended processes did is added to a file beside the sockets
//! ([`PastSums`]).
//!
//! Invariant: a reader trusts nothing: not the directory, which must be its user's alone, nor the
//! length, the content or the coming of a report.
//!
//! Order of calls: a process binds [`place::socket_path`] and writes
//! [`ProcessReport::to_text`] to whoever connects; a reader calls [`read_all`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod ended;
pub mod place;
mod reader;
mod report;
mod text;

pub use ended::PastSums;
pub use reader::{ReadLimits, ReaderAnswer, SeenProcess, read_all, read_those, read_with_ended};
pub use report::{
    ConnLimit, ConnReport, Counters, DeviceReport, DeviceType, Gauges, ProcessReport, REPORTED_MAX,
};
