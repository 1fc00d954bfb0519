//! What there is to send: sources as they are named, and all that is in them.
//!
//! Invariant: a directory comes before what is in it, and a file before its other names. Links
//! below a source are listed as links and never followed; a source that is a link is. A source is
//! the path that it says, also if that begins with `~`: who was given it by a user has expanded it,
//! and a second time would take a file of this name for the home directory.
//!
//! Order: [`describe`] for how many there are; then [`list`].

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use walkdir::WalkDir;

use crate::messages::{CopyOptions, ListedEntry, ListedKind, SourceTime, Xattr};
use crate::rel_path::{escape, is_companion, own_name};

/// Bytes of the extended attributes of an entry, at most.
const XATTRS_MAX: usize = 64 * 1024;

/// The device and the inode of a file.
type InodeKey = (u64, u64);

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
    inode: InodeKey,
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

fn path_of(source: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(source))
}

/// How many sources there are, and whether a directory is among them.
pub fn describe(sources: &[Vec<u8>]) -> (u32, bool) {
    let is_dir = |source: &Vec<u8>| path_of(source).is_dir();
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
    let mut seen = SeenNames::of(sources);
    for source in sources {
        let root = path_of(source);
        match std::fs::metadata(root) {
            Err(error) => each(Listing::Problem(format!("{}: {error}", show(root))))?,
            Ok(metadata) if metadata.is_dir() && !options.recursive => {
                let why = "is a directory, which -r copies";
                each(Listing::Problem(format!("{} {why}", show(root))))?;
            }
            Ok(_) => walk(root, &top_name(source), options, &mut seen, each)?,
        }
    }
    seen.leftovers.problem().map_or(Ok(()), |why| each(Listing::Problem(why)))
}

/// The name of a source at the top of the destination; empty if its content is meant.
fn top_name(source: &[u8]) -> Vec<u8> {
    own_name(source).unwrap_or_default()
}

/// What was listed before.
struct SeenNames {
    /// Paths below the destination of files with several names.
    hardlinks: HashMap<InodeKey, Vec<u8>>,
    /// Where several sources may have one path: each path, and whether it is a directory.
    paths: Option<HashMap<Vec<u8>, (bool, InodeKey)>>,
    leftovers: Leftovers,
}

/// What copies to the source have left, or are about to write: it is not copied, and told of once.
#[derive(Default)]
struct Leftovers {
    first: Option<PathBuf>,
    more: u64,
}

impl Leftovers {
    fn add(&mut self, path: &Path) {
        match self.first {
            None => self.first = Some(path.to_path_buf()),
            Some(_) => self.more += 1,
        }
    }

    fn problem(&self) -> Option<String> {
        let first = show(self.first.as_ref()?);
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        Some(format!("{first}{more}: what an unfinished copy to there keeps is not copied"))
    }
}

/// What has the path of an entry already.
#[derive(PartialEq, Eq)]
enum PathBefore {
    /// Nothing, or a directory that this one is merged with.
    Free,
    /// The same: it was named twice.
    Same,
    Other,
}

impl SeenNames {
    fn of(sources: &[Vec<u8>]) -> Self {
        let tops: Vec<_> = sources.iter().map(|source| top_name(source)).collect();
        let different = tops.iter().filter(|top| !top.is_empty()).collect::<HashSet<_>>().len();
        let may_merge = tops.len() > 1 && different < tops.len();
        Self {
            hardlinks: HashMap::new(),
            paths: may_merge.then(HashMap::new),
            leftovers: Leftovers::default(),
        }
    }

    fn before(&mut self, path: &[u8], metadata: &Metadata) -> PathBefore {
        let Some(paths) = &mut self.paths else { return PathBefore::Free };
        let this = (metadata.is_dir(), (metadata.dev(), metadata.ino()));
        match paths.get(path) {
            Some(before) if *before == this => PathBefore::Same,
            Some((is_dir, _)) if !is_dir || !this.0 => PathBefore::Other,
            _ => {
                paths.insert(path.to_vec(), this);
                PathBefore::Free
            }
        }
    }
}

