//! Every combination of modules carries what it promises over a rough network.
//!
//! Rules of `docs/shuttle.md`: S-12, S-30 to S-33, S-37, S-52, S-56.

mod support;

use support::model::{End, Message};
use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{Placement, ShuttleConfig, cc};
use weft_wire::shuttle::hello::{placement, protection, recovery};
use weft_wire::shuttle::{PathId, StreamId};

const PROTECTIONS: [u8; 4] =
    [protection::NONE, protection::CRC32C, protection::AES128GCM, protection::CHACHA20POLY1305];
const PLACEMENTS: [(u8, Placement); 3] = [
    (placement::STRICT, Placement::Strict),
    (placement::TAIL, Placement::Tail),
    (placement::LOOSE, Placement::Loose),
];
const RECOVERIES: [u8; 3] = [recovery::FULL, recovery::TAIL_DUP, recovery::OFF];
const CONTROLLERS: [cc::Make; 5] = [cc::weave, cc::bbr1, cc::cubic, cc::fixed, cc::none];

/// Flipped bits only where something looks for them.
fn rough(protection: u8) -> Link {
    let corrupt = if protection == protection::NONE { 0.0 } else { 0.01 };
    Link {
        loss: 0.03,
        duplicate: 0.03,
        late: 0.2,
        late_ns: 6 * MS,
        corrupt,
        rate_bps: 200_000_000,
        queue_ns: 30 * MS,
        ..Link::default()
    }
}

fn config(protection: u8, placement: u8, recovery: u8, controller: cc::Make) -> ShuttleConfig {
    let params = cc::Params::default();
    let controller_params = cc::Params { initial_rate_bps: Some(100_000_000), ..params };
    let base = ShuttleConfig { controller, controller_params, ..ShuttleConfig::default() };
    ShuttleConfig {
        protection,
        placement,
        recovery,
        handshake_ns: 100_000 * MS,
        streams: 2,
        ..base
    }
}

/// What the checker has to know of the modules.
fn prepare(pair: &mut Pair, placement: Placement, recovery: u8) {
    for host in &mut pair.hosts {
        for end in &mut host.ports.ends {
            end.sink.placement = placement;
            end.sink.lossy = recovery == recovery::OFF;
        }
    }
}

fn exchange(seed: u64, config: &ShuttleConfig, placement: Placement) {
    let mut pair = Pair::new(seed, config, &rough(config.protection), 2);
    prepare(&mut pair, placement, config.recovery);
    pair.run_until(100_000 * MS, Pair::is_open);
    for host in 0..2 {
        pair.connection(host).open_stream(StreamId(1), 1).unwrap();
        for (stream, octets) in [(0, 90_000), (1, 3000), (0, 0), (1, 40_000), (0, 700)] {
            pair.post(host, stream, Message { write: octets % 9 == 0, octets });
        }
    }
    pair.run_until(100_000 * MS, Pair::is_complete);
    let chosen = pair.connection(0).modules().unwrap();
    assert_eq!((chosen.protection, chosen.recovery), (config.protection, config.recovery));
    for (host, stream) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let source = &pair.hosts[host].ports.ends[stream].source;
        let sink = &pair.hosts[1 - host].ports.ends[stream].sink;
        assert_eq!(sink.segments + sink.missed, source.handed());
        assert!(sink.missed > 0 || sink.payload_octets == source.posted_octets());
    }
}

#[test]
fn every_combination_keeps_its_promise() {
    let first = seed();
    let mut run = 0;
    for protection in PROTECTIONS {
        for (placement, order) in PLACEMENTS {
            for recovery in RECOVERIES {
                for controller in CONTROLLERS {
                    let config = config(protection, placement, recovery, controller);
                    exchange(first.wrapping_add(run), &config, order);
                    run += 1;
                }
            }
        }
    }
    assert_eq!(run, 180);
}

/// Without repair nothing is sent again, nothing waits, and what did not come is told.
#[test]
fn without_repair_losses_are_told_and_nothing_is_sent_again() {
    let config = config(protection::CRC32C, placement::TAIL, recovery::OFF, cc::fixed);
    let link = Link { loss: 0.05, rate_bps: 200_000_000, ..Link::default() };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    prepare(&mut pair, Placement::Tail, recovery::OFF);
    pair.open();
    pair.network.links[1].loss = 0.0;
    let before = pair.network.counts[0];
    let begun = pair.now_ns;
    for _ in 0..100 {
        pair.post(0, 0, Message { write: true, octets: 50_000 });
    }
    pair.run_until(10_000 * MS, Pair::is_complete);
    let stats = pair.connection(0).stats();
    assert_eq!(stats.segments_resent, 0);
    let sink = &pair.hosts[1].ports.ends[0].sink;
    let lost = sink.missed as f64 / stats.segments_out as f64;
    assert!((0.03..0.07).contains(&lost), "{lost}");
    assert_eq!(sink.segments + sink.missed, stats.segments_out);
    assert!(pair.network.counts[0].lost - before.lost >= sink.missed);
    // 5 MB at 100 Mbit/s, and a round trip or two until the last loss is sure.
    assert!(pair.now_ns - begun < 500 * MS, "{} ms", (pair.now_ns - begun) / MS);
    assert_eq!(pair.connection(0).recovery_stats(PathId(0)).unwrap().outages, 0);
}

/// Part of small messages, sent one at a time over a path that loses a tenth, that take longer than
/// without a loss.
fn slow_part(recovery: u8) -> f64 {
    const MESSAGES: u32 = 1000;
    let config = config(protection::CRC32C, placement::TAIL, recovery, cc::fixed);
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.run_for(500 * MS);
    pair.network.links[0].loss = 0.1;
    let mut slow = 0;
    for _ in 0..MESSAGES {
        let begun = pair.now_ns;
        pair.post(0, 0, Message { write: true, octets: 3000 });
        let placed = |pair: &Pair| {
            let [from, to] = [0, 1].map(|host| &pair.hosts[host].ports.ends[0]);
            to.sink.payload_octets == from.source.posted_octets()
        };
        pair.run_until(10_000 * MS, placed);
        slow += u32::from(pair.now_ns - begun > 6 * MS);
        pair.run_until(10_000 * MS, |pair| {
            pair.hosts.iter().all(|h| h.ports.ends.iter().all(End::is_complete))
        });
    }
    f64::from(slow) / f64::from(MESSAGES)
}

#[test]
fn a_tail_that_is_sent_twice_is_seldom_waited_for() {
    // Each message is three packets: one in four loses one, one in 34 the same one twice.
    let (full, twice) = (slow_part(recovery::FULL), slow_part(recovery::TAIL_DUP));
    assert!((0.2..0.35).contains(&full), "{full}");
    assert!(twice < 0.06, "{twice}");
}
