//! Packets that are replayed, spoofed, forged, cut or of another connection move nothing: what can
//! be seen of a connection is the same before and after.
//!
//! Rules of `docs/shuttle.md`: S-4, S-5, S-72, S-80 to S-82; the replay window at a high rate.

mod support;

use support::network::Link;
use support::{MS, Pair, route, seed};
use weft_shuttle::{Credentials, Route, ShuttleConfig};
use weft_wire::shuttle::PathId;
use weft_wire::shuttle::hello::protection;

const PROTECTED: [u8; 3] =
    [protection::CRC32C, protection::AES128GCM, protection::CHACHA20POLY1305];

/// Everything about a host that a packet could move, as text. Counters of what was dropped are
/// left out.
fn observe(pair: &mut Pair, host: usize) -> String {
    let transmits = pair.trace.len();
    let Pair { hosts, now_ns, .. } = pair;
    let host = &mut hosts[host];
    let connection = host.connection.as_mut().unwrap();
    let mut stats = connection.stats();
    (stats.foreign_datagrams, stats.stale_packets) = (0, 0);
    let path = PathId(0);
    let controller = connection.controller(path).unwrap();
    let rates = (controller.window_octets(), controller.pacing_rate_bps());
    let seen = (
        stats,
        (connection.rtt(path), connection.recovery_stats(path), connection.rtt(PathId(1))),
        (rates, connection.in_flight_octets(path), connection.poll_timeout()),
        (connection.is_open(), connection.is_settled(), connection.modules()),
    );
    let ends = host.ports.ends.iter().map(|end| {
        let (source, sink) = (&end.source, &end.sink);
        (source.acked, source.handed(), sink.segments, sink.delivered.clone(), sink.payload_octets)
    });
    format!("{transmits} {now_ns} {seen:?} {:?} {:?}", host.events, ends.collect::<Vec<_>>())
}

fn give(pair: &mut Pair, to: usize, way: Route, datagram: &[u8]) {
    let host = &mut pair.hosts[to];
    let connection = host.connection.as_mut().unwrap();
    let taken = connection.handle_datagram(
        pair.now_ns,
        way,
        false,
        &mut datagram.to_vec(),
        &mut host.ports,
    );
    taken.expect("no segment is at fault");
    // Whatever it wants to send shows in the trace.
    pair.run_for(0);
}

/// An open connection that was in use, every datagram that was sent, and with them the last ones,
/// which never arrived.
fn in_use(protection: u8, seed: u64) -> (Pair, Vec<(usize, Vec<u8>)>) {
    let credentials = Credentials::PreShared([5; 32]);
    let config =
        ShuttleConfig { protection, credentials, keep_alive: false, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed, &config, &Link::default(), 1);
    pair.tracing = true;
    pair.open();
    for host in &mut pair.hosts {
        host.ports.post(true, 5000);
        host.ports.post(false, 3000);
    }
    pair.run_for(2000 * MS);
    assert!(pair.is_complete());
    let arrived = pair.trace.len();
    pair.network.down = true;
    for host in 0..2 {
        pair.hosts[host].ports.post(true, 1500);
    }
    pair.run_for(1);
    pair.network.down = false;
    let fresh = pair.trace[arrived..].iter().map(|(from, _, octets)| (*from, octets.clone()));
    let fresh: Vec<_> = fresh.collect();
    assert!(fresh.iter().any(|sent| sent.0 == 0) && fresh.iter().any(|sent| sent.0 == 1));
    (pair, fresh)
}

/// Does `what` and checks that nothing moved at either end.
fn unmoved(pair: &mut Pair, what: impl FnOnce(&mut Pair)) {
    let before = [0, 1].map(|host| observe(pair, host));
    what(pair);
    let after = [0, 1].map(|host| observe(pair, host));
    assert_eq!(before, after);
}

/// Where a packet to `host` may claim to come from.
fn ways(host: usize) -> [Route; 2] {
    let mut elsewhere = route(host, 0);
    elsewhere.remote = ([192, 0, 2, 7], 9).into();
    [route(host, 0), elsewhere]
}

#[test]
fn replayed_and_spoofed_packets_move_nothing() {
    for protection in PROTECTED {
        let (mut pair, fresh) = in_use(protection, seed());
        let arrived = pair.trace.len() - fresh.len();
        let trace: Vec<_> = pair.trace[..arrived].to_vec();
        unmoved(&mut pair, |pair| {
            for (_, _, datagram) in &trace {
                for (host, way) in [0, 1].into_iter().flat_map(|h| ways(h).map(|way| (h, way))) {
                    give(pair, host, way, datagram);
                }
            }
        });
        // Back where they came from, or at the wrong end, new packets do nothing either.
        unmoved(&mut pair, |pair| {
            for (from, datagram) in &fresh {
                ways(*from).iter().for_each(|way| give(pair, *from, *way, datagram));
            }
        });
        pair.run_until(5000 * MS, Pair::is_complete);
    }
}

