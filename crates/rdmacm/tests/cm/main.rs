//! The connection manager over loopback: ids of one process with each other, and with peers that
//! do not behave.

#[path = "../../../host/tests/common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

#[path = "../../../host/tests/adapter/relay.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod relay;

mod common;
mod connections;
mod hostile;
mod ids;
mod shuttle;
mod shuttle_races;
mod storm;
mod translated;
