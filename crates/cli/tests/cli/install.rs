//! `scripts/install.sh` as users of a release run it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Dir, text};

const FILES: [&str; 8] = [
    "bin/weft",
    "bin/degen",
    "lib/weft/libweft.so",
    "lib/weft/libweft_sockets.so",
    "lib/weft/stubs/libefa/libefa.so.1",
    "share/bash-completion/completions/weft",
    "share/zsh/site-functions/_weft",
    "share/fish/vendor_completions.d/weft.fish",
];

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install.sh")
}

/// An archive of a release of this build.
fn archive(dir: &Dir) -> String {
    let built = Path::new(env!("CARGO_BIN_EXE_weft")).parent().unwrap();
    for file in FILES {
        let to = dir.path("weft-0-test").join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let from = built.join(to.file_name().unwrap());
        match from.exists() {
            true => std::os::unix::fs::symlink(from, to).unwrap(),
            false => fs::write(to, "").unwrap(),
        }
    }
    let archive = dir.text_path("weft.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--dereference", "--use-compress-program=gzip -1", "-cf", &archive, "weft-0-test"]);
    assert!(tar.current_dir(dir.root()).status().unwrap().success());
    archive
}

fn install(arguments: &[&str]) -> Output {
    Command::new("sh").arg(script()).args(arguments).output().unwrap()
}

/// The files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_release_is_installed_replaced_and_removed() {
    let dir = Dir::new("install");
    let archive = &archive(&dir);
    let (prefix, to) = (dir.path("prefix"), &dir.text_path("prefix"));

    let installed = install(&["--prefix", to, archive]);
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    assert!(text(&installed.stdout).contains("add it to PATH"));
    assert_eq!(files(&prefix).len(), FILES.len() + 1, "and the list of them");
    let weft = prefix.join("bin/weft");
    let shown = Command::new(&weft).args(["run", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
    let library = prefix.join("lib/weft/libweft.so").canonicalize().unwrap();
    assert_eq!(text(&shown.stdout).trim(), library.to_str().unwrap());

    // A process that has mapped the old library keeps it.
    let old = fs::metadata(&library).unwrap().ino();
    fs::write(format!("{archive}.sha256"), "0000  weft.tar.gz\n").unwrap();
    let wrong = install(&["--prefix", to, archive]);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("is not what"));
    assert_eq!(fs::metadata(&library).unwrap().ino(), old);
    fs::remove_file(format!("{archive}.sha256")).unwrap();
    assert!(install(&["--prefix", to, archive]).status.success());
    assert_ne!(fs::metadata(&library).unwrap().ino(), old);

    assert!(install(&["--prefix", to, "--uninstall"]).status.success());
    assert_eq!(files(&prefix), Vec::<PathBuf>::new());
    assert!(!prefix.join("lib").exists() && !prefix.join("share").exists());
    let again = install(&["--prefix", to, "--uninstall"]);
    assert!(!again.status.success() && text(&again.stderr).contains("nothing was installed"));
}

#[test]
fn what_is_no_release_is_refused() {
    let dir = Dir::new("install-none");
    let to = &dir.text_path("prefix");
    for arguments in [&["--prefix", to, "/nonexistent"][..], &["--nosuch"], &["--prefix"], &[]] {
        let refused = install(arguments);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{arguments:?}");
        assert!(text(&refused.stderr).starts_with("install.sh: "), "{arguments:?}");
    }
    assert!(!dir.path("prefix").exists());
}
