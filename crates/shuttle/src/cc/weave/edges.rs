//! The thresholds of `docs/shuttle.md`, "Weave": what counts at each of them, and what does not.

use super::*;
use crate::cc::controller::{RateSample, Rtt};

const MS: u64 = 1_000_000;
const BW_BPS: u64 = 100_000_000;
const RTT_NS: u64 = 64 * MS;
/// What counts as a queue there: a sixteenth of the round trip.
const QUEUE_NS: u64 = 4 * MS;
/// What the path holds, in bytes.
const BDP: u64 = 800_000;
const NOW_NS: u64 = 60 * SECOND_NS;

/// Cruising at [`BW_BPS`] over [`RTT_NS`].
fn cruising() -> Weave {
    let params = Params { datagram_octets: 1250, ..Params::default() };
    let mut weave = Weave::new(&params);
    weave.model.set_bw(BW_BPS, 0);
    weave.model.forget_min_rtt(NOW_NS, RTT_NS);
    (weave.smoothed_rtt_ns, weave.latest_rtt_ns) = (RTT_NS, RTT_NS);
    weave.phase = WeavePhase::Cruise { probe_at_ns: u64::MAX, rounds: 1 };
    assert_eq!((weave.queue_ns(), weave.bdp()), (QUEUE_NS, BDP));
    weave
}

/// An acknowledgement now, with so much left in flight.
fn acked(in_flight_octets: u64) -> Acked {
    Acked {
        now_ns: NOW_NS,
        packets: 1,
        octets: 1250,
        sent_ns: NOW_NS - RTT_NS,
        rtt: Some(Rtt { latest_ns: RTT_NS, smoothed_ns: RTT_NS, var_ns: 0, min_ns: RTT_NS }),
        rate: Some(RateSample {
            delivered_octets: 1250,
            interval_ns: RTT_NS,
            prior_delivered_octets: 0,
            app_limited: false,
        }),
        delivered_octets: 1250,
        in_flight_octets,
        ..Acked::default()
    }
}

fn is_cruise(weave: &Weave) -> bool {
    matches!(weave.phase, WeavePhase::Cruise { .. })
}

#[test]
fn delays_are_the_paths_own_unless_losses_may_depend_on_the_rate() {
    let may = |depends, loss| {
        let mut weave = cruising();
        weave.trial.depends = depends;
        weave.loss.set_random(loss);
        weave.may_wander()
    };
    assert!(may(false, 0.0) && may(false, 0.0149));
    assert!(!may(false, 0.015) && !may(false, 0.02) && !may(true, 0.0) && !may(true, 0.02));
}

/// A gap of 5 ms between arrivals: what came within 10 ms is recent.
#[test]
fn the_least_delay_of_two_gaps_is_the_recent_one() {
    let above_ns = |recent: &[(u64, u64)]| {
        let mut weave = cruising();
        for arrived_ns in [0, 5 * MS] {
            let one_way_ns = arrived_ns as i64;
            let ack = Acked { sent_ns: 0, one_way_ns, now_ns: RTT_NS, rate: None, ..acked(0) };
            weave.model.handle(&ack, Some(RTT_NS), 0);
        }
        assert_eq!(weave.model.gap_ns(), 5 * MS);
        for (entry, (at_ms, above_ms)) in weave.recent_ns.iter_mut().rev().zip(recent) {
            *entry = (at_ms * MS, RTT_NS + above_ms * MS);
        }
        weave.recent_above_ns() / MS
    };
    assert_eq!(above_ns(&[(100, 9)]), 9);
    assert_eq!(above_ns(&[(100, 9), (94, 3), (91, 7)]), 3);
    assert_eq!(above_ns(&[(100, 9), (91, 7), (90, 3)]), 7, "it came 10 ms before");
}

#[test]
fn what_makes_up_for_losses_is_in_flight_besides() {
    let mut weave = cruising();
    weave.loss.set_random(0.1);
    assert_eq!(weave.bdp(), (BDP as f64 / 0.9) as u64);
}

/// Sends twice what arrives for three rounds, at `rate_bps`; whether the guard did something.
fn overloads(weave: &mut Weave, rate_bps: u64) -> bool {
    weave.model.set_bw(rate_bps, 0);
    let (octets, sent_octets) = (BDP / 2, BDP);
    let round =
        Round { octets, sent_octets, floor_rtt_ns: RTT_NS, lasted_ns: RTT_NS, ..Round::EMPTY };
    let heeded = [1, 2, 3].map(|_| weave.heed_guard(NOW_NS, &round));
    assert!(!heeded[0] && !heeded[1], "too few rounds");
    heeded[2]
}

