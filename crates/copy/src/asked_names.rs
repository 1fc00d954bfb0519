//! The names at the top of what a far end may send: those of the sources that it was asked for. One
//! that is asked for a file could otherwise send another, such as a start-up file of the shell.
//!
//! Order: [`AskedNames::of`], then [`AskedNames::check`] for each path that comes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::rel_path::{RelPath, escape};
use crate::wildcard;

/// What was asked for.
#[derive(Debug)]
pub struct AskedNames {
    /// Names, some of them with wildcards.
    names: Vec<Vec<u8>>,
    /// The content of a directory, whose names nobody knows here.
    any: bool,
    /// Directories with what is in them.
    recursive: bool,
}

impl AskedNames {
    /// Those of these sources, as the user named them; of directories too if it is `recursive`.
    pub fn of(sources: &[Vec<u8>], recursive: bool) -> Self {
        let names: Vec<_> = sources.iter().filter_map(|source| name_of(source)).collect();
        Self { any: names.len() < sources.len(), names, recursive }
    }

    /// Whether the far end may send `path`, which is a directory if it `is_directory`.
    ///
    /// # Errors
    /// It was not asked for that.
    pub fn check(&self, path: &RelPath, is_directory: bool) -> Result<()> {
        let mut names = path.names();
        let top = names.next();
        let is_named =
            |top: &OsStr| self.names.iter().any(|asked| wildcard::is_meant(asked, top.as_bytes()));
        let is_asked = self.any || top.is_some_and(is_named);
        let is_deep = is_directory || names.next().is_some();
        ensure!(
            is_asked && (self.recursive || !is_deep),
            "the far end sent `{}`, which it was not asked for",
            escape(path.as_bytes())
        );
        Ok(())
    }
}

/// The name at the top of what comes of a source; `None` if its content is meant, or it is a home
/// directory, whose name the far end knows.
fn name_of(source: &[u8]) -> Option<Vec<u8>> {
    let name = Path::new(OsStr::from_bytes(source)).file_name()?;
    let is_name = !source.ends_with(b"/") && source != b"~";
    is_name.then(|| name.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(sources: &[&str], path: &str) -> bool {
        let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
        let path = RelPath::parse(path.as_bytes()).unwrap();
        AskedNames::of(&sources, true).check(&path, false).is_ok()
    }

    #[test]
    fn only_what_was_asked_for_may_come() {
        assert!(allows(&["/etc/hosts"], "hosts") && allows(&["a", "dir"], "dir/sub/x"));
        assert!(!allows(&["/etc/hosts"], ".bashrc") && !allows(&["dir"], "dirs/x"));
        assert!(!allows(&["dir"], ""), "the destination itself has the mode that it has");
        assert!(allows(&["logs/*.log"], "a.log") && !allows(&["logs/*.log"], ".a.log"));
        assert!(!allows(&["logs/*.log"], "a.txt") && allows(&["a[1]"], "a[1]"));
        for content in ["dir/", ".", "..", "", "/", "~"] {
            assert!(allows(&[content], ".bashrc") && allows(&["x", content], "a/b"), "{content}");
        }
    }

    #[test]
    fn without_directories_no_directory_may_come() {
        let asked = AskedNames::of(&[b"dir".to_vec()], false);
        let check = |path: &[u8], is_dir| asked.check(&RelPath::parse(path).unwrap(), is_dir);
        assert!(check(b"dir", false).is_ok());
        assert!(check(b"dir", true).is_err() && check(b"dir/x", false).is_err());
    }
}
