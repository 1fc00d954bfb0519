//! Controllers over the whole protocol: what share of a link they fill, with and without loss.
//!
//! Rules of `docs/shuttle.md`: S-60, S-61.

mod support;

use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::{ShuttleConfig, cc};
use weft_wire::shuttle::PathId;

/// Part of a 100 Mbit/s link of 40 ms that `controller` fills with payload, from 3 s to 8 s.
fn utilisation(controller: cc::Make, loss: f64) -> f64 {
    const RATE_BPS: u64 = 100_000_000;
    let link =
        Link { rate_bps: RATE_BPS, delay_ns: 20 * MS, queue_ns: 40 * MS, loss, ..Link::default() };
    let config = ShuttleConfig {
        controller,
        controller_params: cc::Params::default(),
        datagram_octets: 1472,
        ..ShuttleConfig::default()
    };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 200_000_000);
    pair.run_for(3000 * MS);
    let before = pair.hosts[1].ports.ends[0].sink.payload_octets;
    pair.run_for(5000 * MS);
    let octets = pair.hosts[1].ports.ends[0].sink.payload_octets - before;
    (octets * 8) as f64 / (RATE_BPS * 5) as f64
}

#[test]
fn bbr1_fills_the_link_with_and_without_loss() {
    let clean = utilisation(cc::bbr1, 0.0);
    let lossy = utilisation(cc::bbr1, 0.01);
    assert!(clean > 0.88 && lossy > 0.86, "{clean} {lossy}");
}

#[test]
fn cubic_fills_a_clean_link_and_starves_on_a_lossy_one() {
    let clean = utilisation(cc::cubic, 0.0);
    let lossy = utilisation(cc::cubic, 0.01);
    assert!(clean > 0.85, "{clean}");
    // Mathis: 1.3 datagrams per square root of the loss in a round trip, and a margin.
    assert!((0.01..0.08).contains(&lossy), "{lossy}");
}

#[test]
fn fixed_sends_at_its_rate() {
    fn fifty(params: &cc::Params) -> Box<dyn cc::Controller> {
        cc::fixed(&cc::Params { initial_rate_bps: Some(50_000_000), ..params.clone() })
    }
    let got = utilisation(fifty, 0.0);
    // 1440 bytes of payload in datagrams of 1472.
    assert!((0.486..0.4895).contains(&got), "{got}");
}

#[test]
fn no_control_floods_and_still_delivers() {
    let link = Link { delay_ns: MS, ..Link::default() };
    let config = ShuttleConfig { controller: cc::none, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 5_000_000);
    let begun = pair.now_ns;
    pair.run_until(1000 * MS, Pair::is_complete);
    assert!(pair.now_ns - begun < 10 * MS);
}

/// A controller that halves at every loss stays up, because no loss is one: the window of
/// reordering is learnt, and what was done meanwhile is taken back.
#[test]
fn reordering_does_not_stop_cubic() {
    let run = |late| {
        let link = Link {
            rate_bps: 100_000_000,
            delay_ns: 20 * MS,
            queue_ns: 40 * MS,
            late,
            late_ns: 5 * MS,
            ..Link::default()
        };
        let config = ShuttleConfig {
            controller: cc::cubic,
            controller_params: cc::Params::default(),
            ..ShuttleConfig::default()
        };
        let mut pair = Pair::new(seed(), &config, &link, 1);
        pair.open();
        pair.hosts[0].ports.post(true, 30_000_000);
        let begun = pair.now_ns;
        pair.run_until(60_000 * MS, Pair::is_complete);
        pair.now_ns - begun
    };
    let (clean_ns, late_ns) = (run(0.0), run(0.25));
    let ratio = clean_ns as f64 / late_ns as f64;
    assert!(ratio > 0.9, "{ratio} of the clean rate");
}

