//! The controller as a whole, fed with acknowledgements of a modelled path.

use super::*;
use crate::cc::controller::{RateSample, Rtt};

const RTT_NS: u64 = 70_000_000;
const RATE_BPS: u64 = 100_000_000;

/// A controller and a path of [`RATE_BPS`] that answers once a round trip.
struct Path {
    weave: Weave,
    now_ns: u64,
    delivered: u64,
}

impl Path {
    fn new() -> Self {
        let params = Params { datagram_octets: 1250, seed: 3, ..Params::default() };
        Self { weave: Weave::new(&params), now_ns: SECOND_NS, delivered: 0 }
    }

    /// A round trip of a flow that is paced evenly; `queue_ns` of it were spent waiting.
    fn round(&mut self, queue_ns: u64) {
        let rate_bps = self.weave.pacing_rate_bps().min(RATE_BPS);
        let octets = octets_in(rate_bps, RTT_NS).min(self.weave.window_octets());
        let prior = self.delivered;
        self.now_ns += RTT_NS;
        self.acknowledge(octets, prior, queue_ns);
    }

    /// A round trip of a ramp: its flight arrives as fast as it was sent or as the path
    /// carries, an acknowledgement every millisecond.
    fn flight(&mut self) {
        let (window, prior) = (self.weave.window_octets(), self.delivered);
        let sent_bps = self.weave.pacing_rate_bps();
        let step = octets_in(sent_bps.min(RATE_BPS), 1_000_000);
        self.now_ns += RTT_NS;
        let began_ns = self.now_ns;
        while self.delivered < prior + window && matches!(self.weave.phase, WeavePhase::Ramp { .. })
        {
            self.now_ns += 1_000_000;
            let arrived_ns = self.now_ns - began_ns;
            let late = 1.0 - RATE_BPS as f64 / sent_bps.max(RATE_BPS) as f64;
            let queue_ns = (arrived_ns as f64 * late) as u64;
            self.acknowledge(step.min(prior + window - self.delivered), prior, queue_ns);
        }
    }

    /// One message of `octets` and its acknowledgement, with nothing else to say.
    fn say(&mut self, octets: u64) {
        let prior = self.delivered;
        self.now_ns += RTT_NS;
        self.tell(octets, prior, 0, true);
    }

    fn mark(&mut self) {
        self.weave.on_ecn(&Ecn { now_ns: self.now_ns, packets: 1, sent_ns: self.now_ns });
    }

    fn acknowledge(&mut self, octets: u64, prior: u64, queue_ns: u64) {
        self.tell(octets, prior, queue_ns, false);
    }

    fn tell(&mut self, octets: u64, prior: u64, queue_ns: u64, app_limited: bool) {
        let rtt_ns = RTT_NS + queue_ns;
        self.delivered += octets;
        self.weave.on_acked(&Acked {
            now_ns: self.now_ns,
            packets: (octets / 1250) as u32,
            octets,
            lost_packets: 0,
            lost_octets: 0,
            sent_ns: self.now_ns - rtt_ns,
            rtt: Some(Rtt { latest_ns: rtt_ns, smoothed_ns: rtt_ns, var_ns: 0, min_ns: RTT_NS }),
            one_way_ns: 0,
            rate: Some(RateSample {
                delivered_octets: self.delivered - prior,
                interval_ns: RTT_NS,
                prior_delivered_octets: prior,
                app_limited,
            }),
            delivered_octets: self.delivered,
            in_flight_octets: octets,
        });
    }

    fn lose(&mut self, packets: u32) {
        self.weave.on_lost(&Lost {
            now_ns: self.now_ns,
            sent_ns: self.now_ns,
            packets,
            octets: u64::from(packets) * 1250,
            prior_delivered_octets: 0,
            in_flight_octets: 0,
        });
    }

    /// A path that cruises at its rate.
    fn cruising() -> Self {
        let mut path = Self::new();
        (0..5).for_each(|_| path.flight());
        (0..4).for_each(|_| path.round(0));
        assert!(matches!(path.weave.phase, WeavePhase::Cruise { .. }), "{:?}", path.weave.phase);
        path
    }
}

#[test]
fn a_flight_that_queues_tells_the_rate_at_once() {
    let mut path = Path::new();
    path.flight();
    assert_eq!(path.weave.window_octets(), 4 * INITIAL_PACKETS * 1250);
    while matches!(path.weave.phase, WeavePhase::Ramp { .. }) {
        path.flight();
    }
    assert!(path.delivered < octets_in(RATE_BPS, RTT_NS), "{}", path.delivered);
    let bw_bps = path.weave.model.bw_bps();
    assert!(bw_bps.abs_diff(RATE_BPS) < RATE_BPS / 100, "{bw_bps}");
}

