//! The directory tree that is written, by descriptors of directories and names in them.
//!
//! Invariant: nothing outside of the destination is opened, made, renamed or removed. Each step of
//! a path is opened by itself and never through a symbolic link, so that a link in the tree, which
//! a sender may just have made, leads nowhere. What the user names as the destination is followed
//! as it stands.
//!
//! Order: [`DestinationTree::open`]; [`DestinationTree::place`] for each path; then the rest.

mod attributes;
mod kept;
mod written;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use weft_sync::Mutex;

pub use self::kept::PartialUse;
use self::written::WrittenSystems;
use crate::messages::{SourceTime, is_single};
use crate::rel_path::{LINK, RelPath, companion, escape};

/// All that a mode may have.
const ALL_MODE_BITS: u32 = 0o7777;
/// Directories that are kept open: one for each thread that writes, and some.
const RECENT_MAX: usize = 16;
/// Links that lead on from the destination, at most, as Linux has it.
const LINKS_MAX: usize = 40;

/// A directory below the destination, or itself.
pub type DirFd = Arc<OwnedFd>;

/// Where files go.
pub struct DestinationTree {
    /// `None` in a dry run whose destination does not exist.
    root: Option<DirFd>,
    /// What the user named, for messages.
    named: PathBuf,
    /// The one file that is copied has this name, whatever it is called at its source.
    single: Option<RelPath>,
    /// The directories that were used last, the latest at the end: most files follow one of the
    /// same, and each thread is at files of others.
    recent: Mutex<VecDeque<(RelPath, DirFd)>>,
    is_root: bool,
    /// The first reason why the system has not given a file to its owner.
    owner_refusal: OnceLock<Errno>,
    written: WrittenSystems,
}

/// A place for an entry: the directory that it is to be in, and its name there.
#[derive(Clone)]
pub struct EntryPlace {
    /// The directory.
    pub dir: DirFd,
    /// The name.
    pub name: OsString,
}

impl EntryPlace {
    /// What is there now, not followed if it is a link; `None` if nothing is.
    ///
    /// # Errors
    /// The directory cannot be searched.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&*self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Checks that what is there, if anything, may give its name to a file: who copies to a device
    /// or a pipe means what is behind it, and a file in its place would be lost on it.
    ///
    /// # Errors
    /// It is a device, a pipe or a socket.
    pub fn check_replaceable(&self) -> io::Result<()> {
        let kind = self.stat()?.map(|stat| FileType::from_raw_mode(stat.st_mode));
        let what = match kind {
            Some(FileType::BlockDevice | FileType::CharacterDevice) => "a device",
            Some(FileType::Fifo) => "a pipe",
            Some(FileType::Socket) => "a socket",
            _ => return Ok(()),
        };
        Err(io::Error::other(format!("{what} is in its place")))
    }

    /// The place of what a copy keeps beside it.
    pub fn beside(&self, suffix: &str) -> Self {
        let name = OsString::from_vec(companion(&self.name, suffix));
        Self { dir: Arc::clone(&self.dir), name }
    }

    /// Opens the file there to read it.
    ///
    /// # Errors
    /// There is none, or it is a link.
    pub fn read(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&*self.dir, &self.name, flags, Mode::empty())?;
        Ok(fd.into())
    }

    /// Gives what is there the name of `to`, in place of what had it.
    ///
    /// # Errors
    /// What had it is neither a file nor a link, or the system refuses.
    pub fn rename(&self, to: &Self) -> io::Result<()> {
        to.check_replaceable()?;
        Ok(rustix::fs::renameat(&*self.dir, &self.name, &*to.dir, &to.name)?)
    }

    /// The same for the file there that is open as `file`. Another one that has replaced it does
    /// not get the name.
    ///
    /// # Errors
    /// It was replaced; or as [`EntryPlace::rename`].
    pub fn rename_open(&self, file: &File, to: &Self) -> io::Result<()> {
        let opened = rustix::fs::fstat(file)?;
        match self.stat()? {
            Some(there) if is_same(&there, &opened) => self.rename(to),
            _ => Err(io::Error::other("its partial file was replaced by something else")),
        }
    }

    /// Removes the file there, if there is one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove(&self) -> io::Result<()> {
        match rustix::fs::unlinkat(&*self.dir, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes a symbolic link there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn make_symlink(&self, target: &[u8]) -> io::Result<()> {
        let new = self.beside(LINK);
        new.remove()?;
        rustix::fs::symlinkat(OsStr::from_bytes(target), &*new.dir, &new.name)?;
        // If it cannot have its name, that is the reason to tell.
        new.rename(self).inspect_err(|_| _ = new.remove())
    }

    /// Where the link there leads.
    ///
    /// # Errors
    /// There is none.
    pub fn read_symlink(&self) -> io::Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&*self.dir, &self.name, Vec::new())?;
        Ok(target.into_bytes())
    }

    /// Gives the file at `to` a second name here.
    ///
    /// # Errors
    /// The system refuses.
    pub fn make_hardlink(&self, to: &Self) -> io::Result<()> {
        let new = self.beside(LINK);
        new.remove()?;
        let none = AtFlags::empty();
        rustix::fs::linkat(&*to.dir, &to.name, &*new.dir, &new.name, none)?;
        let renamed = new.rename(self);
        // A rename between two names of one file leaves both, as does one that fails.
        renamed.and(new.remove())
    }
}