#[test]
fn a_reduction_to_what_was_delivered_is_probed_soon_unless_it_is_a_policers() {
    for depends in [false, true] {
        let mut weave = cruising();
        weave.trial.depends = depends;
        assert!(overloads(&mut weave, BW_BPS));
        assert_eq!((weave.model.bw_bps(), weave.is_cut), (BW_BPS / 2, !depends));
    }
}

#[test]
fn a_probe_that_sends_beyond_a_rate_that_arrives_ends() {
    let ends = |competes| {
        let mut weave = cruising();
        weave.competes = competes;
        weave.probe();
        assert_eq!(overloads(&mut weave, BW_BPS / 2), !competes);
        assert_eq!(weave.model.bw_bps(), BW_BPS / 2, "it arrives");
        weave.phase == WeavePhase::Down { rounds: 0 }
    };
    assert!(ends(false) && !ends(true));
    assert!(!overloads(&mut cruising(), BW_BPS / 2), "others send too much");
}

#[test]
fn down_ends_with_little_in_flight_or_little_delay_or_after_three_rounds() {
    let ends = |in_flight, above_ns| {
        let mut weave = cruising();
        weave.phase = WeavePhase::Down { rounds: 0 };
        weave.latest_rtt_ns = RTT_NS + above_ns;
        weave.on_ack(&acked(in_flight));
        is_cruise(&weave)
    };
    assert!(ends(BDP, QUEUE_NS) && !ends(BDP + 1, QUEUE_NS));
    assert!(ends(BDP + 1, QUEUE_NS / 8 - 1) && !ends(BDP + 1, QUEUE_NS / 8));
    let mut weave = cruising();
    weave.phase = WeavePhase::Down { rounds: 0 };
    let round = Round { floor_rtt_ns: RTT_NS, lasted_ns: RTT_NS, ..Round::EMPTY };
    for rounds in 1..3 {
        weave.on_phase_round(NOW_NS, &round, false);
        assert_eq!(weave.phase, WeavePhase::Down { rounds });
    }
    weave.on_phase_round(NOW_NS, &round, false);
    assert!(is_cruise(&weave));
}

#[test]
fn a_probe_ends_at_once_if_all_recent_packets_queued_for_more_than_counts() {
    let ends = |above_ns, extra, competes| {
        let mut weave = cruising();
        weave.probe();
        let WeavePhase::Up(probe) = &mut weave.phase else { panic!() };
        probe.extra = extra;
        weave.competes = competes;
        weave.recent_ns = [(NOW_NS, RTT_NS + above_ns); RECENT_ACKS];
        weave.on_ack(&acked(BDP));
        !matches!(weave.phase, WeavePhase::Up(_))
    };
    // What queues for 3/8 of a queue that counts.
    let enough = octets_in(BW_BPS, QUEUE_NS * 3 / 8);
    assert!(ends(QUEUE_NS + 1, enough, false));
    assert!(!ends(QUEUE_NS, enough, false));
    assert!(!ends(QUEUE_NS + 1, enough - 1, false), "the delay is not its own");
    assert!(!ends(QUEUE_NS + 1, enough, true));
}

/// Round trips of a round that exceed its smallest by 64 ms, averaged over eight.
#[test]
fn where_round_trips_are_unlike_half_of_that_is_no_queue_of_a_probe() {
    let ends = |above_ns, extra| {
        let mut weave = cruising();
        let rtts = (20 * RTT_NS, 10);
        weave.model.learn_spread(&Round { floor_rtt_ns: RTT_NS, rtts, ..Round::EMPTY });
        assert_eq!(weave.probe_spread_ns(), 4 * MS);
        weave.probe();
        let WeavePhase::Up(probe) = &mut weave.phase else { panic!() };
        probe.extra = extra;
        weave.recent_ns = [(NOW_NS, RTT_NS + above_ns); RECENT_ACKS];
        weave.on_ack(&acked(BDP));
        !matches!(weave.phase, WeavePhase::Up(_))
    };
    let enough = octets_in(BW_BPS, QUEUE_NS * 3 / 8 + 4 * MS);
    assert!(ends(QUEUE_NS + 4 * MS + 1, enough) && !ends(QUEUE_NS + 4 * MS, enough));
    assert!(!ends(QUEUE_NS + 4 * MS + 1, enough - 1));
}

