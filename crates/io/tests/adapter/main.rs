//! Reliable connections of the channel adapter over real sockets, on ways that change, fail and are
//! full of strangers.

mod ends;
mod line;
mod many;
mod relay;
mod strangers;
mod ways;
