//! Several paths, and paths that move or change.
//!
//! Rules of `docs/shuttle.md`: S-71 to S-78.

mod support;

use support::model::Message;
use support::network::Link;
use support::{MS, Pair, route, seed};
use weft_shuttle::{ConnectionEnd, Placement, ShuttleConfig, ShuttleEvent, cc};
use weft_wire::shuttle::hello::placement;
use weft_wire::shuttle::{PathId, StreamId};

fn link() -> Link {
    Link { rate_bps: 200_000_000, queue_ns: 100 * MS, ..Link::default() }
}

fn validated(pair: &Pair, host: usize) -> Vec<PathId> {
    let path = |event: &ShuttleEvent| match event {
        ShuttleEvent::PathValidated { path, .. } => Some(*path),
        _ => None,
    };
    pair.hosts[host].events.iter().filter_map(path).collect()
}

#[test]
fn a_second_path_is_checked_and_then_carries_data() {
    let config = ShuttleConfig::default();
    for loss in [0.0, 0.05] {
        let mut pair = Pair::new(seed(), &config, &Link { loss, ..link() }, 1);
        pair.open();
        let now_ns = pair.now_ns;
        let id = pair.connection(0).open_path(now_ns, route(0, 1)).unwrap();
        assert_eq!(id, PathId(1));
        pair.run_until(20_000 * MS, |pair| {
            [validated(pair, 0), validated(pair, 1)] == [[id], [id]]
        });
        pair.tracing = true;
        let begun = pair.now_ns;
        pair.hosts[0].ports.post(true, 10_000_000);
        pair.run_until(20_000 * MS, Pair::is_complete);
        let on = |path: u8| {
            let of = |(host, _, octets): &&(usize, u64, Vec<u8>)| {
                *host == 0 && octets[0] >> 5 == 5 && octets[1] == path
            };
            pair.trace.iter().filter(of).count()
        };
        assert!(on(0) > 3000 && on(1) > 3000, "{} and {}", on(0), on(1));
        // Each path has a controller of 100 Mbit/s of its own.
        let took = pair.now_ns - begun;
        assert!(loss > 0.0 || took < 500 * MS, "{} ms", took / MS);
    }
}

#[test]
fn two_paths_whose_rates_nothing_bounds_share_the_work() {
    let (initial_rtt_ns, handshake_ns) = (10_000 * MS, 100_000 * MS);
    let controller = cc::none;
    let config =
        ShuttleConfig { controller, initial_rtt_ns, handshake_ns, ..ShuttleConfig::default() };
    // So far away that what the paths hold together is more than a number can say.
    let mut pair = Pair::new(seed(), &config, &Link { delay_ns: 5000 * MS, ..link() }, 1);
    pair.run_until(100_000 * MS, Pair::is_open);
    pair.connection(0).open_stream(StreamId(0), 1).unwrap();
    let now_ns = pair.now_ns;
    pair.connection(0).open_path(now_ns, route(0, 1)).unwrap();
    pair.run_for(60_000 * MS);
    pair.hosts[0].ports.post(true, 1_000_000);
    pair.run_until(200_000 * MS, Pair::is_complete);
}

#[test]
fn a_path_that_dies_gives_its_packets_to_the_others() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
    pair.open();
    let now_ns = pair.now_ns;
    pair.connection(0).open_path(now_ns, route(0, 1)).unwrap();
    pair.run_for(500 * MS);
    pair.hosts[0].ports.post(true, 10_000_000);
    pair.run_for(100 * MS);
    pair.network.nobody = Some(4001);
    let begun = pair.now_ns;
    pair.run_until(20_000 * MS, Pair::is_complete);
    // 7.5 MB at 100 Mbit/s are 600 ms; what the dead path took with it must not add seconds.
    assert!(pair.now_ns - begun < 1000 * MS, "{} ms", (pair.now_ns - begun) / MS);
    let stats = pair.connection(0).recovery_stats(PathId(0)).unwrap();
    assert_eq!((stats.lost_packets, stats.outages), (0, 0));
    assert!(pair.connection(0).recovery_stats(PathId(1)).unwrap().probe_timeouts > 1);
}

