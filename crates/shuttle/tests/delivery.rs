//! Every segment is placed once and completed in order, whatever the network does to packets.
//!
//! Rules of `docs/shuttle.md`: S-30 to S-36, S-40, S-43, S-50 to S-55.

mod support;

use std::env;

use proptest::prelude::*;
use support::model::Message;
use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{Credit, Placement, ShuttleConfig};
use weft_wire::ids::Msn;
use weft_wire::shuttle::hello::{placement, protection};
use weft_wire::shuttle::{PathId, StreamId};

fn rough() -> Link {
    Link {
        loss: 0.05,
        duplicate: 0.05,
        late: 0.2,
        late_ns: 8 * MS,
        corrupt: 0.01,
        rate_bps: 200_000_000,
        queue_ns: 20 * MS,
        ..Link::default()
    }
}

#[derive(Clone, Debug)]
struct Post {
    host: usize,
    stream: u8,
    message: Message,
    wait_ns: u64,
}

fn post() -> impl Strategy<Value = Post> {
    let octets = prop_oneof![Just(0_u32), 1..200_u32, 1000..1500_u32, 1..100_000_u32];
    (0..2_usize, 0..3_u8, any::<bool>(), octets, prop_oneof![Just(0), 0..20 * MS]).prop_map(
        |(host, stream, write, octets, wait_ns)| {
            let message = Message { write, octets };
            Post { host, stream, message, wait_ns }
        },
    )
}

fn link() -> impl Strategy<Value = Link> {
    let rate = prop_oneof![Just(0), 5_000_000..2_000_000_000_u64];
    let part = || prop_oneof![Just(0.0), 0.0..0.3_f64];
    (rate, part(), part(), part(), 0..30 * MS, 1000..40 * MS).prop_map(
        |(rate_bps, loss, duplicate, late, late_ns, delay_ns)| {
            let (queue_ns, corrupt) = (50 * MS, 0.002);
            Link { rate_bps, queue_ns, loss, duplicate, late, late_ns, delay_ns, corrupt }
        },
    )
}

fn config(placement: Placement, held_octets: usize) -> ShuttleConfig {
    let placement = match placement {
        Placement::Strict => placement::STRICT,
        Placement::Tail => placement::TAIL,
        Placement::Loose => placement::LOOSE,
    };
    let protection = protection::CRC32C;
    let handshake_ns = 100_000 * MS;
    ShuttleConfig {
        protection,
        placement,
        held_octets,
        handshake_ns,
        streams: 3,
        ..ShuttleConfig::default()
    }
}

fn exchange(seed: u64, placement: Placement, held: usize, link: &Link, posts: &[Post]) {
    let mut pair = Pair::new(seed, &config(placement, held), link, 3);
    for host in &mut pair.hosts {
        host.ports.ends.iter_mut().for_each(|end| end.sink.placement = placement);
    }
    pair.run_until(100_000 * MS, Pair::is_open);
    for host in 0..2 {
        for stream in 0..3 {
            pair.connection(host).open_stream(StreamId(stream), u32::from(stream) + 1).unwrap();
        }
    }
    for post in posts {
        pair.post(post.host, post.stream, post.message);
        pair.run_for(post.wait_ns);
    }
    pair.run_until(200_000 * MS, Pair::is_complete);
    for stream in 0..3 {
        for host in 0..2 {
            let sent = pair.hosts[host].ports.ends[stream].source.posted_octets();
            let placed = pair.hosts[1 - host].ports.ends[stream].sink.payload_octets;
            assert_eq!(sent, placed);
        }
    }
}