#[test]
fn cruising_stays_below_the_rate_and_makes_up_for_random_loss() {
    let mut path = Path::cruising();
    assert!(path.weave.pacing_rate_bps() < RATE_BPS);
    for _ in 0..20 {
        path.lose(10);
        path.round(0);
    }
    assert!(path.weave.cut.is_none());
    assert!(path.weave.pacing_rate_bps() > RATE_BPS, "{}", path.weave.pacing_rate_bps());
}

#[test]
fn losses_with_a_queue_are_answered_and_taken_back_if_there_were_none() {
    let mut path = Path::cruising();
    let before = path.weave.model.bw_bps();
    path.lose(60);
    path.round(20_000_000);
    let after = path.weave.model.bw_bps();
    assert_eq!(after, (before as f64 * answer::BETA) as u64);
    let spurious = Spurious { now_ns: 0, sent_ns: SECOND_NS, packets: 60, octets: 0, all: true };
    path.weave.on_spurious(&spurious);
    assert_eq!(path.weave.model.bw_bps(), before);
}

#[test]
fn a_queue_that_will_not_go_means_competition_and_peace_follows() {
    let mut path = Path::cruising();
    for round in 0..30 {
        path.round(30_000_000 + round % 3 * 2_000_000);
    }
    assert!(path.weave.competes);
    for _ in 0..80 {
        path.round(0);
    }
    assert!(!path.weave.competes, "{:?}", path.weave);
}

#[test]
fn round_trips_that_became_longer_and_stay_the_same_are_no_queue() {
    let mut path = Path::cruising();
    let before_bps = path.weave.model.bw_bps();
    for _ in 0..20 {
        path.round(30_000_000);
    }
    assert!(!path.weave.competes);
    assert_eq!(path.weave.model.min_rtt_ns(), Some(RTT_NS + 30_000_000));
    assert!(path.weave.model.bw_bps() >= before_bps / 10 * 9, "{:?}", path.weave);
}

#[test]
fn round_trips_that_leap_are_no_queue() {
    let mut path = Path::cruising();
    let before_bps = path.weave.model.bw_bps();
    for round in 0..200 {
        path.round([0, 12, 3, 9, 15, 1][round % 6] * 1_000_000);
    }
    assert!(path.weave.model.bw_bps() > before_bps / 10 * 9, "{:?}", path.weave);
}

#[test]
fn an_outage_that_is_over_soon_is_no_congestion() {
    let mut path = Path::cruising();
    let before_bps = path.weave.model.bw_bps();
    for _ in 0..50 {
        path.now_ns += 1_000_000;
        path.lose(10);
    }
    path.round(0);
    path.round(0);
    assert_eq!(path.weave.model.bw_bps(), before_bps);
}

#[test]
fn who_says_little_keeps_on_ramping_when_there_is_more() {
    let mut path = Path::new();
    for _ in 0..100 {
        path.say(100);
    }
    assert!(matches!(path.weave.phase, WeavePhase::Ramp { .. }), "{:?}", path.weave.phase);
    assert_eq!(path.weave.window_octets(), INITIAL_PACKETS * 1250);
    (0..5).for_each(|_| path.flight());
    let bw_bps = path.weave.model.bw_bps();
    assert!(bw_bps.abs_diff(RATE_BPS) < RATE_BPS / 100, "{bw_bps}");
}

#[test]
fn marks_end_a_probe_and_take_a_fifth_once_otherwise() {
    let mut path = Path::cruising();
    let before_bps = path.weave.model.bw_bps();
    path.weave.probe();
    path.mark();
    assert!(matches!(path.weave.phase, WeavePhase::Down { .. }), "{:?}", path.weave.phase);
    assert_eq!(path.weave.model.bw_bps(), before_bps);
    (0..4).for_each(|_| path.round(0));
    path.mark();
    path.now_ns += 1_000_000;
    path.mark();
    assert_eq!(path.weave.model.bw_bps(), (before_bps as f64 * answer::BETA) as u64);
}

#[test]
fn after_an_outage_a_flight_finds_the_rate_again() {
    let mut path = Path::cruising();
    path.weave.on_outage(path.now_ns);
    path.now_ns += 2 * SECOND_NS;
    path.round(0);
    assert!(matches!(path.weave.phase, WeavePhase::Ramp { .. }));
    path.flight();
    let bw_bps = path.weave.model.bw_bps();
    assert!(bw_bps.abs_diff(RATE_BPS) < RATE_BPS / 100, "{bw_bps} {:?}", path.weave);
}

#[test]
fn a_probe_counts_what_it_queues_itself() {
    let mut path = Path::cruising();
    let stands_ns = path.weave.queue_ns() / 2;
    path.round(stands_ns);
    path.weave.probe();
    (0..4).for_each(|_| path.round(stands_ns));
    assert!(matches!(path.weave.phase, WeavePhase::Up(_)), "{:?}", path.weave.phase);
    (0..2).for_each(|_| path.round(2 * stands_ns + 100_000));
    assert!(!matches!(path.weave.phase, WeavePhase::Up(_)), "{:?}", path.weave.phase);
}
