//! What there is to send: sources as they are named, and all that is in them.
//!
//! Invariant: a directory comes before what is in it, and a file before its other names. Links
//! below a source are listed as links and never followed; a source that is a link is.
//!
//! Order: [`describe`] for how many there are; then [`list`].

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use walkdir::WalkDir;

use crate::destination::expand_home;
use crate::messages::{CopyOptions, ListedEntry, ListedKind, SourceTime, Xattr};
use crate::rel_path::escape;

/// Bytes of the extended attributes of an entry, at most.
const XATTRS_MAX: usize = 64 * 1024;

/// A file that is to be sent, as it was when it was listed.
#[derive(Debug)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// When it was changed last.
    pub modified: SourceTime,
    /// Whether it has holes.
    pub is_sparse: bool,
    inode: (u64, u64),
}

/// What listing meets.
#[derive(Debug)]
pub enum Listing {
    /// An entry, and the file if it is one.
    Found(ListedEntry, Option<SourceFile>),
    /// Something that cannot be copied.
    Problem(String),
}

impl SourceFile {
    fn new(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: path.to_path_buf(),
            size: metadata.size(),
            modified: time(metadata),
            is_sparse: metadata.blocks() * 512 < metadata.size(),
            inode: (metadata.dev(), metadata.ino()),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// It is gone, has become something else, or may not be read.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file: File = rustix::fs::open(&self.path, flags, Mode::empty())?.into();
        if !self.is_unchanged(&file)? {
            return Err(io::Error::other("it has changed since it was listed"));
        }
        Ok(file)
    }

    /// Whether the open file is still what was listed.
    ///
    /// # Errors
    /// The system refuses.
    pub fn is_unchanged(&self, file: &File) -> io::Result<bool> {
        let now = file.metadata()?;
        let is_it = (now.dev(), now.ino()) == self.inode;
        Ok(is_it && now.size() == self.size && time(&now) == self.modified)
    }

    /// Its name for a person.
    pub fn show(&self) -> String {
        show(&self.path)
    }
}

fn time(metadata: &Metadata) -> SourceTime {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    SourceTime { secs: metadata.mtime(), nanos }
}

fn show(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

/// How many sources there are, and whether a directory is among them.
pub fn describe(sources: &[Vec<u8>]) -> (u32, bool) {
    let is_dir = |source: &Vec<u8>| expand_home(source).is_dir();
    (u32::try_from(sources.len()).unwrap_or(u32::MAX), sources.iter().any(is_dir))
}

/// Lists the sources; `each` says whether to go on.
///
/// # Errors
/// What `each` says.
pub fn list(
    sources: &[Vec<u8>],
    options: &CopyOptions,
    each: &mut dyn FnMut(Listing) -> Result<()>,
) -> Result<()> {
    let mut names = HashMap::new();
    let mut tops = HashMap::new();
    for source in sources {
        let root = expand_home(source);
        // With a slash at the end, or without a name of its own, its content is meant.
        let top = if source.ends_with(b"/") { None } else { root.file_name() };
        let top = top.map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        match std::fs::metadata(&root) {
            Err(error) => each(Listing::Problem(format!("{}: {error}", show(&root))))?,
            Ok(metadata) if metadata.is_dir() && !options.recursive => {
                let why = "is a directory, which -r copies";
                each(Listing::Problem(format!("{} {why}", show(&root))))?;
            }
            Ok(metadata) => {
                let this = (metadata.is_dir(), metadata.dev(), metadata.ino());
                match tops.insert(top.clone(), this).filter(|_| !top.is_empty()) {
                    // It was named twice.
                    Some(before) if before == this => {}
                    // Directories of one name are merged.
                    Some((is_dir, ..)) if !is_dir || !this.0 => {
                        let why = "has the name of a source before it, and would replace it";
                        each(Listing::Problem(format!("{} {why}", show(&root))))?;
                    }
                    _ => walk(&root, &top, options, &mut names, each)?,
                }
            }
        }
    }
    Ok(())
}

/// Paths below the destination of files with several names, by device and inode.
type HardlinkNames = HashMap<(u64, u64), Vec<u8>>;

fn walk(
    root: &Path,
    top: &[u8],
    options: &CopyOptions,
    names: &mut HardlinkNames,
    each: &mut dyn FnMut(Listing) -> Result<()>,
) -> Result<()> {
    for found in WalkDir::new(root).sort_by_file_name() {
        let listing = match &found {
            Err(error) => Listing::Problem(problem(error)),
            Ok(found) => {
                let below = found.path().strip_prefix(root).unwrap_or(Path::new(""));
                let below = below.as_os_str().as_bytes();
                let path = join(top, below);
                let metadata = match found.depth() {
                    0 => std::fs::metadata(root),
                    _ => found.metadata().map_err(io::Error::from),
                };
                let listed = metadata
                    .map_err(anyhow::Error::from)
                    .and_then(|metadata| entry(found.path(), path, &metadata, options, names));
                match listed {
                    Ok(listing) => listing,
                    Err(error) => Listing::Problem(format!("{}: {error:#}", show(found.path()))),
                }
            }
        };
        each(listing)?;
    }
    Ok(())
}

fn problem(error: &walkdir::Error) -> String {
    let path = error.path().map(show).unwrap_or_default();
    let why = error.io_error().map_or_else(|| "a loop of links".into(), ToString::to_string);
    format!("{path}: {why}")
}

fn join(top: &[u8], below: &[u8]) -> Vec<u8> {
    let parts = [top, below].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(&b'/')
}

/// Whether a file has a byte to read. One that cannot be read has none, as its size says.
fn has_content(at: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(at, flags, Mode::empty()) else { return false };
    let has_byte = rustix::io::read(&file, &mut [0; 1]).is_ok_and(|count| count > 0);
    // It may have grown since it was listed.
    has_byte && rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_size == 0)
}

