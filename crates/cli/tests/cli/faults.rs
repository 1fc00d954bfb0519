//! `weft run --fault`: what is understood, what is refused, and what CMD is given.

use crate::common::{run, text};

#[test]
fn the_plan_and_its_seed_are_said_and_reach_cmd() {
    let show = ["sh", "-c", "echo $WEFT_FAULT"];
    let output = run(&[&["--fault", "drop=1%", "--fault", "delay=5ms;seed=7"][..], &show].concat());
    assert_eq!(text(&output.stdout), "drop=1%; delay=5ms; seed=7\n");
    let said = "weft: going wrong on purpose: drop=1%; delay=5ms; seed=7\n";
    assert_eq!(text(&output.stderr), said);
    let drawn = text(&run(&[&["--fault", "drop=1%"][..], &show].concat()).stdout);
    let seed = drawn.trim().strip_prefix("drop=1%; seed=").unwrap();
    assert!(seed.parse::<u64>().is_ok(), "{drawn}");
}

#[test]
fn faults_of_the_wire_are_refused_with_passthrough() {
    for plan in ["drop=1%", "hang; corrupt=1%", "rnr:3", "peer-gone", "addr-gone=1s"] {
        let output = run(&["--fault", plan, "--passthrough", "true"]);
        assert_eq!(output.status.code(), Some(125), "{plan}");
        let said = text(&output.stderr);
        assert!(said.contains("cannot be made with passthrough: "), "{said}");
    }
    let show = ["--fault", "hang", "--passthrough", "sh", "-c", "echo $WEFT_PASSTHROUGH"];
    assert_eq!(text(&run(&show).stdout), "1\n");
}

#[test]
fn a_plan_that_is_none_is_refused_with_what_would_be_one() {
    for (plan, words) in [
        ("dorp=1%", "`dorp` is no fault; there are qp-error"),
        ("drop=1", "it is written drop=SHARE[:way=in|out]"),
        ("rnr", "how often is missing"),
    ] {
        let output = run(&["--fault", plan, "true"]);
        assert_eq!(output.status.code(), Some(125), "{plan}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}
