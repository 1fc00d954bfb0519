//! Connections under a cipher: the same round trip, nothing readable on the way, no strangers.
//!
//! Rules of `docs/shuttle.md`: S-15, S-82, S-83.

mod support;

use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{ConnectionEnd, Credentials, ShuttleConfig, ShuttleEvent};
use weft_wire::shuttle::hello::protection;

const CIPHERS: [u8; 2] = [protection::AES128GCM, protection::CHACHA20POLY1305];

fn config(protection: u8, credentials: Credentials) -> ShuttleConfig {
    ShuttleConfig { protection, credentials, ..ShuttleConfig::default() }
}

#[test]
fn every_cipher_carries_data_over_a_rough_network() {
    for cipher in CIPHERS {
        for credentials in [Credentials::Anonymous, Credentials::PreShared([5; 32])] {
            let link = Link { loss: 0.05, duplicate: 0.05, corrupt: 0.02, ..Link::default() };
            let mut pair = Pair::new(seed(), &config(cipher, credentials), &link, 1);
            pair.open();
            pair.hosts[0].ports.post(true, 300_000);
            pair.hosts[1].ports.post(false, 30_000);
            pair.run_until(20_000 * MS, Pair::is_complete);
            assert_eq!(pair.connection(0).modules().unwrap().protection, cipher);
            let now_ns = pair.now_ns;
            pair.connection(0).close(now_ns, 0);
            pair.run_for(5000 * MS);
            assert_eq!(
                pair.hosts[0].events.last(),
                Some(&ShuttleEvent::Ended(ConnectionEnd::Local))
            );
        }
    }
}

#[test]
fn known_keys_tell_the_ends_who_the_other_is() {
    let [asks, grants] = [7, 8].map(|octet| [octet; 32]);
    let [asking, granting] = [asks, grants].map(Credentials::public_key);
    let credentials = [(asks, Some(granting)), (grants, None)]
        .map(|(private, peer)| Credentials::Static { private, peer });
    let configs = credentials.map(|credentials| config(protection::AES128GCM, credentials));
    let link = Link { loss: 0.05, duplicate: 0.05, corrupt: 0.02, ..Link::default() };
    let mut pair = Pair::with_configs(seed(), configs, &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 300_000);
    pair.hosts[1].ports.post(false, 30_000);
    pair.run_until(20_000 * MS, Pair::is_complete);
    assert_eq!(pair.connection(0).peer_key(), Some(granting));
    assert_eq!(pair.connection(1).peer_key(), Some(asking));
    // Who grants needs no key of the peer, who asks does.
    let nameless = Credentials::Static { private: asks, peer: None };
    let identity = weft_shuttle::Identity {
        cid: weft_wire::shuttle::ConnectionId(0x100),
        nonce: 1,
        seed: 1,
        entropy: [1; 32],
    };
    let config = config(protection::AES128GCM, nameless);
    let route = support::route(0, 0);
    let asked = weft_shuttle::ShuttleConnection::connect(0, config, identity, route, b"");
    assert_eq!(asked.err(), Some(weft_shuttle::ShuttleMisuse::Credentials));
}

/// The key phases of the data packets that `host` sent, without repetitions.
fn phases(pair: &Pair, host: usize) -> Vec<u8> {
    let data = |sent: &&(usize, u64, Vec<u8>)| sent.0 == host && sent.2[0] >> 5 == 5;
    let mut phases: Vec<u8> =
        pair.trace.iter().filter(data).map(|(.., octets)| octets[0] >> 3 & 3).collect();
    phases.dedup();
    phases
}

#[test]
fn keys_change_in_the_middle_of_a_rough_transfer() {
    for cipher in CIPHERS {
        let credentials = Credentials::PreShared([5; 32]);
        let config = ShuttleConfig { packets_per_key: 60, ..config(cipher, credentials) };
        let link = Link {
            loss: 0.05,
            duplicate: 0.05,
            late: 0.2,
            late_ns: 5 * MS,
            rate_bps: 100_000_000,
            ..Link::default()
        };
        let mut pair = Pair::new(seed(), &config, &link, 1);
        pair.open();
        pair.tracing = true;
        pair.hosts[0].ports.post(true, 3_000_000);
        pair.hosts[1].ports.post(true, 3_000_000);
        pair.run_until(20_000 * MS, Pair::is_complete);
        for host in 0..2 {
            let phases = phases(&pair, host);
            assert!(phases.len() > 10, "{phases:?}");
            assert!(phases.windows(2).all(|pair| pair[1] == (pair[0] + 1) & 3), "{phases:?}");
        }
    }
}

