//! `WEFT_DEVICES`: which devices a program sees.

mod common;

use std::path::Path;

use common::preloaded;
use weft_testkit::{stderr, succeed};

/// What is said while only `names` are to be seen by `WEFT_DEVICES=list`.
fn seen(program: &Path, list: &str, names: &[&str]) -> String {
    stderr(&succeed(preloaded(program).env("WEFT_DEVICES", list).args(names)))
}

#[test]
fn the_list_hides_the_other_device_everywhere() {
    let dir = common::dir("visible");
    let program = dir.build("visible.c", "visible", &["-libverbs", "-lrdmacm"]);
    for (list, names) in [
        ("", &["weft0", "weft_iw0"][..]),
        ("weft_iw0,weft0", &["weft0", "weft_iw0"]),
        ("weft0", &["weft0"]),
        (" weft_iw0 ,", &["weft_iw0"]),
    ] {
        assert_eq!(seen(&program, list, names), "", "{list}");
    }
    let said = seen(&program, "mlx5_0,weft0", &["weft0"]);
    assert!(said.contains("WEFT_DEVICES: no device is named mlx5_0"), "{said}");
    let said = seen(&program, "mlx5_0", &[]);
    assert!(said.contains("WEFT_DEVICES leaves no device"), "{said}");
}

#[test]
fn the_list_wins_over_the_transport() {
    let dir = common::dir("contradiction");
    let program = dir.build("visible.c", "visible", &["-libverbs", "-lrdmacm"]);
    let mut command = preloaded(&program);
    command.env("WEFT_DEVICES", "weft0").env("WEFT_TRANSPORT", "iwarp").arg("weft0");
    let said = stderr(&succeed(&mut command));
    assert_eq!(said.matches("WEFT_DEVICES hides").count(), 1, "{said}");
}

#[test]
fn a_device_that_is_asked_for_and_not_here_is_named_once() {
    let dir = common::dir("asked");
    let program = dir.build("count.c", "count", &["-libverbs"]);
    let said = stderr(&succeed(preloaded(&program).args(["-d", "mlx5_0"])));
    assert_eq!(said.matches("mlx5_0 is asked for and not here").count(), 1, "{said}");
    let said = stderr(&succeed(preloaded(&program).env("UCX_NET_DEVICES", "mlx5_2:1")));
    assert_eq!(said.matches("mlx5_2 is asked for and not here").count(), 1, "{said}");
    let mut named = preloaded(&program);
    let said = stderr(&succeed(named.args(["-d", "mlx5_0"]).env("WEFT_DEV", "mlx5_0")));
    assert!(!said.contains("asked for"), "{said}");
}
