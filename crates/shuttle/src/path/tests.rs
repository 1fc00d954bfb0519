//! A path by itself: what it lets leave, asks for and tells its controller.

use core::net::SocketAddr;

use weft_wire::shuttle::frame::Ranges;

use super::*;
use crate::cc::fixed;
use crate::flight::Cargo;
use crate::path_budget::tests::{Heard, heard, recorder};
use crate::recovery::PN_WINDOW;

const MS: u64 = 1_000_000;
/// Bytes of the shortest Challenge.
const LEAST: usize = 39;

fn route(port: u16) -> Route {
    let at = ([10, 0, 0, 1], port).into();
    Route { local: at, remote: at }
}

fn path() -> Path {
    Path::new(PathId(0), route(4000), &ShuttleConfig::default(), 1200)
}

/// A path whose controller notes what it hears and limits nothing, with a round trip of
/// `rtt_ns`.
fn recorded(rtt_ns: u64) -> Path {
    let config = ShuttleConfig {
        controller: recorder,
        controller_params: Params::default(),
        ..ShuttleConfig::default()
    };
    let mut path = Path::new(PathId(0), route(4000), &config, 1200);
    path.recovery.handle_handshake_rtt(rtt_ns);
    path
}

fn send(path: &mut Path, now_ns: u64, packets: u8) {
    let flight = Flight::new(path.recovery.next_pn(), packets, 1000, 1000);
    path.handle_sent(now_ns, flight);
}

#[test]
fn an_ack_of_a_packet_never_sent_changes_nothing() {
    let (mut path, mut outcome) = (path(), AckOutcome::default());
    path.handle_sent(1_000_000, Flight::new(0, 4, 1000, 1000));
    let initial_ns = path.recovery.rtt().latest_ns;
    let mut room = Vec::new();
    for (largest, sent) in [(4, false), (5, false), (1 << 40, false), (3, true)] {
        let (ranges, _) = Ranges::encode([(0, largest)], 100, &mut room).unwrap();
        let (delay_us, arrived_us, marked, dropped) = (0, 0, 0, 9);
        let (id, floor) = (PathId(0), largest + 1);
        let ack = Ack { path: id, largest, floor, delay_us, arrived_us, marked, dropped, ranges };
        assert_eq!(path.handle_ack(2_000_000, &ack, &mut outcome), sent);
        let seen = (path.recovery.in_flight_octets(), path.recovery.rtt().latest_ns);
        assert_eq!(seen, if sent { (0, 1_000_000) } else { (4000, initial_ns) });
        assert_eq!(path.peer_floor, if sent { 4 } else { 0 });
        assert_eq!(path.recovery.stats.dropped_by_peer, if sent { 9 } else { 0 });
    }
}

/// S-46.
#[test]
fn the_newest_interval_holds_and_zero_ends_it() {
    let mut path = path();
    let usual_ns = path.ack_interval_ns();
    let asked = [(5, 9000, 9_000_000), (4, 20_000, 9_000_000), (6, 7000, 7_000_000)];
    for (pn, interval_us, interval_ns) in asked {
        path.handle_interval(pn, interval_us);
        assert_eq!(path.ack_interval_ns(), interval_ns);
    }
    path.handle_interval(7, 0);
    assert_eq!(path.ack_interval_ns(), usual_ns);
    path.handle_interval(8, u64::MAX);
    assert_eq!(path.ack_interval_ns(), INTERVAL_NS_MAX, "no peer stops acknowledgements");
}

/// The receiver has a bit for each packet from the oldest of interest on: a packet beyond them
/// would count as stale, so none is sent until the oldest is settled.
#[test]
fn nothing_leaves_beyond_what_the_receiver_can_note() {
    let mut path = path();
    path.handle_sent(0, Flight::new(0, 1, 1200, 1200));
    let now_ns = 1_000_000_000;
    // A burst has up to 64 packets, and they must fit.
    while path.recovery.next_pn() + 64 < PN_WINDOW - 1 {
        path.recovery.handle_sent_untimed();
    }
    assert!(matches!(path.allowance(now_ns, SHARED_BUDGET), Allowance::Packets(_)));
    path.recovery.handle_sent_untimed();
    assert_eq!(path.allowance(now_ns, SHARED_BUDGET), Allowance::Full);
}

/// S-65.
#[test]
fn a_saved_rate_is_used_where_the_round_trip_is_within_a_fifth_of_the_saved_one() {
    let saved = Saved { rate_bps: 1_000_000, min_rtt_ns: 50 * MS };
    for (rtt_ns, used) in
        [(39, false), (40, true), (50, true), (60, true), (61, false)].map(|(ms, u)| (ms * MS, u))
    {
        let mut path = recorded(rtt_ns);
        path.resume(0, Some(saved));
        let told = if used { vec![Heard::PathChanged(Some(saved))] } else { Vec::new() };
        assert_eq!(heard(), told, "{rtt_ns}");
        path.resume(0, None);
        assert_eq!(heard(), []);
    }
}

