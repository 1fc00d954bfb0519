//! The devices in sysfs, as C programs, tools and scripts look at them.

mod common;

use std::path::Path;

use common::preloaded;
use weft_testkit::{stderr, succeed};

#[test]
fn the_device_is_in_a_pci_tree_by_every_call() {
    let dir = common::dir("tree");
    let flags = ["-O1", "-U_FORTIFY_SOURCE"];
    let program = dir.build("tree.c", "tree", &flags);
    succeed(&mut preloaded(&program));
}

#[test]
fn every_way_to_list_a_directory_gives_the_same() {
    let dir = common::dir("listing");
    succeed(&mut preloaded(&dir.build("listing.c", "listing", &[])));
}

#[test]
fn gid_tables_of_verbs_and_files_are_one() {
    let dir = common::dir("gids");
    let program = dir.build("gids.c", "gids", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

/// What `script` writes, run by this interpreter.
fn output(interpreter: &str, script: &str) -> String {
    let mut command = preloaded(Path::new(interpreter));
    let out = command.args(["-c", script]).output().expect("the interpreter starts");
    assert!(out.status.success(), "{script}: {}", stderr(&out));
    assert_eq!(stderr(&out), "", "{script}");
    String::from_utf8(out.stdout).expect("text")
}

const PCI: &str = "/sys/devices/pci5746:00/5746:00:00.0";

#[test]
fn shells_and_tools_walk_the_tree() {
    let bash = |script: &str| output("bash", script);
    let resolved = bash("realpath /sys/class/infiniband/weft0/../.. /sys/class/infiniband/weft0");
    assert_eq!(resolved, format!("{PCI}\n{PCI}/infiniband/weft0\n"));
    assert_eq!(bash("readlink -f /sys/class/infiniband/weft0/device"), format!("{PCI}\n"));
    let listed = bash("ls -l /sys/class/infiniband");
    assert!(listed.contains("weft0 -> ../../devices/pci5746:00/5746:00:00.0/infiniband/weft0"));
    assert_eq!(bash("ls -la /dev/infiniband /sys/class/infiniband/weft0/ | grep -c '?'; :"), "0\n");
    assert_eq!(bash("cd /sys/class; cat infiniband/weft*/node_type"), "1: CA\n4: RNIC\n");
    let inside =
        "cd -P /sys/class/infiniband/weft0/ports; cat 1/link_layer; ls; /bin/pwd; cd /; /bin/pwd";
    assert_eq!(bash(inside), format!("Ethernet\n1\n{PCI}/infiniband/weft0/ports\n/\n"));
    let listed = bash("ls /sys/class /dev; echo /sys/class/infini*; find /sys/class -maxdepth 1");
    assert_eq!(listed.matches("infiniband_verbs").count(), 3, "{listed}");
    let found = bash(
        "find /sys/class/infiniband/weft0/ -name state;\
         grep -rl weft /sys/class/infiniband/weft0/",
    );
    assert!(found.contains("/ports/1/state\n") && found.contains("/weft0/board_id\n"), "{found}");
    assert_eq!(
        bash("[ -L /sys/class/infiniband/weft0 ] && [ -d /sys/class/infiniband/weft0 ]"),
        ""
    );
    let copied = bash(
        "d=$(mktemp -d); cp -rL /sys/class/infiniband/weft0/ports $d;\
         cat $d/ports/1/link_layer; rm -rf $d",
    );
    assert_eq!(copied, "Ethernet\n");
}

#[test]
fn python_walks_the_tree() {
    let script = "\
import glob, os, pathlib
print(os.path.realpath('/sys/class/infiniband/weft0/../..'))
print(pathlib.Path('/sys/class/infiniband/weft0/device').resolve())
print(len(glob.glob('/sys/class/infiniband/*/ports/1/gids/0')))
print(sum('node_type' in files for _, _, files in os.walk('/sys/class/infiniband')))
print(sum('node_type' in files for _, _, files in os.walk('/sys/devices/pci5746:00')))
print(sum('node_type' in files for _, _, files, _ in os.fwalk('/sys/devices/pci5746:00')))
print(open('/sys/class/infiniband/weft0/device/numa_node').read().strip().lstrip('-').isdigit())
";
    let expected = format!("{PCI}\n{PCI}\n2\n0\n2\n2\nTrue\n");
    assert_eq!(output("python3", script), expected);
}