#[test]
fn an_excess_grows_by_half_unless_the_queue_grew_by_three_eighths() {
    let extra = |above_ns, extra| {
        let mut weave = cruising();
        weave.probe();
        let WeavePhase::Up(mut probe) = weave.phase else { panic!() };
        probe.extra = extra;
        weave.recent_ns = [(NOW_NS, RTT_NS); RECENT_ACKS];
        let round = Round { floor_rtt_ns: RTT_NS + above_ns, lasted_ns: RTT_NS, ..Round::EMPTY };
        weave.on_probe_round(NOW_NS, &round, probe);
        let WeavePhase::Up(probe) = weave.phase else { panic!() };
        probe.extra
    };
    let enough = octets_in(BW_BPS, QUEUE_NS * 3 / 8);
    assert_eq!(extra(QUEUE_NS * 3 / 8, enough), enough * 3 / 2);
    assert_eq!(extra(QUEUE_NS * 3 / 8 + 1, enough), enough);
    assert_eq!(extra(QUEUE_NS * 3 / 8 + 1, enough - 2), (enough - 2) * 3 / 2);
}

#[test]
fn a_probe_that_raised_the_rate_by_a_tenth_is_followed_by_another_after_six_round_trips() {
    let waits = |bw_bps, depends| {
        let mut weave = cruising();
        weave.probe();
        weave.trial.depends = depends;
        weave.model.set_bw(bw_bps, 0);
        weave.end_probe(NOW_NS);
        weave.cruise(NOW_NS);
        weave.probe_soon(NOW_NS);
        let WeavePhase::Cruise { probe_at_ns, .. } = weave.phase else { panic!() };
        weave.probe();
        assert!(!weave.has_gained, "it tells of the last one");
        assert!(probe_at_ns >= NOW_NS + 6 * RTT_NS, "not at once");
        probe_at_ns > NOW_NS + 6 * RTT_NS
    };
    let tenth_bps = BW_BPS / 10;
    assert!(!waits(BW_BPS + tenth_bps + 1, false) && waits(BW_BPS + tenth_bps - 1, false));
    assert!(waits(2 * BW_BPS, true), "losses depend on the rate");
}

/// Gaps between arrivals of 3, 5 and 20 ms: a rate spans 48, 80 and 320 ms, of round trips of 64.
#[test]
fn a_probe_waits_for_rates_that_span_many_gaps() {
    let rounds = |gap_ms| {
        let mut weave = cruising();
        for arrived_ms in [0, gap_ms] {
            let one_way_ns = (arrived_ms * MS) as i64;
            let ack = Acked { sent_ns: 0, one_way_ns, now_ns: RTT_NS, rate: None, ..acked(0) };
            weave.model.handle(&ack, Some(RTT_NS), 0);
        }
        weave.probe();
        let WeavePhase::Up(mut probe) = weave.phase else { panic!() };
        // So much that a probe without gain ends at its next check.
        probe.extra = BDP;
        let round = Round { floor_rtt_ns: RTT_NS, lasted_ns: RTT_NS, ..Round::EMPTY };
        let mut rounds = 0;
        while rounds < 10 {
            rounds += 1;
            weave.on_probe_round(NOW_NS, &round, probe);
            let WeavePhase::Up(next) = weave.phase else { break };
            probe = next;
        }
        rounds
    };
    assert_eq!([3, 5, 20].map(rounds), [3, 4, 6]);
}

#[test]
fn a_probe_is_due_at_its_time_with_enough_to_send() {
    let probes = |probe_at_ns, app_limited| {
        let mut weave = cruising();
        weave.phase = WeavePhase::Cruise { probe_at_ns, rounds: 1 };
        let mut ack = acked(BDP);
        if let Some(rate) = &mut ack.rate {
            rate.app_limited = app_limited;
        }
        weave.on_ack(&ack);
        matches!(weave.phase, WeavePhase::Up(_))
    };
    assert!(probes(NOW_NS, false) && !probes(NOW_NS + 1, false) && !probes(NOW_NS, true));
}

