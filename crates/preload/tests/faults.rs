//! Faults on purpose, as a program sees them.

mod common;

use common::preloaded;
use weft_testkit::{stderr, succeed};

/// What becomes of twenty messages under `plan`, line by line, and the events, of which there are
/// so many at least.
fn outcome_with(plan: &str, rnr_retry: &str, events: u32) -> Vec<String> {
    outcome_of(plan, rnr_retry, &[&events.to_string()])
}

fn outcome_of(plan: &str, rnr_retry: &str, further: &[&str]) -> Vec<String> {
    let dir = common::dir(&format!("faults-{:016x}", hash(plan) ^ hash(rnr_retry)));
    let program = dir.build("faults.c", "faults", &["-libverbs"]);
    let out = preloaded(&program).arg(rnr_retry).args(further).env("WEFT_FAULT", plan).output();
    let out = out.expect("the program starts");
    assert!(out.status.success(), "{plan}: {}\n{}", out.status, stderr(&out));
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
}

fn outcome(plan: &str) -> Vec<String> {
    outcome_with(plan, "7", 0)
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
    let lines = outcome_of("qp-error:at=0s,only=1", "7", &["1", "failed"]);
    assert_eq!(lines, ["5x20", "failed", "event: local work queue catastrophic error"]);
}

#[test]
fn a_fatal_error_is_an_event_too() {
    let fatal = outcome_with("qp-error:after=3,status=fatal,only=1", "7", 1);
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
    assert_eq!(outcome_with("rnr:3,after=4,only=1", "7", 0), WELL);
    assert_eq!(outcome_with("rnr:3,after=4,only=1", "3", 0), WELL);
    let tried = outcome_with("rnr:3,after=4,only=1", "2", 0);
    assert_eq!(tried, ["0x4", "13x1", "5x15", "failed"]);
    assert_eq!(outcome_with("rnr:1,only=1", "0", 0)[0], "13x1");
}

#[test]
fn a_completion_queue_overflows_after_as_many_as_the_plan_says() {
    let lines = outcome_with("cq-overflow:after=7,only=1", "7", 2);
    let event = "event: local work queue catastrophic error";
    assert_eq!(lines, ["0x7", "poll_cq: -1", "failed", "event: CQ error", event]);
}

#[test]
fn a_completion_queue_that_an_adapter_overruns_is_silent() {
    let lines = outcome_with("cq-overrun:after=7,only=1", "7", 2);
    let fatal = "event: local work queue catastrophic error";
    assert_eq!(lines, ["0x7", "no more", "failed", "event: CQ error", fatal]);
}

#[test]
fn the_nth_object_of_a_kind_cannot_be_made() {
    assert_eq!(outcome("alloc-fail=pd"), ["alloc_pd: 12"]);
    assert_eq!(outcome("alloc-fail=mr:nth=2"), ["reg_mr: 12"]);
    assert_eq!(outcome("alloc-fail=qp:nth=2"), ["create_qp: 12"]);
    assert_eq!(outcome("alloc-fail=any:nth=5"), ["create_cq: 12"]);
    assert_eq!(outcome("alloc-fail=srq"), WELL);
}

#[test]
fn one_of_many_is_chosen_by_device_or_process() {
    let failed = ["12x1", "5x19", "failed"];
    for on in ["dev=weft0", "process=faul*", "only=1,dev=weft0,process=faults"] {
        assert_eq!(outcome(&format!("qp-error:{on}")), failed, "{on}");
    }
    for on in ["dev=weft_iw0", "process=other", "rank=0", "only=3", "qpn=1"] {
        assert_eq!(outcome(&format!("qp-error:{on}")), WELL, "{on}");
    }
}

#[test]
fn a_rank_is_that_of_the_job() {
    let dir = common::dir("faults-rank");
    let program = dir.build("faults.c", "faults", &["-libverbs"]);
    for (variable, first) in [("OMPI_COMM_WORLD_RANK", "12x1"), ("SLURM_PROCID", "12x1")] {
        let mut command = preloaded(&program);
        command.env("WEFT_FAULT", "qp-error:rank=3").env(variable, "3");
        let out = command.output().expect("it starts");
        assert!(String::from_utf8_lossy(&out.stdout).starts_with(first), "{variable}");
    }
}

