//! The tables of `docs/simulator.md` are what the scenarios give today.

use std::io::Write;
use std::num::NonZero;
use std::path::Path;
use std::thread::available_parallelism;

use weft_chart::MarkedPage;
use weft_sim::batch::simulate_all;
use weft_sim::plan::SimPlan;
use weft_sim::scenarios;

/// What the page and a scenario say differently, line by line.
fn differences(page: &str, made: &str) -> String {
    let [page, made]: [Vec<&str>; 2] = [page, made].map(|text| text.lines().collect());
    let longest = page.len().max(made.len());
    let line = |lines: &[&str], number: usize| lines.get(number).copied().unwrap_or("").to_owned();
    let both = (0..longest).map(|number| (line(&page, number), line(&made, number)));
    both.filter(|(old, new)| old != new)
        .map(|(old, new)| format!("  page: {old}\n  now:  {new}\n"))
        .collect()
}

/// `make soak-simulator`; with `SCENARIOS` only those.
#[test]
#[ignore = "minutes in a release build"]
fn the_page_has_what_the_scenarios_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulator.md");
    let page = MarkedPage::read(&path).unwrap();
    let only = std::env::var("SCENARIOS").unwrap_or_default();
    let only: Vec<&str> = only.split_whitespace().collect();
    let has_place: Vec<&str> = page.names();
    assert!(only.iter().all(|name| has_place.contains(name)), "the page has {has_place:?}");
    let jobs = available_parallelism().map_or(1, NonZero::get);
    let mut different = Vec::new();
    for name in has_place.into_iter().filter(|name| only.is_empty() || only.contains(name)) {
        let plan = SimPlan::parse(scenarios::find(name).expect(name)).unwrap();
        let outcomes = simulate_all(&plan.runs().unwrap(), jobs, &|_, _| ()).unwrap();
        let made = plan.page(&outcomes).unwrap_or_default();
        let lines = differences(page.content(name).unwrap(), made.trim());
        let verdict = if lines.is_empty() { "as in the page" } else { "differs" };
        write!(std::io::stderr(), "{name}: {verdict}\n{lines}").unwrap();
        if !lines.is_empty() {
            different.push(name);
        }
    }
    assert!(different.is_empty(), "`weft sim run NAME --into docs/simulator.md`: {different:?}");
}
