//! Links in Markdown: a relative one leads to a file of the project, its anchor to a heading.

use std::path::{Component, Path, PathBuf};

use crate::finding::Finding;
use crate::tree::TextFile;

/// Checks the links of one file.
pub fn check(root: &Path, file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in links(&file.text) {
        if let Err(fault) = resolve(root, file, &target) {
            findings.push(Finding::new(&file.path, line, format!("link to {target}: {fault}")));
        }
    }
    findings
}

/// The targets of `[text](target)`, each with its line; code blocks and code spans aside.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let spans: Vec<&str> = line.split('`').step_by(2).collect();
        let visible = spans.join("` `");
        for (at, _) in visible.match_indices("](") {
            let rest = &visible[at + 2..];
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.trim_matches(['<', '>']).to_owned()));
        }
    }
    found
}

/// The lines outside fenced code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then_some((index + 1, line))
    })
}

fn resolve(root: &Path, file: &TextFile, target: &str) -> Result<(), &'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    if path.starts_with('/') {
        return Err("it is not relative");
    }
    let text = match path {
        "" => file.text.clone(),
        _ => read(root, &file.path, path)?,
    };
    match anchor.is_empty() || headings(&text).any(|heading| heading == anchor) {
        true => Ok(()),
        false => Err("no such heading"),
    }
}

/// The text of a linked file; nothing for a directory or a picture.
fn read(root: &Path, from: &Path, link: &str) -> Result<String, &'static str> {
    let beside = from.parent().unwrap_or(Path::new("")).join(link);
    let path = root.join(normal(&beside).ok_or("it leaves the project")?);
    if !path.exists() {
        return Err("no such file");
    }
    Ok(std::fs::read_to_string(path).unwrap_or_default())
}

/// `path` without `.` and `..`; none if it climbs out of the project.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()?),
            _ => {}
        }
    }
    Some(parts.into_iter().collect())
}

/// The anchors of the headings, as web views of Markdown make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line))
}

fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let root = crate::workspace_root().unwrap();
        let file = TextFile { path: path.into(), text: text.into() };
        check(&root, &file).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn dead_links_fail() {
        assert_eq!(
            faults("a.md", "x\n[a](nowhere.md)\n"),
            ["a.md:2: link to nowhere.md: no such file"]
        );
        assert_eq!(faults("docs/a.md", "[a](xtask/src/tree.rs)").len(), 1);
        assert_eq!(faults("docs/a.md", "[a](../../elsewhere.md)").len(), 1);
        assert_eq!(faults("docs/a.md", "[a](/etc/passwd)").len(), 1);
        assert_eq!(faults("a.md", "# Some thing\n[a](#other-thing)").len(), 1);
    }

    #[test]
    fn live_links_pass() {
        assert!(
            faults("docs/a.md", "[a](../xtask/src/tree.rs), [b](https://example.org/x)").is_empty()
        );
        assert!(faults("a.md", "[a](xtask) [b](./Cargo.toml \"title\")").is_empty());
        assert!(
            faults("a.md", "## Exit `status`, in short\n[a](#exit-status-in-short)").is_empty()
        );
    }

    #[test]
    fn code_has_no_links() {
        assert!(faults("a.md", "`[a](b)`\n```\n[a](b)\n```\n").is_empty());
        assert_eq!(faults("a.md", "`x` [a](b) `y`").len(), 1);
    }
}
