//! Style checks of all text files.
//!
//! Every rule looks at one file and needs nothing else, but for links, names of tests and of types,
//! and fuzz targets, which need the tree.

mod evidence;
mod functions;
mod fuzz;
mod links;
mod rules;
mod rust;
mod text;
pub mod types;

use std::path::Path;

use anyhow::Result;

use crate::finding::Finding;
use crate::tree;

/// Checks every text file of the project.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let files = tree::text_files(root)?;
    let mut findings = fuzz::check(root, &files);
    findings.extend(rules::check(&files));
    findings.extend(types::check(&files));
    for file in files.iter().filter(|file| !file.is("lock")) {
        findings.extend(text::check(file));
        if file.is("rs") {
            findings.extend(rust::check(file));
        }
        if file.is("md") {
            findings.extend(links::check(root, file));
            findings.extend(evidence::check(file, &files));
        }
    }
    Ok(findings)
}
