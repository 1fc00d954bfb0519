//! Small messages that are there at the same time share packets.
//!
//! Rules of `docs/shuttle.md`: S-4, S-32, S-43, S-52.

mod support;

use support::model::Message;
use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{ShuttleConfig, cc};
use weft_wire::ddp::{TAGGED_LEN, UNTAGGED_LEN};
use weft_wire::shuttle::segments::table_len;
use weft_wire::shuttle::{DATA_LEN, Packet, StreamId};

const DATAGRAM_OCTETS: usize = 1200;
const CRC_LEN: usize = 4;

fn config() -> ShuttleConfig {
    ShuttleConfig {
        datagram_octets: DATAGRAM_OCTETS as u16,
        controller: cc::none,
        ..ShuttleConfig::default()
    }
}

/// An open pair that has been silent for a while, and notes what is sent from now on.
fn pair_over(link: &Link) -> Pair {
    let mut pair = Pair::new(seed(), &config(), link, 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.tracing = true;
    pair
}

/// Whether each data packet of host 0 has several segments.
fn data_packets(pair: &Pair) -> Vec<bool> {
    let sent = pair.trace.iter().filter(|(host, ..)| *host == 0);
    let parsed = sent.map(|(.., datagram)| Packet::parse(datagram));
    let several = parsed.filter_map(|packet| match packet {
        Ok(Packet::Data(header)) => Some(header.several),
        _ => None,
    });
    several.collect()
}

#[test]
fn a_list_of_small_messages_fills_packets() {
    for (write, octets, count) in
        [(true, 64, 1000), (false, 64, 500), (true, 1, 300), (true, 500, 7)]
    {
        let mut pair = pair_over(&Link::default());
        for _ in 0..count {
            pair.post(0, 0, Message { write, octets });
        }
        pair.run_until(1000 * MS, Pair::is_complete);
        let segment = octets as usize + if write { TAGGED_LEN } else { UNTAGGED_LEN };
        let room = DATAGRAM_OCTETS - DATA_LEN - CRC_LEN;
        let fits = |count: &usize| count * segment + table_len(*count) <= room;
        let each = (1..).take_while(fits).count();
        let packets = data_packets(&pair);
        assert_eq!(packets.len(), usize::div_ceil(count, each), "{octets} bytes");
        let bundles = pair.bundles.iter().filter(|(host, _)| *host == 0).count();
        assert!(bundles <= packets.len().div_ceil(40) + 1, "{bundles} calls");
    }
}

#[test]
fn one_message_has_a_packet_without_a_table() {
    let mut pair = pair_over(&Link::default());
    pair.post(0, 0, Message { write: true, octets: 64 });
    pair.run_until(1000 * MS, Pair::is_complete);
    assert_eq!(data_packets(&pair), [false]);
    let (_, lengths) = &pair.bundles[0];
    assert_eq!(usize::from(lengths[0]), DATA_LEN + TAGGED_LEN + 64 + CRC_LEN);
}

/// The segments of a large message are as large as ever; its end shares a packet with what follows.
#[test]
fn a_large_message_between_small_ones_keeps_its_segments() {
    let mut pair = pair_over(&Link::default());
    for octets in [10, 10, 5000, 10, 10] {
        pair.post(0, 0, Message { write: false, octets });
    }
    pair.run_until(1000 * MS, Pair::is_complete);
    let full = (5000_usize).div_ceil(DATAGRAM_OCTETS - DATA_LEN - CRC_LEN - UNTAGGED_LEN) - 1;
    let packets = data_packets(&pair);
    assert_eq!(packets.len(), 1 + full + 1);
    assert_eq!(packets.iter().filter(|several| **several).count(), 2);
}

/// What is lost is sent again in full packets, and arrives once.
#[test]
fn exactly_the_segments_of_lost_packets_are_sent_again() {
    let mut pair = pair_over(&Link { loss: 0.2, ..Link::default() });
    for _ in 0..5000 {
        pair.post(0, 0, Message { write: true, octets: 64 });
    }
    pair.run_until(60_000 * MS, Pair::is_complete);
    let stats = pair.connection(0).stats();
    let again = stats.segments_resent;
    assert!((500..3000).contains(&again), "{again} of 5000 at 20 % loss");
    assert_eq!(stats.segments_out, 5000 + again);
    let packets = data_packets(&pair).len() as u64;
    assert!(packets < stats.segments_out / 8, "{packets} packets");
}

/// A receiver that cannot hold all of a packet takes it piece by piece: each time it comes, the
/// segment at the frontier is held.
#[test]
fn a_packet_that_finds_too_little_room_comes_again() {
    let config = ShuttleConfig { held_octets: 250, ..config() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.hosts[1].ports.ends[0].sink.receives = Some(3);
    for _ in 0..20 {
        pair.post(0, 0, Message { write: false, octets: 30 });
    }
    pair.run_for(100 * MS);
    assert_eq!(pair.hosts[1].ports.ends[0].sink.segments, 3);
    assert!(pair.connection(1).stats().unheld_segments > 0);
    for receives in 4..=20 {
        let host = &mut pair.hosts[1];
        host.ports.ends[0].sink.receives = Some(receives);
        let connection = host.connection.as_mut().unwrap();
        connection.retry(pair.now_ns, StreamId(0), &mut host.ports).unwrap();
        let taken = |pair: &Pair| pair.hosts[1].ports.ends[0].sink.segments == u64::from(receives);
        pair.run_until(5000 * MS, taken);
    }
    pair.run_until(5000 * MS, Pair::is_complete);
}
