//! Programs that run out of memory: the verb that needed it says `ENOMEM`, and nothing aborts.

mod common;

use common::{plain, preloaded};
use weft_testkit::{library, succeed};

/// A device, its transport, and the key. On this machine iWARP is clear text under a key as well.
const RUNS: [[&str; 3]; 4] = [
    ["weft0", "shuttle", ""],
    ["weft0", "shuttle", KEY],
    ["weft_iw0", "iwarp", ""],
    ["weft_iw0", "iwarp", KEY],
];

const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

#[test]
fn an_allocation_that_fails_now_and_then_ends_nothing() {
    let dir = common::dir("sparse");
    let program = dir.build("lean.c", "lean", &["-lrdmacm", "-libverbs"]);
    let starve = dir.build("starve.c", "starve.so", &["-shared", "-fPIC"]);
    let both = format!("{}:{}", starve.display(), library().display());
    for [device, transport, key] in RUNS {
        let mut command = plain(&program);
        command.args([device, "sparse"]).env("LD_PRELOAD", &both);
        succeed(command.env("WEFT_TRANSPORT", transport).env("WEFT_KEY", key));
    }
}

#[test]
fn a_process_without_memory_is_told_so_and_goes_on() {
    let dir = common::dir("short");
    let program = dir.build("lean.c", "lean", &["-lrdmacm", "-libverbs"]);
    for [device, transport, key] in RUNS {
        let mut command = preloaded(&program);
        command.args([device, "short"]).env("WEFT_TRANSPORT", transport);
        succeed(command.env("WEFT_KEY", key));
    }
}
