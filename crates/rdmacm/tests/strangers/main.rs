//! What other hosts send to who has not asked for it: real packets between two network name spaces.

#[path = "../../../io/tests/common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

#[path = "../cm/common.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod common;

#[path = "../../../io/tests/adapter/relay.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod relay;

#[path = "../../../io/tests/adapter/ends.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod ends;

#[path = "../../../io/tests/adapter/line.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod line;

mod datagrams;
mod listeners;
mod outside;
mod records;
mod refusals;
