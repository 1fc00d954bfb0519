//! Findings of a chore, with file and line.

use std::fmt;
use std::path::PathBuf;

/// One fault; ordered by place, so that a report reads from top to bottom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The fault, and what is expected.
    pub message: String,
}

impl Finding {
    /// A fault at `line` (from 1) of `path`.
    pub fn new(path: impl Into<PathBuf>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_editors_expect() {
        let finding = Finding::new("a/b.rs", 7, "too long");
        assert_eq!(finding.to_string(), "a/b.rs:7: too long");
    }
}
