//! Attributes of what is written: permissions, times, owners, extended attributes.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::{ALL_MODE_BITS, DestinationTree, EntryPlace};
use crate::messages::{ListedEntry, SourceTime, Xattr};
use crate::rel_path::escape;

/// Permissions that are carried. Set-user-ID and set-group-ID are not: a sender must not make
/// programs that run as somebody else.
const MODE_MASK: u32 = 0o1777;

impl DestinationTree {
    /// Gives what `fd` is the attributes of `entry`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_attributes(&self, fd: BorrowedFd<'_>, entry: &ListedEntry) -> io::Result<()> {
        // A change is an entry in the journal of the file system, even if it changes nothing.
        let now = rustix::fs::fstat(fd)?;
        let other = self.owner(entry).filter(|&(uid, gid)| !is_owned_by(&now, uid, gid));
        if let Some((uid, gid)) = other {
            self.give(fd, uid, gid)?;
        }
        // Those of the system are not a sender's to set.
        let is_missing =
            |(name, value): &&Xattr| name.starts_with(b"user.") && !has_xattr(fd, name, value);
        let missing: Vec<_> = entry.xattrs.iter().filter(is_missing).collect();
        let is_opened = !missing.is_empty() && now.st_mode & 0o200 == 0;
        if is_opened {
            // The mode may forbid it.
            let mode = Mode::from_raw_mode(now.st_mode & ALL_MODE_BITS | 0o200);
            rustix::fs::fchmod(fd, mode)?;
        }
        for (name, value) in missing {
            let name = OsStr::from_bytes(name);
            rustix::fs::fsetxattr(fd, name, value, rustix::fs::XattrFlags::empty())
                .map_err(|errno| xattr_error(name, errno))?;
        }
        let mode = entry.mode & MODE_MASK | now.st_mode & kept_bits(&now);
        // A new owner takes bits of the mode away.
        if other.is_some() || is_opened || now.st_mode & ALL_MODE_BITS != mode {
            rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
        }
        Ok(rustix::fs::futimens(fd, &times(entry.modified))?)
    }

    /// Gives what `fd` is to another user. Root may not everywhere: not to a user without a number
    /// in its namespace, and not on file systems without owners or of servers that distrust it.
    /// The content is worth having all the same, and [`DestinationTree::owner_refusal`] keeps why.
    /// It must then not run as whom it belongs to instead, which [`MODE_MASK`] sees to.
    fn give(&self, fd: BorrowedFd<'_>, uid: Uid, gid: Gid) -> io::Result<()> {
        match rustix::fs::fchown(fd, Some(uid), Some(gid)) {
            Err(errno @ (Errno::PERM | Errno::INVAL)) => {
                self.owner_refusal.get_or_init(|| errno);
                Ok(())
            }
            given => Ok(given?),
        }
    }

    /// Why something has another owner than at its source, though root copied it.
    pub fn owner_refusal(&self) -> Option<io::Error> {
        let error = io::Error::from(*self.owner_refusal.get()?);
        Some(io::Error::other(format!("files are not given to their owners: {error}")))
    }

    /// To whom root gives an entry. The number that means nobody is none to give it to.
    fn owner(&self, entry: &ListedEntry) -> Option<(Uid, Gid)> {
        let (uid, gid) = entry.owner;
        let is_given = self.is_root && uid != u32::MAX && gid != u32::MAX;
        is_given.then(|| (Uid::from_raw(uid), Gid::from_raw(gid)))
    }

    /// The same for a symbolic link, which has times and an owner only. Systems that cannot set
    /// them leave them.
    pub fn set_link_attributes(&self, place: &EntryPlace, entry: &ListedEntry) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Some((uid, gid)) = self.owner(entry) {
            let _ = rustix::fs::chownat(&*place.dir, &place.name, Some(uid), Some(gid), flags);
        }
        let times = times(entry.modified);
        let _ = rustix::fs::utimensat(&*place.dir, &place.name, &times, flags);
    }
}

/// What stays of a mode: set-group-ID of a directory, which has nothing run as somebody else. Who
/// shares the tree has set it, or it comes of the directory above.
fn kept_bits(stat: &Stat) -> u32 {
    if FileType::from_raw_mode(stat.st_mode).is_dir() { 0o2000 } else { 0 }
}

fn has_xattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> bool {
    let mut there = vec![0; value.len() + 1];
    let len = rustix::fs::fgetxattr(fd, OsStr::from_bytes(name), &mut there[..]);
    len.is_ok_and(|len| there[..len] == *value)
}

/// Why an attribute cannot be set. A file system may have no room for one of its length, and then
/// says what a full disk does: this is a reason of this file, and no code that ends the copy.
fn xattr_error(name: &OsStr, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE => {
            let name = escape(name.as_bytes());
            io::Error::other(format!("its attribute {name} cannot be set: {error}"))
        }
        _ => error,
    }
}

fn is_owned_by(stat: &Stat, uid: Uid, gid: Gid) -> bool {
    (stat.st_uid, stat.st_gid) == (uid.as_raw(), gid.as_raw())
}

fn times(modified: SourceTime) -> Timestamps {
    let time = Timespec { tv_sec: modified.secs, tv_nsec: modified.nanos.min(999_999_999).into() };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::messages::ListedKind;

    /// The mode matters to others than root.
    #[test]
    fn attributes_are_set_where_the_mode_forbids_it() {
        let dir = weft_testkit::Dir::new("read-only-xattrs");
        let tree = DestinationTree::open(dir.root().as_os_str().as_bytes(), 1, true, false);
        let path = dir.write("file", "content");
        let none = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&path, "user.weft", b"old", none).is_err() {
            return weft_testkit::skip("the file system has no extended attributes");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        let entry = ListedEntry {
            path: b"file".to_vec(),
            kind: ListedKind::File { size: 7, digest: None },
            mode: 0o444,
            modified: SourceTime::default(),
            owner: (u32::MAX, u32::MAX),
            xattrs: vec![(b"user.weft".to_vec(), b"new".to_vec())],
        };
        let file = File::open(&path).unwrap();
        tree.unwrap().set_attributes(file.as_fd(), &entry).unwrap();
        assert!(has_xattr(file.as_fd(), b"user.weft", b"new"));
        assert!(!has_xattr(file.as_fd(), b"user.weft", b"ne"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & ALL_MODE_BITS, 0o444);
    }
}
