//! Streams that share a connection.
//!
//! Rule of `docs/shuttle.md`: S-70.

mod support;

use support::model::Message;
use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::Config;
use weft_wire::shuttle::{PathId, StreamId};

fn link() -> Link {
    Link { rate_bps: 200_000_000, queue_ns: 100 * MS, ..Link::default() }
}

fn pair_with(streams: u8) -> Pair {
    let config = Config { streams: u16::from(streams), ..Config::default() };
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
