//! `cubic`: CUBIC (RFC 9438), for networks in which every loss is congestion, and as a yardstick.
//!
//! The window grows as the cube of the time since the last reduction, and never slower than Reno's
//! would. One reduction answers all losses of what was sent before it.

use super::{Acked, Controller, Ecn, Lost, Params, SECOND_NS, Sent, Spurious, bits_per_second};

/// RFC 9438, section 4.1, and section 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// What Reno adds a round trip so that it loses no ground beside `BETA` (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
const INITIAL_PACKETS: f64 = 10.0;
const MIN_PACKETS: f64 = 2.0;
/// Pacing above the rate that the window gives, so that the window stays the limit.
const PACING_GAIN: f64 = 1.25;
const PACING_GAIN_START: f64 = 2.0;

/// A window in packets, and the curve that it follows.
#[derive(Clone, Debug)]
pub struct Cubic {
    params: Params,
    window: f64,
    threshold: f64,
    /// The curve since the last reduction, once an acknowledgement has come after it.
    epoch: Option<Epoch>,
    /// Where the next curve will be flat: the window before the last reduction, or less.
    most: f64,
    /// The window before the last reduction.
    prior: f64,
    /// What was sent up to here has been answered for.
    reduced_ns: Option<u64>,
    rtt_ns: u64,
    /// The last packets to leave found the window full.
    is_full: bool,
    /// The state before the last reduction, in case there was no loss.
    before: Option<Box<Cubic>>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    start_ns: u64,
    /// The window at which the curve is flat.
    flat: f64,
    /// Seconds until it is there.
    k: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Cubic {
    /// A controller in slow start.
    pub fn new(params: &Params) -> Self {
        Self {
            params: params.clone(),
            window: INITIAL_PACKETS,
            threshold: f64::INFINITY,
            epoch: None,
            most: 0.0,
            prior: 0.0,
            reduced_ns: None,
            rtt_ns: 0,
            is_full: false,
            before: None,
        }
    }

    /// Grows along the curve (sections 4.2 to 4.5).
    fn grow(&mut self, now_ns: u64, acked: f64) {
        let window = self.window;
        let flat = self.most.max(window);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start_ns: now_ns,
            flat,
            k: ((flat - window) / C).cbrt(),
            reno: window,
        });
        // Once it has regained what it lost, Reno's own slope is fair (section 4.3).
        let alpha = if epoch.reno < self.prior { ALPHA } else { 1.0 };
        epoch.reno += alpha * acked / window;
        let ahead_ns = now_ns - epoch.start_ns + self.rtt_ns;
        let since_k = ahead_ns as f64 / SECOND_NS as f64 - epoch.k;
        let target = (C * since_k.powi(3) + epoch.flat).clamp(window, 1.5 * window);
        let reno = epoch.reno;
        self.window = (window + acked * (target - window) / window).max(reno);
    }

    fn reduce(&mut self, now_ns: u64, sent_ns: u64) {
        if self.reduced_ns.is_some_and(|reduced_ns| sent_ns <= reduced_ns) {
            return;
        }
        self.before = None;
        self.before = Some(Box::new(self.clone()));
        self.reduced_ns = Some(now_ns);
        self.epoch = None;
        // Fast convergence (section 4.7): who has shrunk leaves room to newcomers.
        let shrunk = self.window < self.most;
        self.most = if shrunk { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.prior = self.window;
        self.window = (self.window * BETA).max(MIN_PACKETS);
        self.threshold = self.window;
    }

    fn octets(&self, packets: f64) -> u64 {
        (packets * f64::from(self.params.datagram_octets)) as u64
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, sent: &Sent) {
        let next = sent.in_flight_octets + sent.octets;
        self.is_full = !sent.app_limited || next > self.window_octets() / 2;
    }

    fn on_acked(&mut self, acked: &Acked) {
        if let Some(rtt) = acked.rtt {
            self.rtt_ns = rtt.smoothed_ns;
        }
        let in_recovery = self.reduced_ns.is_some_and(|reduced_ns| acked.sent_ns <= reduced_ns);
        if in_recovery || !self.is_full {
            return;
        }
        let packets = acked.octets as f64 / f64::from(self.params.datagram_octets);
        if self.window < self.threshold {
            self.window += packets;
        } else {
            self.grow(acked.now_ns, packets);
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.reduce(lost.now_ns, lost.sent_ns);
    }

    fn on_spurious(&mut self, spurious: &Spurious) {
        if spurious.all
            && let Some(before) = self.before.take()
        {
            *self = *before;
        }
    }

    fn on_ecn(&mut self, ecn: &Ecn) {
        self.reduce(ecn.now_ns, ecn.sent_ns);
    }

    fn on_outage(&mut self, now_ns: u64) {
        self.reduce(now_ns, now_ns);
        self.window = MIN_PACKETS;
        self.before = None;
    }

    fn on_path_changed(&mut self, _: u64, _: Option<super::Saved>) {
        *self = Self::new(&self.params);
    }

    fn on_datagram_octets(&mut self, octets: u16) {
        self.window *= f64::from(self.params.datagram_octets) / f64::from(octets);
        self.params.datagram_octets = octets;
    }

    fn pacing_rate_bps(&self) -> u64 {
        if self.rtt_ns == 0 {
            return self.params.initial_rate_bps.unwrap_or(u64::MAX).min(self.params.max_rate_bps);
        }
        let starts = self.window < self.threshold;
        let gain = if starts { PACING_GAIN_START } else { PACING_GAIN };
        let rate_bps = bits_per_second(self.octets(self.window * gain), self.rtt_ns);
        rate_bps.min(self.params.max_rate_bps).max(self.params.min_rate_bps)
    }

    fn window_octets(&self) -> u64 {
        self.octets(self.window.max(MIN_PACKETS))
    }

    fn name(&self) -> &'static str {
        "cubic"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::Rtt;

    const RTT_NS: u64 = 70_000_000;

    fn ack(cubic: &mut Cubic, now_ns: u64, packets: u32) {
        let octets = u64::from(packets) * 1200;
        cubic.on_sent(&Sent { now_ns, packets, octets, in_flight_octets: 0, app_limited: false });
        cubic.on_acked(&Acked {
            now_ns,
            packets,
            octets,
            lost_packets: 0,
            lost_octets: 0,
            sent_ns: now_ns - RTT_NS,
            rtt: Some(Rtt { latest_ns: RTT_NS, smoothed_ns: RTT_NS, var_ns: 0, min_ns: RTT_NS }),
            one_way_ns: 0,
            rate: None,
            delivered_octets: 0,
            in_flight_octets: 0,
        });
    }

    fn lose(cubic: &mut Cubic, now_ns: u64) {
        cubic.on_lost(&Lost {
            now_ns,
            sent_ns: now_ns - RTT_NS,
            packets: 1,
            octets: 1200,
            prior_delivered_octets: 0,
            in_flight_octets: 0,
        });
    }

    #[test]
    fn slow_start_doubles_and_a_loss_takes_three_tenths_once() {
        let mut cubic = Cubic::new(&Params::default());
        ack(&mut cubic, SECOND_NS, 10);
        assert_eq!(cubic.window_octets(), 24_000);
        lose(&mut cubic, 2 * SECOND_NS);
        lose(&mut cubic, 2 * SECOND_NS + RTT_NS);
        assert_eq!(cubic.window_octets(), 16_800);
        lose(&mut cubic, 2 * SECOND_NS + RTT_NS + 1);
        assert_eq!(cubic.window_octets(), 11_760);
    }

    #[test]
    fn a_loss_that_was_none_is_taken_back() {
        let mut cubic = Cubic::new(&Params::default());
        lose(&mut cubic, SECOND_NS);
        let all = Spurious { now_ns: 0, sent_ns: 0, packets: 1, octets: 1200, all: true };
        cubic.on_spurious(&Spurious { all: false, ..all });
        assert_eq!(cubic.window_octets(), 8400);
        cubic.on_spurious(&all);
        assert_eq!(cubic.window_octets(), 12_000);
    }

    #[test]
    fn the_curve_is_back_where_it_was_after_k() {
        let mut cubic = Cubic::new(&Params::default());
        cubic.window = 1000.0;
        lose(&mut cubic, SECOND_NS);
        let k_ns = ((300.0_f64 / C).cbrt() * 1e9) as u64;
        let rounds = k_ns / RTT_NS;
        let after = SECOND_NS + RTT_NS + 1;
        for round in 0..rounds {
            for part in 0..100 {
                let now_ns = after + round * RTT_NS + part * RTT_NS / 100;
                let packets = (cubic.window / 100.0) as u32;
                ack(&mut cubic, now_ns, packets);
            }
        }
        assert!((cubic.window - 1000.0).abs() < 10.0, "{}", cubic.window);
    }
}
