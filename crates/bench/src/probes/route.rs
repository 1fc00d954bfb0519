//! Which of Weft's devices carries an application, and whether shared memory may.

use std::path::Path;

use super::pattern::{LANE, OFF};
use crate::process::Spec;

/// A device, and whether peers on this host may use the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeftRoute {
    iwarp: bool,
    network: bool,
}

impl WeftRoute {
    /// `weft_iw0`, with the lane as Weft has it by default.
    pub const IWARP: Self = Self { iwarp: true, network: false };
    /// `weft0`, with the lane as Weft has it by default.
    pub const SHUTTLE: Self = Self { iwarp: false, network: false };

    /// The same by the network stack: `WEFT_LANE=off`.
    pub const fn network(mut self) -> Self {
        self.network = true;
        self
    }

    /// Whether the device is `weft_iw0`.
    pub const fn is_iwarp(self) -> bool {
        self.iwarp
    }

    /// Whether the lane is off.
    pub const fn is_network(self) -> bool {
        self.network
    }

    /// `side`, run by `weft run` with the settings of this route.
    pub fn carry(self, side: Spec, weft: &Path) -> Spec {
        let transport = if self.iwarp { "iwarp" } else { "shuttle" };
        let side = side.env("WEFT_TRANSPORT", transport);
        let side = if self.network { side.env(LANE, OFF) } else { side };
        side.under(weft)
    }
}
