//! Files that a copy keeps beside those that it writes: partial files and records.
//!
//! Others may write in the same directory, and their files may have these names. What goes into
//! such a file could be read there, and what is read from it could be theirs.
//!
//! Invariant: what is opened here was made by this call, or belongs to this user alone: it is a
//! regular file of one name that nobody else may write. What is to have new content may nobody
//! else read either. Anything else is removed first.
//!
//! Order: any.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use weft_os::clock;
use weft_session::OUTLIVES_MAX;

use super::{ALL_MODE_BITS, EntryPlace, is_same};
use crate::rel_path::escape;

/// How long another copy that writes the same file may take to end, and how often that is looked
/// at: the far end of one that was killed needs [`OUTLIVES_MAX`] to notice.
const LOCK_LIMIT: Duration = OUTLIVES_MAX.saturating_mul(2);
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Permissions of others to write.
const OTHERS_WRITE: u32 = 0o022;
/// All permissions of others.
const OTHERS: u32 = 0o077;

/// What a partial file that is there already is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialUse {
    /// To be written from its start.
    Anew,
    /// To keep what is in it. It may have the permissions of its source, which it gets once it is
    /// whole: who reads it by these reads nothing that it may not.
    Resume,
}

impl PartialUse {
    /// Permissions that it must not have.
    fn refused(self) -> u32 {
        match self {
            Self::Anew => OTHERS,
            Self::Resume => OTHERS_WRITE,
        }
    }
}

impl EntryPlace {
    /// Opens a partial file there, which nobody else writes meanwhile. It is made if it is missing,
    /// or if what is there is not of this user alone.
    ///
    /// # Errors
    /// It cannot be opened or replaced, or another copy goes on writing it.
    pub fn open_partial(&self, used: PartialUse) -> io::Result<File> {
        let until = clock::now() + LOCK_LIMIT;
        loop {
            match self.take_partial(used)? {
                Some(file) => return Ok(file),
                None if clock::now() < until => std::thread::park_timeout(LOCK_PAUSE),
                None => return Err(io::Error::other("another copy is writing it")),
            }
        }
    }

    /// Opens a file there that a copy has kept, to read it.
    ///
    /// # Errors
    /// There is none, or it is not of this user alone.
    pub fn read_kept(&self) -> io::Result<File> {
        let file = self.read()?;
        match is_own(&rustix::fs::fstat(&file)?, OTHERS_WRITE) {
            true => Ok(file),
            false => Err(io::Error::other("another user may have written it")),
        }
    }

    /// Removes a file there that has the name of one that a copy keeps.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove_kept(&self) -> io::Result<()> {
        self.remove().map_err(|error| {
            let name = escape(self.name.as_bytes());
            let why = format!("{name}, which is needed for the copy, is taken: {error}; remove it");
            io::Error::new(error.kind(), why)
        })
    }

    /// Opens a partial file there, or makes it; `None` while another copy has it.
    fn take_partial(&self, used: PartialUse) -> io::Result<Option<File>> {
        let Some(there) = self.stat()? else { return self.make_partial() };
        if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
            self.remove_kept()?;
            return self.make_partial();
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file: File = match rustix::fs::openat(&*self.dir, &self.name, flags, Mode::empty()) {
            Err(Errno::ACCESS) if !is_of_user(&there) => {
                self.remove_kept()?;
                return self.make_partial();
            }
            // A copy that ended late had given it the mode of its source already.
            Err(Errno::ACCESS) if self.make_writable()? => {
                rustix::fs::openat(&*self.dir, &self.name, flags, Mode::empty())?.into()
            }
            // It was replaced meanwhile, or another copy is about to finish it.
            Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP) => return Ok(None),
            file => file?.into(),
        };
        let Some(opened) = self.lock(&file)? else { return Ok(None) };
        if is_own(&opened, used.refused()) {
            return Ok(Some(file));
        }
        // Locked until then: root's other copy may just have given it to its owner.
        self.remove_kept()?;
        self.make_partial()
    }

    /// Makes a partial file where none is; `None` if there is one.
    fn make_partial(&self) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = rustix::fs::openat(&*self.dir, &self.name, flags | OFlags::CLOEXEC, mode);
        let file: File = match made {
            Err(Errno::EXIST) => return Ok(None),
            made => made?.into(),
        };
        Ok(self.lock(&file)?.map(|_| file))
    }

    /// Locks the file there, open as `file`, against other copies, and tells of it; `None` if one
    /// has it, or had it and has renamed it.
    fn lock(&self, file: &File) -> io::Result<Option<Stat>> {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        let opened = rustix::fs::fstat(file)?;
        let is_there = self.stat()?.is_some_and(|there| is_same(&there, &opened));
        Ok(is_there.then_some(opened))
    }

    /// Lets its owner read and write the file there, unless another copy is about to finish it;
    /// whether it did.
    fn make_writable(&self) -> io::Result<bool> {
        let file = match self.read() {
            // It is not there, or may not be opened at all: whoever asks was refused for good.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Errno::ACCESS.into());
            }
            file => file?,
        };
        let Some(opened) = self.lock(&file)? else { return Ok(false) };
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return Ok(false);
        }
        // Who could read it may still have it open, so that it stays to be seen who could.
        let mode = Mode::from_raw_mode(opened.st_mode & ALL_MODE_BITS | 0o600);
        rustix::fs::fchmod(&file, mode)?;
        Ok(true)
    }
}

