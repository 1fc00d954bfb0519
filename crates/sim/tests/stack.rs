//! Shuttle's own connections over simulated links.

mod support;

use support::{outcome, plan};
use weft_sim::plan::SimPlan;

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

/// Two paths, a near and narrow one and a far and wide one; what `more` says of the flow.
fn two_paths(more: &str) -> SimPlan {
    let text = format!(
        "name = \"two\"\nabout = \"\"\nduration = \"6s\"\nwarmup = \"3s\"\n\
         [[link]]\nname = \"near\"\npath = \"10ms forward:loss=0.5% 20mbit queue=1bdp\"\n\
         [[link]]\nname = \"far\"\npath = \"120ms forward:loss=0.5% 60mbit queue=1bdp\"\n\
         [[flow]]\ncontroller = \"weave\"\nengine = \"shuttle\"\nspread = true\n{more}\n"
    );
    SimPlan::parse(&text).unwrap()
}

#[test]
fn unequal_paths_add_up() {
    let outcome = outcome(&two_paths(""));
    assert!(outcome.total.share_of_ceiling > 0.9, "{:?}", outcome.total);
    assert!(outcome.total.resent_per_loss.is_some_and(|resent| resent < 1.05));
}

#[test]
fn unequal_paths_end_together() {
    let completion_ns = |size: &str| {
        let outcome = outcome(&two_paths(&format!("size = \"{size}\"")));
        outcome.flows[0].completion_ns.unwrap()
    };
    // What the near path carries in 80 ms does not wait for the far one.
    let small_ns = completion_ns("200kB");
    assert!(small_ns < 200_000_000, "{small_ns}");
    // 20 MB take 2.1 s at both rates; start and end may add five round trips of the far path.
    let large_ns = completion_ns("20MB");
    assert!(large_ns < 2_700_000_000, "{large_ns}");
}