/// What was learnt on the way before holds no longer; on the first there was nothing to learn.
#[test]
fn the_controller_begins_anew_where_a_validated_path_moves() {
    let mut path = recorded(50 * MS);
    path.challenge(0, (route(4000), 1200), 7);
    assert!(!path.handle_response(0, 6), "an answer to nothing");
    assert!(!path.validated && path.challenge.is_some());
    assert!(path.handle_response(0, 7), "it was not validated before");
    path.challenge(0, (route(4000), 1200), 8);
    assert!(!path.handle_response(0, 8), "nothing new");
    assert_eq!(heard(), []);
    path.challenge(0, (route(4001), 1200), 9);
    assert!(path.handle_response(0, 9));
    let begun = vec![Heard::DatagramOctets(1200), Heard::PathChanged(None)];
    assert_eq!((path.route, heard()), (route(4001), begun));
    let mut path = recorded(50 * MS);
    path.challenge(0, (route(4001), 1200), 7);
    assert!(path.handle_response(0, 7) && path.validated);
    assert_eq!(heard(), []);
}

/// S-72: round trips, delays of acknowledgements and sizes of datagrams are those of the new route.
#[test]
fn what_was_measured_ends_where_a_path_moves() {
    let mut path = recorded(MS / 2);
    path.room_octets = 4800;
    path.validated = true;
    path.search_mtu(9000);
    path.use_datagrams_of(9000);
    let mut probe = Flight::new(0, 1, 8952, 8952);
    probe.cargo = Cargo::MtuProbe;
    path.handle_sent(0, probe);
    heard();
    let local: SocketAddr = ([10, 0, 0, 2], 4001).into();
    let (lost, before) = (route(4000).local.ip(), route(4000).local.port());
    assert!(path.relocate(MS, lost, (before, local)));
    assert_eq!(path.route.local, local);
    assert_eq!(heard(), [Heard::DatagramOctets(1200), Heard::PathChanged(None)], "in this order");
    path.search_mtu(9000);
    let mut outcome = AckOutcome::default();
    let mut arrive = |path: &mut Path, now_ns, pn| {
        let mut room = Vec::new();
        let (ranges, _) = Ranges::encode([(0, pn)], 100, &mut room).unwrap();
        let (largest, floor, arrived_us) = (pn, pn + 1, (now_ns / 1000) as u32);
        let (id, delay_us, marked, dropped) = (PathId(0), 0, 0, 0);
        let ack = Ack { path: id, largest, floor, delay_us, arrived_us, marked, dropped, ranges };
        assert!(path.handle_ack(now_ns, &ack, &mut outcome));
    };
    // It was sent by the old route.
    arrive(&mut path, 50 * MS, 0);
    assert!(!path.recovery.has_rtt() && path.recovery.rtt().min_ns == MS / 2);
    assert_eq!(path.datagram_octets, 1200);
    send(&mut path, 60 * MS, 1);
    arrive(&mut path, 130 * MS, 1);
    assert_eq!(path.recovery.rtt().min_ns, 70 * MS);
    assert!(matches!(path.allowance(200 * MS, SHARED_BUDGET), Allowance::Packets(5..)));
    // The port of a path that has another one stays.
    assert!(path.relocate(300 * MS, local.ip(), (before, ([10, 0, 0, 3], 4002).into())));
    assert_eq!(path.route.local, ([10, 0, 0, 3], 4001).into());
}

/// S-53, S-83: nothing else makes its floor rise, or its key change.
#[test]
fn an_end_that_only_receives_counts_what_nobody_acknowledges() {
    let mut path = path();
    send(&mut path, 0, 1);
    (0..7).for_each(|_| path.recovery.handle_sent_untimed());
    assert_eq!(path.recovery.unasked(), 7);
    send(&mut path, MS, 1);
    assert_eq!(path.recovery.unasked(), 0);
}

