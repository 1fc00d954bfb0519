//! The licence texts inside of packages that are published: a package is all that its user gets.

use std::path::Path;

use crate::arch::Package;
use crate::finding::Finding;

/// The texts, in the root and in the directory of each such package.
const TEXTS: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Checks that each published package has the texts of the root.
pub fn check(root: &Path, packages: &[Package]) -> Vec<Finding> {
    let published = packages.iter().filter(|package| package.is_published);
    let lacks = |package: &&Package, text: &str| {
        let own = std::fs::read(root.join(&package.dir).join(text)).ok();
        own.is_none() || own != std::fs::read(root.join(text)).ok()
    };
    let finding = |package: &Package, text: &str| {
        let message = format!("{} is published without the root's {text}", package.name);
        Finding::new(package.dir.join("Cargo.toml"), 1, message)
    };
    published
        .flat_map(|package| TEXTS.map(|text| (package, text)))
        .filter(|(package, text)| lacks(package, text))
        .map(|(package, text)| finding(package, text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_package_has_both_texts() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let package = |dir, is_published| {
            let mut package = Package::for_tests("x", dir);
            package.is_published = is_published;
            package
        };
        assert_eq!(check(root, &[package("crates/wire", true)]).len(), 0);
        assert_eq!(check(root, &[package("xtask", true)]).len(), 2);
        assert_eq!(check(root, &[package("xtask", false)]).len(), 0);
    }
}
