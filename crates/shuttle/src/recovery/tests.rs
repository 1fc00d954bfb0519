//! Losses, probes and round trips, by the acknowledgements that show them.

use weft_wire::shuttle::frame::Ranges;
use weft_wire::shuttle::{PathId, StreamId};

use super::*;
use crate::cc::{Acked, Params, none};
use crate::path_budget::tests::{Heard, heard, recorder};

const MS: u64 = 1_000_000;

fn path() -> (Recovery, [PathBudget; 1]) {
    (Recovery::new(10 * MS), [PathBudget::new(none(&Params::default()))])
}

fn send(recovery: &mut Recovery, budget: &mut PathBudget, now_ns: u64, packets: u8) {
    let flight = Flight::new(recovery.next_pn(), packets, 1000, 1000);
    recovery.handle_sent(now_ns, flight, budget);
}

fn send_segments(recovery: &mut Recovery, budget: &mut PathBudget, now_ns: u64, packets: u8) {
    let mut flight = Flight::new(recovery.next_pn(), packets, 1000, 1000);
    flight.cargo = Cargo::Segments { stream: StreamId(0), first_dsn: 0, each: 1, last_each: 1 };
    recovery.handle_sent(now_ns, flight, budget);
}

/// An acknowledgement of every packet up to `largest`.
fn ack(largest: u64, room: &mut Vec<u8>) -> Ack<'_> {
    let (ranges, _) = Ranges::encode([(0, largest)], 100, room).unwrap();
    let (path, floor) = (PathId(0), largest + 1);
    let (delay_us, arrived_us, marked, dropped) = (0, 0, 0, 0);
    Ack { path, largest, floor, delay_us, arrived_us, marked, dropped, ranges }
}

#[test]
fn an_ack_of_everything_leaves_nothing_in_flight() {
    let ((mut recovery, mut budgets), mut outcome) = (path(), AckOutcome::default());
    send(&mut recovery, &mut budgets[0], MS, 4);
    let mut room = Vec::new();
    let ack = ack(3, &mut room);
    assert!(recovery.handle_ack(2 * MS, &ack, 0, &mut budgets, &mut outcome));
    assert_eq!((recovery.in_flight_octets(), recovery.rtt().latest_ns), (0, MS));
}

/// The waits between the probe timeouts of a path on which nothing comes back, while segments wait.
fn waits(count: usize) -> Vec<u64> {
    let ((mut recovery, mut budgets), mut outcome) = (path(), AckOutcome::default());
    let mut now_ns = MS;
    send_segments(&mut recovery, &mut budgets[0], now_ns, 1);
    let mut wait = || {
        let due_ns = recovery.timeout_ns().unwrap();
        let waited_ns = due_ns - now_ns;
        now_ns = due_ns;
        recovery.handle_timeout(now_ns, &mut budgets, &mut outcome);
        let probes = recovery.probes();
        assert!((1..=PROBES).contains(&probes));
        send_segments(&mut recovery, &mut budgets[0], now_ns, probes);
        waited_ns
    };
    (0..count).map(|_| wait()).collect()
}

#[test]
fn probes_of_a_silent_path_come_ever_less_often() {
    let waits = waits(400);
    assert_eq!((waits[1], waits[2]), (2 * waits[0], 4 * waits[0]));
    // Down: one probe a round trip, then in 1/32 of the time that it has been down, then one a
    // second.
    let down = &waits[3..];
    assert_eq!(down[0], 10 * MS);
    assert!(down.is_sorted());
    assert_eq!(down.last(), Some(&OUTAGE_INTERVAL_NS));
    let mut down_ns: u64 = waits[..3].iter().sum();
    for wait_ns in down {
        let part_ns = (down_ns / OUTAGE_PART).clamp(10 * MS, OUTAGE_INTERVAL_NS);
        assert_eq!(*wait_ns, part_ns);
        down_ns += wait_ns;
    }
}

