//! A directory arrives as it was.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_testkit::text;

use crate::far_host::{FarHost, last_event, noise};

/// A directory with all that a directory may have.
fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("a/empty")).unwrap();
    fs::create_dir_all(at.join("b")).unwrap();
    fs::write(at.join("a/file"), "hello").unwrap();
    fs::write(at.join("none"), "").unwrap();
    fs::write(at.join("large"), noise(1, 3_000_001)).unwrap();
    for name in [&b"odd\nname"[..], b"\xff\x1b[2J", b" ", b"-rf", "\u{202e}txt".as_bytes()] {
        fs::write(at.join("b").join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::write(at.join("b").join("n".repeat(255)), "long").unwrap();
    symlink("../a/file", at.join("b/link")).unwrap();
    symlink("/nonexistent", at.join("dangling")).unwrap();
    fs::hard_link(at.join("a/file"), at.join("b/hard")).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 20 << 20).unwrap();
    for number in 0..300 {
        fs::write(at.join(format!("b/{number}")), noise(number, number as usize * 17)).unwrap();
    }
    fs::set_permissions(at.join("a/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(at.join("large"), fs::Permissions::from_mode(0o755)).unwrap();
    for (path, time) in [("a/file", "2001-02-03 04:05:06.789"), ("b", "1999-01-01")] {
        let touched = Command::new("touch").args(["-d", time]).arg(at.join(path)).status();
        assert!(touched.unwrap().success());
    }
    // Nothing can be made in it, by others than root, once it is as it was.
    fs::set_permissions(at.join("a"), fs::Permissions::from_mode(0o555)).unwrap();
}

/// What there is: path to kind, mode, times, size, content.
fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let it = fs::symlink_metadata(&path).unwrap();
            let content = match it.file_type() {
                kind if kind.is_dir() => "directory".into(),
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                _ => blake(&fs::read(&path).unwrap()),
            };
            if it.is_dir() {
                waiting.push(path.clone());
            }
            let (mode, links) = (it.mode(), if it.is_dir() { 0 } else { it.nlink() });
            let line = format!("{mode:o} {links} {}.{} {content}", it.mtime(), it.mtime_nsec());
            found.insert(path.strip_prefix(root).unwrap().to_path_buf(), line);
        }
    }
    found
}

fn blake(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(bytes.len() as u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{sum:x}")
}

#[test]
fn a_tree_goes_there_and_back() {
    let Some(host) = FarHost::start("cp-tree") else { return };
    let from = host.dir.path("from");
    make_tree(&from);
    host.copied(&["-q", "-r", "from", &host.far("to")]);
    assert_eq!(describe(&host.dir.path("to/from")), describe(&from));
    // With a slash at the end only what is in it goes, and the directory's own attributes.
    host.copied(&["-q", "-r", &format!("{}/", host.far("to/from")), "back"]);
    assert_eq!(describe(&host.dir.path("back")), describe(&from));
    let blocks = fs::metadata(host.dir.path("back/sparse")).unwrap().blocks();
    assert!(blocks * 512 < 4 << 20, "{blocks} blocks");
    let (one, other) = (host.dir.path("back/a/file"), host.dir.path("back/b/hard"));
    assert_eq!(fs::metadata(one).unwrap().ino(), fs::metadata(other).unwrap().ino());
    // Nothing of it is sent again.
    let again = host.cp(&["--json", "-r", "from", &host.far("to")]);
    let counts = last_event(&again.stdout);
    assert_eq!((&counts["bytes_copied"], &counts["files_done"]), (&0.into(), &0.into()));
    assert!(counts["files_skipped"].as_u64() > Some(300));
}

#[test]
fn thousands_of_small_files_share_messages() {
    let Some(host) = FarHost::start("cp-small") else { return };
    let from = host.dir.path("from");
    fs::create_dir(&from).unwrap();
    for number in 0..3000_u64 {
        fs::write(from.join(number.to_string()), noise(number, 4096)).unwrap();
    }
    host.copied(&["-q", "-r", "from/", &host.far("to")]);
    assert_eq!(describe(&host.dir.path("to")), describe(&from));
}

#[test]
fn content_is_compared_if_asked_for() {
    let Some(host) = FarHost::start("cp-checksum") else { return };
    fs::create_dir(host.dir.path("from")).unwrap();
    for (name, text) in [("same", "aaaa"), ("other", "bbbb")] {
        host.dir.write(&format!("from/{name}"), text);
    }
    host.copied(&["-q", "-r", "from/", &host.far("to")]);
    // Same size and time, but other content; and the same content at another time.
    host.dir.write("to/other", "cccc");
    let copied_time = Command::new("touch")
        .args([OsStr::new("-r"), host.dir.path("from/other").as_os_str()])
        .arg(host.dir.path("to/other"))
        .status();
    assert!(copied_time.unwrap().success());
    host.copied(&["-q", "-r", "from/", &host.far("to")]);
    assert_eq!(fs::read(host.dir.path("to/other")).unwrap(), b"cccc");
    let now = Command::new("touch").arg(host.dir.path("to/same")).status();
    assert!(now.unwrap().success());
    let output = host.cp(&["--json", "--checksum", "-r", "from/", &host.far("to")]);
    assert_eq!(last_event(&output.stdout)["bytes_copied"], 4, "{}", text(&output.stderr));
    assert_eq!(describe(&host.dir.path("to")), describe(&host.dir.path("from")));
}

#[test]
fn attributes_of_the_user_s_go_with_x_alone() {
    let Some(host) = FarHost::start("cp-xattrs") else { return };
    fs::create_dir(host.dir.path("from")).unwrap();
    let from = host.dir.write("from/a", "content");
    host.dir.write("from/large", noise(2, 600_000));
    let none = rustix::fs::XattrFlags::empty();
    for path in ["from", "from/a", "from/large"] {
        if rustix::fs::setxattr(host.dir.path(path), "user.weft", b"\0value", none).is_err() {
            return weft_testkit::skip("the file system has no extended attributes");
        }
    }
    let value = |path: &str| {
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(host.dir.path(path), "user.weft", &mut value);
        len.map(|len| value[..len].to_vec())
    };
    host.copied(&["-qrX", from.parent().unwrap().to_str().unwrap(), &host.far("with")]);
    host.copied(&["-qr", &host.far("from"), "without"]);
    for path in ["", "/a", "/large"] {
        assert_eq!(value(&format!("with/from{path}")).unwrap(), b"\0value");
        assert!(value(&format!("without/from{path}")).is_err());
    }
}

#[test]
fn no_file_has_bits_that_set_a_user_or_a_group() {
    let Some(host) = FarHost::start("cp-set-id") else { return };
    let mode =
        |name: &str| fs::metadata(host.dir.path(name)).unwrap().permissions().mode() & 0o7777;
    let set_mode = |name: &str, mode| {
        fs::set_permissions(host.dir.path(name), Permissions::from_mode(mode)).unwrap();
    };
    for name in ["from", "from/sub", "to"] {
        fs::create_dir(host.dir.path(name)).unwrap();
    }
    for name in ["from/sub/a", "from/same", "to/same"] {
        host.dir.write(name, "content");
        set_mode(name, 0o755);
    }
    // What is made there inherits it.
    set_mode("to", 0o2755);
    set_mode("to/same", 0o4755);
    set_mode("from/sub", 0o755);
    host.copied(&["-q", "-r", "--checksum", "from/", &host.far("to/")]);
    // A directory keeps what it has or inherits: who shares the tree wants that group there.
    assert_eq!(["to/sub", "to/sub/a", "to/same"].map(mode), [0o2755, 0o755, 0o755]);
}
