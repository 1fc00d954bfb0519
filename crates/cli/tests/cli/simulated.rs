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

#[test]
fn tables_go_into_their_place_in_a_page() {
    let dir = Dir::new("into-page");
    dir.write("mine.toml", PLAN);
    let into = |page: &str, plan: &str| {
        dir.write("page.md", page);
        dir.write("mine.toml", plan);
        let line = "sim run mine.toml --into page.md".split(' ');
        let output = weft().args(line).current_dir(dir.root()).output().unwrap();
        let after = fs::read_to_string(dir.path("page.md")).unwrap();
        (output.status.code(), text(&output.stderr), after)
    };
    let page = "A\n<!-- mine -->\nold\n<!-- end of mine -->\nB\n";
    let (status, said, after) = into(page, PLAN);
    assert_eq!(status, Some(0), "{said}");
    let head = "A\n<!-- mine -->\n\nPart of the ceiling:\n\n| loss | share |\n";
    assert!(
        after.starts_with(head) && after.ends_with("|\n\n<!-- end of mine -->\nB\n"),
        "{after}"
    );
    // A missed target is the status, and what the tables say is true none the less.
    let missed = format!("{PLAN}\n{}", target(1.0));
    assert_eq!(into(page, &missed), (Some(1), String::new(), after));

    for (page, plan, why) in [
        ("no place\n", PLAN.to_owned(), "page.md: the page has no lines \"<!-- mine -->\""),
        (page, format!("{PLAN}in_page = false\n"), "mine.toml: no [[table]] is for a page"),
    ] {
        let (status, said, after) = into(page, &plan);
        assert!(status == Some(125) && said.contains(why), "{said}");
        assert_eq!(after, page, "it is left as it was");
    }
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