/// Where no segment waits, an hour without an answer costs little memory and few wake-ups.
#[test]
fn an_outage_in_which_nobody_waits_leaves_few_records() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let ((mut recovery, mut budgets), mut outcome) = (path(), AckOutcome::default());
    let mut now_ns = MS;
    send(&mut recovery, &mut budgets[0], now_ns, 1);
    let mut sent = 0;
    while now_ns < HOUR_NS {
        now_ns = recovery.timeout_ns().unwrap();
        recovery.handle_timeout(now_ns, &mut budgets, &mut outcome);
        let probes = recovery.probes();
        send(&mut recovery, &mut budgets[0], now_ns, probes);
        sent += u32::from(probes);
        assert!(recovery.kept_octets() < 4 * OUTAGE_PROBES_KEPT * size_of::<Flight>());
    }
    assert!(sent < 1000, "{sent} probes");
    assert_eq!(recovery.in_flight_octets(), 1000 * (OUTAGE_PROBES_KEPT as u64 + 1));
    // An answer to one that is not the newest: the round trip has become longer.
    let late = recovery.next_pn() - OUTAGE_PROBES_KEPT as u64;
    let mut room = Vec::new();
    let (ranges, _) = Ranges::encode([(late, late)], 100, &mut room).unwrap();
    let ack = Ack { largest: late, floor: 0, ranges, ..ack(0, &mut Vec::new()) };
    assert!(recovery.handle_ack(now_ns, &ack, 0, &mut budgets, &mut outcome));
    assert!(!recovery.is_outage());
}

/// What is posted after a long idle outage does not wait for what remains of ten seconds.
#[test]
fn an_idle_outage_is_probed_sooner_once_somebody_waits() {
    let ((mut recovery, mut budgets), mut outcome) = (path(), AckOutcome::default());
    let mut now_ns = MS;
    send(&mut recovery, &mut budgets[0], now_ns, 1);
    while now_ns < 900_000 * MS {
        now_ns = recovery.timeout_ns().unwrap();
        recovery.handle_timeout(now_ns, &mut budgets, &mut outcome);
        let probes = recovery.probes();
        send(&mut recovery, &mut budgets[0], now_ns, probes);
    }
    assert_eq!(recovery.timeout_ns(), Some(now_ns + OUTAGE_IDLE_INTERVAL_NS));
    recovery.set_awaited(true);
    assert_eq!(recovery.timeout_ns(), Some(now_ns + OUTAGE_INTERVAL_NS));
}

#[test]
fn an_answer_ends_the_back_off() {
    let ((mut recovery, mut budgets), mut outcome) = (path(), AckOutcome::default());
    send(&mut recovery, &mut budgets[0], 0, 1);
    let first_ns = recovery.timeout_ns().unwrap();
    recovery.handle_timeout(first_ns, &mut budgets, &mut outcome);
    send(&mut recovery, &mut budgets[0], first_ns, 2);
    assert_eq!(recovery.timeout_ns(), Some(3 * first_ns));
    let mut room = Vec::new();
    recovery.handle_ack(first_ns, &ack(1, &mut room), 0, &mut budgets, &mut outcome);
    let again_ns = recovery.probe_timeout_ns();
    assert_eq!(recovery.timeout_ns(), Some(first_ns + again_ns));
}

/// S-74.
#[test]
fn after_each_probe_timeout_others_take_what_is_open() {
    let ((mut recovery, mut budgets), mut outcome) = (path(), AckOutcome::default());
    send(&mut recovery, &mut budgets[0], MS, 1);
    for _ in 0..5 {
        let due_ns = recovery.timeout_ns().unwrap();
        recovery.handle_timeout(due_ns, &mut budgets, &mut outcome);
        assert!(std::mem::take(&mut outcome.silent));
        let probes = recovery.probes();
        send(&mut recovery, &mut budgets[0], due_ns, probes);
    }
}

/// A path of 10 ms whose controller notes what it hears. The reordering window is the least,
/// 0.5 ms, and acknowledgements come a millisecond apart.
fn recorded() -> (Recovery, [PathBudget; 1], AckOutcome) {
    let mut recovery = Recovery::new(10 * MS);
    recovery.handle_handshake_rtt(10 * MS);
    (recovery, [PathBudget::new(recorder(&Params::default()))], AckOutcome::default())
}

/// An acknowledgement of these packets alone.
fn ack_of<'a>(runs: &[(u64, u64)], room: &'a mut Vec<u8>) -> Ack<'a> {
    let (ranges, _) = Ranges::encode(runs.iter().copied(), 100, room).unwrap();
    let (path, floor, largest) = (PathId(0), 0, runs[0].1);
    let (delay_us, arrived_us, marked, dropped) = (0, 0, 0, 0);
    Ack { path, largest, floor, delay_us, arrived_us, marked, dropped, ranges }
}

fn acked() -> Option<Acked> {
    heard().into_iter().find_map(|heard| match heard {
        Heard::Acked(acked) => Some(acked),
        _ => None,
    })
}

