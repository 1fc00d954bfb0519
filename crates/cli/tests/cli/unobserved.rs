//! Observers whose directory is not this user's alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::common::{Dir, text, weft};

/// What `weft` says with `XDG_RUNTIME_DIR` as its directory, and its status.
fn said(scratch: &Dir, args: &[&str]) -> (String, String, Option<i32>) {
    let output = weft().args(args).env("XDG_RUNTIME_DIR", scratch.root()).output().unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn a_directory_that_others_may_write_is_an_error_and_no_empty_table() {
    let scratch = Dir::new("unobserved");
    let place = scratch.root().join("weft");
    let observers = [&["ss"][..], &["ss", "--json"], &["top", "-b", "-n", "1"], &["metrics"]];
    let refuses = || {
        for args in observers {
            let (out, error, status) = said(&scratch, args);
            assert_eq!((out.as_str(), status), ("", Some(125)), "{args:?}: {error}");
            assert!(error.contains("is not a directory of this user alone"), "{args:?}: {error}");
        }
    };
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
    refuses();
    fs::remove_dir(&place).unwrap();
    fs::write(&place, "").unwrap();
    refuses();
    fs::remove_file(&place).unwrap();
    symlink(scratch.root(), &place).unwrap();
    refuses();
}

#[test]
fn a_directory_that_nobody_has_made_is_no_error() {
    let scratch = Dir::new("unmade");
    let (out, error, status) = said(&scratch, &["ss", "--json"]);
    assert_eq!((out.trim(), error.as_str(), status), ("[]", "", Some(0)));
}
