//! A tree of paths, and the walk that resolves one in it, as the kernel resolves a path.
//!
//! Entries are kept under their canonical absolute paths; a directory is what has entries below it.
//! Some directories on the way are the kernel's own (`/sys/class`): [`Tree::add_root`] says where
//! the tree's begin.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int};

use super::counters::CounterFile;

/// An entry of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewEntry {
    /// A file with this text.
    Text(String),
    /// A file with a counter, which [`super::counters::filled`] turns into text.
    Counter(CounterFile),
    /// A character device with these numbers, which nobody can open.
    Device { major: u32, minor: u32 },
    /// A symbolic link, absolute or relative to its directory.
    Link(String),
    /// A directory of the kernel's own.
    Elsewhere(String),
}

/// The result of resolving a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory of the tree.
    Directory,
    /// Any entry but [`ViewEntry::Elsewhere`].
    Entry(ViewEntry),
    /// A path that the kernel resolves.
    Elsewhere(CString),
    /// Nothing, for the reason that `errno` gives.
    Missing(c_int),
}

/// A path that leads into the tree, or out of it by way of one of its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPath {
    /// The canonical path, unless it is elsewhere or missing.
    pub path: String,
    /// The entry there, or its absence.
    pub node: Node,
}

/// The kinds of children, as `readdir` names them: `DT_DIR` and its like.
pub type DirentKind = u8;

/// Treatment of a link that is the last component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    Follow,
    Keep,
}

/// Links followed before a path is taken for a loop, as in Linux.
const LINKS_MAX: usize = 40;

/// All entries of the view, by path.
#[derive(Debug, Default)]
pub struct Tree {
    entries: BTreeMap<String, ViewEntry>,
    roots: Vec<String>,
}

impl Tree {
    /// All at and below `path` belongs to the tree: what has no entry there does not exist.
    pub fn add_root(&mut self, path: impl Into<String>) {
        self.roots.push(path.into());
    }

    pub fn add(&mut self, path: String, entry: ViewEntry) {
        self.entries.insert(path, entry);
    }

    /// A file with a line of text.
    pub fn add_line(&mut self, path: String, line: &str) {
        self.add(path, ViewEntry::Text(format!("{line}\n")));
    }

    pub fn add_link(&mut self, path: String, target: impl Into<String>) {
        self.add(path, ViewEntry::Link(target.into()));
    }

    /// Resolves an absolute path; `None` if the kernel would come to the same without the tree.
    pub fn resolve(&self, path: &str, last: Last) -> Option<ViewPath> {
        let mut at = String::new();
        let mut rest: Vec<&str> = path.split('/').rev().collect();
        let mut links = 0;
        // Whether the kernel would lose its way here.
        let mut entered = false;
        while let Some(part) = rest.pop() {
            match part {
                "" | "." => continue,
                ".." => {
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = format!("{at}/{part}");
            entered |= self.is_ours(&next);
            match self.entries.get(&next) {
                Some(ViewEntry::Link(target)) if last == Last::Follow || !rest.is_empty() => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Some(ViewPath::missing(libc::ELOOP));
                    }
                    if target.starts_with('/') {
                        at.clear();
                    }
                    rest.extend(target.split('/').rev());
                }
                Some(ViewEntry::Elsewhere(target)) => {
                    // With its slash the path of a link means the directory that it leads to.
                    let rest = if rest.is_empty() { &[""] } else { &rest[..] };
                    return Some(ViewPath::elsewhere(target, rest));
                }
                Some(ViewEntry::Text(_) | ViewEntry::Counter(_) | ViewEntry::Device { .. })
                    if !rest.is_empty() =>
                {
                    return Some(ViewPath::missing(libc::ENOTDIR));
                }
                Some(_) => at = next,
                None if self.has_below(&next) => at = next,
                None if self.is_ours(&at) => return Some(ViewPath::missing(libc::ENOENT)),
                None => return entered.then(|| ViewPath::elsewhere(&next, &rest)),
            }
        }
        if !self.is_ours(&at) {
            return entered.then(|| ViewPath::elsewhere(&at, &[]));
        }
        let node = self.entries.get(&at).cloned().map_or(Node::Directory, Node::Entry);
        Some(ViewPath { path: at, node })
    }

    /// The names in the directory at a canonical path, with their kinds.
    pub fn children(&self, path: &str) -> Vec<(String, DirentKind)> {
        let mut children: Vec<(String, DirentKind)> = Vec::new();
        for (place, entry) in self.below(path) {
            let rest = &place[path.len() + 1..];
            let (name, kind) = match rest.split_once('/') {
                Some((name, _)) => (name, libc::DT_DIR),
                None => (rest, entry.kind()),
            };
            if children.iter().all(|(known, _)| known != name) {
                children.push((name.to_owned(), kind));
            }
        }
        children
    }

    fn below(&self, path: &str) -> impl Iterator<Item = (&String, &ViewEntry)> {
        let prefix = format!("{path}/");
        let from = self.entries.range(prefix.clone()..);
        from.take_while(move |(place, _)| place.starts_with(&prefix))
    }

    fn has_below(&self, path: &str) -> bool {
        self.below(path).next().is_some()
    }

    fn is_ours(&self, path: &str) -> bool {
        let below = |root: &String| {
            path.strip_prefix(root.as_str()).is_some_and(|r| r.is_empty() || r.starts_with('/'))
        };
        self.roots.iter().any(below)
    }
}

