//! `none`: no rate control; the caller's socket is the limit. For loopback and for measurements of
//! everything else.

use super::controller::{Acked, Controller, Lost, Params, Sent, Spurious};

/// Unlimited rate and window, except for [`Params::max_rate_bps`].
#[derive(Debug)]
pub struct Unlimited {
    rate_bps: u64,
}

impl Unlimited {
    /// A controller at the maximum rate.
    pub fn new(params: &Params) -> Self {
        Self { rate_bps: params.max_rate_bps }
    }
}

impl Controller for Unlimited {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_acked(&mut self, _: &Acked) {}

    fn on_lost(&mut self, _: &Lost) {}

    fn on_spurious(&mut self, _: &Spurious) {}

    fn pacing_rate_bps(&self) -> u64 {
        self.rate_bps
    }

    fn window_octets(&self) -> u64 {
        u64::MAX
    }

    fn name(&self) -> &'static str {
        "none"
    }
}
