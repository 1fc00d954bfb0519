//! What leaves on a path that is down: probes, and nothing that would need an answer to make sense.
//!
//! Rules of `docs/shuttle.md`: S-10, S-55, S-76, S-78.

mod support;

use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::ShuttleConfig;
use weft_wire::shuttle::{Packet, PathId};

#[test]
fn the_datagram_size_is_searched_for_again_only_once_the_path_answers() {
    let config = ShuttleConfig { datagram_octets_goal: 8972, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.run_for(3000 * MS);
    pair.network.down = true;
    pair.hosts[0].ports.post(true, 1000);
    let outages = |pair: &mut Pair| pair.connection(0).recovery_stats(PathId(0)).unwrap().outages;
    while outages(&mut pair) == 0 {
        pair.run_for(MS);
    }
    pair.tracing = true;
    pair.run_for(5000 * MS);
    let is_search = |datagram: &[u8]| {
        matches!(Packet::parse(datagram), Ok(Packet::Ctrl(_))) && datagram.len() > 1200
    };
    let searches = |pair: &Pair| {
        pair.trace.iter().filter(|(from, _, sent)| *from == 0 && is_search(sent)).count()
    };
    let probes = pair.trace.iter().filter(|packet| packet.0 == 0).count();
    assert!((3..200).contains(&probes), "{probes}");
    assert_eq!(searches(&pair), 0);
    pair.network.down = false;
    pair.run_until(5000 * MS, Pair::is_complete);
    pair.run_for(1000 * MS);
    assert!(searches(&pair) > 0);
}

/// Less than the datagrams of 1200 bytes that every path is to carry.
const SHORT: usize = 548;

/// A pair over a path that carries longer datagrams in fragments only.
fn short_path(config: &ShuttleConfig) -> Pair {
    let mut pair = Pair::new(seed(), config, &Link::default(), 1);
    (pair.network.carries, pair.network.fragments) = (SHORT, true);
    pair
}

/// Packets of IPv4 may be cut, and paths of 576 bytes are allowed.
#[test]
fn a_path_that_becomes_shorter_than_any_datagram_is_used_by_fragments() {
    let config = ShuttleConfig { datagram_octets_goal: 1472, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.hosts[0].ports.post(true, 2_000_000);
    pair.run_for(10 * MS);
    assert!(!pair.is_complete());
    (pair.network.carries, pair.network.fragments) = (SHORT, true);
    pair.run_until(10_000 * MS, Pair::is_complete);
    let outages = pair.connection(0).recovery_stats(PathId(0)).unwrap().outages;
    assert!(outages <= 2, "{outages}: not once for each burst");
    // It is looked for more, and nothing is cut any longer that need not be.
    pair.network.carries = usize::MAX;
    pair.run_for(700_000 * MS);
    pair.network.fragments = false;
    pair.network.carries = 1472;
    pair.hosts[0].ports.post(true, 2_000_000);
    pair.run_until(10_000 * MS, Pair::is_complete);
    assert!(!pair.hosts[0].out.may_fragment);
}

#[test]
fn a_request_that_is_repeated_may_be_cut() {
    let mut pair = short_path(&ShuttleConfig::default());
    pair.run_until(1000 * MS, Pair::is_open);
    pair.hosts[0].ports.post(true, 100_000);
    pair.run_until(5000 * MS, Pair::is_complete);
}