#[test]
fn a_trial_begins_with_enough_to_send_and_ends_when_it_is_sent() {
    let tries = |app_limited| {
        let mut weave = cruising();
        weave.loss.set_random(0.03);
        // A trial needs to know of twelve events.
        let lost = |number: u32| Lost {
            now_ns: NOW_NS,
            sent_ns: SECOND_NS * u64::from(number),
            packets: 1,
            octets: 1250,
            prior_delivered_octets: 0,
            in_flight_octets: 0,
        };
        weave.ack_in_trial(&Acked { packets: 388, ..acked(BDP) });
        (1..=12).for_each(|number| weave.lose_in_trial(&lost(number)));
        let mut ack = acked(BDP);
        if let Some(rate) = &mut ack.rate {
            rate.app_limited = app_limited;
        }
        weave.on_ack(&ack);
        weave
    };
    assert_eq!(tries(true).phase, WeavePhase::Cruise { probe_at_ns: u64::MAX, rounds: 1 });
    let mut weave = tries(false);
    assert_eq!(weave.phase, WeavePhase::Trial);
    let sent = |packets| Sent {
        now_ns: NOW_NS,
        packets,
        octets: 1250 * u64::from(packets),
        in_flight_octets: 0,
        app_limited: false,
    };
    weave.on_sent(&sent(399));
    weave.on_ack(&acked(BDP));
    assert_eq!(weave.phase, WeavePhase::Trial, "400 packets lose twelve times");
    weave.on_sent(&sent(1));
    weave.on_ack(&acked(BDP));
    assert!(is_cruise(&weave));
}

#[test]
fn a_refresh_without_a_round_trip_keeps_the_least() {
    let mut weave = cruising();
    weave.refresh(&Acked { rtt: None, ..acked(0) }, Some(NOW_NS), u64::MAX);
    assert!(is_cruise(&weave));
    assert_eq!((weave.min_rtt_ns(), weave.refreshed_ns), (RTT_NS, NOW_NS));
}

#[test]
fn a_queue_that_a_refresh_does_not_empty_is_of_others() {
    let competes = |before, above_ns| {
        let mut weave = cruising();
        weave.competes = before;
        weave.refresh(&acked(0), Some(NOW_NS), RTT_NS + above_ns);
        assert!(is_cruise(&weave));
        assert_eq!(weave.refreshed_ns, NOW_NS);
        weave.competes
    };
    // The least of the two is that of this acknowledgement.
    assert!(!competes(true, 2 * QUEUE_NS) && !competes(false, 2 * QUEUE_NS));
    let later = |above_ns, before| {
        let mut weave = cruising();
        weave.competes = before;
        weave.latest_rtt_ns = RTT_NS + above_ns;
        weave.refresh(&acked(0), Some(NOW_NS), u64::MAX);
        (weave.competes, weave.min_rtt_ns() - RTT_NS)
    };
    assert_eq!(later(QUEUE_NS, true), (false, QUEUE_NS));
    assert_eq!(later(QUEUE_NS + 1, true), (true, QUEUE_NS + 1));
    assert_eq!(later(QUEUE_NS + 1, false), (false, QUEUE_NS + 1));
}

#[test]
fn a_refresh_lasts_for_100_ms_or_a_round_trip_once_little_is_in_flight() {
    let ends_ns = |in_flight, smoothed_rtt_ns| {
        let mut weave = cruising();
        weave.smoothed_rtt_ns = smoothed_rtt_ns;
        weave.phase = WeavePhase::Refresh { end_ns: None, floor_ns: u64::MAX };
        weave.on_ack(&acked(in_flight));
        let WeavePhase::Refresh { end_ns, .. } = weave.phase else { panic!("{weave:?}") };
        end_ns.map(|end_ns| end_ns - NOW_NS)
    };
    assert_eq!(ends_ns(BDP / 2 + 1, RTT_NS), None);
    assert_eq!(ends_ns(BDP / 2, RTT_NS), Some(100 * MS));
    assert_eq!(ends_ns(BDP / 2, 101 * MS), Some(101 * MS));
}

/// A round that lost so many of a thousand, with so much delay.
fn lossy(lost: u64, above_ns: u64) -> Round {
    let (acked, floor_rtt_ns) = (1000 - lost, RTT_NS + above_ns);
    Round { acked, lost, floor_rtt_ns, lasted_ns: RTT_NS, app_limited: true, ..Round::EMPTY }
}

#[test]
fn losses_are_answered_from_less_on_with_a_queue() {
    let rate_bps = |lost, above_ns, depends| {
        let mut weave = cruising();
        weave.loss.set_random(0.0);
        weave.trial.depends = depends;
        weave.on_round(NOW_NS, &lossy(lost, above_ns));
        weave.model.bw_bps()
    };
    let answered_bps = BW_BPS / 5 * 4;
    assert_eq!(rate_bps(30, QUEUE_NS, false), BW_BPS, "a queue that counts is more");
    assert_eq!(rate_bps(30, QUEUE_NS + 1, false), answered_bps);
    assert_eq!(rate_bps(200, 0, false), answered_bps, "so many are no chance");
    assert_eq!(rate_bps(30, 0, true), answered_bps, "they depend on the rate");
    let mut refreshing = cruising();
    refreshing.loss.set_random(0.0);
    refreshing.phase = WeavePhase::Refresh { end_ns: None, floor_ns: u64::MAX };
    refreshing.on_round(NOW_NS, &lossy(200, 2 * QUEUE_NS));
    assert_eq!(refreshing.model.bw_bps(), BW_BPS);
}

