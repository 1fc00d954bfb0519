//! tmp
pub mod device;
pub mod misc;
pub mod query;