/// S-72.
#[test]
fn a_route_is_asked_five_times_ever_less_often_and_then_given_up() {
    let mut path = recorded(50 * MS);
    let wait_ns = path.recovery.probe_timeout_ns();
    path.challenge(MS, (route(4001), 1200), 7);
    path.challenge(2 * MS, (route(4001), 1200), 8);
    path.challenge(2 * MS, (route(4001), 1200), 8);
    let mut due_ns = MS;
    for tries in 0..CHALLENGES_MAX {
        assert_eq!(path.poll_challenge(due_ns - 1, LEAST), None);
        assert_eq!(path.poll_challenge(due_ns, LEAST), Some((7, route(4001), 1200)));
        assert_eq!(path.poll_challenge(due_ns, LEAST), None);
        due_ns += wait_ns << tries;
    }
    assert_eq!(path.poll_challenge(due_ns, LEAST), None);
    assert!(path.challenge.is_none());
    // Another route is asked at once, and a third one a probe timeout later.
    path.challenge(due_ns, (route(4002), 1200), 9);
    assert_eq!(path.poll_challenge(due_ns, LEAST), Some((9, route(4002), 1200)));
    path.challenge(due_ns + wait_ns - 1, (route(4003), 1200), 10);
    assert_eq!(path.poll_challenge(due_ns + wait_ns - 1, LEAST), None);
    path.challenge(due_ns + wait_ns, (route(4003), 1200), 10);
    assert_eq!(path.poll_challenge(due_ns + wait_ns, LEAST), Some((10, route(4003), 1200)));
}

/// S-72, RFC 9000, section 8.1.
#[test]
fn a_route_gets_two_bytes_for_each_that_came_from_it() {
    let mut path = recorded(50 * MS);
    let wait_ns = path.recovery.probe_timeout_ns();
    path.challenge(0, (route(4001), 30), 7);
    assert_eq!(path.poll_challenge(0, LEAST), Some((7, route(4001), 60)));
    assert_eq!(path.challenge.unwrap().due_ns(LEAST), None);
    assert_eq!(path.poll_challenge(u64::MAX, LEAST), None);
    // More than the shortest costs, and a whole one.
    path.challenge(1, (route(4001), 19), 8);
    assert_eq!(path.challenge.unwrap().due_ns(LEAST), None);
    path.challenge(2, (route(4001), 601), 8);
    assert_eq!(path.poll_challenge(wait_ns - 1, LEAST), None);
    assert_eq!(path.poll_challenge(wait_ns, LEAST), Some((7, route(4001), 1200)));
    assert_eq!(path.challenge.unwrap().due_ns(LEAST), Some(3 * wait_ns));
    // One that this end has chosen is asked without.
    path.open(0, 9);
    assert_eq!(path.poll_challenge(0, LEAST), Some((9, route(4000), 1200)));
    assert_eq!(path.challenge.unwrap().due_ns(LEAST), Some(wait_ns));
}

fn is_app_limited(path: &mut Path, now_ns: u64) -> bool {
    heard();
    send(path, now_ns, 1);
    matches!(heard()[..], [Heard::Sent(sent)] if sent.app_limited)
}

/// S-62.
#[test]
fn what_leaves_after_a_pause_or_a_stop_is_limited_by_the_application() {
    let mut path = recorded(50 * MS);
    assert!(!is_app_limited(&mut path, MS));
    path.handle_app_limited(SHARED_BUDGET);
    assert!(is_app_limited(&mut path, MS));
    let mut path = recorded(50 * MS);
    path.handle_stop();
    assert!(is_app_limited(&mut path, MS));
}

#[test]
fn an_immediate_acknowledgement_is_asked_for_once_a_millisecond_or_quarter_of_a_round_trip() {
    for (rtt_ns, apart_ns) in [(50 * MS, MS), (2 * MS, MS / 2)] {
        let mut path = recorded(rtt_ns);
        assert!(path.may_ask(0, false) && path.may_ask(0, false), "nothing else is in flight");
        send(&mut path, 0, 1);
        assert!(!path.may_ask(0, false) && !path.may_ask(apart_ns - 1, false));
        assert!(path.may_ask(apart_ns, false) && !path.may_ask(2 * apart_ns - 1, false));
        assert!(path.may_ask(2 * apart_ns, false));
        assert!(path.may_ask(2 * apart_ns, true), "all that was sent before is placed");
    }
}

#[test]
fn the_peer_is_told_the_floor_once_it_has_risen_by_64_beyond_what_it_knows() {
    let mut path = recorded(50 * MS);
    let rise = |path: &mut Path, packets: u64| {
        (0..packets).for_each(|_| path.recovery.handle_sent_untimed());
    };
    rise(&mut path, 63);
    assert_eq!(path.poll_floor(), None);
    rise(&mut path, 1);
    assert_eq!((path.poll_floor(), path.poll_floor()), (Some(64), None));
    rise(&mut path, 64);
    path.peer_floor = 128;
    assert_eq!(path.poll_floor(), None, "the peer knows");
    rise(&mut path, 1);
    assert_eq!(path.poll_floor(), Some(129));
}

fn packets(path: &mut Path, now_ns: u64) -> u64 {
    match path.allowance(now_ns, SHARED_BUDGET) {
        Allowance::Packets(packets) => packets,
        Allowance::At(_) | Allowance::Full => 0,
    }
}

