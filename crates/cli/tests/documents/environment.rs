//! `weft run --help` and docs/environment.md have the same variables.

use std::collections::BTreeSet;
use std::process::Command;

use super::read;

/// The names of Weft's variables that lines begin with after `before`.
fn names(text: &str, before: &str) -> BTreeSet<String> {
    let begun = text.lines().filter_map(|line| line.strip_prefix(before));
    let name = |rest: &str| {
        rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect::<String>()
    };
    begun.map(name).filter(|name| name.starts_with("WEFT")).collect()
}

#[test]
fn the_help_and_the_page_have_the_same_variables() {
    let help = Command::new(env!("CARGO_BIN_EXE_weft")).args(["run", "--help"]).output().unwrap();
    let help = names(&String::from_utf8(help.stdout).unwrap(), "    ");
    let page = names(&read("docs/environment.md"), "| `");
    assert!(page.len() > 20, "{page:?}");
    assert_eq!(help, page);
}
