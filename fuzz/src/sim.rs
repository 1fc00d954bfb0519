//! Any octets as a plan of the simulator: no panic, and no more of anything than a plan may have.

use weft_sim::plan::SimPlan;

/// `data` as the text of a plan.
pub fn plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A word with a slash may be a file, which is not what is tested here; below the directory of
    // the test there is none.
    if ["\"/", " /", "}/", "./", ".toml"].iter().any(|part| text.contains(part)) {
        return;
    }
    let Ok(runs) = SimPlan::parse(text).and_then(|plan| plan.runs()) else { return };
    assert!((1..=10_000).contains(&runs.len()));
    for run in runs {
        assert!(run.warmup_ns <= run.duration_ns && !run.links.is_empty());
        for flow in &run.flows {
            assert!(flow.via.iter().all(|link| *link < run.links.len()));
            assert!(flow.shape.payload_octets > 0 && flow.shape.size_packets() > 0);
            assert!(flow.shape.sends_from_ns(0) >= flow.shape.start_ns);
        }
    }
}
