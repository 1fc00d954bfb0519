//! `weft cp`, `weft pipe` and `weft forward` with a real ssh and sshd, over loopback and
//! through a box that translates addresses.

mod copies;
mod far_host;
mod refusals;
mod resume;
mod roaming;
mod static_build;
mod stdio;
mod streams;
mod trees;
mod wildcards;
