//! The controller as a whole, fed with acknowledgements of a modelled path.

mod probing;

use super::*;
use crate::cc::controller::{RateSample, Rtt};
use crate::cc::rate::bits_per_second;

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
            one_way_ns: rtt_ns as i64,
            rate: Some(RateSample {
                delivered_octets: self.delivered - prior,
                interval_ns: RTT_NS,
                prior_delivered_octets: prior,
                app_limited,
            }),
            delivered_octets: self.delivered,
            in_flight_octets: if app_limited { 0 } else { octets },
        });
    }

    /// An acknowledgement of what was sent at `sent_ns` and arrived at `arrived_ns`, half a round
    /// trip of it the way back, which comes now.
    fn tell_late(&mut self, octets: u64, prior: u64, sent_ns: u64, arrived_ns: u64) {
        self.delivered += octets;
        let latest_ns = self.now_ns - sent_ns;
        self.weave.on_acked(&Acked {
            now_ns: self.now_ns,
            packets: (octets / 1250) as u32,
            octets,
            lost_packets: 0,
            lost_octets: 0,
            sent_ns,
            rtt: Some(Rtt { latest_ns, smoothed_ns: latest_ns, var_ns: 0, min_ns: RTT_NS }),
            one_way_ns: arrived_ns as i64 - sent_ns as i64,
            rate: Some(RateSample {
                delivered_octets: self.delivered - prior,
                interval_ns: RTT_NS,
                prior_delivered_octets: prior,
                app_limited: false,
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
        // As after the first probe.
        path.weave.is_new = false;
        path
    }
}

#[test]
fn a_window_that_is_half_full_grows_though_the_application_limited_it() {
    let first = INITIAL_PACKETS * 1250;
    let mut path = Path::new();
    path.say(first / 2 - 1250);
    assert_eq!(path.weave.window_octets(), first);
    path.say(first / 2);
    assert_eq!(path.weave.window_octets(), first + 3 * first / 2);
    // A queue.
    let mut path = Path::new();
    path.say(1250);
    path.tell(first, path.delivered, RTT_NS / 8, true);
    assert_eq!(path.weave.window_octets(), first);
    // More losses than the path's own.
    let mut path = Path::new();
    path.say(1250);
    path.weave.loss.set_random(0.0);
    let sample = RateSample {
        delivered_octets: first,
        interval_ns: RTT_NS,
        prior_delivered_octets: 0,
        app_limited: true,
    };
    let losing = Acked {
        packets: 64,
        octets: first,
        lost_packets: 64,
        lost_octets: first,
        rate: Some(sample),
        ..Acked::default()
    };
    path.weave.on_ramp_ack(&losing);
    assert_eq!(path.weave.window_octets(), first);
    path.weave.on_ramp_ack(&Acked { lost_packets: 0, lost_octets: 0, ..losing });
    assert_eq!(path.weave.window_octets(), 4 * first);
}

/// 1.5 times what the path holds, by an application that has no more at a time: half a round trip
/// of queue stands for ever if Ramp goes on.
#[test]
fn an_application_that_fills_the_path_ends_ramp() {
    let holds = octets_in(RATE_BPS, RTT_NS);
    let mut path = Path::new();
    path.say(1250);
    path.weave.window = 2 * holds;
    let mut round = |octets: u64, queue_ns: u64| {
        let prior = path.delivered;
        path.now_ns += RTT_NS + queue_ns;
        path.tell(octets, prior, queue_ns, true);
        (path.weave.window_octets(), path.weave.phase)
    };
    let (window, phase) = round(holds, 0);
    assert!(
        window >= 2 * holds && matches!(phase, WeavePhase::Ramp { full_rounds: 0, .. }),
        "{window} of {holds} in {phase:?}"
    );
    // Of too few packets nothing follows.
    assert!(round(31 * 1250, RTT_NS / 2).0 >= 2 * holds);
    for rounds in 1..3 {
        let (window, phase) = round(3 * holds / 2, RTT_NS / 2);
        assert_eq!(window, holds, "in {phase:?}");
        assert!(matches!(phase, WeavePhase::Ramp { full_rounds, .. } if full_rounds == rounds));
    }
    let (window, phase) = round(3 * holds / 2, RTT_NS / 2);
    assert_eq!(phase, WeavePhase::Drain { rounds: 0 });
    assert!(window <= 3 * holds / 2, "{window}");
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
    // What stands is taken for the path's once, and what comes back is of others.
    for round in 0..60 {
        path.round(30_000_000 + round * 1_000_000);
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

/// `docs/shuttle.md`, "Weave": the table of states.
#[test]
fn each_state_has_the_gain_and_the_window_of_its_table() {
    let mut path = Path::cruising();
    path.weave.probe();
    let up = path.weave.phase;
    let (bdp, slack) = (path.weave.bdp() as f64, path.weave.model.slack_octets() as f64);
    let (bw_bps, excess) = (path.weave.model.bw_bps() as f64, 4.0 * 1250.0);
    let drain = WeavePhase::Drain { rounds: 0 };
    let cruise = WeavePhase::Cruise { probe_at_ns: u64::MAX, rounds: 0 };
    let down = WeavePhase::Down { rounds: 0 };
    let refresh = WeavePhase::Refresh { end_ns: None, floor_ns: u64::MAX };
    let rows = [
        // State, competing, after a reaction; gain, window.
        (drain, false, false, 0.99, bdp + slack),
        (cruise, false, false, 0.99, 1.25 * bdp + slack),
        (cruise, false, true, 0.99, 1.25 * bdp + slack),
        (cruise, true, false, 0.99, 2.25 * bdp),
        (cruise, true, true, 0.99, 1.3 * bdp),
        (up, false, false, 1.05 * (1.0 + excess / bdp), bdp + excess + slack),
        (up, true, false, 1.25, 2.25 * bdp),
        (down, false, false, 0.8, 1.25 * bdp + slack),
        (refresh, false, false, 0.99, bdp / 2.0),
        (refresh, true, true, 0.99, bdp / 2.0),
    ];
    for (phase, competes, is_cut, gain, window) in rows {
        (path.weave.phase, path.weave.competes, path.weave.is_cut) = (phase, competes, is_cut);
        let (paced_bps, open) = (path.weave.pacing_rate_bps(), path.weave.window_octets());
        assert!(paced_bps.abs_diff((gain * bw_bps) as u64) <= 1, "{phase:?}: {paced_bps}");
        assert!(open.abs_diff(window as u64) <= 1, "{phase:?}: {open} and not {window}");
    }
}

#[test]
fn a_round_trip_that_nothing_confirms_is_measured_with_little_in_flight() {
    let is_refresh = |path: &Path| matches!(path.weave.phase, WeavePhase::Refresh { .. });
    let mut path = Path::cruising();
    let begun_ns = path.now_ns;
    // Too much to confirm the smallest, and too little for a queue.
    while !is_refresh(&path) {
        path.round(2_000_000);
    }
    assert!(path.now_ns - begun_ns > 10 * SECOND_NS, "{} ns", path.now_ns - begun_ns);
    // What was in flight before is no measurement.
    path.now_ns += RTT_NS;
    path.acknowledge(octets_in(RATE_BPS, RTT_NS), path.delivered, 2_000_000);
    // 100 ms are more than one round trip, and less than two.
    for queue_ns in [4_000_000, 3_000_000] {
        path.round(queue_ns);
        assert!(is_refresh(&path), "{:?}", path.weave.phase);
    }
    path.round(3_500_000);
    assert!(matches!(path.weave.phase, WeavePhase::Cruise { .. }), "{:?}", path.weave.phase);
    assert_eq!(path.weave.model.min_rtt_ns(), Some(RTT_NS + 2_000_000));
}

#[test]
fn losses_that_were_none_are_none_of_the_round() {
    let mut path = Path::cruising();
    let before_bps = path.weave.model.bw_bps();
    path.lose(60);
    let (now_ns, sent_ns) = (path.now_ns, path.now_ns);
    path.weave.on_spurious(&Spurious { now_ns, sent_ns, packets: 60, octets: 75_000, all: true });
    path.round(20_000_000);
    assert_eq!(path.weave.model.bw_bps(), before_bps);
}

#[test]
fn flows_do_not_probe_in_step() {
    let mut weave = Path::new().weave;
    let mut tenths = [0; 10];
    for _ in 0..1000 {
        weave.cruise(0);
        let WeavePhase::Cruise { probe_at_ns, .. } = weave.phase else { panic!() };
        tenths[((probe_at_ns - PROBE_NS) * 10 / PROBE_SPREAD_NS) as usize] += 1;
    }
    assert!(tenths.iter().all(|times| (50..200).contains(times)), "{tenths:?}");
}

/// A queue that stays after start-up: others share the path.
#[test]
fn start_up_on_a_path_that_others_use_takes_its_share_and_may_grow_again() {
    let mut path = Path::new();
    while matches!(path.weave.phase, WeavePhase::Ramp { .. }) {
        path.flight();
    }
    let drain = |path: &mut Path| {
        path.now_ns += 2 * RTT_NS;
        path.acknowledge(octets_in(RATE_BPS / 2, 2 * RTT_NS), path.delivered, 20_000_000);
    };
    drain(&mut path);
    drain(&mut path);
    assert!(matches!(path.weave.phase, WeavePhase::Drain { .. }), "{:?}", path.weave.phase);
    path.now_ns += 2 * RTT_NS;
    path.acknowledge(octets_in(RATE_BPS / 2, 2 * RTT_NS), path.delivered, 20_000_000);
    assert!(matches!(path.weave.phase, WeavePhase::Down { .. }), "{:?}", path.weave.phase);
    let share_bps = path.weave.model.bw_bps();
    assert!(share_bps.abs_diff(RATE_BPS / 2) < RATE_BPS / 20, "{share_bps}");
    // What was sent before it took its share does not count, and what was sent after does.
    (0..2).for_each(|_| path.round(0));
    assert_eq!(path.weave.model.bw_bps(), share_bps);
    for _ in 0..10 {
        path.now_ns += RTT_NS;
        path.acknowledge(octets_in(RATE_BPS * 3 / 4, RTT_NS), path.delivered, 0);
    }
    let more_bps = path.weave.model.bw_bps();
    assert!(more_bps.abs_diff(RATE_BPS * 3 / 4) < RATE_BPS / 20, "{more_bps}");
}

/// `docs/shuttle.md`: the flow's share of delivery less the queue's part of the round trip.
#[test]
fn two_queued_rounds_take_a_share_less_the_part_of_the_queue() {
    let mut path = Path::cruising();
    (0..3).for_each(|_| path.round(0));
    let before_bps = path.weave.model.bw_bps();
    // Below half of what counts as a queue.
    let queue_ns = path.weave.queue_ns();
    for _ in 0..3 {
        path.round(queue_ns / 2 - 100_000);
    }
    assert_eq!(path.weave.model.bw_bps(), before_bps);
    path.weave.cruise(path.now_ns);
    path.round(0);
    path.round(3_000_000);
    assert_eq!(path.weave.model.bw_bps(), before_bps);
    let prior = path.delivered;
    path.round(3_000_000);
    let share_bps = bits_per_second(path.delivered - prior, RTT_NS).min(before_bps);
    let expected_bps = share_bps as f64 * (1.0 - 3.0 / 73.0);
    let now_bps = path.weave.model.bw_bps();
    assert!(now_bps.abs_diff(expected_bps as u64) < 1000, "{now_bps} {expected_bps}");
    let WeavePhase::Cruise { probe_at_ns, .. } = path.weave.phase else { panic!() };
    let wait_ns = probe_at_ns - path.now_ns;
    assert!((SECOND_NS / 4..SECOND_NS * 3 / 4).contains(&wait_ns), "{wait_ns}");
    // No more than a tenth at a time, however long the queue is; the first round is of before.
    (0..3).for_each(|_| path.round(40_000_000));
    let cut = path.weave.model.bw_bps() as f64 / now_bps as f64;
    assert!((0.88..0.9).contains(&cut), "{cut}");
}

/// Application-limited samples, and those from before the rate was set, raise nothing.
#[test]
fn the_rate_rises_by_samples_that_measure_it() {
    let mut path = Path::cruising();
    let before_bps = path.weave.model.bw_bps();
    path.say(1250);
    assert_eq!(path.weave.model.bw_bps(), before_bps);
    let sent_ns = path.now_ns + RTT_NS / 2;
    path.weave.model.set_bw(before_bps / 2, sent_ns);
    path.now_ns += RTT_NS;
    path.acknowledge(octets_in(RATE_BPS, RTT_NS), path.delivered, 0);
    assert_eq!(path.weave.model.bw_bps(), before_bps / 2, "it was sent before");
    for _ in 0..10 {
        path.now_ns += RTT_NS;
        path.tell(octets_in(RATE_BPS, RTT_NS), path.delivered, 0, true);
    }
    assert!(path.weave.model.bw_bps() > before_bps / 2, "more than it is more in any case");
}

#[test]
fn four_packets_may_always_be_in_flight() {
    let mut path = Path::cruising();
    path.weave.model.set_bw(1, path.now_ns);
    assert_eq!(path.weave.window_octets(), 4 * 1250);
}

#[test]
fn five_acknowledgements_in_a_row_that_queued_by_half_end_start_up() {
    let mut path = Path::new();
    path.flight();
    path.acknowledge(1250, path.delivered, 0);
    let half_ns = path.weave.queue_ns() / 2;
    // A flight that queues by 0.4 ms a millisecond.
    let (mut queue_ns, mut queued) = (0, 0);
    while matches!(path.weave.phase, WeavePhase::Ramp { .. }) {
        let window = path.weave.window_octets();
        (path.now_ns, queue_ns) = (path.now_ns + 1_000_000, queue_ns + 400_000);
        queued += usize::from(queue_ns > half_ns);
        path.acknowledge(1250, 0, queue_ns);
        assert_eq!(path.weave.window_octets() > window, queued == 0, "{queued}");
        if queued == 5 {
            break;
        }
    }
    assert_eq!(queued, 5);
    assert!(matches!(path.weave.phase, WeavePhase::Drain { .. }), "{:?}", path.weave.phase);
}

/// Wi-Fi, LTE and cable modems deliver acknowledgements in bunches; the receiver's clock does not.
#[test]
fn acknowledgements_in_bunches_show_the_rate_of_arrival() {
    let mut path = Path::new();
    let mut sent_bps = path.weave.pacing_rate_bps();
    for _ in 0..6 {
        let (window, prior) = (path.weave.window_octets(), path.delivered);
        let step = octets_in(sent_bps.min(RATE_BPS), 1_000_000);
        path.now_ns += RTT_NS;
        let began_ns = path.now_ns;
        for number in 1..=(window / step).min(100) {
            // All of 8 ms come at once, each with the arrival that it tells of.
            let arrived_ns = began_ns + number * 1_000_000;
            path.now_ns = arrived_ns.next_multiple_of(8_000_000);
            let sent_ns = began_ns - RTT_NS + number * step * 8 * SECOND_NS / sent_bps;
            path.tell_late(step, prior, sent_ns, arrived_ns);
        }
        if !matches!(path.weave.phase, WeavePhase::Ramp { .. }) {
            break;
        }
        sent_bps = path.weave.pacing_rate_bps();
    }
    assert!(matches!(path.weave.phase, WeavePhase::Drain { .. }), "{:?}", path.weave.phase);
    let bw_bps = path.weave.model.bw_bps();
    assert!(bw_bps.abs_diff(RATE_BPS) < RATE_BPS / 20, "{bw_bps}");
}
