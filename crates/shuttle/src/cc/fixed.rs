//! `fixed`: a constant rate, for networks with admission control.

use super::controller::{Acked, Controller, Lost, Params, Sent, Spurious};
use super::rate::octets_in;

/// Assumed round trip until one is measured, 250 ms: longer than most on Earth.
const UNKNOWN_RTT_NS: u64 = 250_000_000;
/// Window in round trips at the rate: room for delayed acknowledgements and retransmissions.
const WINDOW_RTTS: u64 = 2;

/// Sends at [`Params::initial_rate_bps`], within its limits.
#[derive(Debug)]
pub struct Fixed {
    rate_bps: u64,
    rtt_ns: u64,
    datagram_octets: u16,
}

impl Fixed {
    /// A controller at the initial rate of `params`, or at its maximum without one.
    pub fn new(params: &Params) -> Self {
        let rate = params.initial_rate_bps.unwrap_or(params.max_rate_bps);
        Self {
            rate_bps: rate.min(params.max_rate_bps).max(params.min_rate_bps),
            rtt_ns: UNKNOWN_RTT_NS,
            datagram_octets: params.datagram_octets,
        }
    }
}

impl Controller for Fixed {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_acked(&mut self, acked: &Acked) {
        if let Some(rtt) = acked.rtt {
            self.rtt_ns = rtt.smoothed_ns;
        }
    }

    fn on_lost(&mut self, _: &Lost) {}

    fn on_spurious(&mut self, _: &Spurious) {}

    fn on_datagram_octets(&mut self, octets: u16) {
        self.datagram_octets = octets;
    }

    fn pacing_rate_bps(&self) -> u64 {
        self.rate_bps
    }

    fn window_octets(&self) -> u64 {
        let window = octets_in(self.rate_bps, self.rtt_ns).saturating_mul(WINDOW_RTTS);
        // No less than the largest burst, 64 datagrams.
        window.max(64 * u64::from(self.datagram_octets))
    }

    fn name(&self) -> &'static str {
        "fixed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stays_within_its_limits() {
        let rate = |initial_rate_bps, max_rate_bps| {
            Fixed::new(&Params { initial_rate_bps, max_rate_bps, ..Params::default() })
                .pacing_rate_bps()
        };
        assert_eq!(rate(Some(5_000_000), u64::MAX), 5_000_000);
        assert_eq!(rate(Some(5_000_000), 1_000_000), 1_000_000);
        assert_eq!(rate(None, 7_000_000), 7_000_000);
        assert_eq!(rate(Some(1), u64::MAX), 100_000);
    }

    #[test]
    fn the_window_holds_two_round_trips() {
        let params = Params { initial_rate_bps: Some(1_000_000_000), ..Params::default() };
        assert_eq!(Fixed::new(&params).window_octets(), 62_500_000);
    }
}