impl DestinationTree {
    /// The tree at `destination`, for so many sources. A directory is made if it is missing and
    /// one is needed; its own directory is not.
    ///
    /// # Errors
    /// It is a file where a directory is needed, or cannot be opened or made.
    pub fn open(
        destination: &[u8],
        sources: u32,
        has_directory: bool,
        dry_run: bool,
    ) -> Result<Self> {
        let named = PathBuf::from(OsStr::from_bytes(destination));
        let is_dir = fs::metadata(&named).map(|metadata| metadata.is_dir());
        let needs_dir = !is_single(sources, has_directory) || destination.ends_with(b"/");
        let shown = escape(destination);
        let mut single = None;
        let at = match is_dir {
            Ok(true) => named.clone(),
            Ok(false) if needs_dir => bail!("{shown} is no directory"),
            Err(error) if needs_dir && error.kind() == io::ErrorKind::NotFound => {
                if !dry_run {
                    fs::create_dir(&named).with_context(|| format!("cannot make {shown}"))?;
                }
                named.clone()
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(format!("looking at {shown}"));
            }
            _ => {
                let file = follow(&named);
                let name = file.file_name().with_context(|| format!("{shown} is no file"))?;
                single = Some(RelPath::parse(name.as_bytes())?);
                let parent = file.parent().filter(|path| !path.as_os_str().is_empty());
                parent.unwrap_or(Path::new(".")).to_path_buf()
            }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match rustix::fs::openat(CWD, &at, flags, Mode::empty()) {
            Ok(root) => Some(Arc::new(root)),
            Err(Errno::NOENT) if dry_run => None,
            Err(errno) => {
                return Err(io::Error::from(errno)).context(format!("cannot open {}", show(&at)));
            }
        };
        let is_root = rustix::process::geteuid().is_root();
        Ok(Self {
            root,
            named,
            single,
            recent: Mutex::default(),
            is_root,
            owner_refusal: OnceLock::new(),
            written: WrittenSystems::default(),
        })
    }

    /// A path of the sender's as a person may find it here.
    pub fn show(&self, path: &RelPath) -> String {
        if self.single.is_some() || path.is_root() {
            return show(&self.named);
        }
        show(&self.named.join(OsStr::from_bytes(path.as_bytes())))
    }

    /// The path here for one of the sender's, which is that of a file if it `is_file`.
    ///
    /// # Errors
    /// The sender names something else than the one file that was asked for.
    pub fn map(&self, path: RelPath, is_file: bool) -> Result<RelPath> {
        match &self.single {
            None => Ok(path),
            Some(single) => {
                let fits = is_file && path.names().count() == 1;
                ensure!(fits, "the far end sent something else than the file it was asked for");
                Ok(single.clone())
            }
        }
    }

    /// The place of `path`, which was mapped; `None` in a dry run where its directory is missing.
    ///
    /// # Errors
    /// Its directory is missing, or on the way there is a link or a file.
    pub fn place(&self, path: &RelPath) -> io::Result<Option<EntryPlace>> {
        let Some((parent, name)) = path.split() else {
            return Err(io::Error::other("the destination itself is no file"));
        };
        let name = name.to_owned();
        Ok(self.directory(&parent)?.map(|dir| EntryPlace { dir, name }))
    }

    /// A directory below the destination.
    ///
    /// # Errors
    /// It is missing, or on the way there is a link or a file.
    pub fn directory(&self, path: &RelPath) -> io::Result<Option<DirFd>> {
        let Some(root) = &self.root else { return Ok(None) };
        if path.is_root() {
            return Ok(Some(Arc::clone(root)));
        }
        if let Some(dir) = self.recent_directory(path) {
            return Ok(Some(dir));
        }
        let mut dir = Arc::clone(root);
        for name in path.names() {
            dir = Arc::new(open_dir(&dir, name)?);
        }
        let mut recent = self.recent.lock();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back((path.clone(), Arc::clone(&dir)));
        Ok(Some(dir))
    }

    fn recent_directory(&self, path: &RelPath) -> Option<DirFd> {
        let mut recent = self.recent.lock();
        let at = recent.iter().rposition(|(known, _)| known == path)?;
        let found = recent.remove(at)?;
        let dir = Arc::clone(&found.1);
        recent.push_back(found);
        Some(dir)
    }

    /// Makes the directory `path`, or finds it. While the copy lasts its owner may write there.
    ///
    /// # Errors
    /// Something else is there, or the system refuses.
    pub fn make_directory(&self, path: &RelPath, mode: u32) -> io::Result<()> {
        let Some(place) = (if path.is_root() { None } else { self.place(path)? }) else {
            return Ok(());
        };
        let mode = Mode::from_raw_mode(mode & 0o777 | 0o700);
        match rustix::fs::mkdirat(&*place.dir, &place.name, mode) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let dir = match open_dir(&place.dir, &place.name) {
                    // Its mode may not give its owner a right to it either.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        open_dir_as(&place.dir, &place.name, OFlags::PATH)?
                    }
                    opened => opened?,
                };
                let now = rustix::fs::fstat(&dir)?;
                let is_mine = now.st_uid == rustix::process::geteuid().as_raw();
                if is_mine && now.st_mode & 0o700 != 0o700 {
                    // Its mode is set at the end, as that of a new one.
                    let mode = Mode::from_raw_mode(now.st_mode & ALL_MODE_BITS | 0o700);
                    change_mode(&dir, mode)?;
                }
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

fn change_mode(dir: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    match rustix::fs::fchmod(dir, mode) {
        // It is open without a right to it.
        Err(Errno::BADF) => rustix::fs::chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), mode),
        done => done,
    }
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn open_dir(dir: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    open_dir_as(dir, name, OFlags::RDONLY)
}

fn open_dir_as(dir: &OwnedFd, name: &OsStr, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(dir) => Ok(dir),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let shown = escape(name.as_bytes());
            let why = format!("{shown} is a link or a file where a directory is needed");
            Err(io::Error::other(why))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Where the links at the end of `path` lead, whether something is there or not.
fn follow(path: &Path) -> PathBuf {
    let mut at = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    at
}

/// When a file was changed last.
pub fn modified(stat: &Stat) -> SourceTime {
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    SourceTime { secs: stat.st_mtime, nanos }
}

/// `~` and `~/` at the start of a path at a far end are the home directory, which the shell there
/// would have made of them. A path here comes as the shell here has left it.
pub fn expand_home(path: &[u8]) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match (path.strip_prefix(b"~"), home) {
        // Without a slash at its end, which would mean what is in it.
        (Some(b""), Some(home)) => home.components().collect(),
        (Some([b'/', rest @ ..]), Some(home)) => {
            let rest =
                rest.iter().position(|byte| *byte != b'/').map_or(&b""[..], |at| &rest[at..]);
            home.join(OsStr::from_bytes(rest))
        }
        _ => PathBuf::from(OsStr::from_bytes(path)),
    }
}

fn show(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & ALL_MODE_BITS
    }

