//! Import cycles: modules of a crate that import each other, directly or through others.
//!
//! Imports inside a crate run one way, as those between crates do. A handful of files that belong
//! together may form a circle; more than [`LARGEST`] of them are one file in pieces.
//!
//! Invariant: [`KNOWN`] has the circles that are larger, each with its present size. A larger one
//! is a fault, and so is one that has become smaller: then its entry says the new size, or goes.
//! The root of a crate stands in no circle: it declares modules and re-exports from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::arch::Package;
use crate::finding::Finding;
use crate::imports::{self, Module};
use crate::tokens;
use crate::tree::TextFile;

/// The most files of a circle.
const LARGEST: usize = 6;

/// Circles that are larger, by crate and size, to be broken.
const KNOWN: [(&str, usize); 0] = [];

/// Modules whose cycle is inherent: the C ABI of verbs, whose objects name each other.
const BY_NATURE: [(&str, &str); 1] = [("preload", "ibv")];

/// The modules of a crate, each with its file and what it imports.
struct Graph {
    files: BTreeMap<Module, PathBuf>,
    edges: BTreeMap<Module, BTreeMap<Module, usize>>,
}

/// Checks every package.
pub fn check(packages: &[Package], files: &[TextFile]) -> Vec<Finding> {
    check_against(&KNOWN, packages, files)
}

fn check_against(
    known: &[(&str, usize)],
    packages: &[Package],
    files: &[TextFile],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let name = package.name.strip_prefix("weft-").unwrap_or(&package.name);
        let sizes = known.iter().filter(|(of, _)| *of == name).map(|(_, size)| *size).collect();
        findings.extend(faults(name, sizes, &Graph::of(&package.dir.join("src"), files)));
    }
    findings
}

/// What is wrong with the circles of a crate that is known to have some of the sizes `known`.
fn faults(name: &str, mut known: Vec<usize>, graph: &Graph) -> Vec<Finding> {
    let mut found = graph.circles();
    found.retain(|circle| circle.len() > LARGEST && !is_by_nature(name, circle));
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    known.sort_by_key(|size| std::cmp::Reverse(*size));
    let mut findings = Vec::new();
    for at in 0..found.len().max(known.len()) {
        match (found.get(at), known.get(at)) {
            (Some(circle), Some(size)) if circle.len() == *size => {}
            (Some(circle), known) if known.is_none_or(|size| circle.len() > *size) => {
                findings.push(graph.describe(circle, known.copied().unwrap_or(LARGEST)));
            }
            (circle, _) => {
                let now = circle.map_or(String::from("gone"), |circle| circle.len().to_string());
                let was = known.get(at).copied().unwrap_or_default();
                let message = format!("{name}'s circle of {was} is {now} now: say so in KNOWN");
                findings.push(Finding::new("xtask/src/circles.rs", 1, message));
            }
        }
    }
    findings
}

fn is_by_nature(name: &str, circle: &[Module]) -> bool {
    let within = |module: &str| circle.iter().all(|m| m.first().is_some_and(|m| m == module));
    BY_NATURE.iter().any(|(of, module)| *of == name && within(module))
}

impl Graph {
    /// The modules below `src`, tests aside.
    fn of(src: &Path, files: &[TextFile]) -> Self {
        let mut graph = Self { files: BTreeMap::new(), edges: BTreeMap::new() };
        let mut products = Vec::new();
        let mut for_tests = Vec::new();
        for file in files.iter().filter(|file| file.is("rs") && !file.is_test()) {
            let Some(module) = module_of(src, &file.path) else { continue };
            let product = tokens::product(file);
            for name in product.test_modules {
                for_tests.push([module.as_slice(), &[name]].concat());
            }
            graph.files.insert(module.clone(), file.path.clone());
            products.push((module, product.tokens));
        }
        let is_product = |module: &Module| !for_tests.iter().any(|test| module.starts_with(test));
        graph.files.retain(|module, _| is_product(module));
        let known: BTreeSet<Module> = graph.files.keys().cloned().collect();
        for (module, tokens) in products {
            if is_product(&module) && !module.is_empty() {
                graph.edges.insert(module.clone(), imports::of(&module, &tokens, &known));
            }
        }
        graph
    }

