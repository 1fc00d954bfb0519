//! Estimates, fed with single samples and rounds.

use super::*;

fn at(rtt_ns: u64, one_way_ns: i64) -> Acked {
    Acked {
        now_ns: rtt_ns,
        packets: 1,
        rtt: Some(crate::cc::Rtt { latest_ns: rtt_ns, smoothed_ns: 0, var_ns: 0, min_ns: 0 }),
        one_way_ns,
        ..Acked::default()
    }
}

/// A steady growth is a queue, and no jitter.
#[test]
fn only_round_trips_that_leap_are_restless() {
    let mut model = Model::new();
    (0..100).for_each(|at| model.take_rtt(0, 10_000_000 + at * 1_000_000));
    assert_eq!(model.unrest_ns, 0);
    let mut model = Model::new();
    // 30 ms and 10 ms in turn: the third and each after it leap by 40 ms.
    (0..12).for_each(|at| model.take_rtt(0, if at % 2 == 0 { 30_000_000 } else { 10_000_000 }));
    assert_eq!(model.unrest_ns, 10 * UNREST_STEP_NS_MIN);
    model.take_rtt(0, 10_000_000);
    assert_eq!(model.unrest_ns, 11 * UNREST_STEP_NS_MIN);
    model.take_rtt(0, 10_000_000);
    model.take_rtt(0, 10_000_000);
    let rested_ns = model.unrest_ns;
    model.take_rtt(0, 10_000_000);
    assert_eq!(model.unrest_ns, rested_ns - rested_ns / UNREST_GAIN_PART);
    assert_eq!(model.round_samples, 16);
    assert_eq!(model.round.rtts, (12 * 20_000_000 + 4 * 10_000_000, 16));
}

/// The path is longer there, so its one-way delay is too.
#[test]
fn a_new_least_round_trip_moves_the_least_one_way_delay() {
    let mut model = Model::new();
    let forward = |model: &mut Model, rtt_ms: u64, one_way_ms: i64| {
        let acked = at(rtt_ms * 1_000_000, one_way_ms * 1_000_000);
        let forward_ns = model.forward_rtt_ns(&acked).unwrap();
        model.take_rtt(0, forward_ns);
        forward_ns / 1_000_000
    };
    assert_eq!(forward(&mut model, 10, -5), 10);
    assert_eq!(forward(&mut model, 30, 15), 30, "a queue there");
    assert_eq!(forward(&mut model, 30, -5), 10, "an acknowledgement that waited");
    model.forget_min_rtt(0, 30_000_000);
    assert_eq!(forward(&mut model, 37, 15), 30, "an acknowledgement that waited");
    assert_eq!(forward(&mut model, 30, 15), 30);
    assert_eq!(forward(&mut model, 37, 22), 37, "a queue there");
}

#[test]
fn the_rate_is_the_largest_of_this_probe_cycle_and_the_last() {
    let mut model = Model::new();
    model.bw.add(model.cycle, 100);
    model.begin_cycle();
    model.bw.add(model.cycle, 50);
    assert_eq!(model.bw_bps(), 100);
    model.begin_cycle();
    assert_eq!(model.bw_bps(), 50);
    model.begin_cycle();
    assert_eq!(model.bw_bps(), 50, "the last that is known");
}

const MS: u64 = 1_000_000;

/// A path of this round trip and rate.
fn known(min_rtt_ns: u64, bw_bps: u64) -> Model {
    let mut model = Model::new();
    model.forget_min_rtt(0, min_rtt_ns);
    model.set_bw(bw_bps, 0);
    model
}

#[test]
fn a_queue_counts_from_a_sixteenth_of_the_round_trip_on_within_limits() {
    let queue_ns = |rtt_ms: u64| known(rtt_ms * MS, 10_000_000_000).queue_ns(1250);
    assert_eq!([4, 16, 64, 128, 400].map(queue_ns), [1, 1, 4, 8, 8].map(|ms| ms * MS));
    // Four packets of 10,000 bits each.
    assert_eq!(known(64 * MS, 4_000_000).queue_ns(1250), 10 * MS);
}

