//! Runs small plans.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use weft_sim::plan::SimPlan;
use weft_sim::run::{RunOutcome, simulate};

/// `flows` of `controller` over `path` for `duration`, counted after `warmup`, and what `more`
/// says about the flows.
pub fn plan(path: &str, duration: &str, warmup: &str, controller: &str, more: &str) -> SimPlan {
    let text = format!(
        "name = \"test\"\nabout = \"\"\nduration = \"{duration}\"\nwarmup = \"{warmup}\"\n\
         [[link]]\nname = \"core\"\npath = \"{path}\"\n\
         [[flow]]\ncontroller = \"{controller}\"\n{more}\n"
    );
    SimPlan::parse(&text).unwrap()
}

/// The outcome of a plan of one run.
pub fn outcome(plan: &SimPlan) -> RunOutcome {
    simulate(&plan.runs().unwrap()[0], |_| ()).unwrap()
}