/// A key that the peer has never seen used cannot be skipped: it would not find the one after it.
#[test]
fn an_outage_longer_than_a_key_lasts_is_survived() {
    let credentials = Credentials::PreShared([5; 32]);
    let config = ShuttleConfig { packets_per_key: 20, ..config(CIPHERS[0], credentials) };
    let link = Link { rate_bps: 100_000_000, ..Link::default() };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 10_000_000);
    pair.run_for(200 * MS);
    pair.tracing = true;
    pair.network.down = true;
    pair.run_for(3000 * MS);
    assert!(pair.trace.len() > 100, "{}", pair.trace.len());
    pair.network.down = false;
    pair.run_until(20_000 * MS, Pair::is_complete);
}

#[test]
fn the_handshake_is_one_round_trip_and_hides_private_data() {
    let config = config(protection::AES128GCM, Credentials::PreShared([5; 32]));
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.tracing = true;
    pair.hosts[0].ports.post(true, 100);
    pair.run_until(100 * MS, |pair| pair.is_complete() && pair.is_open());
    assert_eq!(pair.trace[2].1 - pair.trace[0].1, 10 * MS);
    assert_eq!(pair.trace[2].2[0] >> 5, 5, "the third packet carries data");
    for (_, _, datagram) in &pair.trace {
        for secret in [&b"ask"[..], b"yes"] {
            assert!(!datagram.windows(3).any(|window| window == secret));
        }
    }
}

#[test]
fn strangers_get_no_connection() {
    let keys = [[5; 32], [6; 32]].map(Credentials::PreShared);
    let configs = keys.map(|key| config(protection::AES128GCM, key));
    let mut pair = Pair::with_configs(seed(), configs, &Link::default(), 1);
    pair.run_for(11_000 * MS);
    assert_eq!(pair.hosts[0].events, [ShuttleEvent::Ended(ConnectionEnd::NoAnswer)]);
    assert!(pair.hosts[1].connection.is_none());
}

#[test]
fn the_strongest_in_common_is_taken() {
    let all = protection::NONE | protection::CRC32C | CIPHERS[0] | CIPHERS[1];
    for (theirs, chosen) in [(all, CIPHERS[0]), (CIPHERS[1] | 3, CIPHERS[1])] {
        let configs = [all, theirs].map(|bits| config(bits, Credentials::Anonymous));
        let mut pair = Pair::with_configs(seed(), configs, &Link::default(), 1);
        pair.open();
        assert_eq!(pair.connection(0).modules().unwrap().protection, chosen);
    }
}

/// The handshake is sealed because both could do that; what they have in common is no cipher.
#[test]
fn ends_with_different_ciphers_agree_on_a_checksum_under_a_sealed_handshake() {
    let offers = |cipher| config(cipher | protection::CRC32C, Credentials::PreShared([5; 32]));
    let configs = [offers(protection::AES128GCM), offers(protection::CHACHA20POLY1305)];
    let mut pair = Pair::with_configs(seed(), configs, &Link::default(), 1);
    pair.tracing = true;
    pair.open();
    pair.hosts[0].ports.post(true, 100);
    pair.run_until(1000 * MS, Pair::is_complete);
    assert_eq!(pair.connection(0).modules().unwrap().protection, protection::CRC32C);
    // The segment can be read on the way: header, segment and checksum are all there is.
    let data = |sent: &&(usize, u64, Vec<u8>)| sent.0 == 0 && sent.2[0] >> 5 == 5;
    let len = pair.trace.iter().find(data).unwrap().2.len();
    assert_eq!(len, weft_wire::shuttle::DATA_LEN + weft_wire::ddp::TAGGED_LEN + 100 + 4);
}