/// How many random exchanges: `WEFT_RUNS`, or enough for every day.
fn runs() -> u32 {
    env::var("WEFT_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(runs()))]
    #[test]
    fn anything_arrives_once(
        seed: u64,
        which in 0..3_usize,
        held in prop_oneof![Just(0_usize), Just(5000), Just(1 << 20)],
        link in link(),
        posts in prop::collection::vec(post(), 1..30),
    ) {
        let placement = [Placement::Strict, Placement::Tail, Placement::Loose][which];
        exchange(seed, placement, held, &link, &posts);
    }
}

/// A receiver that can hold little takes the segment at its frontier and no other, so that is what
/// a probe must carry.
#[test]
fn probes_carry_what_the_receiver_can_take() {
    let first = seed();
    for seed in (0..40).map(|run| first.wrapping_add(run)) {
        let link = Link { loss: 0.3, late: 0.25, late_ns: 8 * MS, ..Link::default() };
        let message = Message { write: true, octets: 90_000 };
        let posts = [Post { host: 1, stream: 0, message, wait_ns: 0 }];
        exchange(seed, Placement::Strict, 5000, &link, &posts);
    }
}

#[test]
fn every_placement_survives_a_rough_network() {
    let first = seed();
    for (run, placement) in (0..).zip([Placement::Strict, Placement::Tail, Placement::Loose]) {
        let message = |octets| Message { write: true, octets };
        let post = |octets| Post { host: 0, stream: 0, message: message(octets), wait_ns: 0 };
        let posts: Vec<Post> = (0..20).map(|at| post(at * 9001)).collect();
        exchange(first.wrapping_add(run), placement, 16 << 20, &rough(), &posts);
    }
}

#[test]
fn payload_is_placed_before_the_holes_are_filled() {
    let link = Link { loss: 0.02, rate_bps: 100_000_000, ..Link::default() };
    let mut pair = Pair::new(seed(), &config(Placement::Tail, 1 << 20), &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 3_000_000);
    pair.run_until(20_000 * MS, Pair::is_complete);
    let sink = &pair.hosts[1].ports.ends[0].sink;
    assert!(sink.early > 100, "{} of the segments came early", sink.early);
}

#[test]
fn exactly_the_holes_are_sent_again() {
    let link = Link { loss: 0.02, rate_bps: 200_000_000, delay_ns: 35 * MS, ..Link::default() };
    let mut pair = Pair::new(seed(), &config(Placement::Tail, 16 << 20), &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 40_000_000);
    pair.run_until(60_000 * MS, Pair::is_complete);
    let lost = pair.network.counts[0].lost_data_octets;
    let resent = pair.connection(0).stats().octets_resent;
    assert!(lost > 500_000, "{lost}");
    assert!(resent as f64 <= 1.01 * lost as f64, "{resent} octets for {lost}");
    // When the last acknowledgement is lost, two probes repeat what it told of.
    assert!(pair.connection(1).stats().duplicate_segments <= 4);
}

/// S-57.
#[test]
fn what_is_lost_at_the_end_is_sent_again_twice_if_wanted() {
    let link = Link { loss: 0.1, rate_bps: 200_000_000, delay_ns: 35 * MS, ..Link::default() };
    let seed = seed();
    let resent = [false, true].map(|lost_twice| {
        let config = ShuttleConfig { lost_twice, ..config(Placement::Tail, 16 << 20) };
        let mut pair = Pair::new(seed, &config, &link, 1);
        pair.open();
        pair.hosts[0].ports.post(true, 4_000_000);
        pair.run_until(60_000 * MS, Pair::is_complete);
        let lost = pair.network.counts[0].lost_data_octets as f64;
        pair.connection(0).stats().octets_resent as f64 / lost
    });
    let [once, twice] = resent;
    // Probes may repeat what the last acknowledgement told of.
    assert!(once < 1.05, "{once}");
    // Some were lost while there was more to send.
    assert!((1.05..2.0).contains(&twice), "{twice}");
}

#[test]
fn reordering_causes_no_collapse() {
    let run = |seed, late| {
        let link = Link {
            rate_bps: 100_000_000,
            delay_ns: 35 * MS,
            late,
            late_ns: 5 * MS,
            ..Link::default()
        };
        let mut pair = Pair::new(seed, &config(Placement::Tail, 16 << 20), &link, 1);
        pair.open();
        let begun = pair.now_ns;
        pair.hosts[0].ports.post(true, 60_000_000);
        pair.run_until(60_000 * MS, Pair::is_complete);
        let stats = pair.connection(0).stats();
        let recovery = pair.connection(0).recovery_stats(PathId(0)).unwrap();
        assert_eq!(recovery.lost_packets, recovery.spurious_packets);
        let spurious = recovery.spurious_packets as f64 / stats.segments_out as f64;
        (pair.now_ns - begun, spurious)
    };
    let seed = seed();
    let (clean_ns, none) = run(seed, 0.0);
    let (reordered_ns, spurious) = run(seed, 0.25);
    assert_eq!(none, 0.0);
    assert!(spurious < 0.005, "{spurious}");
    let ratio = clean_ns as f64 / reordered_ns as f64;
    assert!(ratio > 0.97, "{ratio} of the clean rate");
}

#[test]
fn acknowledgements_follow_time_not_packets() {
    let link = Link { rate_bps: 1_000_000_000, delay_ns: 35 * MS, ..Link::default() };
    let mut config = config(Placement::Tail, 1 << 20);
    config.controller_params.initial_rate_bps = Some(800_000_000);
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 50_000_000);
    pair.run_until(60_000 * MS, Pair::is_complete);
    let packets = pair.connection(0).stats().segments_out;
    let acks = pair.connection(1).stats().control_out;
    // Half a second of data, an acknowledgement in each 1.1 ms of it.
    assert!(packets > 40_000 && acks < 600, "{acks} for {packets} packets");
}

