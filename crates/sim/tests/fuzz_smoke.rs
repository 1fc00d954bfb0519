//! The fuzz target of plans, over mutated scenarios.

#[path = "../../../fuzz/src/sim.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use weft_sim::scenarios::SCENARIOS;

const SMALL: &str = r#"
name = "t"
about = ""
duration = "{d}"
warmup = "1s"
[vary]
d = ["1s", "2s"]
[given."1s"]
back = "1mbit"
[given."2s"]
back = "2mbit"
[[figure]]
of = { d = "1s" }
source = "s"
value = 1
[[table]]
cells = ["payload:weave"]
rows = ["d"]
[[target]]
name = "t"
metric = "share"
at_least = 0.5
[[link]]
name = "a"
path = "70ms 1% 1gbit queue=2bdp back:rate={back}"
[[flow]]
controller = "weave"
via = ["a"]
count = "2"
stagger = "1ms"
size = "1MB"
pulse = "1s/3s"
saved = "1gbit"
"#;

#[test]
fn sim_plan() {
    let scenarios = SCENARIOS.iter().map(|(_, text)| text.as_bytes());
    let seeds: Vec<Vec<u8>> = scenarios.chain([SMALL.as_bytes()]).map(<[u8]>::to_vec).collect();
    mutate::smoke("sim_plan", &seeds, 4000, bodies::plan);
}
