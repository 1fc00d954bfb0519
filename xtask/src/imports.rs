//! Which modules of its own crate a module names: by `use`, and by paths in its code.

use std::collections::{BTreeMap, BTreeSet};

use crate::tokens::CodeToken;

/// The place of a module in its crate, from the root: `["cc", "weave"]`; none for the root.
pub type Module = Vec<String>;

/// The modules that `module` imports, itself aside, each with the first line that says so. `known`
/// are the modules of the crate that have a file.
pub fn of(
    module: &Module,
    tokens: &[CodeToken],
    known: &BTreeSet<Module>,
) -> BTreeMap<Module, usize> {
    let mut found = BTreeMap::new();
    for (line, path) in paths(tokens) {
        let Some(target) = resolve(module, &path, known) else { continue };
        if target != *module {
            found.entry(target).or_insert(line);
        }
    }
    found
}

/// The module that a path of `module` leads to: the longest beginning of it that has a file.
fn resolve(module: &Module, path: &[String], known: &BTreeSet<Module>) -> Option<Module> {
    let mut place = module.clone();
    for (at, step) in path.iter().enumerate() {
        match step.as_str() {
            "crate" => place.clear(),
            "super" => drop(place.pop()?),
            "self" => {}
            name => {
                place.push(name.to_owned());
                if known.contains(&place) {
                    continue;
                }
                // Another crate, or something of this module's own.
                if at == 0 {
                    return None;
                }
                place.pop();
                break;
            }
        }
    }
    known.contains(&place).then_some(place)
}

/// Every path in the code, each with its line; those of a `use` one by one.
fn paths(tokens: &[CodeToken]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        if text(at) == "pub" && text(at + 1) == "(" {
            // Who may see an item is no import: `pub(in crate::a)`.
            while at < tokens.len() && text(at) != ")" {
                at += 1;
            }
        } else if text(at) == "use" {
            at = tree(tokens, at + 1, &[], &mut found);
        } else if tokens[at].is_word() && text(at + 1) == "::" {
            let line = tokens[at].line;
            let (path, end) = plain_path(tokens, at);
            found.push((line, path));
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

/// The names of the path that begins at `at`, and where it ends.
fn plain_path(tokens: &[CodeToken], mut at: usize) -> (Vec<String>, usize) {
    let mut names = Vec::new();
    while at < tokens.len() && tokens[at].is_word() {
        names.push(tokens[at].text.clone());
        at += 1;
        if tokens.get(at).is_none_or(|token| token.text != "::") {
            break;
        }
        at += 1;
    }
    (names, at)
}

/// Reads the use tree at `at`, whose paths begin with `before`; gives where it ends.
fn tree(
    tokens: &[CodeToken],
    at: usize,
    before: &[String],
    found: &mut Vec<(usize, Vec<String>)>,
) -> usize {
    let Some(first) = tokens.get(at) else { return at };
    let (names, mut at) = plain_path(tokens, at);
    let path = [before, &names].concat();
    match tokens.get(at).map_or("", |token| token.text.as_str()) {
        "{" => {
            at += 1;
            while tokens.get(at).is_some_and(|token| token.text != "}") {
                at = tree(tokens, at, &path, found);
                at += usize::from(tokens.get(at).is_some_and(|token| token.text == ","));
            }
            at + 1
        }
        _ => {
            found.push((first.line, path));
            // A `*`, or the name that it is given here.
            let ends = |token: &CodeToken| matches!(token.text.as_str(), ";" | "," | "}");
            at + tokens[at..].iter().position(ends).unwrap_or(tokens.len() - at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens;
    use crate::tree::TextFile;

    fn module(path: &str) -> Module {
        path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// The imports of `a::b` in a crate of some modules.
    fn imports(text: &str) -> Vec<String> {
        let all = ["", "a", "a::b", "a::b::c", "a::d", "e", "e::f", "g"];
        let known = all.into_iter().map(module).collect();
        let file = TextFile { path: "src/a/b.rs".into(), text: text.into() };
        let found = of(&module("a::b"), &tokens::product(&file).tokens, &known);
        found.into_keys().map(|target| target.join("::")).collect()
    }

    #[test]
    fn a_use_tree_names_each_of_its_leaves() {
        let found = imports("use crate::{e::{self, f::{X, Y}}, g::*};\nuse std::{g::Z};\n");
        assert_eq!(found, ["e", "e::f", "g"]);
    }

    #[test]
    fn an_import_counts_under_its_own_name() {
        assert_eq!(imports("pub(crate) use crate::e::f as g;\n"), ["e::f"]);
        assert_eq!(imports("use crate::{g::A as B, e::X as Y};\n"), ["e", "g"]);
    }

    #[test]
    fn super_climbs() {
        assert_eq!(imports("use super::d::X;\nuse super::super::g;\n"), ["a::d", "g"]);
        assert_eq!(imports("use super::{X, super::e};\n"), ["a", "e"]);
        assert_eq!(imports("use super::super::super::super::e;\n"), Vec::<String>::new());
    }

    #[test]
    fn a_child_is_reached_by_its_name_or_by_self() {
        assert_eq!(imports("use c::X;\n"), ["a::b::c"]);
        assert_eq!(imports("pub use self::c::X;\n"), ["a::b::c"]);
        assert_eq!(imports("fn x() { c::y() }\n"), ["a::b::c"]);
        assert_eq!(imports("use d::X;\n"), Vec::<String>::new());
    }

    #[test]
    fn paths_in_code_count_and_visibility_does_not() {
        assert_eq!(
            imports("fn x(y: crate::e::Z) -> super::d::W { $crate::g::v() }"),
            ["a::d", "e", "g"]
        );
        assert_eq!(imports("pub(in crate::e) fn x() {}"), Vec::<String>::new());
        assert_eq!(imports("fn x() { std::e::y(); z.g() }"), Vec::<String>::new());
    }

    #[test]
    fn what_a_module_says_of_itself_is_no_import() {
        assert_eq!(imports("use crate::a::b::X;\nuse self::Y;\n"), Vec::<String>::new());
        assert_eq!(imports("#[cfg(test)]\nuse crate::g::X;\n"), Vec::<String>::new());
    }
}