/// S-50: by newer ones, or by time.
#[test]
fn a_packet_is_lost_once_one_sent_later_by_the_window_is_there() {
    const WINDOW_NS: u64 = MS / 2;
    for (apart_ns, lost) in [(WINDOW_NS - 1, 0), (WINDOW_NS, 1)] {
        let (mut recovery, mut budgets, mut outcome) = recorded();
        send(&mut recovery, &mut budgets[0], MS, 1);
        send(&mut recovery, &mut budgets[0], MS + apart_ns, 1);
        let mut room = Vec::new();
        let ack = ack_of(&[(1, 1)], &mut room);
        let now_ns = 11 * MS + apart_ns;
        assert!(recovery.handle_ack(now_ns, &ack, 0, &mut budgets, &mut outcome));
        assert_eq!((recovery.stats.lost_packets, recovery.stats.lost_octets), (lost, 1000 * lost));
        assert_eq!(recovery.in_flight_octets(), 1000 * (1 - lost));
        if lost == 1 {
            assert_eq!(recovery.timeout_ns(), None, "nothing is in flight");
            continue;
        }
        // A round trip, the window, and the interval of acknowledgements after it was sent.
        let due_ns = MS + 10 * MS + WINDOW_NS + MS;
        assert_eq!(recovery.timeout_ns(), Some(due_ns));
        recovery.handle_timeout(due_ns - 1, &mut budgets, &mut outcome);
        assert_eq!(recovery.stats.lost_packets, 0);
        recovery.handle_timeout(due_ns, &mut budgets, &mut outcome);
        assert_eq!((recovery.stats.lost_packets, recovery.stats.probe_timeouts), (1, 0));
        assert_eq!((recovery.in_flight_octets(), recovery.timeout_ns()), (0, None));
    }
}

/// S-53.
#[test]
fn a_lost_packet_that_arrives_within_a_round_trip_was_not_lost() {
    for (after_ns, spurious) in [(10 * MS - 1, 1), (10 * MS, 0)] {
        let (mut recovery, mut budgets, mut outcome) = recorded();
        (1..=3).for_each(|at| send(&mut recovery, &mut budgets[0], at * MS, 1));
        let mut room = Vec::new();
        let first = ack_of(&[(1, 1)], &mut room);
        recovery.handle_ack(12 * MS, &first, 0, &mut budgets, &mut outcome);
        assert_eq!((recovery.stats.lost_packets, recovery.floor()), (1, 0));
        // What is forgotten is that of before the next acknowledgement.
        let mut room = Vec::new();
        let next = Ack { delay_us: 1_000_000, ..ack_of(&[(2, 2)], &mut room) };
        recovery.handle_ack(12 * MS + after_ns, &next, 0, &mut budgets, &mut outcome);
        assert_eq!(recovery.floor(), if spurious == 1 { 0 } else { 3 });
        let mut room = Vec::new();
        let late = ack_of(&[(2, 2), (0, 0)], &mut room);
        let news = recovery.handle_ack(12 * MS + after_ns, &late, 0, &mut budgets, &mut outcome);
        assert_eq!((news, recovery.stats.spurious_packets), (spurious == 1, spurious));
        assert_eq!((recovery.in_flight_octets(), recovery.floor()), (0, 3));
    }
}

#[test]
fn what_the_peer_reports_is_told_as_what_is_new_of_it() {
    let (mut recovery, mut budgets, mut outcome) = recorded();
    (1..=3).for_each(|at| send(&mut recovery, &mut budgets[0], at * MS, 1));
    heard();
    let mut marks = Vec::new();
    for (pn, marked, dropped) in [(0, 2, 5), (1, 3, 4), (2, 3, 6)] {
        let mut room = Vec::new();
        let ack = Ack { arrived_us: 70_000, marked, dropped, ..ack_of(&[(pn, pn)], &mut room) };
        recovery.handle_ack((11 + pn) * MS, &ack, 0, &mut budgets, &mut outcome);
        for heard in heard() {
            match heard {
                Heard::Ecn(ecn) => marks.push((pn, ecn.packets)),
                Heard::Acked(acked) => {
                    let sent_us = 1000 * (pn as i64 + 1);
                    assert_eq!(acked.one_way_ns, (70_000 - sent_us) * 1000);
                }
                _ => {}
            }
        }
    }
    assert_eq!(marks, [(0, 2), (1, 1)]);
    assert_eq!(recovery.stats.dropped_by_peer, 6, "the most that was told");
}

