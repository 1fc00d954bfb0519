//! `weft sim run` simulates a plan, and writes what docs/simulator.md says.

use std::fs;

use weft_testkit::Dir;

use crate::common::{text, weft};

const PLAN: &str = r#"
name = "mine"
about = "One flow, two losses"
duration = "2s"
warmup = "500ms"

[vary]
loss = ["0%", "1%"]

[[link]]
name = "core"
path = "20ms forward:loss={loss} 10mbit queue=1bdp"

[[flow]]
controller = "weave"

[[table]]
title = "Part of the ceiling"
cells = ["share"]
rows = ["loss"]
"#;

#[test]
fn a_plan_gives_the_same_numbers_by_one_seed() {
    let dir = Dir::new("simulated");
    dir.write("mine.toml", PLAN);
    let run = |line: &str| {
        let output = weft().args(line.split(' ')).current_dir(dir.root()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let first = run("sim run mine.toml --seed 7 --jobs 2 --json loss.json --svg pictures");
    assert!(first.contains("(seed 7)") && first.contains("mine 1%"), "{first}");
    assert_eq!(run("sim run mine.toml --seed 7 --jobs 1"), first);
    assert_ne!(run("sim run mine.toml --seed 8"), first);
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path("loss.json")).unwrap()).unwrap();
    assert_eq!(json["outcomes"].as_array().unwrap().len(), 2);
    let pictures = fs::read_dir(dir.path("pictures")).unwrap().count();
    assert!(pictures >= 2, "{pictures} are too few for two runs");
}

/// What stands at the end of [`PLAN`] for a target that is reached by far, or missed by far.
fn target(most: f64) -> String {
    format!("[[target]]\nname = \"low\"\nmetric = \"payload\"\nat_most = {most:.1}\n")
}

#[test]
fn a_missed_target_is_the_status_once_all_is_written() {
    let dir = Dir::new("missed");
    for (most, word, status) in [(1e9, "reached", 0), (1.0, "missed", 1)] {
        dir.write("mine.toml", format!("{PLAN}\n{}", target(most)));
        let output = weft()
            .args(["sim", "run", "mine.toml", "--json", "out.json"])
            .current_dir(dir.root())
            .output()
            .unwrap();
        let said = text(&output.stdout);
        assert!(said.contains(&format!(": {word}\n")), "{said}");
        assert_eq!(output.status.code(), Some(status), "{said}{}", text(&output.stderr));
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.path("out.json")).unwrap()).unwrap();
        assert_eq!(json["targets"][0]["is_reached"], status == 0);
    }
}