#[test]
fn jitter_allows_for_more_unless_a_round_has_many_samples() {
    let allowed_ns = |unrest_ns, samples| {
        let mut model = known(64 * MS, 1_000_000_000);
        (model.unrest_ns, model.samples) = (unrest_ns, samples);
        (model.restless_ns(), model.queue_ns(1250))
    };
    let sixth_ns = 4 * MS / 6;
    assert_eq!(allowed_ns(sixth_ns, 0), (0, 4 * MS), "no more than counts anyway");
    assert_eq!(allowed_ns(sixth_ns + 1, 0), (6 * (sixth_ns + 1), 6 * (sixth_ns + 1)));
    assert_eq!(allowed_ns(2 * MS, 7), (12 * MS, 12 * MS));
    assert_eq!(allowed_ns(2 * MS, 8), (8 * MS, 8 * MS));
}

/// A model whose delays leap, with this gap between arrivals.
fn leaping(rtt_ns: u64, unrest_ns: u64, gap_ns: u64) -> Model {
    let mut model = known(rtt_ns, 10_000_000);
    model.unrest_ns = unrest_ns;
    for arrived_ns in [0, gap_ns as i64] {
        let instant = Instant { arrived_ns, sent_ns: 0, delivered_octets: 0 };
        model.arrivals.take(instant, 0, 0);
    }
    assert_eq!(model.gap_ns(), gap_ns);
    model
}

#[test]
fn delays_vary_where_jitter_and_gaps_exceed_a_queue_on_a_path_that_is_not_short() {
    let varies = |rtt_ns, unrest_ns, gap_ns| leaping(rtt_ns, unrest_ns, gap_ns).varies(1250);
    // Four packets take 4 ms, as much as counts as a queue.
    assert!(varies(64 * MS, MS, 4 * MS + 1));
    assert!(!varies(64 * MS, MS, 4 * MS));
    assert!(!varies(64 * MS, 4 * MS / 6, 5 * MS));
    assert!(varies(64 * MS, 4 * MS / 6 + 1, 5 * MS));
    assert!(varies(16 * MS + 16, MS, 5 * MS) && !varies(16 * MS, MS, 5 * MS));
    assert!(!leaping(64 * MS, MS, 5 * MS).varies(1600), "four packets take longer");
}

#[test]
fn the_spread_is_averaged_over_eight_rounds_and_counts_above_a_queue() {
    let mut model = known(64 * MS, 1_000_000_000);
    let round =
        |mean_ns: u64| Round { floor_rtt_ns: 64 * MS, rtts: (10 * mean_ns, 10), ..Round::EMPTY };
    assert_eq!((round(96 * MS).spread_ns(), Round::EMPTY.spread_ns()), (32 * MS, 0));
    model.learn_spread(&round(96 * MS));
    assert_eq!((model.spread_ns, model.spread_ns()), (4 * MS, 0), "no more than counts");
    model.learn_spread(&round(96 * MS));
    assert_eq!(model.spread_ns(), 7_500_000);
    model.spread_ns = MS;
    assert_eq!(model.spread_ns(), 0);
    model.learn_wander(65 * MS);
    assert_eq!((model.spread_ns(), model.wander_ns()), (MS, MS), "delays are known to vary");
    model.forget_wander();
    assert_eq!((model.spread_ns(), model.wander_ns()), (0, 0));
}

#[test]
fn the_lateness_of_acknowledgements_fades_by_a_32nd() {
    let mut model = known(64 * MS, 1_000_000_000);
    model.floor_rtt_ns = 40 * MS;
    model.round_late_ns = 96 * MS;
    model.learn_late();
    assert_eq!(model.late_ns(), 40 * MS, "a round trip at most");
    model.learn_late();
    assert_eq!(model.late_ns(), 40 * MS - 40 * MS / 32);
    model.round_late_ns = 39 * MS;
    model.learn_late();
    assert_eq!(model.late_ns(), 39 * MS);
    model.floor_rtt_ns = 8 * MS;
    model.late_ns = 0;
    model.round_late_ns = 96 * MS;
    model.learn_late();
    assert_eq!(model.late_ns(), 20 * MS, "or a bunch of a wireless link");
}

