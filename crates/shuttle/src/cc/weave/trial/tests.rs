//! Trials: when they are made, what counts in them, and their word.

use super::*;
use crate::cc::Controller;

fn lost(sent_ns: u64, packets: u32) -> Lost {
    let octets = u64::from(packets) * 1250;
    let (now_ns, prior_delivered_octets, in_flight_octets) = (sent_ns, 0, 0);
    Lost { now_ns, sent_ns, packets, octets, prior_delivered_octets, in_flight_octets }
}

#[test]
fn a_burst_is_one_event() {
    let mut trial = RateTrial::default();
    for sent_ns in [10, 11, 12, 30, 31] {
        trial.lose(&lost(sent_ns * 1_000_000, 5), EVENT_NS, true);
    }
    assert_eq!(trial.usual, LossCount { packets: 25, lost: 25, events: 2 });
}

#[test]
fn what_a_trial_sends_is_counted_apart() {
    let running = RunningTrial { began_ns: 100, ended_ns: Some(200), ..Default::default() };
    let mut trial = RateTrial { running: Some(running), ..Default::default() };
    [99, 100, 200, 201].into_iter().for_each(|sent_ns| trial.lose(&lost(sent_ns, 1), 0, true));
    let two = LossCount { packets: 2, lost: 2, events: 2 };
    assert_eq!((trial.usual, trial.running.unwrap().told), (two, two));
}

fn acked(sent_ns: u64, packets: u32) -> Acked {
    Acked {
        now_ns: sent_ns + RTT_NS,
        packets,
        octets: u64::from(packets) * 1250,
        sent_ns,
        ..Acked::default()
    }
}

const RTT_NS: u64 = 16_000_000;
const BW_BPS: u64 = 100_000_000;

/// 3 % of loss, one event in a hundred packets.
const USUAL: LossCount = LossCount { packets: 1200, lost: 36, events: 12 };

/// Cruising at 100 Mbit/s with 3 % of random loss, one event in a hundred packets.
fn cruising() -> Weave {
    let params = crate::cc::Params { datagram_octets: 1250, ..Default::default() };
    let mut weave = Weave::new(&params);
    weave.model.set_bw(BW_BPS, 0);
    weave.smoothed_rtt_ns = RTT_NS;
    weave.loss.set_random(0.03);
    weave.trial.halve_at_ns = u64::MAX;
    weave.trial.usual = USUAL;
    weave.phase = WeavePhase::Cruise { probe_at_ns: 7, rounds: 1 };
    weave
}

#[test]
fn what_is_told_counts_half_after_2_seconds_or_round_trips() {
    let mut weave = cruising();
    weave.trial.halve_at_ns = 3 * SECOND_NS;
    let told = |weave: &mut Weave, now_ns, packets| {
        weave.ack_in_trial(&Acked { now_ns, ..acked(0, packets) });
        weave.trial.usual
    };
    let usual = LossCount { packets: 1300, lost: 36, events: 12 };
    assert_eq!(told(&mut weave, 3 * SECOND_NS - 1, 100), usual);
    let half = LossCount { packets: 750, lost: 18, events: 6 };
    assert_eq!(told(&mut weave, 3 * SECOND_NS, 100), half);
    assert_eq!(weave.trial.halve_at_ns, 5 * SECOND_NS);
    weave.smoothed_rtt_ns = 2 * SECOND_NS;
    told(&mut weave, 5 * SECOND_NS, 0);
    assert_eq!(weave.trial.halve_at_ns, 9 * SECOND_NS);
    let last = LossCount { packets: 5, lost: 0, events: 0 };
    assert_eq!(told(&mut weave, 13 * SECOND_NS, 5), last, "after a pause nothing");
}

#[test]
fn what_is_told_of_start_up_does_not_count() {
    let counted = |phase| {
        let mut weave = cruising();
        (weave.trial.usual, weave.phase) = (LossCount::default(), phase);
        weave.lose_in_trial(&lost(SECOND_NS, 1));
        weave.ack_in_trial(&acked(SECOND_NS, 3));
        weave.trial.usual.packets
    };
    assert_eq!(counted(super::super::RAMP), 0);
    assert_eq!(counted(WeavePhase::Drain { rounds: 1 }), 0);
    assert_eq!(counted(WeavePhase::Down { rounds: 1 }), 4);
    assert_eq!(counted(WeavePhase::Cruise { probe_at_ns: 7, rounds: 0 }), 4);
}