    #[test]
    fn while_the_copy_lasts_a_directory_that_is_there_can_be_written() {
        let dir = weft_testkit::Dir::new("read-only-there");
        let tree = DestinationTree::open(dir.root().as_os_str().as_bytes(), 1, true, false);
        fs::create_dir(dir.path("sub")).unwrap();
        set_mode(&dir.path("sub"), 0o1555);
        let sub = RelPath::parse(b"sub").unwrap();
        let tree = tree.unwrap();
        tree.make_directory(&sub, 0o555).unwrap();
        assert_eq!(mode(&dir.path("sub")), 0o1755);
        for unreadable in [0, 0o100, 0o2311] {
            set_mode(&dir.path("sub"), unreadable);
            tree.make_directory(&sub, unreadable).unwrap();
            assert_eq!(mode(&dir.path("sub")), unreadable | 0o700);
        }
    }

    #[test]
    fn a_directory_that_may_not_be_written_is_not_taken_for_a_missing_file() {
        if weft_testkit::is_root() {
            return weft_testkit::skip("root may write everywhere");
        }
        let dir = weft_testkit::Dir::new("read-only-dir");
        let tree = DestinationTree::open(dir.root().as_os_str().as_bytes(), 1, true, false);
        fs::create_dir(dir.path("sub")).unwrap();
        set_mode(&dir.path("sub"), 0o555);
        let place = tree.unwrap().place(&RelPath::parse(b"sub/file").unwrap()).unwrap().unwrap();
        let error = place.beside("weft-part").open_partial(PartialUse::Anew).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_link_that_cannot_have_its_name_is_not_left_under_another() {
        let dir = weft_testkit::Dir::new("link-in-the-way");
        let tree = DestinationTree::open(dir.root().as_os_str().as_bytes(), 1, true, false);
        let tree = tree.unwrap();
        let place = |name: &[u8]| tree.place(&RelPath::parse(name).unwrap()).unwrap().unwrap();
        fs::create_dir(dir.path("in-the-way")).unwrap();
        dir.write("file", "content");
        let count = || fs::read_dir(dir.root()).unwrap().count();
        place(b"in-the-way").make_symlink(b"file").unwrap_err();
        assert_eq!(count(), 2);
        place(b"in-the-way").make_hardlink(&place(b"file")).unwrap_err();
        assert_eq!(count(), 2);
    }
}
