//! Reliable connections of the channel adapter over real sockets, on ways that change, fail and are
//! full of strangers.

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

#[allow(dead_code, reason = "the tests of strangers use it too")]
mod ends;
mod line;
mod many;
#[allow(dead_code, reason = "the tests of strangers use it too")]
mod relay;
mod strangers;
mod ways;
