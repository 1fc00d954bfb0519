//! Paths that misbehave, with Shuttle's own connections.

mod support;

use support::{outcome, plan};
use weft_sim::report::Metric;
use weft_sim::run::RunOutcome;

const WHOLE: &str = "engine = \"shuttle\"";

fn metric(name: &str, outcome: &RunOutcome) -> f64 {
    let value = Metric::parse(name).unwrap().of(outcome);
    value.unwrap_or_else(|| panic!("no {name}: {:?}", outcome.total))
}

#[test]
fn a_fixed_rate_is_kept_however_low() {
    for engine in ["reference", "shuttle"] {
        let more = format!("engine = \"{engine}\"");
        let outcome = outcome(&plan("10ms 10mbit", "60s", "10s", "fixed:20kbit", &more));
        let payload = metric("payload", &outcome);
        assert!((15e3..20e3).contains(&payload), "{engine}: {payload}");
    }
}

#[test]
fn what_comes_late_is_not_lost() {
    let path = "60ms forward:loss=1% 50mbit queue=1bdp";
    let clean = outcome(&plan(path, "8s", "2s", "weave", WHOLE));
    let path = format!("{path} forward:reorder=25%:5ms");
    let late = outcome(&plan(&path, "8s", "2s", "weave", WHOLE));
    assert!(metric("payload", &late) > 0.95 * metric("payload", &clean), "{:?}", late.total);
    assert!(metric("spurious", &late) < 0.002, "{:?}", late.flows);
    assert!(metric("resent", &late) < 1.05, "{:?}", late.flows);
}

#[test]
fn a_hundredth_of_the_rate_is_enough_for_acknowledgements() {
    let path = "70ms forward:rate=100mbit back:rate=1mbit back:queue=64KiB";
    let outcome = outcome(&plan(path, "6s", "2s", "weave", WHOLE));
    assert!(metric("share", &outcome) > 0.9, "{:?}", outcome.total);
    assert!(metric("acks", &outcome) < 0.01, "{:?}", outcome.total);
}

#[test]
fn duplicates_are_told_from_repeats() {
    let path = "40ms 50mbit queue=1bdp duplicate=10% corrupt=1%";
    let outcome = outcome(&plan(path, "5s", "1s", "weave", WHOLE));
    assert!(metric("share", &outcome) > 0.9, "{:?}", outcome.total);
    assert!(metric("resent", &outcome) < 1.02, "{:?}", outcome.flows);
}

#[test]
fn marks_keep_a_queue_short() {
    for more in [WHOLE, "engine = \"reference\""] {
        let path = "40ms 50mbit queue=1bdp forward:ecn=2ms";
        let queue = |ecn| {
            let more = format!("{more}\necn = {ecn}");
            outcome(&plan(path, "10s", "3s", "cubic", &more))
        };
        let (marked, deaf) = (queue(true), queue(false));
        assert!(marked.links[0].counters.marked > 0, "{:?}", marked.links);
        assert_eq!(deaf.links[0].counters.marked, 0);
        assert!(metric("queue", &marked) < 0.3 * metric("queue", &deaf), "{more}");
    }
}

#[test]
fn what_is_corrupt_or_marked_on_one_link_stays_so_on_the_next() {
    let text = r#"
        name = "test"
        about = ""
        duration = "3s"
        [[link]]
        name = "first"
        path = "10ms 5mbit queue=4bdp forward:corrupt=5% forward:ecn=1ms"
        [[link]]
        name = "second"
        path = "10ms 10mbit"
        [[flow]]
        controller = "fixed:4mbit"
        ecn = true
        [[flow]]
        controller = "cubic"
        ecn = true
    "#;
    let outcome = outcome(&weft_sim::plan::SimPlan::parse(text).unwrap());
    let lost: u64 = outcome.flows.iter().map(|flow| flow.lost).sum();
    let [first, second] = [&outcome.links[0].counters, &outcome.links[1].counters];
    assert!(first.corrupted > 20 && lost >= first.corrupted * 9 / 10, "{lost} {first:?}");
    // A few are still under way.
    assert!(second.offered + first.corrupted <= first.delivered + 20, "{first:?} {second:?}");
    assert!(first.marked > 0 && metric("queue", &outcome) < 50e6, "{first:?}");
}

#[test]
fn cross_traffic_comes_and_goes() {
    let more = "label = \"own\"\n[[flow]]\ncontroller = \"fixed:20mbit\"\nlabel = \"cross\"\n\
                start = \"1s\"\npulse = \"1s/2s\"";
    let outcome = outcome(&plan("20ms 50mbit queue=1bdp", "9s", "1s", "weave", more));
    let cross = metric("payload:cross", &outcome);
    assert!((8e6..10.5e6).contains(&cross), "half of 20 Mbit/s: {cross}");
    assert!(metric("payload:own", &outcome) > 20e6, "{:?}", outcome.groups);
}

#[test]
fn what_an_earlier_connection_learnt_shortens_the_start() {
    let begin = |saved: &str| {
        let more = format!("saved = \"{saved}\"");
        metric("t50", &outcome(&plan("70ms 200mbit queue=1bdp", "3s", "0s", "weave", &more)))
    };
    let (cold, resumed) = (begin("none"), begin("200mbit"));
    assert!(resumed < cold - 50e6 && resumed < 2.5 * 70e6, "{resumed} and {cold}");
}
