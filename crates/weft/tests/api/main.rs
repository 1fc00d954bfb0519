//! The whole API over loopback, on both devices.

mod cm;
#[allow(dead_code)]
#[path = "../../examples/cm_futures.rs"]
mod cm_futures;
mod datagrams;
mod errors;
mod futures;
mod hosts;
mod operations;
mod regions;
mod side;
mod waiting;