fn entry(
    at: &Path,
    path: Vec<u8>,
    metadata: &Metadata,
    options: &CopyOptions,
    names: &mut HardlinkNames,
) -> Result<Listing> {
    let kind = metadata.file_type();
    let mut file = None;
    let kind = if kind.is_dir() {
        ListedKind::Directory
    } else if kind.is_symlink() {
        let target = std::fs::read_link(at)?.into_os_string();
        ListedKind::Symlink { target: target.as_bytes().to_vec() }
    } else if !kind.is_file() {
        let what = if kind.is_fifo() { "a pipe" } else { "no file, directory or link" };
        return Ok(Listing::Problem(format!("{} is {what}: it is not copied", show(at))));
    } else if let Some(to) = other_name(metadata, &path, names) {
        ListedKind::Hardlink { to }
    } else if metadata.size() == 0 && has_content(at) {
        let why =
            "has content but no size, as files in /proc have: `cat FILE | weft cp - TO` copies it";
        return Ok(Listing::Problem(format!("{} {why}", show(at))));
    } else {
        let source = SourceFile::new(at, metadata);
        let digest = options.checksum.then(|| digest(&source)).transpose()?;
        let size = source.size;
        file = Some(source);
        ListedKind::File { size, digest }
    };
    let is_link = matches!(kind, ListedKind::Symlink { .. });
    let xattrs = if options.xattrs && !is_link { xattrs(at)? } else { Vec::new() };
    let entry = ListedEntry {
        path,
        kind,
        mode: metadata.mode() & 0o7777,
        modified: time(metadata),
        owner: (metadata.uid(), metadata.gid()),
        xattrs,
    };
    Ok(Listing::Found(entry, file))
}

/// The path under which a file of several names was listed first.
fn other_name(metadata: &Metadata, path: &[u8], names: &mut HardlinkNames) -> Option<Vec<u8>> {
    if metadata.nlink() < 2 {
        return None;
    }
    let inode = (metadata.dev(), metadata.ino());
    let known = names.get(&inode).cloned();
    if known.is_none() {
        names.insert(inode, path.to_vec());
    }
    known
}

fn digest(source: &SourceFile) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(source.open()?).context("reading it")?;
    Ok(hasher.finalize().into())
}

/// Attributes of the user's, which anybody may set.
fn xattrs(at: &Path) -> Result<Vec<Xattr>> {
    let mut names = vec![0; XATTRS_MAX];
    let len = match rustix::fs::listxattr(at, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(io::Error::from(errno)).context("listing its attributes"),
    };
    let mut all = Vec::new();
    let mut total = 0;
    for name in names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; XATTRS_MAX];
        let len = rustix::fs::getxattr(at, name, &mut value[..]).map_err(io::Error::from)?;
        value.truncate(len);
        total += name.len() + len;
        anyhow::ensure!(total <= XATTRS_MAX, "it has more attributes than are carried");
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths that are found, and what is said of the others.
    fn listed(sources: &[&[u8]]) -> (Vec<String>, Vec<String>) {
        let sources: Vec<_> = sources.iter().map(|source| source.to_vec()).collect();
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        let each = &mut |listing| -> Result<()> {
            match listing {
                Listing::Found(entry, _) => found.push(String::from_utf8(entry.path)?),
                Listing::Problem(why) => problems.push(why),
            }
            Ok(())
        };
        list(&sources, &options, each).unwrap();
        (found, problems)
    }

    #[test]
    fn a_file_that_does_not_say_its_size_is_not_taken_for_an_empty_one() {
        let (found, problems) = listed(&[b"/proc/self/stat"]);
        assert!(
            found.is_empty() && problems[0].contains("has content but no size"),
            "{problems:?}"
        );
    }

    #[test]
    fn no_source_replaces_another() {
        let dir = weft_testkit::Dir::new("same-names");
        for sub in ["a", "b"] {
            std::fs::create_dir_all(dir.path(sub).join("both")).unwrap();
            dir.write(&format!("{sub}/file"), sub);
            dir.write(&format!("{sub}/both/{sub}"), sub);
        }
        let at = |path: &str| dir.path(path).into_os_string().into_encoded_bytes();
        let (found, problems) =
            listed(&[&at("a/file"), &at("b/file"), &at("a/both"), &at("b/both")]);
        assert_eq!(found, ["file", "both", "both/a", "both", "both/b"]);
        assert!(problems.len() == 1 && problems[0].contains("b/file has the name"), "{problems:?}");
        assert_eq!(listed(&[&at("a/file"), &at("a/file")]), (vec!["file".into()], vec![]));
        // Their content has names of its own.
        assert!(
            listed(&[&[&at("a")[..], b"/"].concat(), &[&at("b")[..], b"/"].concat()]).1.is_empty()
        );
    }
}
