//! Acknowledgements that wait for the application's answer.
//!
//! Rules of `docs/shuttle.md`: S-40.

mod support;

use support::model::Message;
use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::ShuttleConfig;

const US: u64 = 1000;
/// How long an application takes to answer.
const ANSWER_NS: u64 = 30 * US;
/// Longest wait for an answer.
const WAIT_NS: u64 = 250 * US;
const SMALL: Message = Message { write: true, octets: 64 };

fn pair() -> Pair {
    let link = Link { delay_ns: 50 * US, ..Link::default() };
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link, 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.tracing = true;
    pair
}

/// Has `from` send a message; returns when it is there, before anything follows from it.
fn send(pair: &mut Pair, from: usize) {
    let before = pair.hosts[1 - from].ports.ends[0].sink.segments;
    pair.post(from, 0, SMALL);
    pair.run_up_to(10 * MS, |pair| pair.hosts[1 - from].ports.ends[0].sink.segments > before);
}

/// Messages to and fro, each answered after [`ANSWER_NS`]; returns how often the ends have sent.
fn talk(pair: &mut Pair, rounds: usize) -> usize {
    let before = pair.bundles.len();
    for _ in 0..rounds {
        for from in 0..2 {
            send(pair, from);
            pair.run_for(ANSWER_NS);
        }
    }
    pair.bundles.len() - before
}

/// A message without an answer; returns how long it took until its sender knew that it is there.
fn tell(pair: &mut Pair) -> u64 {
    let begun_ns = pair.now_ns;
    pair.post(0, 0, SMALL);
    pair.run_until(100 * MS, Pair::is_complete);
    pair.now_ns - begun_ns
}

#[test]
fn in_a_conversation_each_message_is_one_call() {
    let mut pair = pair();
    let quick = talk(&mut pair, 5);
    assert!(quick >= 15, "{quick} calls: at first an acknowledgement leaves at once");
    assert_eq!(talk(&mut pair, 100), 200);
    // Each end sends every 160 us, and acknowledges 250 us after its last acknowledgement.
    let (alone, with_ack): (Vec<_>, Vec<_>) = {
        let last = &pair.bundles[pair.bundles.len() - 200..];
        last.iter().partition(|(_, lengths)| lengths.len() == 1)
    };
    assert_eq!((alone.len(), with_ack.len()), (100, 100));
    assert!(with_ack.iter().all(|(_, lengths)| lengths.len() == 2), "the message, and the Ack");
}

#[test]
fn the_last_message_of_a_conversation_is_acknowledged_soon() {
    let mut pair = pair();
    talk(&mut pair, 100);
    pair.run_until(10 * MS, Pair::is_complete);
    let round_trip_ns = 100 * US;
    assert_eq!(tell(&mut pair), round_trip_ns + WAIT_NS);
    for _ in 0..20 {
        assert_eq!(tell(&mut pair), round_trip_ns, "who does not answer is not waited for");
    }
}