fn walk(
    root: &Path,
    top: &[u8],
    options: &CopyOptions,
    seen: &mut SeenNames,
    each: &mut dyn FnMut(Listing) -> Result<()>,
) -> Result<()> {
    let mut walk = WalkDir::new(root).sort_by_file_name().into_iter();
    while let Some(found) = walk.next() {
        let found = match found {
            Err(error) => {
                each(Listing::Problem(problem(&error)))?;
                continue;
            }
            Ok(found) => found,
        };
        if found.depth() > 0 && !found.file_type().is_dir() && is_companion(found.file_name()) {
            seen.leftovers.add(found.path());
            continue;
        }
        let below = found.path().strip_prefix(root).unwrap_or(Path::new(""));
        let path = join(top, below.as_os_str().as_bytes());
        let metadata = match found.depth() {
            0 => std::fs::metadata(root),
            _ => found.metadata().map_err(io::Error::from),
        };
        let metadata = match metadata {
            Err(error) => {
                each(Listing::Problem(format!("{}: {error}", show(found.path()))))?;
                continue;
            }
            Ok(metadata) => metadata,
        };
        let before = seen.before(&path, &metadata);
        if metadata.is_dir() && before != PathBefore::Free {
            walk.skip_current_dir();
        }
        let listing = match before {
            PathBefore::Same => continue,
            PathBefore::Other => {
                let why = "has the name of a source before it, and would replace it";
                Listing::Problem(format!("{} {why}", show(found.path())))
            }
            PathBefore::Free => {
                let names = &mut seen.hardlinks;
                entry(found.path(), path, &metadata, options, names).unwrap_or_else(|error| {
                    Listing::Problem(format!("{}: {error:#}", show(found.path())))
                })
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
    names: &mut HashMap<InodeKey, Vec<u8>>,
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
    } else if let Some(to) = names.get(&(metadata.dev(), metadata.ino())) {
        ListedKind::Hardlink { to: to.clone() }
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
    if file.is_some() && metadata.nlink() > 1 {
        // Now that it is listed: its other names lead to this one.
        names.insert((metadata.dev(), metadata.ino()), path.clone());
    }
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
    fn a_source_with_the_name_of_the_home_directory_is_not_that() {
        let tildes = [b"~".to_vec(), b"~/".to_vec()];
        assert_eq!(describe(&tildes), (2, false), "they are no directories here");
        let mut problems = Vec::new();
        let each = &mut |listing| -> Result<()> {
            let Listing::Problem(why) = listing else { panic!("{listing:?}") };
            problems.push(why);
            Ok(())
        };
        list(&tildes, &CopyOptions::default(), each).unwrap();
        assert!(problems.iter().all(|why| why.contains("No such file")), "{problems:?}");
        assert_eq!((problems.len(), top_name(b"d/~")), (2, b"~".to_vec()));
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
    }

    #[test]
    fn directories_that_are_merged_have_each_file_once() {
        let dir = weft_testkit::Dir::new("merged");
        for (sub, text) in [("a", "AAAA"), ("b", "BBBBBB")] {
            std::fs::create_dir_all(dir.path(sub).join("d/both")).unwrap();
            dir.write(&format!("{sub}/d/f"), text);
            dir.write(&format!("{sub}/d/both/{sub}"), sub);
        }
        std::fs::hard_link(dir.path("a/d/f"), dir.path("a/d/g")).unwrap();
        // Here a file, there a directory.
        dir.write("a/d/kind", "a");
        std::fs::create_dir(dir.path("b/d/kind")).unwrap();
        dir.write("b/d/kind/below", "b");
        let at = |path: &str| dir.path(path).into_os_string().into_encoded_bytes();
        let content = |path: &str| [&at(path)[..], b"/"].concat();
        let named = listed(&[&at("a/d"), &at("b/d")]);
        let expected =
            ["d", "d/both", "d/both/a", "d/f", "d/g", "d/kind", "d", "d/both", "d/both/b"];
        assert_eq!(named.0, expected);
        let of_content = listed(&[&content("a/d"), &content("b/d")]);
        assert_eq!(of_content.0.len(), expected.len());
        for (_, problems) in [named, of_content] {
            assert_eq!(problems.len(), 2, "{problems:?}");
            assert!(problems[0].contains("b/d/f has the name of a source before it"));
            assert!(problems[1].contains("b/d/kind has the name of a source before it"));
        }
        let twice = listed(&[&content("a/d"), &content("a/d")]);
        assert_eq!(twice, listed(&[&content("a/d")]));
    }
}
