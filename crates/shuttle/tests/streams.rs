//! Streams that share a connection.
//!
//! Rules of `docs/shuttle.md`: S-64 to S-70.

mod support;

use support::model::Message;
use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{Profile, ShuttleConfig, ShuttleMisuse, cc};
use weft_wire::shuttle::{PathId, StreamId};

fn link() -> Link {
    Link { rate_bps: 200_000_000, queue_ns: 100 * MS, ..Link::default() }
}

fn pair_with(streams: u8) -> Pair {
    let config = ShuttleConfig { streams: u16::from(streams), ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link(), streams);
    pair.open();
    for stream in 0..streams {
        pair.connection(0).open_stream(StreamId(stream), 1).unwrap();
    }
    pair
}

fn write(octets: u32) -> Message {
    Message { write: true, octets }
}

#[test]
fn streams_share_a_path_by_weight() {
    let mut pair = pair_with(3);
    for stream in 0..3 {
        pair.connection(0).open_stream(StreamId(stream), 1 << stream).unwrap();
        pair.post(0, stream, write(50_000_000));
    }
    assert!(pair.connection(0).open_stream(StreamId(3), 1).is_err());
    pair.run_for(2000 * MS);
    let octets = |stream: usize| pair.hosts[1].ports.ends[stream].sink.payload_octets as f64;
    let [one, two, four] = [0, 1, 2].map(octets);
    assert!((1.9..2.1).contains(&(two / one)), "{}", two / one);
    assert!((3.8..4.2).contains(&(four / one)), "{}", four / one);
}

#[test]
fn streams_with_nothing_to_do_cost_nothing() {
    let mut pair = pair_with(200);
    pair.run_for(1000 * MS);
    let asked = |pair: &Pair| -> u64 {
        pair.hosts[0].ports.ends.iter().skip(1).map(|end| end.source.asked).sum()
    };
    let before = asked(&pair);
    pair.post(0, 0, write(5_000_000));
    pair.run_until(5000 * MS, Pair::is_complete);
    assert_eq!(asked(&pair), before);
}

#[test]
fn a_stream_that_had_nothing_is_heard_again() {
    let mut pair = pair_with(4);
    for stream in [3, 1, 3, 0, 2, 1] {
        pair.run_for(1000 * MS);
        pair.post(0, stream, write(100_000));
        pair.run_until(1000 * MS, Pair::is_complete);
    }
}

#[test]
fn what_is_on_its_way_can_be_seen() {
    let mut pair = pair_with(1);
    assert_eq!(pair.connection(0).in_flight_octets(PathId(1)), None);
    pair.post(0, 0, write(10_000_000));
    pair.run_for(100 * MS);
    // A round trip of 10 ms at 100 Mbit/s, and the time for which acknowledgements are gathered.
    let octets = pair.connection(0).in_flight_octets(PathId(0)).unwrap();
    assert!((100_000..200_000).contains(&octets), "{octets}");
    pair.run_until(5000 * MS, Pair::is_complete);
    pair.run_for(100 * MS);
    assert_eq!(pair.connection(0).in_flight_octets(PathId(0)), Some(0));
}

/// Megabits of payload a second that arrived on each stream of host 1 in a second, after half of
/// one.
fn rates(pair: &mut Pair) -> Vec<u64> {
    let octets = |pair: &Pair| -> Vec<u64> {
        pair.hosts[1].ports.ends.iter().map(|end| end.sink.payload_octets).collect()
    };
    pair.run_for(500 * MS);
    let before = octets(pair);
    pair.run_for(1000 * MS);
    let arrived = octets(pair).into_iter().zip(before);
    arrived.map(|(after, before)| (after - before) * 8 / 1_000_000).collect()
}

fn params(rate_bps: u64) -> cc::Params {
    cc::Params { initial_rate_bps: Some(rate_bps), ..cc::Params::default() }
}

#[test]
fn a_stream_may_have_a_controller_of_its_own() {
    let mut pair = pair_with(3);
    for (stream, mbps) in [(1, 30), (2, 10)] {
        let controller = Some((cc::fixed as cc::Make, params(mbps * 1_000_000)));
        let profile = Profile { controller, ..Profile::default() };
        pair.connection(0).shape_stream(StreamId(stream), profile).unwrap();
    }
    assert!(pair.connection(0).controller_of(PathId(0), StreamId(1)).is_none());
    (0..3).for_each(|stream| pair.post(0, stream, write(100_000_000)));
    let rates = rates(&mut pair);
    // What is not payload: 60 bytes of 1228.
    for (rate, whole) in rates.iter().zip([100, 30, 10]) {
        assert!((whole * 90 / 100..whole).contains(rate), "{rates:?}");
    }
    let own = pair.connection(0).controller_of(PathId(0), StreamId(2)).unwrap();
    assert_eq!(own.pacing_rate_bps(), 10_000_000);
    let back = pair.connection(0).shape_stream(StreamId(2), Profile::default());
    assert_eq!(back, Err(ShuttleMisuse::Started(2)));
}

