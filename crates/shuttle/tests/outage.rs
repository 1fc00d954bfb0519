//! What leaves on a path that is down: probes, and nothing that would need an answer to make sense.
//!
//! Rules of `docs/shuttle.md`: S-55, S-76.

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
