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
