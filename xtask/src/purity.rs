//! Forbidden names: no sockets, threads or clock in the protocol crates, unsafe code only in listed
//! files, and no panic in libraries that are loaded into other processes.
//!
//! Unit tests may use threads and time; unsafe code is counted everywhere.

use std::path::Path;

use crate::arch::{Package, Room, find_room};
use crate::finding::Finding;
use crate::source::{Code, find_word};
use crate::tree::TextFile;

/// Where the word `unsafe` may stand: a crate, and files or directories (ending in `/`) of it.
pub const UNSAFE_FILES: [(&str, &[&str]); 12] = [
    ("degen", &["src/tun.rs"]),
    ("guard", &["src/"]),
    ("verbs", &["src/mr/payload.rs", "src/mr/place.rs"]),
    (
        "os",
        &[
            "src/borrowed.rs",
            "src/forks.rs",
            "src/last_thread.rs",
            "src/mark.rs",
            "src/next.rs",
            "src/options.rs",
            "src/own_file.rs",
            "src/semaphore.rs",
            "src/stderr.rs",
            "src/sys.rs",
            "src/thread.rs",
        ],
    ),
    (
        "net",
        &[
            "src/interfaces.rs",
            "src/interfaces/",
            "src/tcp.rs",
            "src/tcp_info.rs",
            "src/udp.rs",
            "src/udp/",
            "src/socket.rs",
            "src/lane/",
        ],
    ),
    ("memory", &["src/", "tests/process_end.rs"]),
    ("verbs-abi", &["src/"]),
    ("preload", &["src/", "tests/"]),
    ("sockets", &["src/", "tests/"]),
    ("cli", &["src/sys.rs", "src/sys/"]),
    ("bench", &["src/sys.rs"]),
    ("perf", &["src/verbs/"]),
];

/// Names that a crate below `host` must not use: its caller passes them in.
const OUTSIDE: [&str; 7] =
    ["std::net", "std::thread", "std::fs", "std::process", "std::os", "Instant::now", "SystemTime"];

/// The crates that are loaded into the processes of others, where nothing may panic.
const GUESTS: [&str; 22] = [
    "sync",
    "units",
    "guard",
    "wire",
    "memory",
    "fault",
    "verbs",
    "mpa",
    "shuttle",
    "cm",
    "rdmap",
    "rnic",
    "sdp",
    "os",
    "reactor",
    "net",
    "host",
    "rdmacm",
    "rdma",
    "verbs-abi",
    "preload",
    "sockets",
];

/// Lint attributes of their roots against panics; tests may panic.
const NO_PANIC: &str =
    "deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)";

/// Checks every Rust file of every package.
pub fn check(packages: &[Package], files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let owner = packages.iter().find(|package| file.path.starts_with(&package.dir));
        let Some((package, room)) = owner.and_then(|p| Some((p, find_room(&p.name)?))) else {
            continue;
        };
        let code = Code::of(file);
        if !may_be_unsafe(room, file.path.strip_prefix(&package.dir).unwrap_or(&file.path)) {
            findings.extend(unsafe_code(&file.path, &code));
        }
        if room.sans_io {
            findings.extend(outside(&file.path, &code));
        }
        if package.roots.contains(&file.path) {
            findings.extend(lint_level(room, file));
            findings.extend(no_panic(room, file));
        }
    }
    findings
}

fn may_be_unsafe(room: &Room, path: &Path) -> bool {
    let listed = UNSAFE_FILES.iter().filter(|(name, _)| *name == room.name);
    listed.flat_map(|(_, files)| files.iter()).any(|file| match file.strip_suffix('/') {
        Some(dir) => path.starts_with(dir),
        None => path == Path::new(file),
    })
}

fn unsafe_code(path: &Path, code: &Code) -> Vec<Finding> {
    let found = code.lines().filter(|(_, line)| find_word(line, "unsafe").is_some());
    let message = "unsafe code outside the files that xtask lists for it";
    found.map(|(line, _)| Finding::new(path, line, message)).collect()
}

fn outside(path: &Path, code: &Code) -> Vec<Finding> {
    let product: Vec<(usize, &str)> = code.product().collect();
    let mut findings = Vec::new();
    for name in OUTSIDE {
        let hits = product.iter().filter(|(_, line)| find_word(line, name).is_some());
        let grouped = grouped_imports(&product).into_iter().filter(|(_, path)| path == name);
        let lines = hits.map(|(line, _)| *line).chain(grouped.map(|(line, _)| line));
        let message = format!("a crate below host does not see {name}; addresses are in core::net");
        findings.extend(lines.map(|line| Finding::new(path, line, &message)));
    }
    findings
}

