//! The same seed gives the same packets at the same times; another gives others.

mod support;

use support::{outcome, plan};
use weft_sim::batch::simulate_all;

const PATH: &str = "30ms 1% 20mbit queue=1bdp jitter=1ms:reorder duplicate=1% corrupt=0.1%";
const FLOWS: &str = "count = \"3\"\nstagger = \"200ms\"";

#[test]
fn runs_repeat_bit_for_bit() {
    for more in [FLOWS, "engine = \"shuttle\"\ncount = \"2\""] {
        let mut plan = plan(PATH, "4s", "1s", "weave", more);
        let hashes: Vec<(String, u64)> = [1, 1, 2]
            .into_iter()
            .map(|seed| {
                plan.seed = seed;
                let outcome = outcome(&plan);
                (outcome.hash, outcome.events)
            })
            .collect();
        assert_eq!(hashes[0], hashes[1]);
        assert_ne!(hashes[0].0, hashes[2].0);
        assert!(hashes[0].1 > 20_000, "{hashes:?}");
    }
}

#[test]
fn threads_change_nothing() {
    let runs: Vec<_> = ["weave", "bbr1", "cubic"]
        .map(|cc| plan(PATH, "2s", "1s", cc, FLOWS).runs().unwrap())
        .concat();
    let hashes = |jobs| -> Vec<String> {
        let outcomes = simulate_all(&runs, jobs, &|_, _| ()).unwrap();
        outcomes.into_iter().map(|outcome| outcome.hash).collect()
    };
    assert_eq!(hashes(1), hashes(3));
}
