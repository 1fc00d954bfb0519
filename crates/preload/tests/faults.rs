//! Faults on purpose, as a program sees them.

mod common;

use common::preloaded;
use weft_testkit::stderr;

/// What becomes of twenty messages under `plan`, line by line.
fn outcome_with(plan: &str, rnr_retry: &str) -> Vec<String> {
    let dir = common::dir(&format!("faults-{:016x}", hash(plan) ^ hash(rnr_retry)));
    let program = dir.build("faults.c", "faults", &["-libverbs"]);
    let out = preloaded(&program).arg(rnr_retry).env("WEFT_FAULT", plan).output();
    let out = out.expect("the program starts");
    assert!(out.status.success(), "{plan}: {}\n{}", out.status, stderr(&out));
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
}

fn outcome(plan: &str) -> Vec<String> {
    outcome_with(plan, "7")
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

const WELL: [&str; 2] = ["0x20", "alive"];

#[test]
fn without_a_fault_all_arrives() {
    assert_eq!(outcome("seed=1"), WELL);
    assert_eq!(outcome("no such fault"), WELL);
}

#[test]
fn a_request_fails_after_as_many_as_the_plan_says() {
    assert_eq!(outcome("qp-error:after=5,only=1"), ["0x5", "12x1", "5x14", "failed"]);
    let refused = outcome("qp-error:after=19,status=rem-access,only=1");
    assert_eq!(refused, ["0x19", "10x1", "failed"]);
    assert_eq!(outcome("qp-error:only=2"), WELL);
}

#[test]
fn a_queue_pair_fails_when_its_time_has_come() {
    let lines = outcome("qp-error:at=0s,only=1");
    assert_eq!(lines[..2], ["5x20", "failed"], "{lines:?}");
}

#[test]
fn a_fatal_error_is_an_event_too() {
    let fatal = outcome("qp-error:after=3,status=fatal,only=1");
    assert_eq!(
        fatal,
        ["0x3", "19x1", "5x16", "failed", "event: local work queue catastrophic error"]
    );
}

#[test]
fn chance_repeats_itself_with_its_seed() {
    let run = |seed: u32| outcome(&format!("qp-error=10%:only=1; seed={seed}"));
    let first = run(11);
    assert_eq!(first, run(11));
    assert!((12..40).any(|seed| run(seed) != first), "{first:?}");
}

#[test]
fn a_receiver_that_is_not_ready_is_tried_as_often_as_the_program_said() {
    assert_eq!(outcome_with("rnr:3,after=4,only=1", "7"), WELL);
    assert_eq!(outcome_with("rnr:3,after=4,only=1", "3"), WELL);
    let tried = outcome_with("rnr:3,after=4,only=1", "2");
    assert_eq!(tried, ["0x4", "13x1", "5x15", "failed"]);
    assert_eq!(outcome_with("rnr:1,only=1", "0")[0], "13x1");
}

#[test]
fn a_completion_queue_overflows_after_as_many_as_the_plan_says() {
    let lines = outcome("cq-overflow:after=7,only=1");
    let event = "event: local work queue catastrophic error";
    assert_eq!(lines, ["0x7", "poll_cq: -1", "failed", "event: CQ error", event]);
}

#[test]
fn calls_fail_with_the_errno_of_the_plan() {
    assert_eq!(outcome("fail=reg_mr"), ["reg_mr: 12"]);
    assert_eq!(outcome("fail=create_qp:after=1,errno=EAGAIN"), ["create_qp: 11"]);
    assert_eq!(outcome("fail=create_cq:errno=EINVAL"), ["create_cq: 22"]);
    assert_eq!(outcome("fail=modify_qp:errno=EIO"), ["modify_qp: 5"]);
    assert_eq!(outcome("fail=post_recv:after=3"), ["post_recv: 12"]);
    let sends = outcome("fail=post_send:after=3,times=2");
    assert_eq!(sends, ["post_send 3: 12", "post_send 4: 12", "0x18", "alive"]);
}

#[test]
fn what_is_lost_damaged_or_late_on_the_wire_arrives() {
    for plan in ["drop=20%; seed=5", "corrupt=20%; seed=5", "delay=5ms:jitter=2ms; seed=5"] {
        assert_eq!(outcome(plan), WELL, "{plan}");
    }
}

#[test]
fn a_peer_that_is_gone_ends_what_waits_for_it() {
    let lines = outcome("peer-gone:only=1");
    assert_eq!(lines[..2], ["12x1", "5x19"]);
}

/// The outage begins late enough to see the port before, and ends late enough to see it down.
#[test]
fn a_port_goes_down_and_comes_back() {
    let dir = common::dir("port");
    let program = dir.build("port.c", "port", &["-libverbs"]);
    let plan = "port-down=4s:at=3s";
    let out = preloaded(&program).env("WEFT_FAULT", plan).output().expect("it starts");
    assert!(out.status.success(), "{}\n{}", out.status, stderr(&out));
    let text = String::from_utf8_lossy(&out.stdout);
    let expected = "at first: active, 4: ACTIVE\n\
                    port error of port 1\n\
                    then: down, 1: DOWN\n\
                    port active of port 1\n\
                    at last: active, 4: ACTIVE\n";
    assert_eq!(text, expected);
}
