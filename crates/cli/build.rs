//! Puts the commit into `weft --version`, where the sources are a checkout of their own.

use std::path::Path;
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let said = commit().map_or(version.to_owned(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=WEFT_VERSION={said}");
    println!("cargo:rerun-if-changed=build.rs");
    // It grows with each change of what is checked out.
    if let Some(log) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists())
    {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// The commit, unless the checkout is another project's that contains this one.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    git(&["rev-parse", "--short=10", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}
