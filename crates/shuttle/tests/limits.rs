//! Limits that a peer announces: what cannot work is no Request, and no refusal is owed for it.
//!
//! Rules of `docs/shuttle.md`: S-10, S-13.

mod support;

use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{PeerRequest, ShuttleConfig};
use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{Hello, HelloKind, HelloLimits, Modules, protection};
use weft_wire::shuttle::hello::{placement, recovery};

/// Whether a Request with `change`d limits can be granted; the refusal if it cannot.
fn judged(change: fn(&mut HelloLimits)) -> Result<(), Option<weft_shuttle::Refusal>> {
    let mut limits = HelloLimits {
        datagram_octets: 1200,
        streams: 1,
        ord: 0,
        ird: 0,
        idle_ms: 1000,
        rate_kbps: u64::MAX,
    };
    change(&mut limits);
    let request = Hello {
        from: ConnectionId(0x100),
        nonce: 7,
        modules: Modules {
            protection: protection::CRC32C,
            placement: placement::TAIL,
            recovery: recovery::FULL,
        },
        limits: Some(limits),
        ..Hello::new(HelloKind::Request)
    };
    PeerRequest::judge(&request.encode(), &ShuttleConfig::default(), [1; 32]).map(drop)
}

#[test]
fn a_peer_that_takes_no_stream_or_no_datagram_of_1200_bytes_asks_for_nothing() {
    assert_eq!(judged(|_| ()), Ok(()));
    assert_eq!(judged(|limits| limits.streams = 0), Err(None));
    assert_eq!(judged(|limits| limits.datagram_octets = 1199), Err(None));
}

/// What this end would send for certain is less where the peer takes less.
#[test]
fn no_datagram_is_larger_than_the_peer_takes() {
    let large = ShuttleConfig {
        datagram_octets: 1400,
        datagram_octets_goal: 9000,
        ..ShuttleConfig::default()
    };
    let small = ShuttleConfig { datagram_octets_max: 1250, ..ShuttleConfig::default() };
    let mut pair = Pair::with_configs(seed(), [large, small], &Link::default(), 1);
    pair.tracing = true;
    pair.open();
    pair.hosts[0].ports.post(true, 100_000);
    pair.run_until(10_000 * MS, Pair::is_complete);
    let longest = pair.trace.iter().filter(|sent| sent.0 == 0).map(|(.., sent)| sent.len()).max();
    assert_eq!(longest, Some(1250));
}