#[test]
fn random_loss_is_learnt_without_a_queue_in_steady_states() {
    let learnt = |phase, above_ns, depends| {
        let mut weave = cruising();
        (weave.phase, weave.trial.depends) = (phase, depends);
        weave.on_round(NOW_NS, &lossy(10, above_ns));
        weave.loss.random()
    };
    let cruise = WeavePhase::Cruise { probe_at_ns: u64::MAX, rounds: 1 };
    for phase in [cruise, WeavePhase::Drain { rounds: 0 }, WeavePhase::Down { rounds: 0 }] {
        assert_eq!(learnt(phase, QUEUE_NS, false), 0.01, "{phase:?}");
        assert_eq!(learnt(phase, QUEUE_NS + 1, false), 0.0, "{phase:?}");
        assert_eq!(learnt(phase, 0, true), 0.0, "{phase:?}");
    }
    let refresh = WeavePhase::Refresh { end_ns: None, floor_ns: u64::MAX };
    assert_eq!(learnt(refresh, 0, false), 0.0);
}

#[test]
fn losses_that_cease_forget_reductions_to_what_was_delivered() {
    let mut weave = cruising();
    weave.loss.set_random(0.0);
    weave.trial.depends = true;
    let restored = |weave: &mut Weave, losses: &[u64]| {
        losses.iter().for_each(|lost| weave.on_round(NOW_NS, &lossy(*lost, 0)));
        weave.trial.depends
    };
    // Four in a row, and the fifth says that they are random.
    assert!(restored(&mut weave.clone(), &[30, 30, 30, 30]));
    assert!(!restored(&mut weave.clone(), &[30, 30, 30, 30, 30]));
    assert!(restored(&mut weave, &[30, 30, 30, 30, 0, 30]));
}

#[test]
fn losses_count_of_what_was_sent_after_the_last_reaction() {
    let mut weave = cruising();
    weave.answered_ns = SECOND_NS;
    for (sent_ns, packets) in [(SECOND_NS, 4), (SECOND_NS + 1, 2)] {
        weave.on_lost(&Lost {
            now_ns: NOW_NS,
            sent_ns,
            packets,
            octets: 1250 * u64::from(packets),
            prior_delivered_octets: 0,
            in_flight_octets: 0,
        });
    }
    let (packets, octets) = (1, 1250);
    let spurious = Spurious { now_ns: NOW_NS, sent_ns: NOW_NS, packets, octets, all: false };
    weave.on_spurious(&spurious);
    let round = weave.model.handle(&acked(BDP), Some(RTT_NS), 0).expect("a round ends");
    assert_eq!(round.lost, 1, "of two, one was none");
}

#[test]
fn another_path_begins_anew_and_another_size_counts_at_once() {
    let mut weave = cruising();
    weave.on_path_changed(NOW_NS, None);
    assert_eq!((weave.phase, weave.model.bw_bps(), weave.saved()), (RAMP, 0, None));
    let saved = Saved { rate_bps: BW_BPS, min_rtt_ns: RTT_NS };
    weave.on_path_changed(NOW_NS, Some(saved));
    assert_eq!((weave.phase, weave.saved_rtt_ns), (RAMP, Some(RTT_NS)));
    assert_eq!(cruising().saved(), Some(saved));
    let mut weave = cruising();
    weave.model.set_bw(0, 0);
    assert_eq!(weave.saved(), None, "there is no rate yet");
    weave.model.set_bw(1, 0);
    weave.on_datagram_octets(9000);
    assert_eq!(weave.window_octets(), 4 * 9000);
}

#[test]
fn a_wished_rate_begins_with_what_it_carries_in_30_ms() {
    let window = |initial_rate_bps| {
        let params = Params { datagram_octets: 1250, initial_rate_bps, ..Params::default() };
        Weave::new(&params).window_octets()
    };
    assert_eq!(window(None), 64 * 1250);
    assert_eq!(window(Some(BW_BPS)), 375_000);
    assert_eq!(window(Some(1_000_000)), 64 * 1250);
}