#[test]
fn losses_are_tried_from_1_5_percent_on_once_twelve_events_are_known() {
    let begins = |change: fn(&mut Weave)| {
        let mut weave = cruising();
        change(&mut weave);
        let begun = weave.begin_trial(SECOND_NS);
        assert_eq!(begun, weave.phase == WeavePhase::Trial);
        begun
    };
    assert!(begins(|_| ()));
    assert!(begins(|weave| weave.loss.set_random(0.015)));
    assert!(!begins(|weave| weave.loss.set_random(0.0149)));
    assert!(begins(|weave| weave.trial.usual.lost = 18));
    assert!(!begins(|weave| weave.trial.usual.lost = 17));
    assert!(!begins(|weave| weave.trial.usual.events = 11));
    assert!(!begins(|weave| weave.competes = true));
    assert!(!begins(|weave| weave.phase = WeavePhase::Cruise { probe_at_ns: 7, rounds: 0 }));
    assert!(!begins(|weave| weave.phase = WeavePhase::Drain { rounds: 3 }));
    assert!(!begins(|weave| {
        let (began_ns, ended_ns) = (1, Some(2));
        weave.trial.running = Some(RunningTrial { began_ns, ended_ns, ..Default::default() });
    }));
    assert!(begins(|weave| weave.trial.due_ns = SECOND_NS));
    assert!(!begins(|weave| weave.trial.due_ns = SECOND_NS + 1));
    // Losses that have grown by half and 1 % are tried at once.
    let later = |lost| {
        let mut weave = cruising();
        (weave.trial.due_ns, weave.trial.tried_loss) = (u64::MAX, 0.02);
        weave.trial.usual.lost = lost;
        weave.begin_trial(SECOND_NS)
    };
    assert!(!later(48) && later(49));
}

/// Twelve events are to be expected in it.
#[test]
fn a_trial_lasts_for_its_packets_and_then_the_probe_has_its_time() {
    let mut weave = cruising();
    weave.begin_trial(SECOND_NS);
    assert_eq!(weave.trial.tried_loss, 0.03);
    assert_eq!(weave.paced_bps(), BW_BPS / 10 * 9, "nothing makes up for losses");
    weave.trial.send(1199);
    weave.end_trial(SECOND_NS + 1);
    assert_eq!(weave.phase, WeavePhase::Trial);
    weave.trial.send(1);
    weave.end_trial(SECOND_NS + 2);
    assert_eq!(weave.phase, WeavePhase::Cruise { probe_at_ns: 7, rounds: 0 });
    assert_eq!(weave.trial.running.unwrap().ended_ns, Some(SECOND_NS + 2));
    weave.trial.send(5);
    assert_eq!(weave.trial.running.unwrap().sent, 1200);
    // A bucket fills within a quarter of a round trip: 40 packets at the rate.
    let mut dense = cruising();
    dense.trial.usual.events = 1200;
    dense.begin_trial(SECOND_NS);
    assert_eq!(dense.trial.running.unwrap().need, 40);
}

#[test]
fn a_trial_that_would_last_for_two_seconds_and_round_trips_is_put_off() {
    for (packets, rtt_ns, begins) in [
        (20_000, RTT_NS, true),
        (20_001, RTT_NS, false),
        (40_000, 2 * SECOND_NS, true),
        (40_001, 2 * SECOND_NS, false),
    ] {
        let mut weave = cruising();
        weave.trial.usual = LossCount { packets, lost: 1000, events: 12 };
        weave.smoothed_rtt_ns = rtt_ns;
        assert_eq!(weave.begin_trial(SECOND_NS), begins, "{packets}");
        assert_eq!(weave.trial.due_ns, if begins { 0 } else { SECOND_NS + AGAIN_NS });
    }
}

#[test]
fn a_trial_that_something_else_ends_is_made_again() {
    let mut weave = cruising();
    weave.begin_trial(SECOND_NS);
    weave.phase = WeavePhase::Cruise { probe_at_ns: 7, rounds: 1 };
    assert!(!weave.begin_trial(2 * SECOND_NS));
    assert_eq!((weave.trial.running, weave.trial.tried_loss), (None, 0.0));
    assert!(!weave.begin_trial(3 * SECOND_NS), "what was known was of before");
    weave.trial.usual = USUAL;
    assert!(!weave.begin_trial(2 * SECOND_NS + AGAIN_NS - 1));
    assert!(weave.begin_trial(2 * SECOND_NS + AGAIN_NS));
}

/// A trial of which these packets arrived and were lost, at 90 Mbit/s.
fn trial_of(arrived: u64, lost: u64, events: u64) -> RunningTrial {
    let told = LossCount { packets: arrived + lost, lost, events };
    let ended_ns = Some(time_for_ns(1250 * (arrived + lost), BW_BPS / 10 * 9));
    RunningTrial { told, usual: USUAL, ended_ns, ..Default::default() }
}

