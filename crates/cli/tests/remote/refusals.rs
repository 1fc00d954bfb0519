//! What goes wrong is said in a line, and the rest goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use weft_testkit::{is_root, skip, text};

use crate::far_host::{FarHost, assert_same, noise};

fn said(output: &Output, status: i32, wanted: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert!(stderr.contains(wanted), "{wanted}: {stderr}");
    assert!(!stderr.contains('\x1b'), "{stderr:?}");
}

#[test]
fn what_is_missing_is_named_and_the_rest_is_copied() {
    let Some(host) = FarHost::start("cp-missing") else { return };
    host.dir.write("a", "a");
    fs::create_dir(host.dir.path("to")).unwrap();
    fs::create_dir(host.dir.path("dir")).unwrap();
    let output = host.cp(&["none\x1b[2J", "dir", "a", &host.far("to")]);
    said(&output, 1, r"none\x1b[2J: No such file or directory");
    said(&output, 1, "dir is a directory, which -r copies");
    assert_same(&host.dir.path("a"), &host.dir.path("to/a"));
    said(&host.cp(&[&host.far("none"), "x"]), 1, "none: No such file or directory");
    said(&host.cp(&["a", &host.far("no/dir")]), 2, "no: No such file or directory");
    said(&host.cp(&["a", "b"]), 125, "neither end is HOST:PATH");
    said(&host.cp(&["--", "a", "-oProxyCommand=x:b"]), 2, "`-oProxyCommand=x` is no host");
    let wrong = host.bare("cp").args(["-p", "1", "a", "far:b"]).output().unwrap();
    said(&wrong, 2, "ssh did not reach far");
}

#[test]
fn a_file_in_the_way_of_a_directory_is_left() {
    let Some(host) = FarHost::start("cp-way") else { return };
    fs::create_dir_all(host.dir.path("from/sub")).unwrap();
    host.dir.write("from/sub/a", "a");
    host.dir.write("from/b", "b");
    fs::create_dir_all(host.dir.path("to/from/b")).unwrap();
    host.dir.write("to/from/sub", "mine");
    let output = host.cp(&["-r", "from", &host.far("to")]);
    said(&output, 1, "a link or a file where a directory is needed");
    said(&output, 1, "a directory is in its place");
    assert_eq!(fs::read(host.dir.path("to/from/sub")).unwrap(), b"mine");
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let Some(host) = FarHost::start("cp-pipe") else { return };
    host.dir.write("a", "a");
    let pipe = host.dir.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    said(&host.cp(&["a", &host.far("pipe")]), 1, "pipe: a pipe is in its place");
    said(&host.cp(&["a", &host.far("/dev/null")]), 1, "/dev/null: a device is in its place");
    std::os::unix::fs::symlink("pipe", host.dir.path("link")).unwrap();
    said(&host.cp(&["a", &host.far("link")]), 1, "link: a pipe is in its place");
    for name in ["pipe", "link"] {
        said(&host.cp(&["-", &host.far(name)]), 2, "a pipe is in its place");
    }
    assert!(host.dir.path("link").is_symlink());
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    if is_root() {
        return skip("root may write everywhere");
    }
    let Some(host) = FarHost::start("cp-readonly") else { return };
    host.dir.write("a", "a");
    fs::create_dir(host.dir.path("to")).unwrap();
    fs::set_permissions(host.dir.path("to"), fs::Permissions::from_mode(0o555)).unwrap();
    said(&host.cp(&["a", &host.far("to")]), 1, "to/a: Permission denied");
}

/// A file system of its own, gone with this.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(at: std::path::PathBuf, options: &str) -> Self {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(&at);
        assert!(mount.status().unwrap().success());
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_copy_and_leaves_what_can_be_resumed() {
    if !is_root() {
        return skip("only root may mount");
    }
    let Some(host) = FarHost::start("cp-full") else { return };
    let disk = Mounted::new(host.dir.path("disk"), "size=6m");
    host.dir.write("a", noise(9, 9_000_000));
    for (source, destination) in
        [("a".to_owned(), host.far("disk")), (host.far("a"), "disk".to_owned())]
    {
        let output = host.cp(&[&source, &destination]);
        said(&output, 2, "disk/a: No space left on device");
        said(&output, 2, "run the same command again to resume");
        assert!(!host.dir.path("disk/a").exists());
    }
    let mut grown = Command::new("mount");
    grown.args(["-o", "remount,size=40m"]).arg(&disk.0);
    assert!(grown.status().unwrap().success());
    host.copied(&["-q", "a", &host.far("disk")]);
    assert_same(&host.dir.path("a"), &host.dir.path("disk/a"));
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_file_beyond_the_limit_of_files_is_named_and_the_rest_is_copied() {
    let Some(host) = FarHost::start("cp-file-limit") else { return };
    host.dir.write("large", noise(9, 3_000_000));
    host.dir.write("small", "small");
    fs::create_dir(host.dir.path("to")).unwrap();
    let host = host.limiting("--fsize=1000000");
    said(&host.cp(&[&host.far("large"), &host.far("small"), "to"]), 1, "to/large: File too large");
    assert_same(&host.dir.path("small"), &host.dir.path("to/small"));
}

#[test]
fn thousands_of_directories_need_few_descriptors() {
    let Some(host) = FarHost::start("cp-descriptors") else { return };
    for number in 0..1500 {
        fs::create_dir_all(host.dir.path(&format!("from/{number}"))).unwrap();
        host.dir.write(&format!("from/{number}/a"), number.to_string());
    }
    let host = host.limiting("--nofile=200:200");
    host.copied(&["-q", "-r", &host.far("from/"), "to"]);
    for number in [0, 700, 1499] {
        assert_same(
            &host.dir.path(&format!("from/{number}/a")),
            &host.dir.path(&format!("to/{number}/a")),
        );
    }
}

#[test]
fn a_disk_that_is_read_only_is_named() {
    if !is_root() {
        return skip("only root may mount");
    }
    let Some(host) = FarHost::start("cp-ro") else { return };
    let _disk = Mounted::new(host.dir.path("disk"), "ro");
    host.dir.write("a", "a");
    said(&host.cp(&["a", &host.far("disk")]), 2, "disk/a: Read-only file system");
}
