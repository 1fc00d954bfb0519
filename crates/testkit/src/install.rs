//! Where things are: Weft as cargo built it, and the programs of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory of the running test; the libraries lie beside it.
fn deps() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("a test lies in a directory").to_path_buf()
}

/// libweft.so, of this build.
pub fn library() -> PathBuf {
    beside("libweft.so")
}

/// libweft_sockets.so, of this build.
pub fn sockets_library() -> PathBuf {
    beside("libweft_sockets.so")
}

/// The library `name` of this build, which cargo puts beside the test programs.
///
/// # Panics
/// When the crate of the test does not have it as a dependency, so that it is not built.
pub fn beside(name: &str) -> PathBuf {
    let library = deps().join(name);
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// The `weft` command. Cargo builds it for the tests of the whole workspace; for these tests alone
/// it has to be asked.
pub fn weft() -> &'static Path {
    static WEFT: OnceLock<PathBuf> = OnceLock::new();
    WEFT.get_or_init(|| {
        let deps = deps();
        let profile = deps.parent().expect("deps lies in the directory of the profile");
        let weft = profile.join("weft");
        if !weft.is_file() {
            build(profile);
        }
        weft
    })
}

fn build(profile: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "-p", "weft-cli", "--target-dir"]);
    cargo.arg(profile.parent().expect("the profile lies in the target directory"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().expect("cargo starts").success(), "weft does not build");
}

/// Where `scripts/peers.sh` or `scripts/servers.sh` put `name`, below the target directory; nothing
/// if it is not there.
pub fn peer(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    target.join(name).canonicalize().ok()
}

/// Where `program` is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Administrators' programs are not in everybody's PATH.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(more);
    places.find_map(|dir| Some(dir.join(program)).filter(|file| file.is_file()))
}
