//! Pacing: a virtual clock that advances by the transmission time of what was sent (S-61).

use crate::cc::{octets_in, time_for_ns};

/// Target length of a burst in time, 1 ms as in Linux's TCP: the cost of a packet is mostly that of
/// the system call.
const QUANTUM_NS: u64 = 1_000_000;
/// Least and most packets of a burst; 64 is the limit of UDP segmentation offload.
const PACKETS: (u64, u64) = (2, 64);
/// Most bytes of a burst: UDP segmentation offload takes less than 64 KiB per call.
const BURST_OCTETS_MAX: u64 = 64_000;
/// Credit for idle time, 1 ms: one burst may follow a pause at once.
const CREDIT_NS: u64 = 1_000_000;
/// Credit for a late wake-up, 20 ms: a busy machine delays processes for longer than a burst lasts.
/// Without the credit, scheduling delay would lower the delivery rate, and the rate in turn.
const LATE_CREDIT_NS: u64 = 20_000_000;
/// Credit under a rate cap, 5 ms: caps hold on average over that time (S-64).
const CAP_CREDIT_NS: u64 = 5_000_000;
/// Smallest cap in bits per second (S-64): a peer cannot stall a connection by a Rate frame.
const CAP_BPS_MIN: u64 = 100_000;

/// Pacer of a path or of a rate cap.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Time at which everything sent so far would have left at the rate.
    free_at_ns: u64,
    /// Packets wait for that time only: a late wake-up earns the larger credit.
    holds: bool,
}

impl Pacer {
    /// Packets of `datagram_octets` that may leave now; 0 before [`Pacer::due_ns`].
    pub(crate) fn burst(&self, now_ns: u64, rate_bps: u64, datagram_octets: u16) -> u64 {
        if now_ns < self.due_ns(rate_bps) {
            return 0;
        }
        let datagram = u64::from(datagram_octets.max(1));
        let quantum = octets_in(rate_bps, QUANTUM_NS) / datagram;
        let most = (BURST_OCTETS_MAX / datagram).clamp(PACKETS.0, PACKETS.1);
        quantum.clamp(PACKETS.0, most)
    }

    /// Earliest time of the next burst.
    pub(crate) fn due_ns(&self, rate_bps: u64) -> u64 {
        if rate_bps == u64::MAX { 0 } else { self.free_at_ns }
    }

    /// Notes whether packets wait for pacing alone.
    pub(crate) fn hold(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// Charges a burst of `octets`.
    pub(crate) fn handle_sent(&mut self, now_ns: u64, rate_bps: u64, octets: u64) {
        let credit_ns = if self.holds { LATE_CREDIT_NS } else { CREDIT_NS };
        self.spend(now_ns, rate_bps, octets, credit_ns);
    }

    fn spend(&mut self, now_ns: u64, rate_bps: u64, octets: u64, credit_ns: u64) {
        let from = self.free_at_ns.max(now_ns.saturating_sub(credit_ns));
        self.free_at_ns = from.saturating_add(time_for_ns(octets, rate_bps.max(1)));
    }
}

/// A rate that must not be exceeded, whatever controllers say.
#[derive(Debug)]
pub(crate) struct Cap {
    rate_bps: u64,
    pacer: Pacer,
}

impl Default for Cap {
    fn default() -> Self {
        Self { rate_bps: u64::MAX, pacer: Pacer::default() }
    }
}

impl Cap {
    /// Sets the cap, at least [`CAP_BPS_MIN`]; a change clears the debt of the old one.
    pub(crate) fn set(&mut self, rate_bps: u64) {
        let rate_bps = rate_bps.max(CAP_BPS_MIN);
        if rate_bps != self.rate_bps {
            *self = Self { rate_bps, pacer: Pacer::default() };
        }
    }

    pub(crate) fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// Packets that may leave now, `u64::MAX` without a cap; as an error, the time at which some
    /// may.
    pub(crate) fn burst(&self, now_ns: u64, datagram_octets: u16) -> Result<u64, u64> {
        if self.rate_bps == u64::MAX {
            return Ok(u64::MAX);
        }
        match self.pacer.burst(now_ns, self.rate_bps, datagram_octets) {
            0 => Err(self.pacer.due_ns(self.rate_bps)),
            burst => Ok(burst),
        }
    }

    /// Charges `octets` that were sent.
    pub(crate) fn handle_sent(&mut self, now_ns: u64, octets: u64) {
        if self.rate_bps != u64::MAX {
            self.pacer.spend(now_ns, self.rate_bps, octets, CAP_CREDIT_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn bursts_grow_with_the_rate_up_to_a_cap() {
        let burst = |rate, datagram| Pacer::default().burst(1, rate, datagram);
        assert_eq!(burst(10_000_000, 1472), 2);
        assert_eq!(burst(100_000_000, 1472), 8);
        assert_eq!(burst(GBIT, 1472), 43);
        assert_eq!(burst(100 * GBIT, 1472), 43);
        assert_eq!(burst(100 * GBIT, 500), 64);
        assert_eq!(burst(u64::MAX, 9000), 7);
        assert_eq!(burst(u64::MAX, 65000), 2);
    }

    /// Sends whole bursts whenever it is woken, every `tick_ns` for a second; gives the bytes.
    fn second(rate_bps: u64, tick_ns: u64) -> u64 {
        let (mut pacer, mut octets) = (Pacer::default(), 0);
        for now_ns in (GBIT..2 * GBIT).step_by(tick_ns as usize) {
            loop {
                let burst = pacer.burst(now_ns, rate_bps, 1472) * 1472;
                if burst == 0 {
                    pacer.hold(true);
                    break;
                }
                pacer.handle_sent(now_ns, rate_bps, burst);
                octets += burst;
            }
        }
        octets
    }

    #[test]
    fn late_wake_ups_cost_no_rate() {
        for rate_bps in [50_000_000, GBIT, 40 * GBIT] {
            for tick_ns in [10_000, 333_000, 900_000, 15_000_000] {
                let got = second(rate_bps, tick_ns) as f64 / (rate_bps / 8) as f64;
                let missed = tick_ns as f64 / GBIT as f64;
                let enough = 0.995 - missed..1.01;
                assert!(enough.contains(&got), "{rate_bps} at {tick_ns}: {got}");
            }
        }
    }

    #[test]
    fn credit_ends_after_a_millisecond() {
        let mut pacer = Pacer::default();
        pacer.handle_sent(GBIT, GBIT, 1000);
        assert!(pacer.due_ns(GBIT) < GBIT);
        pacer.handle_sent(GBIT, GBIT, 125_000);
        assert!(pacer.due_ns(GBIT) > GBIT);
    }
}
