//! A discrete-event simulator that runs the product's own code over degen's links, from one seed:
//! Shuttle, and queue pairs for unreliable datagrams.
//!
//! ```text
//!  plan (TOML) -> plan::Run -> run::simulate -> run::Outcome -> JSON, SVG, tables
//!                                  |
//!                              Network: an agenda of due times
//!                             /        \
//!                   degen::link::Link   Flow: a pair of endpoints around a cc::Controller,
//!                                            idealised (reference) or Shuttle's own (stack),
//!                                            or of queue pairs without one (datagrams)
//! ```
//!
//! Invariant: an outcome is a function of its run, seed included. There is no clock in a
//! simulation; time is nanoseconds since its beginning, and of two things that are due at once the
//! one with the lower number happens first. [`batch`] makes several runs at once and [`command`]
//! reads files and shows progress; nothing below them sees a thread, a file or a clock.
//!
//! Order of calls: [`plan::SimPlan::parse`], [`plan::SimPlan::runs`], [`run::simulate`] for each.
#![forbid(unsafe_code)]

pub mod agenda;
pub mod batch;
pub mod command;
pub mod datagrams;
pub mod flow;
pub mod meter;
pub mod network;
pub mod picture;
pub mod plan;
pub mod reference;
pub mod report;
pub mod run;
pub mod scenarios;
pub mod stack;
