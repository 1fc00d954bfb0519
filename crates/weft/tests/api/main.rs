//! The whole API over loopback, on both devices.

mod cm;
mod datagrams;
mod errors;
mod futures;
mod hosts;
mod operations;
mod regions;
mod side;
mod waiting;