    /// The modules that reach each other, by circle; those that are in none are left out.
    fn circles(&self) -> Vec<Vec<Module>> {
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            self.edges.keys().map(|module| (module, self.reached_from(module))).collect();
        let mut circles: Vec<Vec<Module>> = Vec::new();
        for (module, others) in &reached {
            let back = |other: &&&Module| reached.get(*other).is_some_and(|r| r.contains(module));
            let circle: Vec<Module> =
                others.iter().filter(back).map(|other| (*other).clone()).collect();
            if circle.len() > 1 && !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }

    /// All that a module imports, directly or through others; itself if that leads back.
    fn reached_from(&self, module: &Module) -> BTreeSet<&Module> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Module> = self.edges[module].keys().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(self.edges.get(module).into_iter().flat_map(BTreeMap::keys));
            }
        }
        reached
    }

    /// The finding for a circle, at an import that is part of it.
    fn describe(&self, circle: &[Module], most: usize) -> Finding {
        let first = &circle[0];
        let line = self.edges[first].iter().find(|(target, _)| circle.contains(target));
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        let size = circle.len();
        let message = format!("a circle of {size} files, at most {most}: {}", names.join(", "));
        Finding::new(&self.files[first], line.map_or(1, |(_, line)| *line), message)
    }
}

/// The module of a file below `src`; none if it is not there.
fn module_of(src: &Path, file: &Path) -> Option<Module> {
    let path = file.strip_prefix(src).ok()?.with_extension("");
    let mut module: Module =
        path.iter().map(|part| part.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let is_root = module.len() == 1 && matches!(module[0].as_str(), "lib" | "main");
    if is_root || module.last()? == "mod" {
        module.pop();
    }
    Some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Vec<TextFile> {
        let file = |(path, text): &(&str, &str)| TextFile {
            path: Path::new("crates/x/src").join(path),
            text: (*text).to_owned(),
        };
        all.iter().map(file).collect()
    }

    fn circles(all: &[(&str, &str)]) -> Vec<String> {
        let graph = Graph::of(Path::new("crates/x/src"), &files(all));
        let name = |circle: Vec<Module>| {
            circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" ")
        };
        graph.circles().into_iter().map(name).collect()
    }

    /// A crate of `size` modules that import each other in a ring.
    fn ring(size: usize) -> Vec<TextFile> {
        let file = |at: usize| TextFile {
            path: format!("crates/x/src/m{at}.rs").into(),
            text: format!("use crate::m{};\n", (at + 1) % size),
        };
        (0..size).map(file).collect()
    }

    fn messages(package: &str, files: &[TextFile]) -> Vec<String> {
        let package = Package::for_tests(package, "crates/x");
        check(&[package], files).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn modules_that_reach_each_other_are_a_circle() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; use a::X;"),
            ("a.rs", "use crate::b::X;"),
            ("b/mod.rs", "mod e; use e::X;"),
            ("b/e.rs", "fn x() { super::super::a::y() }"),
            ("c.rs", "use crate::a::X; use crate::d;"),
            ("d.rs", "use crate::c;"),
        ]);
        assert_eq!(found, ["a b b::e", "c d"]);
    }

    #[test]
    fn neither_the_root_nor_tests_close_a_circle() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; pub use a::X;"),
            ("a.rs", "use crate::Y; use crate::b;\n#[cfg(test)]\nmod model;"),
            ("b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"),
            ("b/tests.rs", "use crate::a;"),
            ("a/model.rs", "use crate::a::X;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn six_files_may_and_seven_may_not() {
        assert_eq!(messages("weft-x", &ring(LARGEST)), Vec::<String>::new());
        let found = messages("weft-x", &ring(LARGEST + 1));
        let expected = "crates/x/src/m0.rs:1: a circle of 7 files, at most 6: m0, m1";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }

    #[test]
    fn a_known_circle_may_only_shrink_and_is_written_down_when_it_does() {
        let messages = |size: usize| -> Vec<String> {
            let package = Package::for_tests("weft-x", "crates/x");
            let found = check_against(&[("x", 9), ("y", 8)], &[package], &ring(size));
            found.into_iter().map(|finding| finding.message).collect()
        };
        assert_eq!(messages(9), Vec::<String>::new());
        assert!(messages(10)[0].starts_with("a circle of 10 files, at most 9: m0, m1"));
        assert_eq!(messages(8), ["x's circle of 9 is 8 now: say so in KNOWN"]);
        assert_eq!(messages(6), ["x's circle of 9 is gone now: say so in KNOWN"]);
    }
}