/// S-75: what only path 0 carried before.
#[test]
fn a_connection_whose_first_path_dies_goes_on_and_ends_in_order() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
        pair.open();
        let now_ns = pair.now_ns;
        pair.connection(0).open_path(now_ns, route(0, 1)).unwrap();
        pair.run_for(500 * MS);
        pair.hosts[from].ports.post(true, 3_000_000);
        pair.run_for(20 * MS);
        pair.network.nobody = Some(4000);
        pair.run_until(20_000 * MS, Pair::is_complete);
        pair.hosts[to].ports.post(true, 1_000_000);
        pair.run_until(20_000 * MS, Pair::is_complete);
        let now_ns = pair.now_ns;
        pair.connection(0).close(now_ns, 7);
        pair.run_until(20_000 * MS, |pair| {
            let last = |host: usize| pair.hosts[host].events.last().cloned();
            last(0) == Some(ShuttleEvent::Ended(ConnectionEnd::Local))
                && last(1) == Some(ShuttleEvent::Ended(ConnectionEnd::Peer(7)))
        });
    }
}

/// S-71.
#[test]
fn a_path_needs_none_of_those_before_it() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
    pair.open();
    pair.network.nobody = Some(4001);
    let now_ns = pair.now_ns;
    for path in [1, 2] {
        pair.connection(0).open_path(now_ns, route(0, path)).unwrap();
    }
    pair.run_until(20_000 * MS, |pair| {
        [validated(pair, 0), validated(pair, 1)] == [[PathId(2)], [PathId(2)]]
    });
    pair.hosts[0].ports.post(true, 1_000_000);
    pair.run_until(20_000 * MS, Pair::is_complete);
}

#[test]
fn a_peer_whose_address_changes_is_followed() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link { loss: 0.01, ..link() }, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 3_000_000);
    pair.hosts[1].ports.post(true, 3_000_000);
    pair.run_for(100 * MS);
    assert_eq!(validated(&pair, 1), []);
    pair.network.rebound[0] = 1000;
    pair.run_until(10_000 * MS, Pair::is_complete);
    assert_eq!(validated(&pair, 1), [PathId(0)]);
    let ports = pair.hosts[1].events.iter().find_map(|event| match event {
        ShuttleEvent::PathValidated { route, .. } => Some(route.remote.port()),
        _ => None,
    });
    assert_eq!(ports, Some(5000));
}

/// Its owner says that the host has another address now: packets leave from there, the peer
/// follows, and nothing is lost for good (S-72).
#[test]
fn a_host_that_loses_its_address_goes_on_from_another() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
    pair.open();
    pair.hosts[0].ports.post(true, 3_000_000);
    pair.hosts[1].ports.post(true, 3_000_000);
    pair.run_for(100 * MS);
    pair.network.gone = Some(pair.connection(0).route().local.ip());
    pair.run_for(200 * MS);
    let (now_ns, old) = (pair.now_ns, pair.connection(0).route());
    let local = core::net::SocketAddr::from(([192, 0, 2, 77], 4077));
    pair.connection(0).relocate(now_ns, [192, 0, 2, 78].into(), local);
    assert_eq!(pair.connection(0).route(), old, "of an address that is another's");
    pair.connection(0).relocate(now_ns, old.local.ip(), local);
    pair.run_until(10_000 * MS, Pair::is_complete);
    assert_eq!(pair.connection(0).route().local, local);
    assert_eq!(pair.connection(1).route().remote, local);
    assert_eq!(validated(&pair, 1), [PathId(0)]);
}

/// What the old address sent last may arrive after the path has moved: it is data as good as any,
/// but says nothing about where the peer is now (S-72).
#[test]
fn packets_that_come_late_from_the_old_address_do_not_move_the_path_back() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
    pair.tracing = true;
    pair.open();
    pair.run_for(1000 * MS);
    pair.network.down = true;
    pair.hosts[0].ports.post(true, 100);
    pair.run_for(1);
    let (_, _, mut late) = pair.trace.last().unwrap().clone();
    pair.network.down = false;
    pair.network.rebound[0] = 1000;
    pair.hosts[0].ports.post(true, 10_000);
    pair.run_until(10_000 * MS, Pair::is_complete);
    assert_eq!(validated(&pair, 1), [PathId(0)]);
    let taken = pair.connection(1).stats().packets_in;
    let now_ns = pair.now_ns;
    let host = &mut pair.hosts[1];
    let connection = host.connection.as_mut().unwrap();
    connection.handle_datagram(now_ns, route(1, 0), false, &mut late, &mut host.ports).unwrap();
    assert_eq!(connection.stats().packets_in, taken + 1);
    pair.run_for(5000 * MS);
    assert_eq!(validated(&pair, 1), [PathId(0)]);
    assert_eq!(pair.connection(1).route().remote.port(), 5000);
}

