//! docs/troubleshooting.md has an entry for each message of level error or warning.

use std::fs;
use std::path::Path;

use super::{read, root};

const PAGE: &str = "docs/troubleshooting.md";
/// Calls that write a line of one of the two levels.
const CALLS: [&str; 9] = [
    "report::error(",
    "report::warning(",
    "report::stranger(",
    "report::warn(",
    "log::error!(",
    "log::warn!(",
    "log::write(LogLevel::Error",
    "log::write(LogLevel::Warn",
    "log!(Warn",
];
/// Where messages are made that calls are given as values, from a line to a line.
const MAKERS: [(&str, &str, &str); 7] = [
    ("crates/net/src/secrecy/refused.rs", "pub(super) fn line(", "/// What the call"),
    ("crates/net/src/secrecy.rs", "pub enum KeyFault", "pub fn read_key"),
    ("crates/net/src/silence.rs", "impl fmt::Display for Awaited", "/// When a silent peer"),
    ("crates/host/src/devices.rs", "pub fn read(", "fn is_name"),
    ("crates/host/src/devices/list.rs", "fn parse_item(", "/// What is repeated"),
    ("crates/preload/src/env.rs", "fn parse(", "fn is_known"),
    ("crates/preload/src/asked.rs", "fn mention(", "/// The device that an option"),
];
/// A shorter piece of text between two values says too little to be looked for.
const PIECE_MIN: usize = 12;

#[test]
fn every_message_has_an_entry() {
    let page = words(&read(PAGE).replace('`', ""));
    let mut missing = Vec::new();
    let mut count = 0;
    for (place, text) in made().into_iter().chain(written()) {
        for piece in pieces(&text) {
            count += 1;
            if !page.contains(&piece) {
                missing.push(format!("{place}: {piece}"));
            }
        }
    }
    assert!(count > 30, "only {count} pieces were found: are the calls still named so?");
    assert!(missing.is_empty(), "{PAGE} has no entry for:\n{}", missing.join("\n"));
}

/// The texts of the functions that make messages.
fn made() -> Vec<(String, String)> {
    let texts = MAKERS.iter().map(|(file, from, to)| {
        let source = read(file);
        let begin = source.find(from).unwrap_or_else(|| panic!("{file} has no {from}"));
        let length = source[begin..].find(to).unwrap_or_else(|| panic!("{file} has no {to}"));
        ((*file).to_owned(), source[begin..begin + length].to_owned())
    });
    texts.collect()
}

/// The calls that write messages, each to its `;`.
fn written() -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for krate in fs::read_dir(root().join("crates")).expect("crates").flatten() {
        walk(&krate.path().join("src"), &mut calls);
    }
    calls
}

fn walk(dir: &Path, calls: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, calls);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("a source");
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            for call in CALLS {
                for (at, _) in source.match_indices(call) {
                    let end = source[at..].find(";\n").map_or(source.len(), |end| at + end);
                    calls.push((path.display().to_string(), source[at..end].to_owned()));
                }
            }
        }
    }
}

/// The pieces of the string literals of a source that stand between two values.
fn pieces(source: &str) -> Vec<String> {
    let code: String = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut pieces = Vec::new();
    for literal in code.split('"').skip(1).step_by(2) {
        let text = words(&literal.replace("\\\n", "").replace('`', ""));
        for piece in text.split(['{', '}']).step_by(2) {
            let piece = piece.trim();
            if piece.len() >= PIECE_MIN && piece.contains(' ') {
                pieces.push(piece.to_owned());
            }
        }
    }
    pieces
}

/// With single spaces.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn pieces_are_what_stands_between_values() {
    let source = r#"report::error(format!("no {thing} is here, so `it` ends \
                    there: {why}"))"#;
    assert_eq!(pieces(source), ["is here, so it ends there:"]);
}
