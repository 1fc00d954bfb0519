//! `WEFT_DEVICES`: which devices a program sees.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
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
fn a_number_and_names_show_several_devices() {
    let dir = common::dir("several_seen");
    let program = dir.build("visible.c", "visible", &["-libverbs", "-lrdmacm"]);
    for (list, names) in [
        ("4", &["weft0", "weft1", "weft2", "weft3"][..]),
        ("2,weft_iw1", &["weft0", "weft1", "weft_iw1"]),
        ("weft_iw0,weft_iw3", &["weft_iw0", "weft_iw3"]),
        ("weft5=127.0.0.1+::1", &["weft5"]),
    ] {
        assert_eq!(seen(&program, list, names), "", "{list}");
    }
}

#[test]
fn several_devices_have_nothing_in_common_but_the_network() {
    let dir = common::dir("several");
    let program = dir.build("several.c", "several", &["-libverbs", "-lrdmacm"]);
    let mut command = preloaded(&program);
    let said = stderr(&succeed(command.env("WEFT_DEVICES", "3,weft1=127.0.0.2")));
    assert_eq!(said, "");
}

#[test]
fn a_list_without_meaning_is_said_in_plain_words() {
    let dir = common::dir("hostile");
    let program = dir.build("visible.c", "visible", &["-libverbs", "-lrdmacm"]);
    for (list, words) in [
        ("weft0,0", "0 is no number of devices from 1 to 16"),
        ("weft0,weft1=10.0.0", "10.0.0 is no IP address for weft1"),
        ("weft0,x:tcp", "tcp is no transport of x: shuttle or iwarp is"),
        ("weft0,../x:iwarp", "../x is no name of a device"),
    ] {
        let said = seen(&program, list, &["weft0"]);
        assert!(said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let said = seen(&program, "weft0,weft1=192.0.2.77", &["weft0", "weft1"]);
    assert!(said.contains("gives weft1 the address 192.0.2.77, which no interface"), "{said}");
    let mut bytes = preloaded(&program);
    bytes.env("WEFT_DEVICES", OsStr::from_bytes(b"weft0,\xff\xfe"));
    let said = stderr(&succeed(bytes.arg("weft0")));
    assert!(said.contains("is no name of a device"), "{said}");
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
