//! What is told to the peer: once if it is news, and for the last time with a Close.
//!
//! Rules of `docs/shuttle.md`: S-20, S-38, S-42.

mod support;

use std::collections::BTreeMap;

use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{Credit, ShuttleConfig};
use weft_wire::ids::Msn;
use weft_wire::shuttle::frame::{Frame, Frames};
use weft_wire::shuttle::{CTRL_LEN, Packet, PathId, StreamId};

/// Length of the tag of a control packet under a checksum.
const TAG_LEN: usize = 8;

fn pair() -> Pair {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.tracing = true;
    pair
}

/// How many frames of each kind `host` has sent since `pair.trace` was cleared, in control packets.
fn frames(pair: &mut Pair, host: usize) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for (from, _, datagram) in std::mem::take(&mut pair.trace) {
        let is_ctrl = matches!(Packet::parse(&datagram), Ok(Packet::Ctrl(_)));
        if from != host || !is_ctrl {
            continue;
        }
        for frame in Frames::new(&datagram[CTRL_LEN..datagram.len() - TAG_LEN]) {
            let kind = match frame.expect("a frame") {
                Frame::Credit { .. } => "credit",
                Frame::Stream { .. } => "stream",
                Frame::Close { .. } => "close",
                Frame::Rate { .. } => "rate",
                _ => continue,
            };
            *counts.entry(kind).or_default() += 1;
        }
    }
    counts
}

#[test]
fn a_receiver_that_is_not_ready_says_so_at_once_and_once() {
    let mut pair = pair();
    let set = |pair: &mut Pair, limit: Option<u32>| {
        let credit = limit.map(|limit| Credit { limit: Msn(limit), wait_us: 5 });
        let now_ns = pair.now_ns;
        pair.connection(1).set_credit(now_ns, StreamId(0), credit).unwrap();
        pair.run_for(MS);
        frames(pair, 1).get("credit").copied().unwrap_or(0)
    };
    assert_eq!(set(&mut pair, Some(7)), 1);
    assert_eq!(set(&mut pair, Some(7)), 0, "the same");
    assert_eq!(set(&mut pair, Some(8)), 1);
    assert_eq!(set(&mut pair, None), 0, "nothing waits");
    let now_ns = pair.now_ns;
    pair.connection(1).set_credit(now_ns, StreamId(0), None).unwrap();
    pair.run_for(MS);
    assert!(pair.trace.is_empty(), "nothing was changed");
}

/// The application may close as soon as it has what it wants: its peer must know that it has.
#[test]
fn a_close_tells_what_was_placed() {
    let mut pair = pair();
    pair.hosts[0].ports.post(true, 100);
    let placed = |pair: &Pair| pair.hosts[1].ports.ends[0].sink.payload_octets == 100;
    pair.run_up_to(1000 * MS, placed);
    let now_ns = pair.now_ns;
    pair.connection(1).close(now_ns, 0);
    pair.run_for(7 * MS);
    let told = frames(&mut pair, 1);
    assert_eq!((told["stream"], told["close"]), (1, 1));
    assert!(pair.is_complete());
}

/// The round trip that the handshake took is known before anything is sent.
#[test]
fn the_handshake_measures_the_round_trip_at_both_ends() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    pair.open();
    for host in 0..2 {
        let rtt = pair.connection(host).rtt(PathId(0)).unwrap();
        assert_eq!((rtt.latest_ns, rtt.min_ns), (10 * MS, 10 * MS), "{host}");
    }
    // An end that may ask its owner first tells nothing of the path.
    let config = ShuttleConfig { may_wait: true, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    assert_eq!(pair.connection(0).rtt(PathId(0)).unwrap().latest_ns, config.initial_rtt_ns);
}

/// A rate is told again until it arrives, and not once it has.
#[test]
fn a_rate_is_told_until_it_is_acknowledged() {
    let mut pair = pair();
    pair.network.down = true;
    pair.connection(1).limit_peer(PathId(0), 10_000_000);
    let now_ns = pair.now_ns;
    pair.connection(1).handle_timeout(now_ns);
    pair.run_for(500 * MS);
    let lost = frames(&mut pair, 1)["rate"];
    assert!(lost >= 1, "{lost}");
    pair.network.down = false;
    pair.hosts[1].ports.post(true, 100_000);
    pair.run_until(20_000 * MS, Pair::is_complete);
    pair.run_for(1000 * MS);
    assert_eq!(frames(&mut pair, 1)["rate"], 1);
    pair.hosts[1].ports.post(true, 100_000);
    pair.run_until(20_000 * MS, Pair::is_complete);
    assert_eq!(frames(&mut pair, 1).get("rate"), None);
}

/// S-33: the sender of a message that waited for its receive knows at once that it was placed.
#[test]
fn a_message_that_finds_its_receive_is_told_at_once() {
    let mut pair = pair();
    pair.hosts[1].ports.ends[0].sink.receives = Some(0);
    pair.hosts[0].ports.post(false, 100);
    pair.run_for(12 * MS);
    let retry = |pair: &mut Pair| {
        pair.trace.clear();
        let host = &mut pair.hosts[1];
        let connection = host.connection.as_mut().unwrap();
        connection.retry(pair.now_ns, StreamId(0), &mut host.ports).unwrap();
        pair.run_for(0);
        frames(pair, 1).get("stream").copied()
    };
    assert_eq!(retry(&mut pair), None, "no receive was posted");
    pair.hosts[1].ports.ends[0].sink.receives = Some(1);
    assert_eq!(retry(&mut pair), Some(1));
    assert_eq!(retry(&mut pair), None, "nothing is held");
}

/// S-20: a Close is one small datagram, however many streams there are.
#[test]
fn a_close_tells_of_as_many_streams_as_half_a_datagram_holds() {
    let config = ShuttleConfig { streams: 250, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 250);
    pair.open();
    (0..250).for_each(|stream| pair.connection(0).open_stream(StreamId(stream), 1).unwrap());
    pair.run_for(1000 * MS);
    pair.tracing = true;
    let now_ns = pair.now_ns;
    pair.connection(0).close(now_ns, 0);
    pair.run_for(MS);
    let (_, _, close) = pair.trace.first().expect("a Close").clone();
    assert!((300..=640).contains(&close.len()), "{} bytes", close.len());
    let told = frames(&mut pair, 0);
    assert_eq!(told["close"], 1);
    assert!((100..250).contains(&told["stream"]), "{told:?}");
}
