//! What a far end may list: the names of the sources that it was asked for, and what is below them.
//! One that is asked for a file could otherwise send another, such as a start-up file of the shell,
//! or a link in its place that the next copy to there would follow.
//!
//! Order: [`AskedNames::of`], then [`AskedNames::check`] for each entry that comes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, ensure};

use crate::messages::{ListedEntry, ListedKind};
use crate::rel_path::{RelPath, escape, own_name};
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

    /// Whether the far end may list `entry`, in a copy that it began as one of a single file if
    /// `is_single`.
    ///
    /// # Errors
    /// It was not asked for that.
    pub fn check(&self, entry: &ListedEntry, is_single: bool) -> Result<()> {
        let path = RelPath::parse(&entry.path)?;
        let is_top = path.names().count() == 1;
        let is_file = matches!(entry.kind, ListedKind::File { .. });
        let is_directory = matches!(entry.kind, ListedKind::Directory);
        let is_asked = self.names_path(&path, is_directory)
            && match &entry.kind {
                ListedKind::File { .. } | ListedKind::Directory => true,
                // A source that is a link is followed; only what is in a directory is not.
                ListedKind::Symlink { .. } => self.any || !is_top,
                ListedKind::Hardlink { to } => self.names_path(&RelPath::parse(to)?, false),
            };
        let fits = !is_single || self.may_be_single() && is_file && is_top;
        ensure!(
            is_asked && fits,
            "the far end sent `{}`, which it was not asked for",
            escape(path.as_bytes())
        );
        Ok(())
    }

    /// Whether one file may be all that was asked for: neither the content of a directory nor
    /// several sources are.
    fn may_be_single(&self) -> bool {
        !self.any && self.names.len() == 1
    }

    /// Whether `path`, which is a directory if it `is_directory`, is a source or below one.
    fn names_path(&self, path: &RelPath, is_directory: bool) -> bool {
        let mut names = path.names();
        let top = names.next();
        let is_named =
            |top: &OsStr| self.names.iter().any(|asked| wildcard::is_meant(asked, top.as_bytes()));
        let is_asked = self.any || top.is_some_and(is_named);
        let is_deep = is_directory || names.next().is_some();
        is_asked && (self.recursive || !is_deep)
    }
}

/// The name at the top of what comes of a source; `None` if its content is meant, or it is a home
/// directory, whose name the far end knows.
fn name_of(source: &[u8]) -> Option<Vec<u8>> {
    own_name(source).filter(|_| source != b"~")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::SourceTime;

    const FILE: ListedKind = ListedKind::File { size: 1, digest: None };

    fn link(target: &str) -> ListedKind {
        ListedKind::Symlink { target: target.into() }
    }

    fn entry(path: &str, kind: ListedKind) -> ListedEntry {
        ListedEntry {
            path: path.into(),
            kind,
            mode: 0o644,
            modified: SourceTime::default(),
            owner: (0, 0),
            xattrs: Vec::new(),
        }
    }

    fn asked(sources: &[&str], recursive: bool) -> AskedNames {
        let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
        AskedNames::of(&sources, recursive)
    }

    fn allows(sources: &[&str], path: &str) -> bool {
        asked(sources, true).check(&entry(path, FILE), false).is_ok()
    }

    #[test]
    fn only_what_was_asked_for_may_come() {
        assert!(allows(&["/etc/hosts"], "hosts") && allows(&["a", "dir"], "dir/sub/x"));
        assert!(!allows(&["/etc/hosts"], ".bashrc") && !allows(&["dir"], "dirs/x"));
        assert!(!allows(&["dir"], ""), "the destination itself has the mode that it has");
        assert!(allows(&["logs/*.log"], "a.log") && !allows(&["logs/*.log"], ".a.log"));
        assert!(!allows(&["logs/*.log"], "a.txt") && allows(&["a[1]"], "a[1]"));
        for content in ["dir/", "dir/.", "dir/./", ".", "..", "", "/", "~"] {
            assert!(allows(&[content], ".bashrc") && allows(&["x", content], "a/b"), "{content}");
        }
    }

    #[test]
    fn without_directories_no_directory_may_come() {
        let asked = asked(&["dir"], false);
        let check = |path, kind| asked.check(&entry(path, kind), false);
        assert!(check("dir", FILE).is_ok());
        assert!(check("dir", ListedKind::Directory).is_err() && check("dir/x", FILE).is_err());
    }

    #[test]
    fn a_source_does_not_come_as_a_link() {
        let allows = |sources: &[&str], path: &str, kind| {
            asked(sources, true).check(&entry(path, kind), false).is_ok()
        };
        assert!(!allows(&["notes"], "notes", link("/etc/passwd")));
        assert!(!allows(&["no*"], "notes", link("/etc/passwd")));
        assert!(allows(&["notes"], "notes/a", link("b")) && allows(&["notes/"], "a", link("b")));
        let hard = |to: &str| ListedKind::Hardlink { to: to.into() };
        assert!(allows(&["a", "b"], "b", hard("a")) && !allows(&["a", "b"], "b", hard("c")));
    }

    #[test]
    fn a_single_file_is_a_file_that_was_named() {
        let allows = |sources: &[&str], path: &str, kind| {
            asked(sources, true).check(&entry(path, kind), true).is_ok()
        };
        assert!(allows(&["d/notes"], "notes", FILE) && allows(&["~/no*"], "notes", FILE));
        for kind in [link("x"), ListedKind::Directory, ListedKind::Hardlink { to: "notes".into() }]
        {
            assert!(!allows(&["notes"], "notes", kind.clone()), "{kind:?}");
            assert!(!allows(&["notes/"], "x", kind.clone()), "{kind:?}");
        }
        assert!(!allows(&["notes/"], "x", FILE), "a directory was asked for");
        assert!(!allows(&["notes", "x"], "notes", FILE), "two were asked for");
        assert!(!allows(&["notes"], "notes/x", FILE));
    }
}
