//! One type name, one meaning: no two modules of the workspace declare a type of the same name.
//!
//! A reader who meets a name in two crates must not have to ask which of two things it is. Names
//! that only one crate uses count too: people search by name. Tests may use any name, and so may
//! associated types.
//!
//! Invariant: `types.txt` has the names that are declared more than once, to be qualified or
//! renamed. The list only shrinks: no name is added to it, and what is renamed leaves it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::finding::Finding;
use crate::tokens::{self, CodeToken};
use crate::tree::TextFile;

/// Names that are still declared more than once, one a line.
const KNOWN: &str = include_str!("types.txt");

/// Beginnings of names that C has given: the library that serves the C ABI and a client of it each
/// declare what they need of a structure, whose one meaning is that of the C header.
const OF_C: [&str; 2] = ["ibv_", "rdma_"];

/// Workspaces of their own, which share nothing but the tree.
const ELSEWHERE: [&str; 2] = ["fuzz", "interop/quic"];

/// Where each type name is declared, in the order of the files.
type Declared = BTreeMap<String, Vec<(PathBuf, usize)>>;

/// Checks the Rust files of the workspace.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let known: BTreeSet<&str> = KNOWN.lines().collect();
    check_against(&known, files)
}

/// The names that are declared more than once, for `types.txt`.
pub fn repeated(files: &[TextFile]) -> Vec<String> {
    let declared = declared(files).into_iter().filter(|(name, _)| !is_of_c(name));
    declared.filter(|(_, places)| places.len() > 1).map(|(name, _)| name).collect()
}

fn check_against(known: &BTreeSet<&str>, files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, places) in declared(files) {
        if known.contains(name.as_str()) || is_of_c(&name) {
            continue;
        }
        let [(first, _), others @ ..] = places.as_slice() else { continue };
        for (path, line) in others {
            let message = format!("{name} is declared in {} too: qualify one", first.display());
            findings.push(Finding::new(path, *line, message));
        }
    }
    findings
}

fn is_of_c(name: &str) -> bool {
    OF_C.iter().any(|beginning| name.starts_with(beginning))
}

fn declared(files: &[TextFile]) -> Declared {
    let mut declared = Declared::new();
    let of_workspace = |file: &&TextFile| {
        let elsewhere = ELSEWHERE.iter().any(|dir| file.path.starts_with(dir));
        file.is("rs") && !file.is_test() && !elsewhere
    };
    for file in files.iter().filter(of_workspace) {
        let mut seen = BTreeSet::new();
        for (name, line) in types(&tokens::product(file).tokens) {
            if seen.insert(name.clone()) {
                declared.entry(name).or_default().push((file.path.clone(), line));
            }
        }
    }
    declared
}

/// The types that are declared, each with its line; associated types aside.
fn types(tokens: &[CodeToken]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    // The depths of braces whose inside belongs to an `impl` or a `trait`.
    let (mut depth, mut inside, mut opens) = (0_usize, Vec::new(), false);
    for (at, token) in tokens.iter().enumerate() {
        let next = |skip: usize| tokens.get(at + skip);
        let text = |skip: usize| next(skip).map_or("", |token| token.text.as_str());
        let named = next(1).is_some_and(CodeToken::is_word);
        match token.text.as_str() {
            "{" => {
                depth += 1;
                if std::mem::take(&mut opens) {
                    inside.push(depth);
                }
            }
            "}" => {
                inside.pop_if(|at| *at == depth);
                depth = depth.saturating_sub(1);
            }
            ";" => opens = false,
            "impl" => opens = true,
            "trait" => {
                opens = true;
                if named {
                    found.push((text(1).to_owned(), token.line));
                }
            }
            "struct" | "enum" if named => found.push((text(1).to_owned(), token.line)),
            "union" if named && matches!(text(2), "{" | "<") => {
                found.push((text(1).to_owned(), token.line));
            }
            "type" if named && inside.last() != Some(&depth) => {
                found.push((text(1).to_owned(), token.line));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    fn names(text: &str) -> String {
        let found = types(&tokens::product(&file("src/a.rs", text)).tokens);
        let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
        names.join(" ")
    }

    #[test]
    fn every_kind_of_type_is_seen() {
        let text = "pub struct A; enum B<T> { C(T) } pub(crate) trait D: E {} union F { g: u8 } \
            type H<T> = Vec<T>; fn i() { struct J; type K = u8; } bitflags! { struct L: u8 {} }";
        assert_eq!(names(text), "A B D F H J K L");
    }

    #[test]
    fn associated_types_tests_and_other_words_are_not() {
        assert_eq!(names("impl A for B { type C = u8; fn d() { struct E; } }"), "E");
        assert_eq!(names("trait A { type B; } fn c(d: impl E) -> F; type G = u8;"), "A G");
        assert_eq!(names("#[cfg(test)]\nmod tests { struct A; }\n"), "");
        assert_eq!(names("let union = a; set.union(b); x.r#type = struct_;"), "");
    }

    #[test]
    fn a_name_of_two_modules_is_found_unless_it_is_known() {
        let files = [
            file("crates/a/src/b.rs", "struct One;\nstruct Two; struct ibv_qp;\n"),
            file("crates/c/src/d.rs", "\nstruct Two; struct Three; struct One; struct ibv_qp;\n"),
            file("crates/c/tests/d.rs", "struct Three;"),
            file("fuzz/src/d.rs", "struct Three;"),
        ];
        let found = check_against(&BTreeSet::from(["One"]), &files);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = "crates/c/src/d.rs:2: Two is declared in crates/a/src/b.rs too: qualify one";
        assert_eq!(found, [expected]);
        assert_eq!(repeated(&files), ["One", "Two"]);
    }
}
