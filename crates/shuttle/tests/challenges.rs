//! How a route is validated: what is sent to it, and how often.
//!
//! Rules of `docs/shuttle.md`: S-71, S-72.

mod support;

use support::network::Link;
use support::{MS, Pair, route, seed};
use weft_shuttle::{Credentials, ShuttleConfig};
use weft_wire::shuttle::hello::protection;

/// Whoever answers shows that the route carries the least that every path must, in both directions.
#[test]
fn challenges_and_responses_are_as_large_as_every_path_carries() {
    for protection in [protection::CRC32C, protection::AES128GCM] {
        let credentials = Credentials::PreShared([5; 32]);
        let config = ShuttleConfig { protection, credentials, ..ShuttleConfig::default() };
        let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
        pair.open();
        pair.run_for(1000 * MS);
        pair.tracing = true;
        let now_ns = pair.now_ns;
        pair.connection(0).open_path(now_ns, route(0, 1)).unwrap();
        pair.run_for(9 * MS);
        let lengths: Vec<_> =
            pair.trace.iter().map(|(from, _, sent)| (*from, sent.len())).collect();
        assert_eq!(lengths[..3], [(0, 1200), (1, 1200), (1, 1200)], "{lengths:?}");
    }
}

/// S-72.
#[test]
fn a_route_that_does_not_answer_is_asked_five_times() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.network.dead_path = Some(1);
    pair.tracing = true;
    let now_ns = pair.now_ns;
    pair.connection(0).open_path(now_ns, route(0, 1)).unwrap();
    pair.run_for(8000 * MS);
    let times: Vec<_> =
        pair.trace.iter().filter(|sent| sent.2.len() == 1200).map(|p| p.1).collect();
    assert_eq!(times.len(), 5);
    let apart: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(apart.windows(2).all(|pair| pair[1] == 2 * pair[0]), "{apart:?}");
}
