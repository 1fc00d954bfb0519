//! The `weft` command as its users meet it. Needs the workspace's debug build beside it.

mod carried;
mod common;
mod doctor;
mod faults;
mod info;
mod injection;
mod install;
mod perf;
mod process;
mod refusals;
mod scenario;
mod simulated;
mod top;
mod traffic;
mod unobserved;
