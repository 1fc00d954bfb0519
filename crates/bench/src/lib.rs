//! Benchmarks of Weft: unmodified verbs programs over it, against the other transports of this
//! machine, measured in turn in one run.
//!
//! [`command`] is `weft bench`: suites of figures, after those of the papers; `demo` shows that it
//! works, `table lan` how fast it is on one machine, `table wan` across long and lossy paths.
//! Invariant: every number has one of a peer from the same run to compare with, and no process is
//! left running.
#![deny(unsafe_code)]
// Benchmarks read the clock.
#![allow(clippy::disallowed_methods)]

mod arguments;
pub mod command;
mod compare;
mod compared;
mod cost;
mod demo;
mod figure;
mod floors;
mod journal;
mod lab;
mod lan;
mod machine;
mod output;
mod pair;
mod ports;
mod probes;
mod process;
mod progress;
mod reading;
mod reasons;
mod report;
mod rounds;
mod rows;
mod suites;
mod summary;
mod sys;
mod table;
mod wan;
