//! `weft cp`, `weft pipe` and `weft forward` with a real ssh and sshd, over loopback.

mod copies;
mod far_host;
mod refusals;
mod resume;
mod streams;
mod trees;
