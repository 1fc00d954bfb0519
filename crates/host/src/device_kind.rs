//! The two kinds of device, by what is below them.

use weft_verbs::Limits;
use weft_verbs::limits::{IWARP, ROCE};

/// What a device looks like, and which transport is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// An RNIC over TCP, `weft_iw0`.
    Iwarp,
    /// A channel adapter on Ethernet over UDP, `weft0`.
    Roce,
}

impl DeviceKind {
    /// What such a device can hold.
    pub fn limits(self) -> &'static Limits {
        match self {
            Self::Iwarp => &IWARP,
            Self::Roce => &ROCE,
        }
    }
}
