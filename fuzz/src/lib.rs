//! What the fuzz targets do with their input. The tests of the crates include the same files and
//! run them over mutated vectors.
#![forbid(unsafe_code)]

pub mod capture;
pub mod cm;
pub mod degen;
pub mod endpoint;
pub mod fault;
pub mod filters;
pub mod key;
pub mod mpa;
pub mod perf;
pub mod rdmap;
pub mod sdp;
pub mod shuttle;
pub mod sim;
pub mod sockets;
pub mod ud;
pub mod wire;