/// A peer with a short way to it may not read once in a round trip.
#[test]
fn no_more_is_in_flight_on_a_short_path_than_the_peers_socket_takes() {
    for (rtt_ns, is_short) in [(2 * MS - 1, true), (2 * MS, false)] {
        let mut path = recorded(rtt_ns);
        path.room_octets = 4799;
        // A burst has 53 datagrams of 1200 bytes at most.
        assert_eq!(packets(&mut path, MS), if is_short { 3 } else { 53 });
        send(&mut path, MS, 3);
        assert_eq!(packets(&mut path, MS), if is_short { 1 } else { 53 });
        send(&mut path, MS, 1);
        assert_eq!(path.allowance(MS, SHARED_BUDGET) == Allowance::Full, is_short);
    }
    let mut path = recorded(MS);
    path.room_octets = 100;
    assert_eq!(packets(&mut path, MS), 1, "one at a time always may");
}

/// S-64: the later of what pacing and the cap allow.
#[test]
fn a_cap_holds_besides_pacing() {
    let config = ShuttleConfig { controller: fixed, ..ShuttleConfig::default() };
    let mut path = Path::new(PathId(0), route(4000), &config, 1200);
    path.granted_bps = 9_600_000;
    path.limit_rate();
    let now_ns = 100 * MS;
    assert_eq!(packets(&mut path, now_ns), 2, "a burst at 9.6 Mbit/s");
    // 30 ms at the cap, which makes up for 5 ms; 2.4 ms at the controller's rate.
    path.handle_sent(now_ns, Flight::new(0, 30, 1200, 1200));
    assert_eq!(path.allowance(now_ns, SHARED_BUDGET), Allowance::At(now_ns + 25 * MS));
    assert_eq!(path.outlook(now_ns).rate_bps, 9_600_000);
    // Pacing alone is over.
    assert_eq!(path.allowance(now_ns + 10 * MS, SHARED_BUDGET), Allowance::At(now_ns + 25 * MS));
    assert_eq!(packets(&mut path, now_ns + 25 * MS), 2);
    path.handle_rate(5, 4_800_000);
    path.handle_rate(4, 1_000_000);
    assert_eq!(path.cap.rate_bps(), 4_800_000, "the newest of the peer's rates");
    path.handle_rate(6, u64::MAX);
    assert_eq!(path.cap.rate_bps(), 9_600_000, "the smaller of both ends' limits");
}

#[test]
fn a_packet_arrives_after_half_of_a_round_trip() {
    let path = recorded(50 * MS);
    assert_eq!(path.outlook(7 * MS).arrives_ns, 32 * MS);
}

#[test]
fn each_stream_with_a_controller_of_its_own_has_one_budget_on_a_path() {
    let mut path = recorded(50 * MS);
    let own = (recorder as Make, Params { max_rate_bps: 5_000_000, ..Params::default() });
    assert!(path.controller_of(StreamId(3)).is_none());
    assert_eq!(path.budget_of(StreamId(3), &own), 1);
    assert_eq!(path.budget_of(StreamId(1), &own), 2);
    assert_eq!(path.budget_of(StreamId(3), &own), 1);
    assert!(path.controller_of(StreamId(0)).is_none());
    let rate_bps = |stream| path.controller_of(StreamId(stream)).unwrap().pacing_rate_bps();
    assert_eq!((rate_bps(1), rate_bps(3)), (5_000_000, 5_000_000));
    assert_eq!(path.controller().pacing_rate_bps(), u64::MAX);
}

/// S-55: what was found may be what the path carries no longer.
#[test]
fn a_path_that_goes_down_is_assumed_to_carry_the_least() {
    let (mut path, mut outcome) = (recorded(50 * MS), AckOutcome::default());
    path.search_mtu(9000);
    path.use_datagrams_of(9000);
    send(&mut path, MS, 1);
    heard();
    for down in [false, false, true] {
        let due_ns = path.recovery.timeout_ns().unwrap();
        path.handle_timeout(due_ns, &mut outcome);
        let octets = if down { 1200 } else { 9000 };
        assert_eq!((path.recovery.is_outage(), path.datagram_octets), (down, octets));
        let probes = path.recovery.probes();
        send(&mut path, due_ns, probes);
    }
    let told: Vec<_> =
        heard().into_iter().filter(|heard| !matches!(heard, Heard::Sent(_))).collect();
    assert_eq!(told, [Heard::Outage, Heard::DatagramOctets(1200)]);
    let due_ns = path.recovery.timeout_ns().unwrap();
    path.use_datagrams_of(1300);
    path.handle_timeout(due_ns, &mut outcome);
    assert_eq!(path.datagram_octets, 1300, "once for an outage");
}