/// Whether losses depend on the rate after a trial, and what is random then.
fn judged(arrived: u64, lost: u64, events: u64) -> Option<f64> {
    let mut weave = cruising();
    weave.judge(0, &trial_of(arrived, lost, events));
    weave.trial.depends.then(|| weave.loss.random())
}

#[test]
fn few_events_and_few_losses_show_that_losses_depend_on_the_rate() {
    assert_eq!(judged(1200, 0, 0), Some(0.0));
    // A quarter of the twelve events that are expected, and a third of the loss; random is a
    // deviation more.
    assert_eq!(judged(1196, 4, 1), Some(2.0 * 4.0 / 1200.0));
    assert!(judged(1194, 6, 3).is_some());
    assert_eq!(judged(1194, 6, 4), None);
    assert!(judged(1188, 12, 1).is_some());
    assert_eq!(judged(1187, 13, 1), None);
    // Seven tenths of the events that are expected.
    assert!(judged(841, 0, 0).is_some());
    assert_eq!(judged(839, 0, 0), None);
}

/// When the next trial is due after one at 1 s, and below what it is paced then.
fn after(trial: &RunningTrial, change: fn(&mut RateTrial)) -> (u64, Option<u64>) {
    let mut weave = cruising();
    weave.trial.tried_loss = 0.03;
    change(&mut weave.trial);
    weave.judge(SECOND_NS, trial);
    let due_ns = weave.trial.due_ns - SECOND_NS;
    assert_eq!(weave.trial.tried_loss == 0.0, due_ns == AGAIN_NS);
    (due_ns, weave.trial.arrived_bps)
}

#[test]
fn a_word_that_is_not_clear_is_confirmed_by_another_trial_below_what_arrived() {
    let few = trial_of(1194, 6, 4);
    assert_eq!(after(&few, |_| ()), (AGAIN_NS, Some(89_550_000)), "in many events");
    assert_eq!(after(&trial_of(1194, 6, 3), |_| ()), (WAIT_NS, None), "in few");
    assert_eq!(after(&few, |trial| trial.arrived_bps = Some(1)), (WAIT_NS, None), "the second");
    let less = trial_of(1174, 26, 12);
    assert_eq!(after(&less, |_| ()), (AGAIN_NS, Some(88_050_000)), "the first of all");
    assert_eq!(after(&less, |trial| trial.wait_ns = WAIT_NS), (2 * WAIT_NS, None));
    assert_eq!(after(&trial_of(1173, 27, 12), |_| ()), (WAIT_NS, None), "three quarters");
}

#[test]
fn a_trial_that_was_cut_short_says_nothing() {
    assert_eq!(after(&trial_of(834, 5, 2), |_| ()), (AGAIN_NS, None));
    assert_eq!(after(&trial_of(834, 5, 2), |trial| trial.arrived_bps = Some(1)).1, Some(1));
    assert_eq!(after(&trial_of(835, 5, 2), |_| ()), (WAIT_NS, None));
}

#[test]
fn a_confirmed_trial_says_that_losses_depend_where_some_are_random_besides() {
    let mut weave = cruising();
    for _ in 0..2 {
        assert!(!weave.trial.depends);
        weave.judge(0, &trial_of(1191, 9, 9));
    }
    assert!(weave.trial.depends);
    assert!((weave.loss.random() - 0.01).abs() < 1e-9, "9 of 1200, and a third");
}

#[test]
fn a_second_trial_is_paced_below_what_arrived_but_not_below_half_of_the_rate() {
    let paced_bps = |arrived_bps| {
        let mut weave = cruising();
        weave.trial.arrived_bps = Some(arrived_bps);
        assert!(weave.begin_trial(SECOND_NS));
        weave.paced_bps()
    };
    assert_eq!(paced_bps(BW_BPS / 5 * 4), BW_BPS / 50 * 36);
    assert_eq!(paced_bps(BW_BPS / 5), BW_BPS / 20 * 9);
    assert_eq!(paced_bps(BW_BPS * 2), BW_BPS / 10 * 9);
}

