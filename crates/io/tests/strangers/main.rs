//! What other hosts send to who has not asked for it: real packets between two network name spaces.

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

#[path = "../cm/common.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod common;

#[path = "../adapter/relay.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod relay;

mod datagrams;
mod listeners;
mod outside;
mod refusals;
