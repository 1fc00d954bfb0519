//! The numbered rules of a specification, each named by a test.
//!
//! A rule stands as `**[S-n]**` in docs/shuttle.md; a test names it as `S-n`, or in a range, as in
//! `S-30 to S-37`, in its own doc or in that of its file.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::finding::Finding;
use crate::tree::TextFile;

/// The specification.
const SPECIFICATION: &str = "docs/shuttle.md";

/// Checks that tests name the rules, and no others.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let specification = files.iter().find(|file| file.path.to_str() == Some(SPECIFICATION));
    let Some(specification) = specification else { return Vec::new() };
    let rules = rules(&specification.text);
    let mut named = BTreeSet::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        for (line, rule) in named_by_tests(file) {
            named.extend(rule.clone());
            // A range may have gaps.
            let rule = *rule.end();
            if !rules.iter().any(|(_, known)| *known == rule) {
                let message = format!("{SPECIFICATION} has no rule S-{rule}");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (line, rule) in rules {
        if !seen.insert(rule) {
            let message = format!("another rule is S-{rule}");
            findings.push(Finding::new(&specification.path, line, message));
        }
        if !named.contains(&rule) {
            let message = format!("no test names S-{rule}");
            findings.push(Finding::new(&specification.path, line, message));
        }
    }
    findings
}

/// The rules of the specification, each with its line.
fn rules(text: &str) -> Vec<(usize, u32)> {
    let rule = |(index, line): (usize, &str)| {
        let (_, rest) = line.split_once("**[S-")?;
        Some((index + 1, rest.split_once("]**")?.0.parse().ok()?))
    };
    text.lines().enumerate().filter_map(rule).collect()
}

/// The rules that the tests in a file name, each with a line that does.
fn named_by_tests(file: &TextFile) -> Vec<(usize, RangeInclusive<u32>)> {
    let mut in_tests = file.is_test();
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]";
        if in_tests {
            found.extend(numbers(line).into_iter().map(|rule| (index + 1, rule)));
        }
    }
    found
}

/// The rules that a line names, one by one or in ranges.
fn numbers(line: &str) -> Vec<RangeInclusive<u32>> {
    let mut found: Vec<RangeInclusive<u32>> = Vec::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("S-") {
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let number: Option<u32> = after[..digits].parse().ok();
        if !before.ends_with(|c: char| c.is_alphanumeric() || c == '-') {
            let first = found.last().map(|range| *range.end()).filter(|_| before == " to ");
            found.extend(number.map(|last| first.unwrap_or(last)..=last));
        }
        rest = &after[digits..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_name_all_of_their_rules() {
        let of = |line: &str| numbers(&line.replace('T', "S"));
        assert_eq!(of("//! Rules: T-5, T-7 to T-9."), [5..=5, 7..=7, 7..=9]);
        assert_eq!(of("RFT-3, a-T-4"), []);
    }

    #[test]
    fn a_rule_without_a_test_and_a_test_without_a_rule_are_found() {
        let file =
            |path: &str, text: &str| TextFile { path: path.into(), text: text.replace('T', "S") };
        let files = [
            file(SPECIFICATION, "**[T-1]** One.\n**[T-2]** [T-1].\n**[T-1]** F."),
            file("crates/a/tests/b.rs", "//! Rules: T-1, T-9.\n"),
            file("crates/a/src/c.rs", "// T-2\n"),
        ];
        let found: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        let expected = [
            "crates/a/tests/b.rs:1: docs/shuttle.md has no rule S-9",
            "docs/shuttle.md:2: no test names S-2",
            "docs/shuttle.md:3: another rule is S-1",
        ];
        assert_eq!(found, expected);
    }
}