#[test]
fn an_outage_is_survived() {
    let link = Link { rate_bps: 100_000_000, delay_ns: 35 * MS, ..Link::default() };
    let mut pair = Pair::new(seed(), &config(Placement::Tail, 16 << 20), &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 20_000_000);
    pair.run_for(500 * MS);
    pair.network.down = true;
    let before = pair.network.counts[0].sent;
    pair.run_for(2000 * MS);
    let during = pair.network.counts[0].sent - before;
    pair.network.down = false;
    let begun = pair.now_ns;
    pair.run_until(10_000 * MS, Pair::is_complete);
    assert_eq!(pair.connection(0).recovery_stats(PathId(0)).unwrap().outages, 1);
    // What was in flight and the window, then a probe now and then.
    assert!(during < 3000, "{during} packets into a dead network");
    assert!(pair.now_ns - begun < 3000 * MS, "{} ms", (pair.now_ns - begun) / MS);
}

/// What a receiver says of the message that waits.
fn credit(pair: &Pair) -> Option<Credit> {
    let held = pair.hosts[1].ports.ends[0].sink.held?;
    Some(Credit { limit: Msn(held.0.wrapping_sub(1)), wait_us: 640 })
}

#[test]
fn what_the_peers_host_drops_is_told_apart_from_what_the_path_loses() {
    let link = Link { loss: 0.02, ..Link::default() };
    let mut pair = Pair::new(seed(), &config(Placement::Tail, 16 << 20), &link, 1);
    pair.open();
    for dropped in [2, 3] {
        pair.connection(1).note_dropped(dropped);
        pair.hosts[0].ports.post(true, 1_000_000);
        pair.run_until(60_000 * MS, Pair::is_complete);
    }
    let recovery = pair.connection(0).recovery_stats(PathId(0)).unwrap();
    assert!(recovery.dropped_by_peer == 5 && recovery.lost_packets > 5, "{recovery:?}");
}

#[test]
fn a_sender_whose_message_has_no_receive_stops() {
    let mut pair = Pair::new(seed(), &config(Placement::Tail, 1 << 20), &rough(), 1);
    pair.open();
    let stream = StreamId(0);
    pair.hosts[1].ports.ends[0].sink.receives = Some(0);
    pair.hosts[0].ports.post(false, 3000);
    pair.run_for(3000 * MS);
    let (now_ns, told) = (pair.now_ns, credit(&pair));
    pair.connection(1).set_credit(now_ns, stream, told).unwrap();
    pair.run_for(3000 * MS);
    let handed = pair.hosts[0].ports.ends[0].source.handed();
    (0..9).for_each(|_| pair.hosts[0].ports.post(false, 3000));
    pair.run_for(3000 * MS);
    assert_eq!(pair.hosts[0].ports.ends[0].source.handed(), handed);
    for posted in [3, 4, 10] {
        pair.hosts[1].ports.ends[0].sink.receives = Some(posted);
        let (now_ns, host) = (pair.now_ns, &mut pair.hosts[1]);
        let connection = host.connection.as_mut().unwrap();
        connection.retry(now_ns, stream, &mut host.ports).unwrap();
        let told = credit(&pair);
        pair.connection(1).set_credit(now_ns, stream, told).unwrap();
        pair.run_for(3000 * MS);
        assert_eq!(pair.hosts[1].ports.ends[0].sink.payload_octets, 3000 * u64::from(posted));
    }
    assert!(pair.is_complete());
}

#[test]
fn a_credit_that_is_lost_is_asked_for() {
    let config = config(Placement::Tail, 1 << 20);
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.hosts[1].ports.ends[0].sink.receives = Some(0);
    pair.post(0, 0, Message { write: false, octets: 10 });
    pair.run_for(100 * MS);
    pair.network.down = true;
    let (now_ns, told) = (pair.now_ns, credit(&pair));
    pair.connection(1).set_credit(now_ns, StreamId(0), told).unwrap();
    pair.run_for(MS);
    assert_eq!(pair.hosts[0].ports.ends[0].source.credit, None);
    pair.network.down = false;
    pair.run_until(3000 * MS, |pair| pair.hosts[0].ports.ends[0].source.credit == Some(Msn(0)));
}

#[test]
fn a_send_without_credit_is_held_until_its_receive() {
    let mut pair = Pair::new(seed(), &config(Placement::Tail, 1 << 20), &rough(), 1);
    pair.open();
    pair.hosts[1].ports.ends[0].sink.receives = Some(0);
    (0..5).for_each(|_| pair.hosts[0].ports.post(false, 3000));
    pair.run_for(2000 * MS);
    assert!(!pair.is_complete());
    let host = &mut pair.hosts[1];
    host.ports.ends[0].sink.receives = Some(5);
    let connection = host.connection.as_mut().unwrap();
    connection.retry(pair.now_ns, StreamId(0), &mut host.ports).unwrap();
    // Each Query after a lost report takes another second, and one of ten is lost as well.
    pair.run_until(20_000 * MS, Pair::is_complete);
}
