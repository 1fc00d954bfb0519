//! `cubic`: the most common loss-based controller (RFC 9438), for comparison and for sharing with
//! other CUBIC flows.

use super::controller::{Acked, Controller, Ecn, Lost, Params, Saved, Sent, Spurious};
use super::rate::{SECOND_NS, bits_per_second};

/// Growth constant C, in datagrams per second cubed (RFC 9438, section 4.1).
const C: f64 = 0.4;
/// Multiplicative decrease factor (section 4.6).
const BETA: f64 = 0.7;
/// Additive increase in datagrams per round trip that matches Reno's average window (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Initial window in datagrams (RFC 6928).
const INITIAL_DATAGRAMS: u64 = 10;
/// Pacing rate over window per round trip, as a fraction: 2 in slow start, 5/4 after it, so that
/// the window remains the limit.
const PACING: [(u64, u64); 2] = [(2, 1), (5, 4)];

/// State changed by a reaction, kept so that it can be undone.
#[derive(Clone, Copy, Debug)]
struct CubicWindow {
    /// Congestion window in bytes.
    cwnd: f64,
    ssthresh: f64,
    /// Window before the last reaction, in bytes.
    w_max: f64,
    /// Estimate of Reno's window, in bytes.
    w_est: f64,
    /// Start of growth after the last reaction.
    epoch_ns: Option<u64>,
    /// Time from then until `w_max` is reached, in seconds.
    k: f64,
}

impl CubicWindow {
    /// A window in slow start, of datagrams of so many bytes.
    fn first(datagram: f64) -> Self {
        Self {
            cwnd: datagram * INITIAL_DATAGRAMS as f64,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            w_est: 0.0,
            epoch_ns: None,
            k: 0.0,
        }
    }
}

/// The CUBIC controller, in bytes and with pacing.
#[derive(Debug)]
pub struct Cubic {
    window: CubicWindow,
    /// State before the last reaction.
    before: Option<CubicWindow>,
    /// Losses of packets sent before this belong to the last congestion event.
    reacted_ns: Option<u64>,
    datagram: f64,
    smoothed_ns: u64,
    min_rate_bps: u64,
    max_rate_bps: u64,
}

impl Cubic {
    /// A controller in slow start.
    pub fn new(params: &Params) -> Self {
        let datagram = f64::from(params.datagram_octets);
        Self {
            window: CubicWindow::first(datagram),
            before: None,
            reacted_ns: None,
            datagram,
            smoothed_ns: 0,
            min_rate_bps: params.min_rate_bps,
            max_rate_bps: params.max_rate_bps,
        }
    }

