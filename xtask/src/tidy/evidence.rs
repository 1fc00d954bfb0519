//! Tests that a document names: each one exists.

use crate::finding::Finding;
use crate::source::find_word;
use crate::tree::TextFile;

/// The separator of a file and a test in it.
const WITHIN: &str = ".rs::";

/// Checks each `path.rs::name` in code spans of `document`, where a path begins at the root.
pub fn check(document: &TextFile, files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in document.text.lines().enumerate() {
        for span in line.split('`').skip(1).step_by(2) {
            let Some((path, name)) = span.split_once(WITHIN) else { continue };
            let path = format!("{path}.rs");
            let file = files.iter().find(|file| file.path.to_str() == Some(&path));
            if file.is_none_or(|file| find_word(&file.text, name).is_none()) {
                let message = format!("there is no test {span}");
                findings.push(Finding::new(&document.path, index + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_gone_is_named() {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let test = file("crates/a/tests/b.rs", "#[test]\nfn holds() {}\n");
        let check = |text| check(&file("docs/c.md", text), std::slice::from_ref(&test));
        assert_eq!(check("`a` and `crates/a/tests/b.rs::holds`\n"), []);
        for text in ["`crates/a/tests/b.rs::hold`\n", "`crates/a/tests/d.rs::holds`\n"] {
            let found = check(text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].to_string().starts_with("docs/c.md:1: there is no test crates/a"));
        }
    }
}