#[test]
fn a_reaction_to_losses_without_a_queue_does_not_end_a_trial_unless_they_depend() {
    let phase_after = |floor_rtt_ns, depends| {
        let mut weave = cruising();
        weave.trial.depends = depends;
        weave.model.forget_min_rtt(0, RTT_NS);
        assert!(weave.begin_trial(SECOND_NS));
        let lost = Round { acked: 700, lost: 300, floor_rtt_ns, lasted_ns: RTT_NS, ..Round::EMPTY };
        weave.on_round(2 * SECOND_NS, &lost);
        assert_eq!(weave.model.bw_bps(), BW_BPS / 5 * 4);
        let is_trial = weave.phase == WeavePhase::Trial;
        // The next probe is as late as after any reaction.
        let probe_at_ns = weave.trial.running.map_or(0, |running| running.probe_at_ns);
        assert_eq!(probe_at_ns >= 2 * SECOND_NS, is_trial);
        is_trial
    };
    assert!(phase_after(RTT_NS, false));
    assert!(!phase_after(RTT_NS, true) && !phase_after(5 * RTT_NS, false));
}

#[test]
fn a_trial_is_paced_below_what_arrived_if_that_is_less_than_the_rate() {
    let paced_bps = |delivered_bps: u64| {
        let mut weave = cruising();
        let octets = octets_in(delivered_bps, RTT_NS);
        let round = Round { octets, lasted_ns: RTT_NS, ..Round::EMPTY };
        weave.heed_guard(0, &round);
        assert!(weave.begin_trial(SECOND_NS));
        weave.paced_bps()
    };
    assert_eq!(paced_bps(BW_BPS / 2), BW_BPS / 20 * 9);
    assert_eq!(paced_bps(2 * BW_BPS), BW_BPS / 10 * 9);
}

#[test]
fn losses_may_depend_until_a_trial_finds_them_random_or_they_are_too_rare_for_one() {
    let may = |change: fn(&mut RateTrial)| {
        let mut weave = cruising();
        change(&mut weave.trial);
        weave.losses_may_depend()
    };
    assert!(may(|_| ()) && may(|trial| trial.usual.events = 0));
    assert!(!may(|trial| trial.tried_loss = 0.03));
    assert!(!may(|trial| trial.usual.packets = 24_000));
    assert!(may(|trial| (trial.depends, trial.tried_loss) = (true, 0.03)));
}

#[test]
fn a_trial_is_judged_when_packets_sent_after_it_arrive_and_the_next_is_later_each_time() {
    let mut weave = cruising();
    let ended_ns = SECOND_NS + 100_000_000;
    let running = RunningTrial {
        began_ns: SECOND_NS,
        ended_ns: Some(ended_ns),
        usual: USUAL,
        ..Default::default()
    };
    for wait_s in [10, 20, 40, 80, 160, 160] {
        weave.trial.running = Some(running);
        weave.ack_in_trial(&acked(ended_ns, 900));
        weave.ack_in_trial(&acked(ended_ns + RTT_NS / 16, 1));
        assert_eq!(weave.trial.running.map(|running| running.told.packets), Some(900));
        weave.ack_in_trial(&acked(ended_ns + RTT_NS / 16 + 1, 1));
        assert_eq!(weave.trial.running, None);
        let now_ns = ended_ns + RTT_NS / 16 + 1 + RTT_NS;
        assert_eq!(weave.trial.due_ns, now_ns + wait_s * SECOND_NS);
    }
    assert!(weave.trial.depends, "nothing was lost");
}

#[test]
fn the_rate_becomes_what_was_delivered_until_that_ends_no_losses() {
    let mut weave = cruising();
    weave.trial.depends = true;
    let mut bw_bps = BW_BPS;
    let round = |share: u64| Round {
        octets: octets_in(BW_BPS, RTT_NS) * share / 100,
        lasted_ns: RTT_NS,
        ..Round::EMPTY
    };
    for (share, percent) in [(90, 90), (10, 72), (100, 72), (70, 70)] {
        weave.is_cut = true;
        assert!(weave.fit_to_delivered(SECOND_NS, &round(share)));
        bw_bps = BW_BPS / 100 * percent;
        assert_eq!(weave.model.bw_bps(), bw_bps, "four fifths at least");
        assert_eq!((weave.answered_ns, weave.is_cut), (SECOND_NS, false));
        assert!(matches!(weave.phase, WeavePhase::Cruise { .. }));
    }
    let mut calm = weave.clone();
    assert!(!weave.fit_to_delivered(SECOND_NS, &round(50)), "they are random after all");
    assert_eq!((weave.model.bw_bps(), weave.trial.depends), (BW_BPS, false));
    calm.trial.calm(0);
    assert!(calm.fit_to_delivered(SECOND_NS, &round(69)), "losses had ceased");
    assert!(bw_bps > calm.model.bw_bps());
}