#[test]
fn losses_are_the_affair_of_whose_packets_are_lost() {
    let config = ShuttleConfig { streams: 2, controller: cc::cubic, ..ShuttleConfig::default() };
    let lossy = Link { loss: 0.05, ..link() };
    let mut pair = Pair::new(seed(), &config, &lossy, 2);
    pair.open();
    let controller = Some((cc::fixed as cc::Make, params(50_000_000)));
    let profile = Profile { controller, ..Profile::default() };
    pair.connection(0).shape_stream(StreamId(1), profile).unwrap();
    (0..2).for_each(|stream| pair.post(0, stream, write(100_000_000)));
    let rates = rates(&mut pair);
    assert!(rates[0] < 25 && rates[1] > 40, "{rates:?}");
    let cubic = pair.connection(0).controller(PathId(0)).unwrap();
    assert!(cubic.window_octets() < 100_000, "{}", cubic.window_octets());
}

#[test]
fn a_stream_keeps_to_its_rate_and_leaves_the_rest() {
    let mut pair = pair_with(2);
    let limit = |max_rate_bps| Profile { max_rate_bps, ..Profile::default() };
    pair.connection(0).shape_stream(StreamId(1), limit(20_000_000)).unwrap();
    (0..2).for_each(|stream| pair.post(0, stream, write(100_000_000)));
    let before = rates(&mut pair);
    assert!((17..=20).contains(&before[1]) && (70..80).contains(&before[0]), "{before:?}");
    pair.connection(0).shape_stream(StreamId(1), limit(u64::MAX)).unwrap();
    let after = rates(&mut pair);
    assert!(after[0].abs_diff(after[1]) <= 2 && after[0] > 40, "{after:?}");
}

#[test]
fn who_receives_names_a_rate_at_the_beginning() {
    let slow = ShuttleConfig { receive_rate_bps: 15_000_000, ..ShuttleConfig::default() };
    let mut pair = Pair::with_configs(seed(), [ShuttleConfig::default(), slow], &link(), 1);
    pair.open();
    for host in 0..2 {
        pair.post(host, 0, write(100_000_000));
    }
    let rates = rates(&mut pair);
    assert!((12..=15).contains(&rates[0]), "{rates:?}");
    assert!(pair.hosts[0].ports.ends[0].sink.payload_octets > 10_000_000);
}

#[test]
fn a_path_keeps_to_what_peer_and_network_allow() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link(), 1);
    pair.open();
    // Rates are told again until they arrive.
    pair.network.links.iter_mut().for_each(|link| link.loss = 0.1);
    pair.post(0, 0, write(200_000_000));
    assert!(rates(&mut pair)[0] > 60);
    pair.connection(1).limit_peer(PathId(0), 10_000_000);
    let limited = rates(&mut pair)[0];
    assert!((6..=10).contains(&limited), "{limited}");
    pair.connection(0).limit_rate(PathId(0), 5_000_000);
    let granted = rates(&mut pair)[0];
    assert!((2..=5).contains(&granted), "{granted}");
    pair.connection(0).limit_rate(PathId(0), u64::MAX);
    pair.connection(1).limit_peer(PathId(0), u64::MAX);
    assert!(rates(&mut pair)[0] > 60);
}

/// The peer's limit is shared by all: neither kind of stream goes first all the time.
#[test]
fn under_the_peers_limit_streams_with_and_without_their_own_controller_alternate() {
    let narrow = ShuttleConfig { receive_rate_bps: 20_000_000, ..ShuttleConfig::default() };
    let configs =
        [ShuttleConfig::default(), narrow].map(|config| ShuttleConfig { streams: 2, ..config });
    let mut pair = Pair::with_configs(seed(), configs, &link(), 2);
    pair.open();
    let controller = Some((cc::fixed as cc::Make, params(100_000_000)));
    let profile = Profile { controller, ..Profile::default() };
    pair.connection(0).shape_stream(StreamId(1), profile).unwrap();
    (0..2).for_each(|stream| pair.post(0, stream, write(100_000_000)));
    let rates = rates(&mut pair);
    assert!(rates.iter().all(|rate| (6..=12).contains(rate)), "{rates:?}");
}