fn is_of_user(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether it is a regular file of this user that has one name and none of the `refused`
/// permissions.
fn is_own(stat: &Stat, refused: u32) -> bool {
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_regular && is_of_user(stat) && stat.st_nlink == 1 && stat.st_mode & refused == 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::sync::Arc;

    use weft_testkit::{Dir, is_root, skip};

    use super::*;

    /// A number that nobody has here.
    const SOMEBODY: u32 = 54_321;

    fn place(dir: &Dir) -> EntryPlace {
        let opened = File::open(dir.root()).unwrap();
        EntryPlace { dir: Arc::new(opened.into()), name: "part".into() }
    }

    /// A file with the name of the partial one, open as others may have it.
    fn planted(dir: &Dir, mode: u32) -> File {
        let path = dir.path("part");
        fs::write(&path, "planted").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// What is written is in a file that `planted` is not, and that nobody else may open.
    fn assert_replaced(dir: &Dir, planted: &mut File, used: PartialUse) {
        let mut file = place(dir).open_partial(used).unwrap();
        file.write_all(b"secret").unwrap();
        let mut seen = String::new();
        planted.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "planted");
        assert_eq!(fs::read(dir.path("part")).unwrap(), b"secret");
        assert_eq!(file.metadata().unwrap().mode() & ALL_MODE_BITS, 0o600);
    }

    #[test]
    fn a_file_that_another_user_has_made_is_replaced() {
        if !is_root() {
            return skip("only root gives files to others");
        }
        for used in [PartialUse::Anew, PartialUse::Resume] {
            let dir = Dir::new("kept-of-another");
            let mut file = planted(&dir, 0o600);
            chown(dir.path("part"), Some(SOMEBODY), None).unwrap();
            place(&dir).read_kept().unwrap_err();
            assert_replaced(&dir, &mut file, used);
        }
    }

    #[test]
    fn a_file_that_others_may_open_is_replaced() {
        for (used, mode) in [
            (PartialUse::Anew, 0o644),
            (PartialUse::Anew, 0o604),
            (PartialUse::Anew, 0o666),
            (PartialUse::Resume, 0o620),
            (PartialUse::Resume, 0o602),
        ] {
            let dir = Dir::new("kept-open");
            assert_replaced(&dir, &mut planted(&dir, mode), used);
        }
    }

    #[test]
    fn a_file_of_two_names_is_replaced() {
        let dir = Dir::new("kept-linked");
        let mut file = planted(&dir, 0o600);
        fs::hard_link(dir.path("part"), dir.path("other")).unwrap();
        place(&dir).read_kept().unwrap_err();
        assert_replaced(&dir, &mut file, PartialUse::Resume);
        assert_eq!(fs::read(dir.path("other")).unwrap(), b"planted");
    }

    #[test]
    fn a_link_in_its_place_is_replaced_and_not_followed() {
        let dir = Dir::new("kept-symlink");
        dir.write("other", "kept");
        symlink("other", dir.path("part")).unwrap();
        place(&dir).open_partial(PartialUse::Resume).unwrap().write_all(b"secret").unwrap();
        assert_eq!(fs::read(dir.path("other")).unwrap(), b"kept");
        assert!(!dir.path("part").is_symlink());
    }

    #[test]
    fn what_cannot_be_removed_is_named() {
        let dir = Dir::new("kept-directory");
        fs::create_dir(dir.path("part")).unwrap();
        let error = place(&dir).open_partial(PartialUse::Anew).unwrap_err();
        assert!(error.to_string().contains("part, which is needed for the copy"), "{error}");
    }

    /// A copy that was killed while it finished has left it.
    #[test]
    fn a_file_with_the_mode_of_its_source_is_resumed() {
        for mode in [0o644, 0o444, 0o400, 0o600] {
            let dir = Dir::new("kept-mode");
            drop(planted(&dir, 0o600));
            fs::set_permissions(dir.path("part"), fs::Permissions::from_mode(mode)).unwrap();
            let mut kept = String::new();
            let mut file = place(&dir).open_partial(PartialUse::Resume).unwrap();
            file.read_to_string(&mut kept).unwrap();
            assert_eq!(kept, "planted", "{mode:o}");
        }
    }
}
