//! Queue pairs for unreliable datagrams over simulated links.

mod support;

use support::{outcome, plan};
use weft_sim::run::RunOutcome;

/// What comes of 50 Mbit/s of datagrams for five seconds, sent for four, so that all arrive.
fn datagrams(path: &str, protection: &str) -> RunOutcome {
    let more = format!("engine = \"datagrams\"\nprotection = \"{protection}\"\nstop = \"4s\"");
    outcome(&plan(path, "5s", "0s", "fixed:50mbit", &more))
}

#[test]
fn what_the_path_loses_is_lost_and_nothing_else() {
    let outcome = datagrams("70ms forward:loss=2% 100mbit queue=1bdp", "none");
    let (flow, link) = (&outcome.flows[0], &outcome.links[0].counters);
    // 4 s at 50 Mbit/s in packets of 1500 bytes.
    assert_eq!((flow.sent, link.offered), (16_667, flow.sent));
    assert_eq!(flow.arrived, flow.sent - link.lost);
    assert!(link.lost > 250 && flow.sent - flow.arrived - flow.lost < 5, "{flow:?}");
    assert_eq!((flow.twice, flow.late, flow.resent), (0, 0, 0));
    assert!((outcome.flows[0].payload_bps as f64) < 50e6 * 0.98, "{flow:?}");
}

#[test]
fn sealed_datagrams_are_delivered_once_and_those_in_clear_as_often_as_they_come() {
    let path = "70ms 100mbit queue=1bdp duplicate=5%";
    let [clear, sealed] = ["none", "sealed"].map(|protection| datagrams(path, protection));
    let (clear, sealed) = (&clear.flows[0], &sealed.flows[0]);
    assert!(clear.twice > 500, "{clear:?}");
    assert_eq!((sealed.twice, sealed.arrived), (0, sealed.sent), "{sealed:?}");
}

#[test]
fn what_the_path_delays_is_delivered_late_and_once() {
    for protection in ["none", "sealed"] {
        let outcome = datagrams("70ms 100mbit queue=1bdp reorder=10%:3ms", protection);
        let flow = &outcome.flows[0];
        assert!(flow.late > 1000 && flow.twice == 0, "{flow:?}");
        assert_eq!((flow.arrived, flow.lost), (flow.sent, 0), "{flow:?}");
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    let path = "70ms 1% 100mbit queue=1bdp reorder=10%:3ms duplicate=1%";
    for protection in ["none", "sealed"] {
        assert_eq!(datagrams(path, protection).hash, datagrams(path, protection).hash);
    }
}