/// Sends and receives have a region each; five of each were posted before.
#[test]
fn a_region_becomes_invalid_here_and_for_the_peer() {
    let local = outcome("mr-invalid:after=25,only=1");
    let failed = local.iter().position(|line| line.starts_with("4x1"));
    assert!(failed.is_some_and(|place| place <= 1), "{local:?}");
    let remote = outcome("mr-invalid:after=21,only=2");
    assert!(remote.iter().any(|line| line == "11x1"), "{remote:?}");
    assert_eq!(outcome("mr-invalid:only=3"), WELL);
}

/// What `program` says under `plan`.
fn said(name: &str, plan: &str, arguments: &[&str]) -> String {
    let dir = common::dir(&format!("{name}-{:016x}", hash(plan)));
    let program = dir.build(&format!("{name}.c"), name, &["-libverbs"]);
    let out = preloaded(&program).args(arguments).env("WEFT_FAULT", plan).output();
    let out = out.expect("it starts");
    assert!(out.status.success(), "{plan}: {}\n{}", out.status, stderr(&out));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn acknowledgements_are_late_and_what_arrives_is_not() {
    assert_eq!(said("arrivals", "seed=1", &[]), "0 wrong, 20 complete\n");
    assert_eq!(said("arrivals", "slow-ack=3600s:only=1", &[]), "0 wrong, 0 complete\n");
    assert_eq!(said("arrivals", "slow-ack=3600s:only=2", &[]), "0 wrong, 20 complete\n");
    assert_eq!(said("arrivals", "slow-ack=3600s:until=1ns", &[]), "0 wrong, 20 complete\n");
    assert_eq!(outcome("slow-ack=5ms:jitter=5ms"), WELL);
    // A queue that drains says so when the last of them has come.
    let dir = common::dir("slow-states");
    let program = dir.build("semantics/states.c", "states", &["-libverbs"]);
    for device in ["weft0", "weft_iw0"] {
        succeed(preloaded(&program).arg(device).env("WEFT_FAULT", "slow-ack=5ms"));
    }
}

#[test]
fn payload_is_wrong_and_no_crc_says_so() {
    for arguments in [&[][..], &["write"]] {
        let all = said("arrivals", "corrupt=100%:crc=good", arguments);
        assert_eq!(all, "20 wrong, 20 complete\n", "{arguments:?}");
    }
    let some = said("arrivals", "corrupt=30%:crc=good; seed=4", &[]);
    assert_eq!(some, said("arrivals", "corrupt=30%:crc=good; seed=4 ", &[]));
    assert!(!some.starts_with("0 wrong") && !some.starts_with("20 wrong"), "{some}");
}

#[test]
fn a_write_to_an_invalid_region_is_refused() {
    let refused = said("arrivals", "mr-invalid:only=2", &["write"]);
    assert_eq!(refused, "the send: remote access error\n");
}

#[test]
fn a_device_that_is_reset_is_opened_again() {
    let text = said("reset", "device-fatal=3s:at=2s,dev=weft0", &[]);
    let expected = "local catastrophic error\n\
                    the receive: Work Request Flushed Error\n\
                    query_port: Input/output error\n\
                    modify_qp: Input/output error\n\
                    alloc_pd: Input/output error\n\
                    create_cq: Input/output error\n\
                    the device: not there\n\
                    again: PORT_ACTIVE\n";
    assert_eq!(text.replace("active", "PORT_ACTIVE"), expected);
}

/// Each change comes late enough to see the device before.
#[test]
fn tables_of_a_port_change_with_one_event_for_each_row() {
    let lines = |plan: &str, events: usize| -> Vec<String> {
        said("changes", plan, &[&events.to_string()]).lines().map(str::to_owned).collect()
    };
    let plain = lines("seed=1", 0);
    let rows = plain[0].strip_prefix("at first: ").expect("a state").to_owned();
    let used = rows.starts_with("rows from 0 used, row 0: used, lid 0, pkey 0xffff");
    assert!(used, "{rows}");
    let at_last = |lines: &[String]| lines.last().expect("a line").clone();

    let moved = lines("gid-change:at=2s", 2);
    assert_eq!(moved[1], "GID table change of port 1");
    assert!(at_last(&moved).contains("rows from 1 used, row 0: No data available"), "{moved:?}");
    let gone = lines("addr-gone=3600s:at=2s", 1);
    assert!(at_last(&gone).contains("rows none, row 0: No data available"), "{gone:?}");
    let keys = lines("pkey-change=0x8001:at=2s; lid-change=7:at=2s", 2);
    let expected = ["P_Key change of port 1", "LID change of port 1"];
    assert_eq!(keys[1..3], expected);
    assert!(at_last(&keys).ends_with("lid 7, pkey 0x8001"), "{keys:?}");
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
