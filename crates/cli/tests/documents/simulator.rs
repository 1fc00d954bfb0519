//! The tables of docs/simulator.md are those of the scenarios. What they say is made again by `make
//! soak-simulator`; here their columns and rows are held, and one of them whole.

use std::fs;
use std::process::Command;

use weft_chart::MarkedPage;
use weft_sim::plan::SimPlan;
use weft_sim::report::TableFrame;
use weft_sim::scenarios;
use weft_testkit::{Dir, text, without_settings};

use super::root;

const PAGE: &str = "docs/simulator.md";
/// Whole connections under weave, of a second in a release build.
const QUICK: &str = "path-death";

fn page() -> MarkedPage {
    MarkedPage::read(&root().join(PAGE)).unwrap()
}

/// What the tables between the marks of a page say before their first number.
fn frames(content: &str) -> Vec<TableFrame> {
    let parts: Vec<&str> = content.split("\n\n").map(str::trim).collect();
    let tables = parts.chunks(2).map(|part| {
        let (title, table) = (part[0], part.get(1).copied().unwrap_or_default());
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
        };
        let rows = table.lines().skip(2).map(|line| cells(line).swap_remove(0));
        TableFrame {
            title: title.to_owned(),
            head: cells(table.lines().next().unwrap_or_default()),
            rows: rows.collect(),
        }
    });
    tables.collect()
}

#[test]
fn every_table_has_the_columns_and_rows_of_its_scenario() {
    let page = page();
    let names = page.names();
    assert!(names.contains(&QUICK), "{names:?}");
    for name in names {
        let plan = scenarios::find(name).unwrap_or_else(|| panic!("there is no scenario {name}"));
        let plan = SimPlan::parse(plan).unwrap();
        let runs = plan.runs().unwrap();
        let own: Vec<TableFrame> = plan.page_tables().map(|table| table.frame(&runs)).collect();
        assert_eq!(
            frames(page.content(name).unwrap()),
            own,
            "{PAGE}: `weft sim run {name} --into {PAGE}` makes its tables again"
        );
    }
}

#[test]
fn a_scenario_gives_the_table_that_the_page_has() {
    let dir = Dir::new("simulator");
    let copy = dir.path("page.md");
    let empty = format!("<!-- {QUICK} -->\n<!-- end of {QUICK} -->\n");
    fs::write(&copy, empty).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    without_settings(&mut command);
    let output = command.args(["sim", "run", QUICK, "--into"]).arg(&copy).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let made = MarkedPage::read(&copy).unwrap();
    assert_eq!(made.content(QUICK).unwrap(), page().content(QUICK).unwrap());
}
