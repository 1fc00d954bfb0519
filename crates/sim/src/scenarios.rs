//! The plans that come with the program.

/// Their names and texts, in the order in which they are listed.
pub const SCENARIOS: [(&str, &str); 41] = [
    ("loss", include_str!("../scenarios/loss.toml")),
    ("long-fat", include_str!("../scenarios/long-fat.toml")),
    ("high-loss", include_str!("../scenarios/high-loss.toml")),
    ("400g", include_str!("../scenarios/400g.toml")),
    ("draft-tcp", include_str!("../scenarios/draft-tcp.toml")),
    ("draft-quic", include_str!("../scenarios/draft-quic.toml")),
    ("draft-whole", include_str!("../scenarios/draft-whole.toml")),
    ("multipath", include_str!("../scenarios/multipath.toml")),
    ("path-death", include_str!("../scenarios/path-death.toml")),
    ("streams", include_str!("../scenarios/streams.toml")),
    ("bbr1-kernel", include_str!("../scenarios/bbr1-kernel.toml")),
    ("cubic-theory", include_str!("../scenarios/cubic-theory.toml")),
    ("whole-stack", include_str!("../scenarios/whole-stack.toml")),
    ("start", include_str!("../scenarios/start.toml")),
    ("transfers", include_str!("../scenarios/transfers.toml")),
    ("fairness", include_str!("../scenarios/fairness.toml")),
    ("fairness-whole", include_str!("../scenarios/fairness-whole.toml")),
    ("unequal", include_str!("../scenarios/unequal.toml")),
    ("holdout", include_str!("../scenarios/holdout.toml")),
    ("holdout-share", include_str!("../scenarios/holdout-share.toml")),
    ("coexistence", include_str!("../scenarios/coexistence.toml")),
    ("harm", include_str!("../scenarios/harm.toml")),
    ("parking-lot", include_str!("../scenarios/parking-lot.toml")),
    ("parallel", include_str!("../scenarios/parallel.toml")),
    ("crowd", include_str!("../scenarios/crowd.toml")),
    ("on-off", include_str!("../scenarios/on-off.toml")),
    ("reordering", include_str!("../scenarios/reordering.toml")),
    ("bursts", include_str!("../scenarios/bursts.toml")),
    ("duplicates", include_str!("../scenarios/duplicates.toml")),
    ("policer", include_str!("../scenarios/policer.toml")),
    ("ecn", include_str!("../scenarios/ecn.toml")),
    ("outage", include_str!("../scenarios/outage.toml")),
    ("jitter", include_str!("../scenarios/jitter.toml")),
    ("rtt-step", include_str!("../scenarios/rtt-step.toml")),
    ("rate-step", include_str!("../scenarios/rate-step.toml")),
    ("satellite", include_str!("../scenarios/satellite.toml")),
    ("thin-back", include_str!("../scenarios/thin-back.toml")),
    ("real-paths", include_str!("../scenarios/real-paths.toml")),
    ("matrix", include_str!("../scenarios/matrix.toml")),
    ("matrix-fast", include_str!("../scenarios/matrix-fast.toml")),
    ("datagrams", include_str!("../scenarios/datagrams.toml")),
];

/// The text of a plan.
pub fn find(name: &str) -> Option<&'static str> {
    SCENARIOS.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SimPlan;

    #[test]
    fn every_plan_is_sound_and_has_its_own_name() {
        for (name, text) in SCENARIOS {
            let plan = SimPlan::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(plan.name, name);
            assert!(!plan.runs().unwrap_or_else(|error| panic!("{name}: {error}")).is_empty());
        }
    }
}