    /// Reacts to a congestion event among packets sent at `sent_ns` (sections 4.6 and 4.7).
    fn react(&mut self, now_ns: u64, sent_ns: u64) {
        if self.reacted_ns.is_some_and(|reacted_ns| sent_ns <= reacted_ns) {
            return;
        }
        self.reacted_ns = Some(now_ns);
        self.before = Some(self.window);
        let CubicWindow { cwnd, w_max, .. } = self.window;
        let converging = cwnd < w_max;
        self.window.w_max = if converging { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.window.cwnd = (cwnd * BETA).max(2.0 * self.datagram);
        self.window.ssthresh = self.window.cwnd;
        self.window.epoch_ns = None;
    }

    /// Congestion avoidance (sections 4.2 to 4.5).
    fn avoid_congestion(&mut self, now_ns: u64, acked: f64) {
        let datagram = self.datagram;
        let window = &mut self.window;
        let epoch_ns = *window.epoch_ns.get_or_insert_with(|| {
            window.w_est = window.cwnd;
            window.w_max = window.w_max.max(window.cwnd);
            window.k = ((window.w_max - window.cwnd) / datagram / C).cbrt();
            now_ns
        });
        let ahead_ns = now_ns - epoch_ns + self.smoothed_ns;
        let t = ahead_ns as f64 / SECOND_NS as f64 - window.k;
        let cubic = window.w_max + C * t.powi(3) * datagram;
        let alpha = if window.w_est >= window.w_max { 1.0 } else { ALPHA };
        window.w_est += alpha * datagram * acked / window.cwnd;
        let target = cubic.clamp(window.cwnd, 1.5 * window.cwnd);
        window.cwnd += (target - window.cwnd) * acked / window.cwnd;
        window.cwnd = window.cwnd.max(window.w_est);
    }

    fn in_slow_start(&self) -> bool {
        self.window.cwnd < self.window.ssthresh
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_acked(&mut self, acked: &Acked) {
        if let Some(rtt) = acked.rtt {
            self.smoothed_ns = rtt.smoothed_ns;
        }
        // A window that is not full is not increased (section 5.8).
        let used = (acked.in_flight_octets + acked.octets + acked.lost_octets) as f64;
        if used < self.window.cwnd / 2.0 {
            return;
        }
        let octets = acked.octets as f64;
        if self.in_slow_start() {
            self.window.cwnd += octets;
        } else {
            self.avoid_congestion(acked.now_ns, octets);
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.react(lost.now_ns, lost.sent_ns);
    }

    fn on_spurious(&mut self, spurious: &Spurious) {
        let mine = self.reacted_ns.is_some_and(|reacted_ns| spurious.sent_ns <= reacted_ns);
        if spurious.all
            && mine
            && let Some(before) = self.before.take()
            && before.cwnd > self.window.cwnd
        {
            self.window = before;
        }
    }

    fn on_ecn(&mut self, ecn: &Ecn) {
        self.react(ecn.now_ns, ecn.sent_ns);
    }

    fn on_outage(&mut self, now_ns: u64) {
        self.react(now_ns, u64::MAX);
        self.window.cwnd = 2.0 * self.datagram;
        self.before = None;
    }

    fn on_path_changed(&mut self, now_ns: u64, _: Option<Saved>) {
        (self.window, self.before) = (CubicWindow::first(self.datagram), None);
        // What was lost on the old path says nothing of this one.
        (self.reacted_ns, self.smoothed_ns) = (Some(now_ns), 0);
    }

    fn on_datagram_octets(&mut self, octets: u16) {
        let datagram = f64::from(octets);
        let least = datagram * INITIAL_DATAGRAMS as f64;
        if self.window.ssthresh.is_infinite() {
            self.window.cwnd = self.window.cwnd.max(least);
        }
        self.datagram = datagram;
    }

    fn pacing_rate_bps(&self) -> u64 {
        if self.smoothed_ns == 0 {
            return self.max_rate_bps;
        }
        let (times, over) = PACING[usize::from(!self.in_slow_start())];
        let rate = bits_per_second(self.window_octets(), self.smoothed_ns);
        (rate.saturating_mul(times) / over).clamp(self.min_rate_bps, self.max_rate_bps)
    }

    fn window_octets(&self) -> u64 {
        self.window.cwnd as u64
    }

    fn name(&self) -> &'static str {
        "cubic"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::controller::Rtt;

    const RTT_NS: u64 = 70_000_000;

    /// Feeds one acknowledgement per round trip that covers the whole window.
    struct Path {
        cubic: Cubic,
        now_ns: u64,
        rtt_ns: u64,
    }

    impl Path {
        fn new() -> Self {
            let params = Params { datagram_octets: 1500, ..Params::default() };
            Self { cubic: Cubic::new(&params), now_ns: SECOND_NS, rtt_ns: RTT_NS }
        }

        fn round(&mut self) {
            let ns = self.rtt_ns;
            self.now_ns += ns;
            let window = self.cubic.window_octets();
            let parts = 64;
            for part in 0..parts {
                self.cubic.on_acked(&Acked {
                    now_ns: self.now_ns,
                    packets: 1,
                    octets: window / parts,
                    lost_packets: 0,
                    lost_octets: 0,
                    sent_ns: self.now_ns - ns,
                    rtt: (part == 0).then_some(Rtt {
                        latest_ns: ns,
                        smoothed_ns: ns,
                        var_ns: 0,
                        min_ns: ns,
                    }),
                    one_way_ns: 0,
                    rate: None,
                    delivered_octets: 0,
                    in_flight_octets: window,
                });
            }
        }

        fn lose(&mut self, sent_ns: u64) {
            let now_ns = self.now_ns;
            self.cubic.on_lost(&Lost {
                now_ns,
                sent_ns,
                packets: 1,
                octets: 1500,
                prior_delivered_octets: 0,
                in_flight_octets: 0,
            });
        }
    }

    #[test]
    fn slow_start_doubles_and_a_loss_ends_it() {
        let mut path = Path::new();
        let first = path.cubic.window_octets();
        path.round();
        assert!(path.cubic.window_octets() > first * 19 / 10);
        let before = path.cubic.window_octets();
        path.lose(path.now_ns);
        assert_eq!(path.cubic.window_octets(), before * 7 / 10);
        path.lose(path.now_ns - 1);
        assert_eq!(path.cubic.window_octets(), before * 7 / 10);
    }

    /// Time back to the window before a loss: the K of the RFC, cbrt(W (1 - beta) / C).
    #[test]
    fn recovery_takes_as_long_as_the_rfc_says() {
        let mut path = Path::new();
        while path.cubic.window_octets() < 1500 * 6000 {
            path.round();
        }
        path.lose(path.now_ns);
        // The second event, after growth past the first, has no fast convergence.
        while path.cubic.window_octets() < 1500 * 12_000 {
            path.round();
        }
        let full = path.cubic.window_octets();
        path.lose(path.now_ns);
        let begun = path.now_ns;
        while path.cubic.window_octets() < full {
            path.round();
        }
        let took = (path.now_ns - begun) as f64 / SECOND_NS as f64;
        let k = (full as f64 / 1500.0 * (1.0 - BETA) / C).cbrt();
        assert!((0.9..1.1).contains(&(took / k)), "{took} s instead of {k} s");
    }

    #[test]
    fn a_loss_that_was_none_is_taken_back() {
        let mut path = Path::new();
        path.round();
        let before = path.cubic.window_octets();
        path.lose(path.now_ns);
        let spurious = |all| Spurious {
            now_ns: 2 * SECOND_NS,
            sent_ns: SECOND_NS,
            packets: 1,
            octets: 1500,
            all,
        };
        path.cubic.on_spurious(&spurious(false));
        assert!(path.cubic.window_octets() < before);
        path.cubic.on_spurious(&spurious(true));
        assert_eq!(path.cubic.window_octets(), before);
    }

    /// Section 4.3: on a short path the window grows as Reno's does on average, so by alpha_cubic,
    /// 3 (1 - 0.7) / (1 + 0.7) datagrams each round trip.
    #[test]
    fn on_a_short_path_the_window_grows_as_renos_does() {
        let mut path = Path { rtt_ns: 1_000_000, ..Path::new() };
        while path.cubic.window_octets() < 1500 * 60 {
            path.round();
        }
        path.lose(path.now_ns);
        let begun = path.cubic.window_octets();
        (0..20).for_each(|_| path.round());
        let grown = (path.cubic.window_octets() - begun) as f64 / 1500.0;
        assert!((9.5..11.0).contains(&grown), "{grown} datagrams in 20 round trips");
    }

    /// Section 5.8.
    #[test]
    fn a_window_that_is_not_half_full_does_not_grow() {
        let mut path = Path::new();
        let window = path.cubic.window_octets();
        let mut acknowledge = |in_flight_octets, octets, lost_octets| {
            path.cubic.on_acked(&Acked {
                now_ns: path.now_ns,
                packets: 1,
                octets,
                lost_packets: 0,
                lost_octets,
                sent_ns: 0,
                rtt: None,
                one_way_ns: 0,
                rate: None,
                delivered_octets: 0,
                in_flight_octets,
            });
            path.cubic.window_octets()
        };
        assert_eq!(acknowledge(window / 2 - 1501, 1500, 0), window);
        assert_eq!(acknowledge(window / 2 - 1501, 1500, 1), window + 1500);
    }

    /// RFC 3168: as to a loss, once for what was sent before the last reaction.
    #[test]
    fn a_mark_is_answered_as_a_loss() {
        let mut path = Path::new();
        path.round();
        let before = path.cubic.window_octets();
        let mark = |cubic: &mut Cubic, sent_ns| {
            cubic.on_ecn(&Ecn { now_ns: path.now_ns, packets: 1, sent_ns });
            cubic.window_octets()
        };
        assert_eq!(mark(&mut path.cubic, path.now_ns), before * 7 / 10);
        assert_eq!(mark(&mut path.cubic, path.now_ns - 1), before * 7 / 10);
    }

    #[test]
    fn after_an_outage_the_window_is_two_datagrams_and_nothing_is_taken_back() {
        let mut path = Path::new();
        path.round();
        path.cubic.on_outage(path.now_ns);
        assert_eq!(path.cubic.window_octets(), 2 * 1500);
        let (now_ns, sent_ns) = (path.now_ns, SECOND_NS);
        let (packets, octets, all) = (1, 1500, true);
        path.cubic.on_spurious(&Spurious { now_ns, sent_ns, packets, octets, all });
        assert_eq!(path.cubic.window_octets(), 2 * 1500);
    }

    #[test]
    fn pacing_leaves_the_window_the_limit() {
        let mut path = Path::new();
        assert_eq!(path.cubic.pacing_rate_bps(), u64::MAX, "no round trip is known");
        path.round();
        let rate_bps = |cubic: &Cubic| bits_per_second(cubic.window_octets(), RTT_NS);
        assert_eq!(path.cubic.pacing_rate_bps(), 2 * rate_bps(&path.cubic), "slow start");
        path.lose(path.now_ns);
        assert_eq!(path.cubic.pacing_rate_bps(), rate_bps(&path.cubic) * 5 / 4);
    }

    #[test]
    fn the_first_window_has_ten_datagrams_of_the_size_that_was_found() {
        let mut path = Path::new();
        path.cubic.on_datagram_octets(9000);
        assert_eq!(path.cubic.window_octets(), 10 * 9000);
        path.cubic.on_datagram_octets(1500);
        assert_eq!(path.cubic.window_octets(), 10 * 9000, "it does not shrink");
        path.lose(path.now_ns);
        let after = path.cubic.window_octets();
        path.cubic.on_datagram_octets(60_000);
        assert_eq!(path.cubic.window_octets(), after, "slow start is over");
    }

    /// Section 4.7: a flow whose window falls again before it is back leaves room to others.
    #[test]
    fn a_second_loss_on_the_way_back_aims_lower() {
        let mut path = Path::new();
        (0..3).for_each(|_| path.round());
        let full = path.cubic.window.cwnd;
        path.lose(path.now_ns);
        assert_eq!(path.cubic.window.w_max, full);
        path.now_ns += RTT_NS;
        path.lose(path.now_ns);
        let aims = path.cubic.window.w_max / (full * BETA);
        assert!((aims - (1.0 + BETA) / 2.0).abs() < 1e-9, "{aims}");
    }

    #[test]
    fn two_datagrams_are_the_least_window() {
        let mut path = Path::new();
        for _ in 0..40 {
            path.now_ns += RTT_NS;
            path.lose(path.now_ns);
        }
        assert_eq!(path.cubic.window_octets(), 2 * 1500);
    }
}
