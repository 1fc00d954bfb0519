//! How a program comes to libibverbs, and what Weft leaves alone on the way.

mod common;

use std::path::PathBuf;

use common::{plain, preloaded};
use weft_testkit::{Dir, stderr, succeed};

#[test]
fn a_program_that_opens_the_library_gets_weft() {
    let dir = common::dir("opened");
    let program = dir.build("opened.c", "opened", &["-ldl"]);
    for name in ["libibverbs.so.1", "libibverbs.so"] {
        succeed(preloaded(&program).args([name, "real"]));
    }
}

/// A path where nothing is stands for a machine without rdma-core.
#[test]
fn without_rdma_core_there_is_still_weft() {
    let dir = common::dir("absent");
    let program = dir.build("opened.c", "opened", &["-ldl"]);
    let nowhere = dir.path("libibverbs.so.1");
    succeed(preloaded(&program).arg(nowhere).arg("ours"));
}

fn plugin(dir: &Dir) -> (PathBuf, PathBuf) {
    let shared = ["-shared", "-fPIC"];
    dir.build("helper.c", "libhelper.so", &shared);
    let flags = [&shared[..], &["-libverbs", "-ldl", "-Wl,-rpath,$ORIGIN"]].concat();
    let plugin = dir.build("plugin.c", "libplugin.so", &flags);
    (dir.build("host.c", "host", &["-ldl"]), plugin)
}

#[test]
fn a_plugin_gets_weft_and_keeps_its_place_in_the_search_order() {
    let dir = common::dir("plugin");
    let (host, plugin) = plugin(&dir);
    let out = succeed(preloaded(&host).arg(&plugin));
    assert_eq!(stderr(&out), "devices: 2\n");
}

#[test]
fn off_is_as_if_weft_were_not_there() {
    let dir = common::dir("off");
    let program = dir.build("count.c", "count", &["-libverbs"]);
    let without = stderr(&succeed(&mut plain(&program)));
    assert_eq!(stderr(&succeed(preloaded(&program).env("WEFT", "off"))), without);
    assert!(!without.contains("weft"));
    let with = stderr(&succeed(&mut preloaded(&program)));
    for line in ["devices: 2\n", "device weft0\n", "device weft_iw0\n"] {
        assert_eq!(with.matches(line).count(), 2, "{with}");
    }

    let (host, plugin) = plugin(&dir);
    let without = stderr(&succeed(plain(&host).arg(&plugin)));
    assert_eq!(stderr(&succeed(preloaded(&host).arg(&plugin).env("WEFT", "off"))), without);
}

#[test]
fn nothing_happens_in_a_program_without_verbs() {
    let dir = common::dir("quiet");
    let program = dir.build("quiet.c", "quiet", &[]);
    let without = stderr(&succeed(&mut plain(&program)));
    let mut command = preloaded(&program);
    let with = succeed(command.env("WEFT_UNKNOWN", "1").env("WEFT_LOG", "debug"));
    assert_eq!(stderr(&with), without);
}

#[test]
fn unknown_variables_are_warned_about_once_and_on_stderr() {
    let dir = common::dir("warn");
    let program = dir.build("count.c", "count", &["-libverbs"]);
    let out = succeed(preloaded(&program).env("WEFT_SPEED", "1").env("WEFT_DEV", "mlx5_7"));
    let text = stderr(&out);
    assert_eq!(text.matches("WEFT_SPEED").count(), 1, "{text}");
    for name in ["mlx5_7", "weft_iw0"] {
        assert_eq!(text.matches(&format!("device {name}\n")).count(), 2, "{text}");
    }

    let log = dir.path("log");
    let mut command = preloaded(&program);
    let out = succeed(command.env("WEFT_SPEED", "1").env("VERBS_LOG_FILE", &log));
    assert_eq!(stderr(&out).matches("WEFT_SPEED").count(), 0);
    let written = std::fs::read_to_string(log).expect("the log was opened");
    assert_eq!(written.matches("WEFT_SPEED").count(), 1);
    let out = succeed(preloaded(&program).env("WEFT_SPEED", "1").env("VERBS_LOG_LEVEL", "0"));
    assert_eq!(stderr(&out).matches("WEFT_SPEED").count(), 0);
}