/// What cannot be held counts as lost, but says where it came from.
#[test]
fn a_peer_whose_segments_find_no_room_is_followed() {
    let config =
        ShuttleConfig { held_octets: 0, placement: placement::STRICT, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link(), 1);
    for end in pair.hosts.iter_mut().flat_map(|host| &mut host.ports.ends) {
        (end.sink.placement, end.sink.receives) = (Placement::Strict, Some(0));
    }
    pair.open();
    for _ in 0..3 {
        pair.post(0, 0, Message { write: false, octets: 1000 });
    }
    pair.run_for(1000 * MS);
    (pair.network.strict_nat, pair.network.rebound[0]) = (true, 1000);
    pair.run_for(2000 * MS);
    assert_eq!(validated(&pair, 1), [PathId(0)]);
    assert!(!pair.is_complete());
}

#[test]
fn a_close_finds_a_peer_that_has_moved() {
    let ended = |pair: &Pair, host: usize| pair.hosts[host].events.last().cloned();
    for mover in [0, 1] {
        let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
        pair.open();
        pair.run_for(1000 * MS);
        pair.network.strict_nat = true;
        pair.network.rebound[0] = 1000;
        let closer = 1 - mover;
        let now_ns = pair.now_ns;
        pair.connection(closer).close(now_ns, 5);
        // What the other end has to say shows where it is now; its own Close would do as well.
        if mover == 0 {
            pair.post(0, 0, Message { write: true, octets: 100 });
        }
        pair.run_for(2000 * MS);
        assert_eq!(
            ended(&pair, closer),
            Some(ShuttleEvent::Ended(ConnectionEnd::Local)),
            "{mover}"
        );
        assert_eq!(
            ended(&pair, 1 - closer),
            Some(ShuttleEvent::Ended(ConnectionEnd::Peer(5))),
            "{mover}"
        );
    }
}

#[test]
fn an_address_that_does_not_answer_is_not_followed() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
    pair.tracing = true;
    pair.open();
    pair.run_for(1000 * MS);
    // A packet of the peer is held up, and comes from an address where nobody is.
    pair.network.down = true;
    pair.hosts[0].ports.post(true, 100);
    pair.run_for(1);
    pair.network.down = false;
    pair.network.nobody = Some(9);
    let mut stolen = pair.trace.last().unwrap().2.clone();
    let mut from = route(1, 0);
    from.remote.set_port(9);
    let now_ns = pair.now_ns;
    let host = &mut pair.hosts[1];
    let connection = host.connection.as_mut().unwrap();
    connection.handle_datagram(now_ns, from, false, &mut stolen, &mut host.ports).unwrap();
    let before = pair.network.counts[1].lost;
    pair.hosts[1].ports.post(true, 1_000_000);
    pair.run_until(10_000 * MS, Pair::is_complete);
    pair.run_for(10_000 * MS);
    assert!(validated(&pair, 1).is_empty());
    // A few challenges went there, and nothing else.
    let stray = pair.network.counts[1].lost - before;
    assert!((1..10).contains(&stray), "{stray}");
}

/// Runs 20 MB over a path that carries datagrams of `carries` bytes, and gives the size in use.
fn searched(carries: usize, loss: f64) -> u16 {
    let config = ShuttleConfig { datagram_octets_goal: 8972, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link { loss, ..link() }, 1);
    pair.network.carries = carries;
    pair.tracing = true;
    pair.open();
    pair.run_for(3000 * MS);
    pair.hosts[0].ports.post(true, 20_000_000);
    pair.run_until(100_000 * MS, Pair::is_complete);
    let data = |(host, _, octets): &(usize, u64, Vec<u8>)| (*host, octets[0] >> 5) == (0, 5);
    let longest = pair.trace.iter().filter(|sent| data(sent)).map(|(.., octets)| octets.len());
    longest.max().unwrap() as u16
}

/// On loopback a probe has 64 KB, and most of what follows has some bytes.
#[test]
fn a_probe_leaves_no_room_behind() {
    let config = ShuttleConfig { datagram_octets_goal: 65_000, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link(), 1);
    pair.tracing = true;
    pair.open();
    pair.run_for(3000 * MS);
    pair.hosts[0].ports.post(true, 100);
    pair.run_until(10_000 * MS, Pair::is_complete);
    assert!(pair.trace.iter().any(|(.., octets)| octets.len() == 65_000));
    for host in &pair.hosts {
        assert!(host.out.gather.room() < 8192, "{} octets", host.out.gather.room());
    }
}

