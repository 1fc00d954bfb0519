//! The plans that come with the program.

/// Their names and texts, in the order in which they are listed.
pub const SCENARIOS: [(&str, &str); 10] = [
    ("loss", include_str!("../scenarios/loss.toml")),
    ("long-fat", include_str!("../scenarios/long-fat.toml")),
    ("bbr1-kernel", include_str!("../scenarios/bbr1-kernel.toml")),
    ("cubic-theory", include_str!("../scenarios/cubic-theory.toml")),
    ("fairness", include_str!("../scenarios/fairness.toml")),
    ("coexistence", include_str!("../scenarios/coexistence.toml")),
    ("reordering", include_str!("../scenarios/reordering.toml")),
    ("outage", include_str!("../scenarios/outage.toml")),
    ("whole-stack", include_str!("../scenarios/whole-stack.toml")),
    ("parking-lot", include_str!("../scenarios/parking-lot.toml")),
];

/// The text of a plan.
pub fn find(name: &str) -> Option<&'static str> {
    SCENARIOS.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn every_plan_is_sound_and_has_its_own_name() {
        for (name, text) in SCENARIOS {
            let plan = Plan::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(plan.name, name);
            assert!(!plan.runs().unwrap_or_else(|error| panic!("{name}: {error}")).is_empty());
        }
    }
}
