//! Programs that link libibverbs, over every object and under AddressSanitizer.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use common::{behind, plain, preloaded};
use weft_testkit::{is_root, library, limited, skip, stderr, succeed};

#[test]
fn every_object_serves_a_linked_program() {
    let dir = common::dir("linked");
    let program = dir.build("linked.c", "linked", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn extended_objects_serve_a_linked_program() {
    let dir = common::dir("extended");
    let program = dir.build("extended.c", "extended", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn queue_pairs_of_the_adapter_walk_through_their_states() {
    let dir = common::dir("adapter");
    let program = dir.build("adapter.c", "adapter", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn memory_of_every_kind_is_reached_through_its_keys() {
    let dir = common::dir("objects");
    let program = dir.build("objects.c", "objects", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn datagrams_arrive_whole_and_say_who_they_are_from() {
    let dir = common::dir("datagrams");
    let program = dir.build("datagrams.c", "datagrams", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn members_of_a_group_get_what_comes_to_it_with_their_key() {
    let dir = common::dir("groups");
    let program = dir.build("groups.c", "groups", &["-libverbs"]);
    for key in ["", KEY] {
        let out = succeed(preloaded(&program).env("WEFT_KEY", key));
        let near = stderr(&out).contains("datagrams to groups stay on this machine");
        assert_eq!(near, key.is_empty());
    }
}

/// A key of all members.
const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

#[test]
fn who_has_no_descriptor_left_for_an_observer_does_not_spin() {
    let dir = common::dir("seen");
    let program = dir.build("exhausted.c", "exhausted", &["-lrdmacm", "-libverbs"]);
    succeed(preloaded(&program).arg("seen").env("XDG_RUNTIME_DIR", dir.root()));
}

#[test]
fn who_cannot_be_observed_says_so_once() {
    let dir = common::dir("unobserved");
    std::fs::write(dir.root().join("weft"), "").unwrap();
    let program = dir.build("groups.c", "groups", &["-libverbs"]);
    let out = succeed(preloaded(&program).env("XDG_RUNTIME_DIR", dir.root()));
    let told = stderr(&out);
    assert_eq!(told.matches("do not see this process: ").count(), 1, "{told}");
    assert!(told.contains("weft is not a directory of this user alone"), "{told}");
}

#[test]
fn who_gives_up_root_is_observed_as_the_user_that_it_is_then() {
    if !is_root() {
        return skip("only root becomes another user");
    }
    let dir = common::dir("dropped-root");
    let program = dir.build("dropped_root.c", "dropped-root", &["-libverbs"]);
    let mut command = preloaded(&program);
    let out = succeed(command.arg("weft0").env_remove("XDG_RUNTIME_DIR"));
    assert_eq!(stderr(&out), "");
}

#[test]
fn places_of_paths_that_are_no_text_are_told_of() {
    let dir = common::dir("no-text");
    let program = dir.build("linked.c", "linked", &["-libverbs"]);
    let out = succeed(preloaded(&program).env("WEFT_MULTIPATH", OsStr::from_bytes(b"eth\xff")));
    let told = stderr(&out);
    assert!(told.contains("WEFT_MULTIPATH: this host has neither"), "{told}");
}

#[test]
fn a_queue_pair_lets_its_peer_do_what_the_program_said() {
    let dir = common::dir("rights");
    let program = dir.build("rights.c", "rights", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn a_message_waits_for_its_receive_and_a_request_for_its_peer_as_long_as_they_may() {
    let dir = common::dir("receives");
    let program = dir.build("receives.c", "receives", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn a_connection_serves_the_receive_queues_of_a_domain_that_no_other_process_shares() {
    let dir = common::dir("shared");
    let program = dir.build("shared.c", "shared", &["-libverbs"]);
    let out = succeed(preloaded(&program).env("FILE", dir.path("domain")));
    let told = stderr(&out);
    assert!(told.contains("another process has a domain of this file"), "{told}");
}

#[test]
fn programs_and_their_children_see_the_devices_in_sys_and_dev() {
    let dir = common::dir("view");
    let program = dir.build("view.c", "view", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

/// What runs under AddressSanitizer.
const SOURCES: [&str; 8] = [
    "linked.c",
    "extended.c",
    "adapter.c",
    "objects.c",
    "view.c",
    "datagrams.c",
    "shared.c",
    "groups.c",
];

/// libasan comes first, as it insists; then no read or write past an object of ours goes unseen,
/// and what is not freed at the end is reported.
#[test]
fn address_sanitizer_finds_nothing() {
    let dir = common::dir("asan");
    for source in SOURCES {
        let program = dir.build(source, source, &["-fsanitize=address", "-libverbs"]);
        let both = behind("libasan.so");
        let mut command = plain(&program);
        command.env("FILE", dir.path("domain"));
        succeed(command.env("ASAN_OPTIONS", "detect_leaks=1").env("LD_PRELOAD", both));
    }
}

/// Its runtime looks up names before any of its interceptors works, and finds this library's
/// `dlsym`. Races are not looked for: it does not see how this library locks.
#[test]
fn a_program_of_thread_sanitizer_runs() {
    let dir = common::dir("tsan");
    let program = dir.build("linked.c", "linked", &["-fsanitize=thread", "-libverbs"]);
    let both = behind("libtsan.so");
    for preload in [library().display().to_string(), both] {
        let mut command = limited(Path::new("env"), 60);
        command.arg(format!("LD_PRELOAD={preload}")).arg(&program);
        succeed(command.env("TSAN_OPTIONS", "report_bugs=0"));
    }
}

#[test]
fn the_tools_of_rdma_core_show_the_device() {
    for (tool, expected) in [("ibv_devices", "weft0"), ("ibv_devinfo", "PORT_ACTIVE")] {
        let out = preloaded(tool.as_ref()).output().expect("the tool is installed");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains(expected), "{tool}: {text}");
        assert_eq!(stderr(&out), "");
    }
    let out = preloaded("ibv_devinfo".as_ref()).arg("-v").output().expect("the tool is installed");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success());
    let expected = [
        "weft0",
        "InfiniBand (0)",
        "RoCE v2",
        "weft_iw0",
        "iWARP (1)",
        "MEM_MGT_EXTENSIONS",
        "max_sge_rd:\t\t\t32\n",
        "Ethernet",
    ];
    for line in expected {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
}
