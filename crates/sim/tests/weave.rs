//! What weave promises, over idealised endpoints.

mod support;

use support::{outcome, plan};
use weft_sim::plan::SimPlan;

const RTT_NS: u64 = 70_000_000;

#[test]
fn one_flow_fills_a_lossy_path_at_once_and_without_a_queue() {
    for (rate, loss, least) in [
        ("1gbit", "1%", 0.97),
        ("200mbit", "0%", 0.97),
        ("200mbit", "5%", 0.94),
        ("200mbit", "10%", 0.9),
    ] {
        let path = format!("70ms forward:loss={loss} {rate} queue=1bdp");
        let outcome = outcome(&plan(&path, "7s", "1s", "weave", ""));
        let total = &outcome.total;
        let case = format!("{rate} {loss}: {total:?}");
        assert!(total.share_of_ceiling > least, "{case}");
        assert!(total.t90_ns.is_some_and(|t90_ns| t90_ns <= 10 * RTT_NS), "{case}");
        assert!(total.resent_per_loss.is_none_or(|resent| resent <= 1.01), "{case}");
        assert!(outcome.links[0].queue_mean_ns < 5_000_000, "{case}");
    }
}

#[test]
fn it_starts_fast_and_loses_little_by_it() {
    let path = "70ms forward:loss=1% 3gbit queue=1bdp";
    let outcome = outcome(&plan(path, "1s", "0s", "weave", ""));
    assert!(outcome.total.t90_ns.unwrap() < 7 * RTT_NS, "{:?}", outcome.total);
    assert!(outcome.links[0].dropped_bdp < 0.05, "{:?}", outcome.links);
}

#[test]
fn flows_of_its_kind_share_and_late_ones_too() {
    for (count, stagger) in [("2", "1s"), ("2", "5s"), ("4", "1s"), ("8", "1s")] {
        let more = format!("count = \"{count}\"\nstagger = \"{stagger}\"");
        let outcome = outcome(&plan("70ms 100mbit queue=1bdp", "70s", "10s", "weave", &more));
        let case = format!("{count} {stagger}: {:?} {:?}", outcome.groups, outcome.total);
        assert!(outcome.groups[0].jain > 0.91, "{case}");
        assert!(outcome.total.share_of_ceiling > 0.95, "{case}");
    }
}

#[test]
fn delays_that_vary_in_order_are_no_queue() {
    for path in ["70ms 100mbit jitter=30ms", "150ms 50mbit jitter=30ms", "45ms 10mbit jitter=10ms"]
    {
        let outcome = outcome(&plan(path, "20s", "8s", "weave", ""));
        assert!(outcome.total.share_of_ceiling > 0.8, "{path}: {:?}", outcome.total);
    }
}

#[test]
fn cubic_lives_beside_it() {
    for (queue, least) in [("0.1bdp", 0.1), ("0.25bdp", 0.3), ("1bdp", 0.4), ("4bdp", 0.4)] {
        let text = format!(
            r#"
            name = "test"
            about = ""
            duration = "60s"
            warmup = "10s"
            [[link]]
            name = "core"
            path = "70ms 100mbit queue={queue}"
            [[flow]]
            controller = "weave"
            [[flow]]
            controller = "cubic"
            over = "tcp"
            acks = "each"
            "#
        );
        let outcome = outcome(&SimPlan::parse(&text).unwrap());
        let share = |name| outcome.groups.iter().find(|g| g.label == name).unwrap().share;
        let case = format!("{queue}: {:?}", outcome.groups);
        assert!(share("cubic") > least && share("weave") > 0.2, "{case}");
    }
}

/// Parts of the path that `count` flows of weave and as many of `other` have, in a minute.
fn part_of_weave(path: &str, count: u32, other: &str) -> f64 {
    let text = format!(
        r#"
        name = "test"
        about = ""
        duration = "60s"
        warmup = "10s"
        [[link]]
        name = "core"
        path = "{path}"
        [[flow]]
        controller = "weave"
        count = "{count}"
        [[flow]]
        controller = "{other}"
        over = "tcp"
        acks = "each"
        count = "{count}"
        "#
    );
    let outcome = outcome(&SimPlan::parse(&text).unwrap());
    outcome.groups.iter().find(|group| group.label == "weave").unwrap().share
}

#[test]
fn it_lives_beside_bbr() {
    for (path, count) in [("70ms 400mbit queue=1bdp", 1), ("70ms 400mbit queue=1bdp", 10)] {
        let part = part_of_weave(path, count, "bbr1");
        assert!(part > 0.35 && part < 0.8, "{path}, {count}: {part}");
    }
}

/// The first flights after it are smaller than the rounds before it.
#[test]
fn the_rate_after_an_outage_is_not_taken_for_an_overload() {
    for path in ["120ms 200mbit", "70ms 1gbit"] {
        let path = format!("{path} queue=1bdp outage=5s+2300ms");
        let outcome = outcome(&plan(&path, "10s", "8s", "weave", ""));
        assert!(outcome.total.share_of_ceiling > 0.96, "{path}: {:?}", outcome.total);
    }
}

#[test]
fn after_an_outage_the_rate_is_back_soon() {
    let outcome = outcome(&plan("70ms 200mbit queue=1bdp outage=3s+2s", "8s", "1s", "weave", ""));
    let curves = &outcome.curves;
    let back = curves.at_ns.iter().zip(&curves.flows[0].rate_bps);
    let back = back.filter(|(at_ns, rate)| **at_ns > 5_000_000_000 && **rate > 180_000_000);
    let back_ns = back.map(|(at_ns, _)| *at_ns).next().unwrap() - 5_000_000_000;
    assert!(back_ns < 5 * RTT_NS, "{} ms", back_ns / 1_000_000);
}
