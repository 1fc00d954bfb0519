//! What the documentation says, held against what there is.

mod commands;
mod environment;
mod first_program;
mod messages;
mod simulator;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};

/// The directory of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The content of a file of the workspace.
fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages that a user reads: README.md and docs/*.md, by their paths in the workspace. Without
/// the one that the parser writes, which `cli/src/reference.rs` holds.
fn pages() -> Vec<String> {
    let docs = fs::read_dir(root().join("docs")).expect("docs").flatten();
    let names = docs.map(|entry| entry.file_name().into_string().expect("a name"));
    let mut pages: Vec<String> = names
        .filter(|name| name.ends_with(".md") && name != "commands.md")
        .map(|name| format!("docs/{name}"))
        .collect();
    pages.sort();
    pages.insert(0, "README.md".into());
    pages
}