#[test]
fn what_one_connection_learnt_another_begins_with() {
    let link = Link { rate_bps: 200_000_000, queue_ns: 20 * MS, ..Link::default() };
    let window = |saved| {
        let controller_params = cc::Params::default();
        let config = ShuttleConfig {
            controller: cc::weave,
            controller_params,
            saved,
            ..ShuttleConfig::default()
        };
        let mut pair = Pair::new(seed(), &config, &link, 1);
        pair.open();
        pair.connection(0).controller(PathId(0)).unwrap().window_octets()
    };
    let config = ShuttleConfig { controller: cc::weave, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.open();
    pair.hosts[0].ports.post(true, 20_000_000);
    pair.run_until(10_000 * MS, Pair::is_complete);
    let saved = pair.connection(0).saved(PathId(0)).unwrap();
    assert!((150_000_000..220_000_000).contains(&saved.rate_bps), "{saved:?}");
    let cold = window(None);
    let warm = window(Some(saved));
    assert!(warm > cold, "{warm} {cold} {saved:?}");
    // On a path that is longer by half nothing is known.
    let other = cc::Saved { min_rtt_ns: saved.min_rtt_ns * 2 / 3, ..saved };
    assert_eq!(window(Some(other)), cold);
}

/// Time that 30 MB take after `messages` small ones, one every 100 ms.
fn bulk_after(messages: u32) -> u64 {
    let link =
        Link { rate_bps: 100_000_000, delay_ns: 20 * MS, queue_ns: 40 * MS, ..Link::default() };
    let config = ShuttleConfig { datagram_octets: 1472, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.open();
    for _ in 0..messages {
        pair.hosts[0].ports.post(true, 100);
        pair.run_for(100 * MS);
    }
    pair.hosts[0].ports.post(true, 30_000_000);
    let begun = pair.now_ns;
    pair.run_until(60_000 * MS, Pair::is_complete);
    pair.now_ns - begun
}

/// S-62.
#[test]
fn small_talk_does_not_slow_down_what_follows() {
    let fresh_ns = bulk_after(0);
    for messages in [3, 30, 200] {
        let later_ns = bulk_after(messages);
        assert!(later_ns < fresh_ns + 200 * MS, "{messages}: {later_ns} {fresh_ns}");
    }
}

/// A path of 0.2 ms takes datagrams of 64 kB, one of which tries that size before anything else.
#[test]
fn what_is_said_first_does_not_wait_for_a_probe() {
    let link = Link { delay_ns: MS / 10, ..Link::default() };
    let controller_params = cc::Params::default();
    let config = ShuttleConfig {
        controller: cc::weave,
        controller_params,
        datagram_octets_goal: 65_000,
        ..ShuttleConfig::default()
    };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.hosts[0].ports.post(true, 32_768);
    let begun = pair.now_ns;
    pair.run_until(1000 * MS, |pair| pair.is_open() && pair.is_complete());
    let took_ns = pair.now_ns - begun;
    assert!(took_ns < 5 * MS, "{took_ns} ns");
}

/// S-46: a path back that carries a thousandth of what the path there does.
#[test]
fn acknowledgements_do_not_fill_a_narrow_path_back() {
    const RATE_BPS: u64 = 100_000_000;
    let link = Link { rate_bps: RATE_BPS, delay_ns: 35 * MS, queue_ns: 70 * MS, ..Link::default() };
    let config = ShuttleConfig { datagram_octets: 1472, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &link, 1);
    pair.network.links[1] = Link { rate_bps: RATE_BPS / 1000, queue_ns: 5000 * MS, ..link.clone() };
    pair.open();
    pair.hosts[0].ports.post(true, 200_000_000);
    pair.run_for(5000 * MS);
    let before = pair.hosts[1].ports.ends[0].sink.payload_octets;
    pair.run_for(5000 * MS);
    let octets = pair.hosts[1].ports.ends[0].sink.payload_octets - before;
    let share = (octets * 8) as f64 / (RATE_BPS * 5) as f64;
    assert!(share > 0.9, "{share}");
}