/// What its answer waited for on the way back is no part of the path's round trip for a controller.
#[test]
fn the_delay_of_the_way_back_is_taken_from_the_round_trip_down_to_the_least() {
    for (waited_ns, latest_ns) in [(0, 30), (5, 25), (25, 10)].map(|(w, l)| (w * MS, l * MS)) {
        let (mut recovery, mut budgets, mut outcome) = recorded();
        send(&mut recovery, &mut budgets[0], 0, 1);
        let mut room = Vec::new();
        recovery.handle_ack(
            30 * MS,
            &ack_of(&[(0, 0)], &mut room),
            waited_ns,
            &mut budgets,
            &mut outcome,
        );
        assert_eq!(acked().unwrap().rtt.unwrap().latest_ns, latest_ns);
    }
}

/// A packet that is acknowledged late with newer ones, or that left before a stop, has waited.
#[test]
fn only_the_newest_packet_measures_the_round_trip() {
    let rtts = |stopped: bool, acks: &[&[(u64, u64)]]| -> Vec<Option<u64>> {
        let (mut recovery, mut budgets, mut outcome) = recorded();
        (0..3).for_each(|at| send(&mut recovery, &mut budgets[0], at * MS / 4, 1));
        if stopped {
            recovery.handle_stop();
        }
        send(&mut recovery, &mut budgets[0], MS, 1);
        let each = acks.iter().map(|runs| {
            let mut room = Vec::new();
            let ack = ack_of(runs, &mut room);
            recovery.handle_ack(20 * MS, &ack, 0, &mut budgets, &mut outcome);
            acked()?.rtt.map(|rtt| rtt.latest_ns)
        });
        each.collect()
    };
    assert_eq!(
        rtts(false, &[&[(0, 0)], &[(2, 2)], &[(1, 1)]]),
        [Some(20 * MS), Some(20 * MS - MS / 2), None]
    );
    // The newest was acknowledged before.
    assert_eq!(rtts(false, &[&[(2, 2)], &[(2, 2), (0, 0)]]), [Some(20 * MS - MS / 2), None]);
    assert_eq!(rtts(true, &[&[(2, 2)], &[(3, 3)]]), [None, Some(19 * MS)]);
}

/// The loss of a probe says that it was too large; that of a wish has it told again.
#[test]
fn each_cargo_is_lost_in_its_own_way() {
    let stream = weft_wire::shuttle::StreamId(0);
    let segments = Cargo::Segments { stream, first_dsn: 7, each: 1, last_each: 1 };
    for cargo in [Cargo::MtuProbe, Cargo::Frames, Cargo::Rate, Cargo::Interval, segments] {
        let (mut recovery, mut budgets, mut outcome) = recorded();
        let mut flight = Flight::new(0, 1, 1000, 1000);
        flight.cargo = cargo;
        recovery.handle_sent(MS, flight, &mut budgets[0]);
        send(&mut recovery, &mut budgets[0], 2 * MS, 1);
        let mut room = Vec::new();
        let ack = ack_of(&[(1, 1)], &mut room);
        recovery.handle_ack(12 * MS, &ack, 0, &mut budgets, &mut outcome);
        let is_probe = cargo == Cargo::MtuProbe;
        let lost = u64::from(!is_probe);
        assert_eq!((recovery.stats.lost_packets, recovery.stats.lost_octets), (lost, lost * 1000));
        assert_eq!(outcome.probes, if is_probe { vec![(1000, false)] } else { Vec::new() });
        assert_eq!(outcome.rate_lost, cargo == Cargo::Rate);
        assert_eq!(outcome.interval_lost, cargo == Cargo::Interval);
        let carried = cargo == segments;
        let again = [Segments { stream, first: 7, last: 7 }];
        assert_eq!(outcome.lost, if carried { again.to_vec() } else { Vec::new() });
        let fates: Vec<_> = outcome.fates.iter().map(|(_, fates)| fates.lost).collect();
        assert_eq!(fates, if carried { vec![1] } else { Vec::new() });
    }
}