#[test]
fn the_window_holds_what_arrives_while_something_waits() {
    // 125 bytes a microsecond.
    let mut model = known(64 * MS, 1_000_000_000);
    assert_eq!((model.slack_octets(), model.bdp_octets()), (187_500, 8_000_000));
    model.late_ns = 3 * MS;
    assert_eq!(model.slack_octets(), 187_500 + 375_000);
    let both = Model { late_ns: 3 * MS, ..leaping(64 * MS, 0, 5 * MS) };
    let octets = |ns| octets_in(both.bw_bps(), ns);
    assert_eq!(both.slack_octets(), octets(ACK_SLACK_NS + 8 * MS), "on the way there and back");
    model.unrest_ns = MS;
    assert_eq!(model.slack_octets(), 187_500 + 750_000, "the longest of the two");
    model.spread_ns = 8 * MS;
    model.learn_wander(66 * MS);
    assert_eq!(model.slack_octets(), 187_500 + 750_000 + 1_500_000 + 250_000);
}

#[test]
fn a_round_trip_within_a_64th_confirms_the_smallest_for_10_s() {
    let old = |rtt_ns: u64, after_ns: u64| {
        let mut model = known(64 * MS, 1_000_000_000);
        model.take_rtt(5 * MS, rtt_ns);
        model.min_rtt_is_old(after_ns)
    };
    let age_ns = 10_000 * MS;
    assert!(!old(65 * MS, age_ns + 5 * MS) && old(65 * MS, age_ns + 5 * MS + 1));
    assert!(old(65 * MS + 1, age_ns + 1) && !old(65 * MS + 1, age_ns));
    assert!(!old(63 * MS, age_ns + 5 * MS));
}

#[test]
fn a_round_has_what_was_told_in_it_and_begins_anew() {
    let mut model = Model::new();
    model.send(5000);
    model.lose(3, true);
    model.lose(9, false);
    model.restore(1);
    let sample = |prior_delivered_octets, app_limited| RateSample {
        delivered_octets: 1250,
        interval_ns: MS,
        prior_delivered_octets,
        app_limited,
    };
    let ack = |now_ns: u64, delivered_octets, rate| Acked {
        now_ns,
        packets: 2,
        octets: 2500,
        delivered_octets,
        rate: Some(rate),
        ..at(20 * MS, 0)
    };
    let first = model.handle(&ack(30 * MS, 2500, sample(0, false)), Some(20 * MS), 0).unwrap();
    assert_eq!((first.acked, first.lost, first.octets), (2, 2, 2500));
    assert_eq!((first.sent_octets, first.lasted_ns), (5000, 30 * MS));
    assert_eq!((first.floor_rtt_ns, model.floor_rtt_ns()), (20 * MS, 20 * MS));
    let within = ack(40 * MS, 5000, sample(2499, true));
    assert_eq!(model.handle(&within, Some(25 * MS), 0), None);
    let last = ack(50 * MS, 7500, sample(2500, false));
    let second = model.handle(&last, Some(22 * MS), 0).unwrap();
    assert_eq!((second.acked, second.lost, second.octets), (4, 0, 5000));
    assert_eq!((second.lasted_ns, second.app_limited), (20 * MS, true));
    assert_eq!((second.floor_rtt_ns, second.rtts), (22 * MS, (47 * MS, 2)));
    assert_eq!(model.bw_bps(), 10_000_000, "nothing was known of the path");
}

#[test]
fn a_round_of_one_acknowledgement_has_its_packets_and_losses() {
    let acked = Acked { packets: 3, lost_packets: 2, ..at(MS, 0) };
    assert_eq!(Round::of(&acked), Round { acked: 3, lost: 2, ..Round::EMPTY });
}
