//! Shuttle's own connections over simulated links.

mod support;

use support::{outcome, plan};

#[test]
fn the_whole_protocol_fills_a_lossy_path() {
    let path = "70ms forward:loss=1% 50mbit queue=1bdp";
    let outcome = outcome(&plan(path, "12s", "3s", "weave", "engine = \"shuttle\""));
    let total = &outcome.total;
    assert!(total.share_of_ceiling > 0.9, "{total:?}");
    assert!(outcome.links[0].queue_mean_ns < 10_000_000, "{:?}", outcome.links);
    // 900 acknowledgements a second, whatever the rate.
    assert!(total.acks_per_data < 0.015, "{total:?}");
}

#[test]
fn a_transfer_ends() {
    let more = "engine = \"shuttle\"\nsize = \"2MB\"";
    let outcome = outcome(&plan("30ms 2% 100mbit", "6s", "0s", "weave", more));
    let flow = &outcome.flows[0];
    let completion_ns = flow.completion_ns.unwrap_or_else(|| panic!("{flow:?}"));
    assert!((200_000_000..3_000_000_000).contains(&completion_ns), "{flow:?}");
    assert!(flow.resent > 0 && flow.lost > 0, "{flow:?}");
}

#[test]
fn streams_of_a_connection_have_equal_parts() {
    let more = "engine = \"shuttle\"\nstreams = \"10\"";
    let outcome = outcome(&plan("30ms 1% 100mbit queue=1bdp", "5s", "2s", "weave", more));
    let jain = outcome.flows[0].streams_jain.unwrap();
    assert!(jain > 0.99 && outcome.total.share_of_ceiling > 0.9, "{jain} {:?}", outcome.total);
}
