//! The project's chores, run as `cargo xtask NAME`.
//!
//! `arch` keeps the crate graph and the purity of the protocol crates, `tidy` the style of the
//! text, `cost` what a packet costs; `test` runs all tests, and `types` lists type names that are
//! declared more than once. Invariant: a chore reads the tree and
//! prints what is wrong with it as `file:line: message`; it never changes a file, and there is no
//! way to except one.
#![forbid(unsafe_code)]

mod arch;
mod circles;
mod cost;
mod finding;
mod imports;
mod licences;
mod purity;
mod source;
mod suite;
mod tidy;
mod tokens;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::finding::Finding;

const USAGE: &str = "usage: cargo xtask arch | tidy | types | cost | cost-far | \
    test [units|clients|measurements|quick]";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            report(findings);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(mut args: impl Iterator<Item = String>) -> Result<Vec<Finding>> {
    let chore = args.next().context(USAGE)?;
    let part = if chore == "test" { args.next() } else { None };
    if args.next().is_some() {
        bail!(USAGE);
    }
    let root = workspace_root()?;
    match chore.as_str() {
        "arch" => arch::check(&root),
        "tidy" => tidy::check(&root),
        "types" => print_repeated_types(&root),
        "test" => suite::check(&root, part.as_deref()),
        "cost" => cost::check(&root, false),
        "cost-far" => cost::check(&root, true),
        _ => bail!("no chore is called {chore:?}\n{USAGE}"),
    }
}

/// Prints what `xtask/src/tidy/types.txt` would have now.
fn print_repeated_types(root: &Path) -> Result<Vec<Finding>> {
    for name in tidy::types::repeated(&tree::text_files(root)?) {
        println!("{name}");
    }
    Ok(Vec::new())
}

/// The directory of the workspace: the parent of this crate's own.
fn workspace_root() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Ok(Path::new(&own).parent().context("xtask lies in a workspace")?.to_path_buf())
}

fn report(mut findings: Vec<Finding>) {
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    eprintln!("{} found", findings.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> impl Iterator<Item = String> + '_ {
        line.split_whitespace().map(str::to_owned)
    }

    #[test]
    fn an_unknown_chore_is_an_error() {
        assert!(run(words("polish")).unwrap_err().to_string().contains("polish"));
        assert!(run(words("")).is_err());
        assert!(run(words("tidy twice")).is_err());
    }
}
