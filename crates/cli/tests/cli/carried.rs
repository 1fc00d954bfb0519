//! A `weft` that was copied alone, with its libraries behind its end.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Dir, text, weft};

/// A `weft` of this build in `alone/weft`, which carries `carried/libweft.so` and a stub.
fn carrying(dir: &Dir) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_weft"));
    let alone = dir.path("alone/weft");
    for parent in ["alone", "carried/stubs/libefa"] {
        fs::create_dir_all(dir.path(parent)).unwrap();
    }
    fs::copy(built, &alone).unwrap();
    fs::copy(built.with_file_name("libweft.so"), dir.path("carried/libweft.so")).unwrap();
    dir.write("carried/stubs/libefa/libefa.so.1", "a stub");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/carry.sh");
    let mut carry = Command::new(script);
    assert!(carry.arg(&alone).arg(dir.path("carried")).arg("-0").status().unwrap().success());
    alone
}

fn run(alone: &Path, cache: &Path) -> Output {
    let mut command = Command::new(alone);
    weft_testkit::without_settings(&mut command);
    command.env("XDG_CACHE_HOME", cache).env("HOME", "/nonexistent");
    command.args(["run", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap()
}

#[test]
fn libraries_are_unpacked_where_nobody_else_can_write() {
    let dir = Dir::new("carried");
    let (alone, cache) = (carrying(&dir), dir.path("cache"));
    let preloaded = || {
        let output = run(&alone, &cache);
        assert!(output.status.success(), "{}", text(&output.stderr));
        PathBuf::from(text(&output.stdout).trim())
    };
    let library = preloaded();
    let home = library.parent().unwrap();
    assert!(library.starts_with(cache.join("weft")) && library.ends_with("libweft.so"));
    assert_eq!(fs::metadata(home).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::read_to_string(home.join("stubs/libefa/libefa.so.1")).unwrap(), "a stub");
    let right = fs::read(dir.path("carried/libweft.so")).unwrap();
    assert!(fs::read(&library).unwrap() == right);

    // What is right stays, and what is not is replaced.
    let first = fs::metadata(&library).unwrap().ino();
    assert_eq!(preloaded(), library);
    assert_eq!(fs::metadata(&library).unwrap().ino(), first);
    fs::write(&library, &right[..1000]).unwrap();
    assert_eq!(preloaded(), library);
    assert!(fs::read(&library).unwrap() == right);
    assert_eq!(fs::read_dir(home).unwrap().count(), 2, "nothing is left of writing");
}

#[test]
fn where_they_cannot_be_unpacked_it_is_said() {
    let dir = Dir::new("carried-nowhere");
    let alone = carrying(&dir);
    let nowhere = dir.write("file", "");
    let output = run(&alone, &nowhere);
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("cannot be unpacked") && said.contains("XDG_CACHE_HOME"), "{said}");
}

#[test]
fn they_can_be_written_anywhere() {
    let dir = Dir::new("carried-unpack");
    let (alone, to) = (carrying(&dir), dir.path("new/lib"));
    assert!(Command::new(&alone).arg("unpack").arg(&to).status().unwrap().success());
    assert!(
        fs::read(to.join("libweft.so")).unwrap()
            == fs::read(dir.path("carried/libweft.so")).unwrap()
    );
    // A build carries nothing.
    let output = weft().arg("unpack").arg(dir.path("other")).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("carries no libraries"));
}
