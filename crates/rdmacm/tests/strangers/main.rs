//! What other hosts send to who has not asked for it: real packets between two network name spaces.

#[path = "../../../host/tests/common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

#[path = "../cm/common.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod common;

#[path = "../../../host/tests/adapter/relay.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod relay;

#[path = "../../../host/tests/adapter/ends.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod ends;

#[path = "../../../host/tests/adapter/line.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod line;

mod datagrams;
mod listeners;
mod outside;
mod records;
mod refusals;