#[test]
fn the_datagram_size_is_found() {
    assert_eq!(searched(9000, 0.0), 8972);
    assert!((1437..=1452).contains(&searched(1452, 0.0)));
    assert!((1437..=1452).contains(&searched(1452, 0.05)));
    assert_eq!(searched(1200, 0.0), 1200);
}

/// Sends 60 MB, and gives the size in use for the last of them.
fn settled(grey: Option<(usize, f64)>, loss: f64) -> u16 {
    let config = ShuttleConfig { datagram_octets_goal: 8972, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link { loss, ..link() }, 1);
    pair.network.grey = grey;
    pair.open();
    pair.run_for(3000 * MS);
    pair.hosts[0].ports.post(true, 60_000_000);
    pair.run_until(100_000 * MS, Pair::is_complete);
    pair.tracing = true;
    pair.hosts[0].ports.post(true, 500_000);
    pair.run_until(100_000 * MS, Pair::is_complete);
    let data = |(host, _, octets): &&(usize, u64, Vec<u8>)| (*host, octets[0] >> 5) == (0, 5);
    let longest = pair.trace.iter().filter(data).map(|(.., octets)| octets.len());
    longest.max().unwrap() as u16
}

/// A size that gets through but is lost one time in twenty more than others is not worth it; a
/// path that loses any size is no reason to make packets smaller.
#[test]
fn a_size_that_is_lost_more_than_others_is_given_up() {
    let size = settled(Some((4000, 0.05)), 0.0);
    assert!((1200..=4000).contains(&size), "{size}");
    let size = settled(Some((4000, 0.06)), 0.01);
    assert!((1200..=4000).contains(&size), "{size}");
    assert_eq!(settled(None, 0.05), 8972);
    assert_eq!(settled(None, 0.0), 8972);
}

/// What was found on the old way means nothing on the new one.
#[test]
fn a_path_that_moves_begins_with_a_size_that_is_safe() {
    let config = ShuttleConfig { datagram_octets_goal: 8972, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link(), 1);
    pair.open();
    pair.hosts[1].ports.post(true, 40_000_000);
    pair.run_for(1000 * MS);
    pair.network.rebound[0] = 1000;
    pair.network.carries = 1400;
    pair.network.fragments = true;
    pair.hosts[0].ports.post(true, 100);
    pair.run_for(200 * MS);
    pair.tracing = true;
    pair.run_until(100_000 * MS, Pair::is_complete);
    let short = |(host, _, octets): &&(usize, u64, Vec<u8>)| {
        *host == 1 && octets[0] >> 5 == 5 && octets.len() <= 1400
    };
    let all = |(host, _, octets): &&(usize, u64, Vec<u8>)| *host == 1 && octets[0] >> 5 == 5;
    let (short, all) =
        (pair.trace.iter().filter(short).count(), pair.trace.iter().filter(all).count());
    assert!(short * 10 > all * 9, "{short} of {all}");
}

#[test]
fn a_path_that_becomes_smaller_is_a_black_hole_for_a_while() {
    let config = ShuttleConfig { datagram_octets_goal: 8972, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.hosts[0].ports.post(true, 20_000_000);
    pair.run_for(500 * MS);
    pair.network.carries = 1472;
    pair.network.fragments = true;
    pair.run_until(100_000 * MS, Pair::is_complete);
    assert_eq!(pair.connection(0).recovery_stats(PathId(0)).unwrap().outages, 1);
}

/// A path that carries neither the segments of before nor their fragments delivers nothing, but the
/// peer answers: a small probe goes with each large one. Otherwise it would be heard only when the
/// connection is kept alive, every 10 s.
#[test]
fn a_path_too_small_for_its_segments_is_not_silent() {
    let config = ShuttleConfig { datagram_octets_goal: 8972, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link(), 1);
    pair.open();
    pair.run_for(3000 * MS);
    pair.hosts[0].ports.post(true, 100_000);
    pair.run_for(1);
    pair.network.down = true;
    pair.run_for(50 * MS);
    pair.network.down = false;
    pair.network.carries = 1400;
    for _ in 0..30 {
        pair.run_for(1000 * MS);
        for host in 0..2 {
            let silent_ns = pair.now_ns - pair.connection(host).heard_ns();
            assert!(silent_ns < 3000 * MS, "{host} has heard nothing for {} ms", silent_ns / MS);
        }
    }
    assert!(!pair.is_complete());
    pair.network.carries = usize::MAX;
    pair.run_until(10_000 * MS, Pair::is_complete);
}
