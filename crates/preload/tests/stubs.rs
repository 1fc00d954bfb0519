//! Programs on machines without rdma-core: the stubs that `weft run` supplies take its place.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use weft_testkit::{Dir, succeed};

/// The stubs, built below `dir`, as a value of `LD_LIBRARY_PATH`.
fn stubs(dir: &Dir) -> String {
    let to = dir.path("stubs");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/stubs.sh");
    succeed(Command::new(script).arg(&to));
    let dirs: Vec<PathBuf> =
        ["libibverbs", "librdmacm", "libmlx5", "libefa"].map(|name| to.join(name)).into();
    std::env::join_paths(dirs).unwrap().into_string().unwrap()
}

#[test]
fn programs_start_and_have_devices_and_what_is_no_verb_fails() {
    let dir = common::dir("stubs");
    let path = stubs(&dir);
    let program = dir.build("stubs.c", "program", &["-libverbs", "-lrdmacm", "-lmlx5"]);
    succeed(common::preloaded(&program).env("LD_LIBRARY_PATH", &path));
    succeed(common::plain(&program).arg("alone").env("LD_LIBRARY_PATH", &path));
}

/// Names found through a stub that was opened are Weft's, under each version node.
#[test]
fn names_are_found_through_a_stub() {
    let dir = common::dir("stub-names");
    let path = stubs(&dir);
    let program = dir.build("nodes.c", "nodes", &["-ldl"]);
    let mut command = common::preloaded(&program);
    for line in include_str!("rdma_core_names.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let kernel = words[1].ends_with("_kern") || words[1].contains("fork_range");
        if !kernel && ["ibv_", "_ibv_", "rdma_"].iter().any(|start| words[1].starts_with(start)) {
            command.args(&words[..2]);
        }
    }
    succeed(command.env("LD_LIBRARY_PATH", &path));
}
