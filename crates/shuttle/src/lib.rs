//! Shuttle over datagrams: a lower layer for DDP on long, fat, lossy paths (`docs/shuttle.md`).
#![forbid(unsafe_code)]

pub mod cc;
