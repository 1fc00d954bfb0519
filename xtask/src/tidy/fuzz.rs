//! Fuzz targets: each has inputs to begin with and a smoke run among the tests.

use std::path::Path;

use crate::finding::Finding;
use crate::tree::TextFile;

/// Checks the targets among `files` of the tree at `root`.
pub fn check(root: &Path, files: &[TextFile]) -> Vec<Finding> {
    let smoked = |name: &str| {
        let call = format!("smoke(\"{name}\"");
        let mut tests = files.iter().filter(|file| file.is_test());
        tests.any(|test| test.text.split_whitespace().collect::<String>().contains(&call))
    };
    let seeded = |name: &str| {
        let corpus = root.join("fuzz/seeds").join(name);
        corpus.read_dir().is_ok_and(|mut entries| entries.next().is_some())
    };
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("fuzz/fuzz_targets")) {
        let Some(name) = file.path.file_stem().and_then(|name| name.to_str()) else { continue };
        if !smoked(name) {
            let message = format!("no test calls smoke(\"{name}\", ...)");
            findings.push(Finding::new(&file.path, 1, message));
        }
        if !seeded(name) {
            let message = format!("fuzz/seeds/{name} has no input to begin with");
            findings.push(Finding::new(&file.path, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_target_without_test_or_seeds_is_named() {
        let target = file("fuzz/fuzz_targets/header.rs", "");
        let root = Path::new("nowhere");
        let found = |files: &[TextFile]| -> Vec<String> {
            check(root, files).iter().map(ToString::to_string).collect()
        };
        let seeds = "fuzz/fuzz_targets/header.rs:1: fuzz/seeds/header has no input to begin with";
        let test = "fuzz/fuzz_targets/header.rs:1: no test calls smoke(\"header\", ...)";
        assert_eq!(found(std::slice::from_ref(&target)), [test, seeds]);
        let smoke = file("crates/wire/tests/smoke.rs", "mutate::smoke(\n    \"header\", &seeds");
        assert_eq!(found(&[target, smoke]), [seeds]);
    }
}