impl ViewEntry {
    fn kind(&self) -> DirentKind {
        match self {
            Self::Text(_) | Self::Counter(_) => libc::DT_REG,
            Self::Device { .. } => libc::DT_CHR,
            Self::Link(_) => libc::DT_LNK,
            Self::Elsewhere(_) => libc::DT_DIR,
        }
    }
}

impl ViewPath {
    fn missing(code: c_int) -> Self {
        Self { path: String::new(), node: Node::Missing(code) }
    }

    /// The path `at` with the components that are left, of which the next one is the last.
    pub fn elsewhere(at: &str, rest: &[&str]) -> Self {
        let path = rest.iter().rev().fold(at.to_owned(), |path, part| path + "/" + part);
        match CString::new(if path.is_empty() { "/" } else { &path }) {
            Ok(path) => Self { path: String::new(), node: Node::Elsewhere(path) },
            Err(_) => Self::missing(libc::ENOENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.add_root("/sys/class/x");
        tree.add_root("/sys/devices/p");
        tree.add_link("/sys/class/x/d".into(), "../../devices/p/f/x/d");
        tree.add_line("/sys/devices/p/f/x/d/text".into(), "1");
        tree.add_link("/sys/devices/p/f/x/d/device".into(), "../../../f");
        tree.add_line("/sys/devices/p/f/vendor".into(), "2");
        tree.add("/sys/devices/p/f/net/e".into(), ViewEntry::Elsewhere("/sys/class/net/e".into()));
        tree.add_link("/sys/devices/p/f/bus".into(), "../../../bus/y");
        tree.add_link("/sys/devices/p/f/a".into(), "b");
        tree.add_link("/sys/devices/p/f/b".into(), "a");
        tree
    }

    fn at(path: &str, last: Last) -> ViewPath {
        tree().resolve(path, last).unwrap_or_else(|| panic!("{path} is the kernel's"))
    }

    fn canonical(path: &str) -> String {
        at(path, Last::Follow).path
    }

    fn elsewhere(path: &str) -> CString {
        match at(path, Last::Follow).node {
            Node::Elsewhere(path) => path,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn links_are_followed_before_dots() {
        assert_eq!(canonical("/sys/class/x/d"), "/sys/devices/p/f/x/d");
        assert_eq!(canonical("/sys/class/x/d/../.."), "/sys/devices/p/f");
        assert_eq!(canonical("/sys/class/x/d/device"), "/sys/devices/p/f");
        assert_eq!(canonical("/sys//class/./x/d/device/vendor"), "/sys/devices/p/f/vendor");
        assert_eq!(canonical("/sys/class/../class/x/"), "/sys/class/x");
    }

    #[test]
    fn the_last_link_is_kept_if_the_caller_says_so_and_no_slash_follows() {
        let kept = at("/sys/class/x/d", Last::Keep);
        assert_eq!(kept.path, "/sys/class/x/d");
        assert_eq!(kept.node, Node::Entry(ViewEntry::Link("../../devices/p/f/x/d".into())));
        assert_eq!(at("/sys/class/x/d/", Last::Keep).node, Node::Directory);
    }

    #[test]
    fn what_is_not_there_says_why() {
        let missing = |path, code| assert_eq!(at(path, Last::Follow).node, Node::Missing(code));
        missing("/sys/class/x/none", libc::ENOENT);
        missing("/sys/class/x/none/..", libc::ENOENT);
        missing("/sys/class/x/d/text/", libc::ENOTDIR);
        missing("/sys/class/x/d/text/more", libc::ENOTDIR);
        missing("/sys/devices/p/f/a", libc::ELOOP);
    }

    #[test]
    fn the_kernel_has_the_rest() {
        for path in ["/", "/sys/class", "/sys/class/net", "/sys/class/xy", "/sys/class/../x"] {
            assert_eq!(tree().resolve(path, Last::Follow), None, "{path}");
        }
        assert_eq!(elsewhere("/sys/class/x/d/../../../..").as_c_str(), c"/sys/devices");
        assert_eq!(elsewhere("/sys/class/x/../y").as_c_str(), c"/sys/class/y");
        assert_eq!(elsewhere("/sys/class/x/d/device/bus/z").as_c_str(), c"/sys/bus/y/z");
        assert_eq!(elsewhere("/sys/class/x/d/device/net/e").as_c_str(), c"/sys/class/net/e/");
        assert_eq!(
            elsewhere("/sys/class/x/d/device/net/e/mtu").as_c_str(),
            c"/sys/class/net/e/mtu"
        );
        assert_eq!(
            elsewhere("/sys/class/x/d/device/net/e/./..").as_c_str(),
            c"/sys/class/net/e/./.."
        );
    }

    #[test]
    fn children_have_their_kinds() {
        let names = tree().children("/sys/devices/p/f");
        let kind = |name: &str| names.iter().find(|(n, _)| n == name).map(|(_, kind)| *kind);
        assert_eq!(kind("x"), Some(libc::DT_DIR));
        assert_eq!(kind("net"), Some(libc::DT_DIR));
        assert_eq!(kind("vendor"), Some(libc::DT_REG));
        assert_eq!(kind("bus"), Some(libc::DT_LNK));
        assert_eq!(names.len(), 6);
        assert!(tree().children("/sys/devices/p/f/vendor").is_empty());
    }
}
