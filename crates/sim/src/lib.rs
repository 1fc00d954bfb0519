//! Discrete-event runs of Shuttle's code over degen's links, from one seed.
#![forbid(unsafe_code)]

pub mod agenda;
pub mod flow;
pub mod meter;
pub mod network;
pub mod plan;
pub mod reference;
pub mod run;
