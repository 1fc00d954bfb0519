//! What libweft.so exports, compared with the libraries it stands in for.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use weft_testkit::{library, succeed};

/// Functions of libibverbs that work on plain values or come back to ours, and so may stay with
/// the real library.
const PURE: [&str; 6] = [
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_dofork_range",
    "ibv_dontfork_range",
];

/// What rdma-core's newest release has: facts of its version maps.
const NEWEST: &str = include_str!("rdma_core_names.txt");

/// Version nodes and names.
fn newest() -> Vec<(&'static str, &'static str)> {
    let lines = NEWEST.lines().filter(|line| !line.starts_with('#'));
    let words = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    words.map(|words| (words[0], words[1])).collect()
}

/// How the names begin that are Weft's to answer for.
const PREFIXES: [&str; 5] = ["ibv_", "_ibv_", "rdma_", "mbps_to_ibv_", "mult_to_ibv_"];

/// Whether Weft has to answer for a name: rsockets are librdmacm's own code over its public calls.
fn is_ours(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !PURE.contains(&name)
}

/// Functions of the C library that answer for paths in /sys and /dev.
const FILES: [&str; 66] = [
    "__fxstat",
    "__fxstat64",
    "__fxstatat",
    "__fxstatat64",
    "__getcwd_chk",
    "__lxstat",
    "__lxstat64",
    "__open64_2",
    "__open_2",
    "__openat64_2",
    "__openat_2",
    "__readlink_chk",
    "__readlinkat_chk",
    "__realpath_chk",
    "__xstat",
    "__xstat64",
    "access",
    "canonicalize_file_name",
    "chdir",
    "closedir",
    "dirfd",
    "eaccess",
    "euidaccess",
    "faccessat",
    "fchdir",
    "fdopendir",
    "fopen",
    "fopen64",
    "fstat",
    "fstat64",
    "fstatat",
    "fstatat64",
    "ftw",
    "ftw64",
    "get_current_dir_name",
    "getcwd",
    "getxattr",
    "glob",
    "glob64",
    "lgetxattr",
    "listxattr",
    "llistxattr",
    "lstat",
    "lstat64",
    "nftw",
    "nftw64",
    "open",
    "open64",
    "openat",
    "openat64",
    "opendir",
    "readdir",
    "readdir64",
    "readdir64_r",
    "readdir_r",
    "readlink",
    "readlinkat",
    "realpath",
    "rewinddir",
    "scandir",
    "scandir64",
    "seekdir",
    "stat",
    "stat64",
    "statx",
    "telldir",
];

/// Names of the functions that a library exports, with their versions.
fn exports(library: &Path) -> Vec<String> {
    let out = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let text = String::from_utf8(out.expect("nm is installed").stdout).expect("names are text");
    let functions = text.lines().filter_map(|line| line.split_once(" T "));
    functions.map(|(_, name)| name.to_owned()).collect()
}

/// The public functions of a real library: default versions, without those for its providers.
fn public(library: &str) -> BTreeSet<String> {
    let names = exports(&common::installed(library));
    let public = names.iter().filter_map(|name| name.split_once("@@"));
    public.filter(|(_, v)| !v.contains("PRIVATE")).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn every_public_function_is_served() {
    let ours: BTreeSet<String> = exports(&library()).into_iter().collect();
    let verbs = public("libibverbs.so");
    assert!(verbs.len() > 70, "{verbs:?}");
    let missing: Vec<_> =
        verbs.iter().filter(|n| !ours.contains(*n) && !PURE.contains(&n.as_str())).collect();
    assert!(missing.is_empty(), "libibverbs has {missing:?}");
    let cm = public("librdmacm.so");
    let missing: Vec<_> =
        cm.iter().filter(|n| n.starts_with("rdma_") && !ours.contains(*n)).collect();
    assert!(cm.len() > 40 && missing.is_empty(), "librdmacm has {missing:?}");
}

/// A name that is missing here reaches the real library, which takes our contexts for its own.
#[test]
fn every_name_of_the_newest_rdma_core_is_served() {
    let ours: BTreeSet<String> = exports(&library()).into_iter().collect();
    let names = newest();
    let missing: Vec<_> =
        names.iter().filter(|(_, name)| is_ours(name) && !ours.contains(*name)).collect();
    assert!(names.len() > 150 && missing.is_empty(), "libweft.so lacks {missing:?}");
}

/// Otherwise a new release is installed, and the list needs its names.
#[test]
fn the_list_knows_what_is_installed() {
    let known: BTreeSet<&str> = newest().into_iter().map(|(_, name)| name).collect();
    for library in ["libibverbs.so", "librdmacm.so"] {
        let installed = public(library);
        let news: Vec<_> = installed.iter().filter(|n| !known.contains(n.as_str())).collect();
        assert!(news.is_empty(), "{library} has {news:?}");
    }
}

/// Under every node, also of a library that does not have them yet.
#[test]
fn names_are_found_by_their_version_nodes() {
    let dir = common::dir("nodes");
    let program = dir.build("nodes.c", "nodes", &["-ldl"]);
    let mut command = common::preloaded(&program);
    for (node, name) in newest().into_iter().filter(|(node, name)| is_ours(name) && *node != "-") {
        command.args([node, name]);
    }
    succeed(&mut command);
}

/// A version would keep the definition from serving programs linked against another one, and
/// anything else exported would take the place of somebody's own function.
#[test]
fn exports_are_unversioned_and_only_those_that_weft_answers_for() {
    let (linker, ends) = (["dlopen", "dlsym", "dlvsym"], ["_exit", "_Exit"]);
    let handlers = ["sigaction", "signal", "bsd_signal", "ssignal", "sysv_signal", "__sysv_signal"];
    let masks = ["pthread_sigmask", "sigprocmask"];
    let ports = ["bind"];
    for name in exports(&library()) {
        let known = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let hooked = [&linker[..], &ends, &handlers, &masks, &ports, &FILES]
            .iter()
            .any(|all| all.contains(&name.as_str()));
        assert!(known || hooked, "{name} is exported");
        assert!(!name.contains('@'), "{name} has a version");
    }
}
