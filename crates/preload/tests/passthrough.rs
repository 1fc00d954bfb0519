//! Faults above the device of another provider: a second copy of the library, which is loaded
//! behind the first one and knows nothing of the plan. interop/vm/passthrough.sh does the same over
//! the kernel's devices.

mod common;

use std::fs;

use common::plain;
use weft_testkit::{library, stderr};

/// What `name`.c says under `plan`.
fn said(name: &str, plan: &str, arguments: &[&str]) -> String {
    let dir = common::dir(&format!("pass-{name}-{:016x}", hash(plan)));
    let program = dir.build(&format!("{name}.c"), name, &["-libverbs"]);
    let behind = dir.path("libweft.so");
    fs::copy(library(), &behind).expect("room for a copy");
    let both = format!("{}:{}", library().display(), behind.display());
    let mut command = plain(&program);
    command.args(arguments).env("LD_PRELOAD", both);
    let out = command.env("WEFT_PASSTHROUGH", "1").env("WEFT_FAULT", plan).output();
    let out = out.expect("the program starts");
    assert!(out.status.success(), "{plan}: {}\n{}", out.status, stderr(&out));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn outcome(plan: &str) -> Vec<String> {
    outcome_with_events(plan, 0)
}

/// The same, where so many events come at least.
fn outcome_with_events(plan: &str, events: u32) -> Vec<String> {
    said("faults", plan, &["7", &events.to_string()]).lines().map(str::to_owned).collect()
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

const WELL: [&str; 2] = ["0x20", "alive"];
const FATAL: &str = "event: local work queue catastrophic error";

#[test]
fn without_a_fault_that_is_due_all_arrives() {
    assert_eq!(outcome("seed=1"), WELL);
    let far = "qp-error:after=1000; hang:after=1000; slow-ack=1s:at=3600s; port-down=1s:at=3600s; \
               mr-invalid:after=1000; fail=reg_mr:after=1000";
    assert_eq!(outcome(far), WELL);
    assert_eq!(outcome("qp-error:dev=siw0; alloc-fail=qp:dev=siw0"), WELL);
}

#[test]
fn completions_field_by_field_and_builders_pass_through() {
    assert_eq!(said("extended", "qp-error:after=1000; hang:after=1000", &[]), "");
}

#[test]
fn a_fault_that_needs_the_wire_leaves_the_program_alone() {
    assert_eq!(outcome("drop=100%"), WELL);
}

#[test]
fn a_request_fails_after_as_many_as_the_plan_says() {
    assert_eq!(outcome("qp-error:after=5,only=1"), ["0x5", "12x1", "5x14", "failed"]);
    let refused = outcome("qp-error:after=19,status=rem-access,only=1,dev=weft0");
    assert_eq!(refused, ["0x19", "10x1", "failed"]);
    let fatal = outcome_with_events("qp-error:after=3,status=fatal,only=1", 1);
    assert_eq!(fatal, ["0x3", "19x1", "5x16", "failed", FATAL]);
}

#[test]
fn chance_repeats_itself_with_its_seed() {
    let run = |seed: u32| outcome(&format!("qp-error=10%:only=1; seed={seed}"));
    let first = run(11);
    assert_eq!(first, run(11));
    assert!((12..40).any(|seed| run(seed) != first), "{first:?}");
}

#[test]
fn completion_queues_end_after_as_many_as_the_plan_says() {
    let overflow = outcome_with_events("cq-overflow:after=7,only=1", 2);
    assert_eq!(overflow, ["0x7", "poll_cq: -1", "failed", "event: CQ error", FATAL]);
    let overrun = outcome_with_events("cq-overrun:after=7,only=1", 2);
    assert_eq!(overrun, ["0x7", "no more", "failed", "event: CQ error", FATAL]);
}

#[test]
fn calls_fail() {
    assert_eq!(outcome("alloc-fail=pd"), ["alloc_pd: 12"]);
    assert_eq!(outcome("alloc-fail=mr:nth=2"), ["reg_mr: 12"]);
    assert_eq!(outcome("alloc-fail=any:nth=5"), ["create_cq: 12"]);
    assert_eq!(outcome("fail=create_qp:after=1,errno=EAGAIN"), ["create_qp: 11"]);
    assert_eq!(outcome("fail=modify_qp:errno=EIO"), ["modify_qp: 5"]);
    assert_eq!(outcome("fail=post_recv:after=3"), ["post_recv: 12"]);
    let sends = outcome("fail=post_send:after=3,times=2");
    assert_eq!(sends, ["post_send 3: 12", "post_send 4: 12", "0x18", "alive"]);
}

#[test]
fn acknowledgements_are_late_and_what_arrives_is_not() {
    assert_eq!(said("arrivals", "slow-ack=3600s:only=1", &[]), "0 wrong, 0 complete\n");
    assert_eq!(said("arrivals", "slow-ack=3600s:only=2", &[]), "0 wrong, 20 complete\n");
    assert_eq!(outcome("slow-ack=5ms:jitter=5ms"), WELL);
    assert_eq!(outcome("delay=5ms:jitter=5ms"), WELL);
}

/// Sends and receives have a region each; five of each were posted before.
#[test]
fn a_region_becomes_invalid_here_and_for_the_peer() {
    let local = outcome("mr-invalid:after=25,only=1");
    let failed = local.iter().position(|line| line.starts_with("4x1"));
    assert!(failed.is_some_and(|place| place <= 1), "{local:?}");
    assert_eq!(outcome("mr-invalid:only=3"), WELL);
    let refused = said("arrivals", "mr-invalid:only=2", &["write"]);
    assert_eq!(refused, "the send: remote access error\n");
}

/// Each change comes late enough to see the device before.
#[test]
fn a_device_and_its_port_change_with_their_events() {
    let text = said("reset", "device-fatal=3s:at=2s,dev=weft0", &[]);
    assert!(
        text.starts_with("local catastrophic error\nthe receive: Work Request Flushed Error\n")
    );
    assert!(
        text.contains("alloc_pd: Input/output error\ncreate_cq: Input/output error\n"),
        "{text}"
    );
    assert!(text.contains("the device: not there\nagain: "), "{text}");
    let lines = |plan: &str, events: &str| -> Vec<String> {
        said("events", plan, &["weft0", events, "60"]).lines().map(str::to_owned).collect()
    };
    let usual = "port: active, lid 0, pkey 0xffff, row 0 used";
    let moved = lines("gid-change:at=2s", "2");
    assert_eq!(moved[0], usual);
    let change = "GID table change; port: active, lid 0, pkey 0xffff, row 0 empty";
    assert_eq!(moved[1..], [change, change]);
    let keys = lines("pkey-change=0x8001:at=2s; lid-change=7:at=2s", "2");
    assert!(keys[1].starts_with("P_Key change; "), "{keys:?}");
    assert_eq!(keys[2], "LID change; port: active, lid 7, pkey 0x8001, row 0 used");
    let port = lines("port-down=2s:at=2s", "2");
    assert!(port[1].starts_with("port error; port: down"), "{port:?}");
    assert_eq!(port[2], format!("port active; {usual}"));
}
