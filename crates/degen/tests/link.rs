//! A link keeps its books and repeats itself, whatever is asked of it.

use degen::link::{Counters, Link};
use degen::spec::PathSpec;
use proptest::prelude::*;

/// Packets that arrived: number, time, mark, corruption.
type Trace = Vec<(usize, u64, bool, Option<u64>)>;

/// Sends packets of the given sizes after the given pauses, and takes out all that arrives.
fn run(path: &PathSpec, seed: u64, packets: &[(u64, u32)]) -> (Trace, Counters) {
    let [config, _] = path.links();
    let mut link = Link::new(config, seed);
    let (mut now_ns, mut trace) = (0, Trace::new());
    let take = |link: &mut Link<usize>, now_ns: u64, trace: &mut Trace| {
        while let Some(arrived) = link.poll(now_ns) {
            assert!(arrived.due_ns <= now_ns, "early");
            trace.push((arrived.packet, arrived.due_ns, arrived.marked, arrived.corrupt));
        }
    };
    for (number, (pause_ns, bytes)) in packets.iter().enumerate() {
        now_ns += pause_ns;
        take(&mut link, now_ns, &mut trace);
        link.handle(now_ns, *bytes, number % 2 == 0, number);
    }
    while let Some(due_ns) = link.next_due_ns() {
        take(&mut link, due_ns, &mut trace);
    }
    assert_eq!(link.in_flight(), 0);
    (trace, link.counters())
}

fn word() -> impl Strategy<Value = String> {
    let settings = [
        "rate=10mbit",
        "rate=1gbit",
        "queue=4kB",
        "queue=2bdp",
        "delay=3ms",
        "loss=5%",
        "burst=4",
        "gilbert=5%:20%:80%:1%",
        "jitter=1ms",
        "jitter=2ms:reorder",
        "reorder=10%:1ms",
        "duplicate=5%",
        "corrupt=5%",
        "outage=2ms+1ms/5ms",
        "step=3ms:rate=2mbit",
        "step=6ms:delay=100us",
        "step=5ms:loss=50%",
        "ecn=200us",
        "policer=20mbit:10kB",
        "fading=5mbit:80mbit:1ms",
        "frames=8:2ms",
        "bunch=3ms",
        "handover=5ms:2ms",
    ];
    prop::sample::select(settings.map(str::to_owned).to_vec())
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for_and_every_run_repeats(
        words in prop::collection::vec(word(), 0..8),
        packets in prop::collection::vec((0_u64..200_000, 40_u32..9000), 1..400),
        seed: u64,
    ) {
        let path = PathSpec::parse(&words).unwrap();
        let (trace, counters) = run(&path, seed, &packets);
        let Counters { offered, delivered, duplicated, lost, lost_outage, .. } = counters;
        let dropped = counters.dropped_queue + counters.dropped_policer;
        prop_assert_eq!(offered, packets.len() as u64);
        prop_assert_eq!(delivered, trace.len() as u64);
        prop_assert_eq!(offered + duplicated, delivered + dropped + lost + lost_outage);
        let corrupted = trace.iter().filter(|(.., corrupt)| corrupt.is_some()).count() as u64;
        prop_assert!(corrupted >= counters.corrupted);
        let again = run(&path, seed, &packets);
        prop_assert_eq!((trace, counters), again);
    }

    #[test]
    fn without_reordering_the_order_stays(
        packets in prop::collection::vec((0_u64..200_000, 40_u32..9000), 1..400),
        seed: u64,
    ) {
        let words = ["delay=5ms", "jitter=4ms", "loss=5%", "step=3ms:delay=100us", "rate=100mbit"];
        let (trace, _) = run(&PathSpec::parse(&words).unwrap(), seed, &packets);
        prop_assert!(trace.is_sorted_by_key(|(number, ..)| *number));
    }
}

#[test]
fn an_impairment_does_not_shift_another() {
    let packets = vec![(100_000, 1500); 2000];
    let arrived = |words: &[&str]| {
        let (mut trace, _) = run(&PathSpec::parse(words).unwrap(), 7, &packets);
        trace.sort_unstable();
        trace.dedup();
        trace
    };
    let numbers = |trace: &Trace| trace.iter().map(|packet| packet.0).collect::<Vec<_>>();
    let noise = ["jitter=1ms:reorder", "duplicate=3%", "corrupt=3%"];
    let all = arrived(&[&noise[..], &["loss=10%"]].concat());
    assert_eq!(numbers(&arrived(&["loss=10%"])), numbers(&all));
    let mut without_loss = arrived(&noise);
    without_loss.retain(|packet| all.iter().any(|other| other.0 == packet.0));
    assert_eq!(without_loss, all);
}

#[test]
fn delay_and_serialisation_add_up() {
    let path = PathSpec::parse(&["20ms", "12mbit"]).unwrap();
    let (trace, counters) = run(&path, 1, &[(0, 1500), (0, 1500), (5_000_000, 1500)]);
    let times: Vec<u64> = trace.iter().map(|(_, due_ns, ..)| *due_ns).collect();
    assert_eq!(times, [11_000_000, 12_000_000, 16_000_000]);
    assert_eq!(counters.queue_bytes_peak, 3000);
}

#[test]
fn a_long_queue_marks_what_can_be_marked_and_drops_the_rest_at_its_end() {
    let path = PathSpec::parse(&["12mbit", "queue=15kB", "ecn=4ms"]).unwrap();
    let (trace, counters) = run(&path, 1, &[(0, 1500); 20]);
    let marked: Vec<usize> =
        trace.iter().filter(|packet| packet.2).map(|packet| packet.0).collect();
    assert_eq!(marked, [6, 8]);
    assert_eq!((counters.marked, counters.dropped_queue), (2, 10));
}