/// S-74: other paths get what is still open, once.
#[test]
fn only_what_is_open_is_given_back_and_probed() {
    let stream = weft_wire::shuttle::StreamId(0);
    let (mut recovery, mut budgets, mut outcome) = recorded();
    let mut flight = Flight::new(0, 4, 1000, 1000);
    flight.cargo = Cargo::Segments { stream, first_dsn: 10, each: 1, last_each: 1 };
    recovery.handle_sent(MS, flight, &mut budgets[0]);
    let oldest = |recovery: &Recovery| recovery.oldest_open().map(|run| (run.first, run.last));
    assert_eq!(oldest(&recovery), Some((10, 13)));
    let mut room = Vec::new();
    let ack = ack_of(&[(1, 1)], &mut room);
    recovery.handle_ack(11 * MS, &ack, 0, &mut budgets, &mut outcome);
    assert_eq!(oldest(&recovery), Some((10, 10)));
    let fates: Vec<_> =
        outcome.fates.iter().map(|(_, fates)| (fates.arrived, fates.lost)).collect();
    assert_eq!(fates, [(1, 0)]);
    outcome = AckOutcome::default();
    recovery.give_back(&mut outcome);
    let again = [(10, 10), (12, 13)].map(|(first, last)| Segments { stream, first, last });
    assert_eq!((&outcome.lost[..], recovery.in_flight_octets()), (&again[..], 3000));
    let mut later = Flight::new(4, 2, 1000, 1000);
    later.cargo = Cargo::Segments { stream, first_dsn: 14, each: 1, last_each: 1 };
    recovery.handle_sent(12 * MS, later, &mut budgets[0]);
    outcome = AckOutcome::default();
    recovery.give_back(&mut outcome);
    assert_eq!(outcome.lost, [Segments { stream, first: 14, last: 15 }]);
}

#[test]
fn the_probe_timeout_is_a_round_trip_four_deviations_and_an_interval() {
    let mut recovery = Recovery::new(100 * MS);
    assert!(!recovery.has_rtt());
    recovery.handle_handshake_rtt(10 * MS);
    assert!(recovery.has_rtt());
    let var_ns = recovery.rtt().var_ns;
    assert_eq!(recovery.probe_timeout_ns(), 10 * MS + 4 * var_ns + MS);
    (0..50).for_each(|_| recovery.handle_handshake_rtt(10 * MS));
    assert!(recovery.rtt().var_ns < MS / 4);
    assert_eq!(recovery.probe_timeout_ns(), 10 * MS + MS + MS, "a millisecond for jitter");
    recovery.asked_interval_ns = 3 * MS;
    assert_eq!(recovery.probe_timeout_ns(), 10 * MS + MS + 3 * MS, "as the peer was asked");
}

/// S-54: a peer with many connections acknowledges late and reports the delay.
#[test]
fn the_probe_timeout_waits_for_a_busy_peer_up_to_25_ms_longer() {
    for (late_us, least_ns, most_ns) in
        [(3000, 4 * MS, 6 * MS), (1_000_000, 25 * MS, 28 * MS), (0, MS, 3 * MS)]
    {
        let ((mut recovery, mut budgets), mut outcome) = (path(), AckOutcome::default());
        let mut now_ns = MS;
        for packet in 0..50 {
            send(&mut recovery, &mut budgets[0], now_ns, 1);
            // The first shows how long the path is.
            let delay_us = if packet == 0 { 0 } else { late_us };
            now_ns += 20_000 + 1000 * delay_us;
            let mut room = Vec::new();
            let ack = Ack { delay_us, ..ack(packet, &mut room) };
            recovery.handle_ack(now_ns, &ack, 0, &mut budgets, &mut outcome);
        }
        let timeout_ns = recovery.probe_timeout_ns();
        assert!((least_ns..=most_ns).contains(&timeout_ns), "{late_us} us late: {timeout_ns}");
        assert!(recovery.rtt().smoothed_ns < 1_100_000, "the path is as short as before");
    }
}

#[test]
fn the_one_way_delay_is_followed_across_the_end_of_its_32_bits() {
    let mut recovery = path().0;
    // The clocks are so far apart that the difference has just not, and then just, changed sign.
    let far_us = i32::MAX as u32;
    let delays = [0, 5, 2, 40, 0].map(|later_us| recovery.one_way_us(far_us + later_us, 7));
    let far_us = i64::from(i32::MAX);
    assert_eq!(delays, [0, 5, 2, 40, 0].map(|later_us| far_us + later_us));
    let mut recovery = path().0;
    let delays = [1, -1, 3, -3].map(|later_us: i32| recovery.one_way_us(later_us as u32, 7));
    assert_eq!(delays, [1, -1, 3, -3]);
    // The sender's clock has passed its own end meanwhile.
    let sent_ns = (1u64 << 32) * 1000;
    assert_eq!(recovery.one_way_us(2, sent_ns), 2);
}