#[test]
fn losses_within_4_ms_or_16_packets_are_one_event() {
    let events = |bw_bps, later_ns| {
        let mut weave = cruising();
        weave.model.set_bw(bw_bps, 0);
        weave.lose_in_trial(&lost(SECOND_NS, 1));
        weave.lose_in_trial(&lost(SECOND_NS + later_ns, 1));
        weave.trial.usual.events - 12
    };
    assert_eq!((events(BW_BPS, EVENT_NS), events(BW_BPS, EVENT_NS + 1)), (1, 2));
    // Sixteen packets of 10,000 bits.
    assert_eq!((events(1_000_000, 160_000_000), events(1_000_000, 160_000_001)), (1, 2));
}

#[test]
fn what_was_sent_before_a_trial_is_no_part_of_it() {
    let mut weave = cruising();
    weave.begin_trial(SECOND_NS);
    weave.ack_in_trial(&acked(SECOND_NS - 1, 5));
    weave.ack_in_trial(&acked(SECOND_NS, 3));
    assert_eq!((weave.trial.usual.packets, weave.trial.running.unwrap().told.packets), (5, 3));
}

#[test]
fn losses_that_go_on_at_seven_tenths_of_a_rate_without_them_are_random() {
    let depends = |bw_bps| {
        let mut weave = cruising();
        weave.trial.depends = true;
        weave.trial.calm(BW_BPS);
        weave.trial.calm(BW_BPS / 2);
        weave.model.set_bw(bw_bps, 0);
        let lost = Round { octets: octets_in(bw_bps, RTT_NS), lasted_ns: RTT_NS, ..Round::EMPTY };
        assert_eq!(weave.fit_to_delivered(SECOND_NS, &lost), weave.trial.depends);
        assert_eq!(weave.is_cut, !weave.trial.depends, "the rate is to be found again soon");
        let is_due_soon = weave.trial.due_ns == SECOND_NS + AGAIN_NS;
        assert_eq!(is_due_soon, !weave.trial.depends);
        weave.trial.depends
    };
    assert!(depends(BW_BPS / 10 * 7));
    assert!(!depends(BW_BPS / 10 * 7 - 1));
}

#[test]
fn only_a_rate_that_is_sent_can_be_one_without_losses() {
    let calm_bps = |phase, app_limited| {
        let mut weave = cruising();
        weave.model.forget_min_rtt(0, RTT_NS);
        (weave.trial.depends, weave.phase) = (true, phase);
        let (acked, floor_rtt_ns, lasted_ns) = (1000, RTT_NS, RTT_NS);
        weave.on_round(
            SECOND_NS,
            &Round { acked, floor_rtt_ns, lasted_ns, app_limited, ..Round::EMPTY },
        );
        weave.trial.calm_bps
    };
    let cruise = |rounds| WeavePhase::Cruise { probe_at_ns: u64::MAX, rounds };
    assert_eq!(calm_bps(cruise(1), false), BW_BPS);
    assert_eq!((calm_bps(cruise(0), false), calm_bps(cruise(1), true)), (0, 0));
    assert_eq!(calm_bps(WeavePhase::Trial, false), 0);
    assert_eq!(calm_bps(WeavePhase::Down { rounds: 0 }, false), 0);
}

#[test]
fn a_trial_is_given_up_when_the_application_sends_too_little_for_it() {
    let mut weave = cruising();
    weave.begin_trial(SECOND_NS);
    weave.trial.send(100);
    weave.end_trial(7 * SECOND_NS);
    assert_eq!(weave.phase, WeavePhase::Trial);
    weave.end_trial(7 * SECOND_NS + 1);
    assert!(matches!(weave.phase, WeavePhase::Cruise { .. }));
    assert_eq!((weave.trial.running, weave.trial.tried_loss), (None, 0.0));
}

#[test]
fn what_an_outage_took_says_nothing_of_the_rate() {
    let mut weave = cruising();
    weave.begin_trial(SECOND_NS);
    weave.trial.usual = USUAL;
    weave.on_outage(2 * SECOND_NS);
    assert_eq!((weave.trial.running, weave.trial.usual), (None, LossCount::default()));
    assert_eq!(weave.trial.due_ns, 2 * SECOND_NS + AGAIN_NS);
}

#[test]
fn what_arrived_of_an_unclear_trial_counts_for_ten_seconds() {
    let paced_bps = |late_ns| {
        let mut weave = cruising();
        (weave.trial.arrived_bps, weave.trial.due_ns) = (Some(BW_BPS / 5 * 4), SECOND_NS);
        assert!(weave.begin_trial(11 * SECOND_NS + late_ns));
        weave.paced_bps()
    };
    assert_eq!((paced_bps(0), paced_bps(1)), (BW_BPS / 50 * 36, BW_BPS / 10 * 9));
}