/// The modules imported by `use std::{..}`, each with its line.
fn grouped_imports(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut depth = 0;
    for &(number, line) in lines {
        let mut rest = line;
        if depth == 0 {
            let Some((_, inside)) = line.split_once("std::{") else { continue };
            (depth, rest) = (1, inside);
        }
        let mut word = String::new();
        for c in rest.chars().chain(['\n']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if depth == 1 && !word.is_empty() {
                found.push((number, format!("std::{word}")));
            }
            word.clear();
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn lint_level(room: &Room, root: &TextFile) -> Option<Finding> {
    let attribute = format!("#![{}(unsafe_code)]", room.unsafe_code?);
    let missing = !root.text.lines().any(|line| line == attribute);
    missing.then(|| Finding::new(&root.path, 1, format!("{} says {attribute}", room.name)))
}

fn no_panic(room: &Room, root: &TextFile) -> Option<Finding> {
    let missing = GUESTS.contains(&room.name) && !root.text.contains(NO_PANIC);
    missing.then(|| Finding::new(&root.path, 1, format!("{} says {NO_PANIC}", room.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    fn messages(package: &str, path: &str, text: &str) -> Vec<String> {
        let dir = format!("crates/{}", package.trim_start_matches("weft-"));
        let package = Package::for_tests(package, &dir);
        let file = file(&format!("{dir}/{path}"), text);
        check(&[package], &[file]).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn unsafe_code_has_its_files() {
        let text = "fn f() { unsafe { g() } }\n";
        assert!(messages("weft-verbs", "src/mr/place.rs", text).is_empty());
        assert!(messages("weft-preload", "src/ibv/post.rs", text).is_empty());
        let found = messages("weft-verbs", "src/cq.rs", text);
        assert!(found[0].starts_with("crates/verbs/src/cq.rs:1: unsafe"), "{found:?}");
        assert_eq!(messages("weft-rnic", "src/lib2.rs", text).len(), 1);
        assert_eq!(messages("weft-host", "src/systems.rs", text).len(), 1);
    }

    #[test]
    fn unsafe_code_in_unit_tests_counts() {
        let text = "#[cfg(test)]\nmod tests {\n    fn f() { unsafe { g() } }\n}\n";
        assert_eq!(messages("weft-mpa", "src/frame.rs", text).len(), 1);
    }

    #[test]
    fn the_protocol_crates_see_no_outside() {
        for line in [
            "use std::net::TcpStream;",
            "let t = std::time::Instant::now();",
            "std::thread::spawn(f);",
            "use std::{\n    sync::Arc,\n    net::{IpAddr},\n};",
            "use std::{fs, io};",
            "fn f(now: SystemTime) {}",
        ] {
            assert_eq!(messages("weft-cm", "src/state.rs", line).len(), 1, "{line}");
            assert!(messages("weft-host", "src/state.rs", line).is_empty(), "{line}");
        }
    }

    #[test]
    fn innocent_words_pass() {
        for line in [
            "use core::net::IpAddr; // not std::net",
            "use std::{sync::{Arc, net}, time::Instant};",
            "fn f(now: Instant) {}",
            "#[cfg(test)]\nmod tests {\n    use std::thread;\n}",
        ] {
            assert!(messages("weft-cm", "src/state.rs", line).is_empty(), "{line}");
        }
    }

    #[test]
    fn roots_forbid_unsafe_code() {
        assert_eq!(messages("weft-xtask", "src/lib.rs", "//! Chores.\n").len(), 1);
        assert!(messages("weft-xtask", "src/lib.rs", "#![forbid(unsafe_code)]\n").is_empty());
        assert_eq!(messages("weft-bench", "src/lib.rs", "#![forbid(unsafe_code)]\n").len(), 1);
    }

    #[test]
    fn guests_do_not_panic() {
        let root = format!("#![forbid(unsafe_code)]\n#![cfg_attr(not(test), {NO_PANIC})]\n");
        assert!(messages("weft-wire", "src/lib.rs", &root).is_empty());
        let found = messages("weft-wire", "src/lib.rs", "#![forbid(unsafe_code)]\n");
        assert!(found.len() == 1 && found[0].contains("clippy::expect_used"), "{found:?}");
    }
}
