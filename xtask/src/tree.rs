//! The files of the project: everything under the root that is neither built nor generated.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Names of generated files and directories, and `.git`.
const GENERATED: [&str; 6] = [".git", "target", "corpus", "seeds", "artifacts", "node_modules"];

/// A text file of the project.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Its path, relative to the workspace.
    pub path: PathBuf,
    /// Its whole text.
    pub text: String,
}

impl TextFile {
    /// Whether the name ends in `.extension`.
    pub fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|e| e == extension)
    }

    /// Whether the file holds only tests: an integration test, or a module of unit tests.
    pub fn is_test(&self) -> bool {
        self.path.components().any(|c| c.as_os_str() == "tests")
            || self.path.file_stem().is_some_and(|s| s == "tests")
    }
}

/// Every text file below `root`, in the order of their paths. Files that are not UTF-8 (packet
/// captures, pictures) are left out.
pub fn text_files(root: &Path) -> Result<Vec<TextFile>> {
    let mut found = Vec::new();
    visit(root, root, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn visit(root: &Path, dir: &Path, found: &mut Vec<TextFile>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let generated = GENERATED.iter().any(|name| entry.file_name() == *name);
        if kind.is_dir() && !generated {
            visit(root, &entry.path(), found)?;
        } else if kind.is_file() && !generated {
            found.extend(read(root, &entry.path())?);
        }
    }
    Ok(())
}

fn read(root: &Path, file: &Path) -> Result<Option<TextFile>> {
    let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let path = file.strip_prefix(root)?.to_path_buf();
    Ok(String::from_utf8(bytes).ok().map(|text| TextFile { path, text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_found_and_the_build_is_not() {
        let root = crate::workspace_root().unwrap();
        let files = text_files(&root).unwrap();
        assert!(files.iter().any(|f| f.path == Path::new("xtask/src/tree.rs") && f.is("rs")));
        assert!(files.iter().all(|f| !f.path.starts_with("target")));
    }

    #[test]
    fn test_files_are_told_by_their_place() {
        let file = |path: &str| TextFile { path: path.into(), text: String::new() };
        assert!(file("crates/cli/tests/run.rs").is_test());
        assert!(file("crates/verbs/src/mr/tests.rs").is_test());
        assert!(!file("crates/verbs/src/mr/place.rs").is_test());
    }
}