#[test]
fn forged_packets_move_nothing_until_the_true_one_comes() {
    for protection in PROTECTED {
        let (mut pair, fresh) = in_use(protection, seed());
        for (from, datagram) in &fresh {
            let to = 1 - from;
            unmoved(&mut pair, |pair| {
                let bits = (0..28 * 8).chain((datagram.len() - 20) * 8..datagram.len() * 8);
                for bit in bits {
                    let mut forged = datagram.clone();
                    forged[bit / 8] ^= 1 << (bit % 8);
                    ways(to).iter().for_each(|way| give(pair, to, *way, &forged));
                }
                for len in 0..datagram.len() {
                    give(pair, to, route(to, 0), &datagram[..len]);
                }
                let longer = [&datagram[..], &[0]].concat();
                give(pair, to, route(to, 0), &longer);
            });
            let before = observe(&mut pair, to);
            give(&mut pair, to, route(to, 0), datagram);
            assert_ne!(observe(&mut pair, to), before);
        }
        pair.run_until(5000 * MS, Pair::is_complete);
    }
}

/// S-4: what follows the first packet of a datagram is no packet.
#[test]
fn two_packets_in_one_datagram_are_none() {
    for protection in PROTECTED {
        let (mut pair, fresh) = in_use(protection, seed());
        for (from, datagram) in &fresh {
            let both = [&datagram[..], datagram].concat();
            unmoved(&mut pair, |pair| give(pair, 1 - from, route(1 - from, 0), &both));
        }
        pair.run_until(5000 * MS, Pair::is_complete);
    }
}

/// Ids that collide are not enough: the packets of one connection mean nothing to another.
#[test]
fn packets_of_another_connection_move_nothing() {
    for protection in PROTECTED {
        let seed = seed();
        let (mut pair, _) = in_use(protection, seed);
        let (mut other, _) = in_use(protection, !seed);
        let cids = [0, 1].map(|host| pair.connection(host).cid().0.to_be_bytes());
        let trace = std::mem::take(&mut other.trace);
        unmoved(&mut pair, |pair| {
            for (from, _, datagram) in &trace {
                let to = 1 - from;
                let mut datagram = datagram.clone();
                let hello = datagram[0] >> 5 < 5;
                let stream = datagram[5];
                datagram[2..6].copy_from_slice(&cids[to]);
                if !hello {
                    datagram[5] = stream;
                    // A number that is new here.
                    datagram[6..10].copy_from_slice(&90_u32.to_be_bytes());
                }
                ways(to).iter().for_each(|way| give(pair, to, *way, &datagram));
            }
        });
        pair.run_until(5000 * MS, Pair::is_complete);
    }
}

/// A millisecond of reordering is more than a hundred packets at this rate; none of them may count
/// as a replay, and all of them must when they come again.
#[test]
fn the_replay_window_is_wide_enough_for_a_high_rate() {
    let rate_bps = 1_600_000_000;
    let link = Link {
        rate_bps: 2 * rate_bps,
        delay_ns: 98 * MS,
        late: 0.25,
        late_ns: 5 * MS,
        ..Link::default()
    };
    let mut config =
        ShuttleConfig { protection: protection::AES128GCM, ..ShuttleConfig::default() };
    config.controller_params.initial_rate_bps = Some(rate_bps);
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.open();
    pair.tracing = true;
    pair.hosts[0].ports.post(true, 30_000_000);
    pair.run_until(5000 * MS, Pair::is_complete);
    let stats = pair.connection(1).stats();
    assert_eq!(stats.stale_packets, 0);
    assert!(pair.network.counts[0].late > 5000, "{}", pair.network.counts[0].late);
    pair.run_for(1000 * MS);
    let before = pair.connection(1).stats();
    let trace = std::mem::take(&mut pair.trace);
    let sent: Vec<_> = trace.into_iter().filter(|(from, ..)| *from == 0).collect();
    for (_, _, datagram) in &sent {
        give(&mut pair, 1, route(1, 0), datagram);
    }
    let after = pair.connection(1).stats();
    assert_eq!(after.stale_packets - before.stale_packets, sent.len() as u64);
    assert_eq!(after.packets_in, before.packets_in);
}
