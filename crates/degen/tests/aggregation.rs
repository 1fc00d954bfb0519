//! Packets arrive together as the settings say, and in the order in which they were sent.

use degen::link::Link;
use degen::spec::PathSpec;

/// Delays of packets of 1500 bytes, one each 120 us (100 Mbit/s), and their arrivals.
fn arrivals(words: &str, packets: u64) -> Vec<(u64, u64)> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let [config, _] = PathSpec::parse(&words).unwrap().links();
    let mut link = Link::new(config, 11);
    let mut all = Vec::new();
    let take = |link: &mut Link<u64>, now_ns, all: &mut Vec<(u64, u64)>| {
        while let Some(arrived) = link.poll(now_ns) {
            all.push((arrived.packet, arrived.due_ns));
        }
    };
    for number in 0..packets {
        let sent_ns = number * 120_000;
        take(&mut link, sent_ns, &mut all);
        link.handle(sent_ns, 1500, false, sent_ns);
    }
    while let Some(due_ns) = link.next_due_ns() {
        take(&mut link, due_ns, &mut all);
    }
    assert_eq!(all.len() as u64, packets);
    assert!(all.windows(2).all(|two| two[0] <= two[1]), "order");
    all
}

/// Sizes of the groups that arrive at the same time, and the times between them.
fn groups(arrivals: &[(u64, u64)]) -> (Vec<usize>, Vec<u64>) {
    let sizes = arrivals.chunk_by(|a, b| a.1 == b.1).map(<[_]>::len).collect();
    let times: Vec<u64> = arrivals.chunk_by(|a, b| a.1 == b.1).map(|group| group[0].1).collect();
    (sizes, times.windows(2).map(|two| two[1] - two[0]).collect())
}

#[test]
fn bunches_come_at_even_times_and_wait_evenly() {
    let arrivals = arrivals("delay=35ms bunch=8ms", 100_000);
    assert!(arrivals.iter().all(|(_, due_ns)| due_ns % 8_000_000 == 0));
    let (sizes, gaps) = groups(&arrivals);
    assert!(gaps.iter().all(|gap_ns| *gap_ns == 8_000_000));
    // 66.7 packets of 120 us in 8 ms.
    assert!(sizes[1..sizes.len() - 1].iter().all(|size| (66..=67).contains(size)), "{sizes:?}");
    let waits = arrivals.iter().map(|(sent_ns, due_ns)| due_ns - sent_ns - 35_000_000);
    let mean_ns = waits.sum::<u64>() / arrivals.len() as u64;
    assert!((3_900_000..4_100_000).contains(&mean_ns), "{mean_ns}");
}

#[test]
fn frames_are_full_where_there_is_enough_and_late_where_not() {
    let (sizes, gaps) = groups(&arrivals("delay=35ms frames=16:4ms", 16_000));
    assert!(sizes.iter().all(|size| *size == 16));
    assert!(gaps.iter().all(|gap_ns| *gap_ns == 16 * 120_000));
    // 34 packets of 120 us within 4 ms of the first, that one included.
    let (sizes, gaps) = groups(&arrivals("delay=35ms frames=64:4ms", 34_000));
    assert!(sizes.iter().all(|size| *size == 34), "{sizes:?}");
    assert!(gaps.iter().all(|gap_ns| *gap_ns == 34 * 120_000));
}

#[test]
fn jitter_in_order_makes_everybody_wait_for_the_slowest() {
    let arrivals = arrivals("delay=35ms jitter=10ms", 100_000);
    let delays: Vec<u64> = arrivals.iter().map(|(sent_ns, due_ns)| due_ns - sent_ns).collect();
    assert!(delays.iter().all(|ns| (25_000_000..=45_000_000).contains(ns)));
    // Each packet has its own delay or waits for one before it: at 8333 packets a second and a
    // span of 20 ms the mean is within 2 ms of the longest.
    let mean_ns = delays.iter().sum::<u64>() / delays.len() as u64;
    assert!((43_000_000..44_800_000).contains(&mean_ns), "{mean_ns}");
    let together = arrivals.windows(2).filter(|two| two[0].1 == two[1].1).count();
    assert!(together > arrivals.len() / 2, "{together}");
}

#[test]
fn a_policer_lets_its_burst_pass_and_then_its_rate() {
    let words = ["policer=50mbit:150kB", "delay=1ms"];
    let [config, _] = PathSpec::parse(&words).unwrap().links();
    let mut link = Link::new(config, 1);
    // 100 Mbit/s for 10 s: the burst, and 62.5 MB.
    (0..83_333_u64).for_each(|number| link.handle(number * 120_000, 1500, false, number));
    let passed = link.counters().offered - link.counters().dropped_policer;
    let expected = (150_000 + 62_500_000) / 1500;
    assert!(passed.abs_diff(expected) <= 2, "{passed} {expected}");
}
