//! Which datagrams leave together.
//!
//! Rules of `docs/shuttle.md`: S-40.

mod support;

use support::model::Message;
use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::ShuttleConfig;
use weft_wire::shuttle::StreamId;

/// Lengths of the datagrams that leave with `reply`, and how often others follow, when a message is
/// answered as soon as it is there.
fn answer(reply: Message) -> (Vec<u16>, usize) {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    pair.open();
    for host in 0..2 {
        pair.connection(host).open_stream(StreamId(0), 1).unwrap();
    }
    pair.run_for(1000 * MS);
    pair.post(0, 0, Message { write: false, octets: 1000 });
    pair.run_up_to(1000 * MS, |pair| pair.hosts[1].ports.ends[0].sink.payload_octets > 0);
    pair.tracing = true;
    pair.post(1, 0, reply);
    pair.run_until(1000 * MS, Pair::is_complete);
    let mut replies = pair.bundles.into_iter().filter(|(host, _)| *host == 1);
    let (_, first) = replies.next().expect("a reply");
    (first, replies.count())
}

#[test]
fn an_acknowledgement_leaves_with_the_reply() {
    let (lengths, others) = answer(Message { write: false, octets: 1 });
    assert_eq!((lengths.len(), others), (2, 0));
    assert!(lengths[1] <= lengths[0], "{lengths:?}");
}

#[test]
fn one_that_finds_no_room_leaves_behind_it() {
    let (lengths, others) = answer(Message { write: false, octets: 2000 });
    assert_eq!((lengths.len(), others), (2, 1));
    assert!(lengths[1] < lengths[0], "a bundle ends with its shorter datagram: {lengths:?}");
}

#[test]
fn one_leaves_behind_a_bundle_whose_datagrams_are_full() {
    let (single, _) = answer(Message { write: false, octets: 1 });
    let (full, _) = answer(Message { write: false, octets: 2000 });
    let payload = u32::from(full[0] - (single[0] - 1));
    let (lengths, others) = answer(Message { write: false, octets: 10 * payload });
    assert_eq!((lengths.len(), others), (11, 0), "{lengths:?}");
    assert!(lengths[..10].iter().all(|len| *len == full[0]) && lengths[10] < full[0]);
}

/// What the kernel cuts is of one length, but for the last.
#[test]
fn datagrams_of_a_bundle_are_of_one_length_and_the_last_may_be_shorter() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    pair.open();
    pair.tracing = true;
    for octets in [10, 500, 500, 500, 30, 700, 200_000, 3, 3, 900, 20_000] {
        pair.post(0, 0, Message { write: true, octets });
    }
    pair.run_until(1000 * MS, Pair::is_complete);
    let bundles = pair.bundles.iter().filter(|(host, _)| *host == 0).map(|(_, lengths)| lengths);
    for lengths in bundles.clone() {
        let (last, first) = lengths.split_last().expect("a datagram");
        assert!(first.iter().all(|len| *len == lengths[0]) && *last <= lengths[0], "{lengths:?}");
    }
    let longest = bundles.map(Vec::len).max();
    assert!(longest >= Some(8), "{longest:?}");
}
