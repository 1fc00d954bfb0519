//! The status of a file: kind, rights and identity.

use std::ffi::c_int;
use std::sync::OnceLock;

use super::tree::{Node, ViewEntry, ViewPath};
use crate::errno;

/// Kinds and rights of what is shown.
const DIRECTORY: libc::mode_t = libc::S_IFDIR | 0o555;
const FILE: libc::mode_t = libc::S_IFREG | 0o444;
const LINK: libc::mode_t = libc::S_IFLNK | 0o777;
const DEVICE: libc::mode_t = libc::S_IFCHR | 0o666;

/// Preferred size of a read, in bytes.
const BLOCK: libc::blksize_t = 4096;

/// A number for the file at a canonical path, the same each time.
pub fn inode(path: &str) -> u64 {
    // FNV-1a: applications only compare these.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    path.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The device that sysfs is, so that scanners that stay in one file system find the view.
fn sysfs() -> u64 {
    static DEVICE: OnceLock<u64> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        // SAFETY: all zeroes is valid: integers.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a NUL-terminated path and a writable structure. Without `/sys` it stays zero.
        unsafe { libc::stat(c"/sys".as_ptr(), &raw mut stat) };
        stat.st_dev
    })
}

/// The mode of what was found, or why there is nothing.
fn mode(node: &Node) -> Result<libc::mode_t, c_int> {
    match node {
        Node::Directory => Ok(DIRECTORY),
        Node::Entry(ViewEntry::Text(_) | ViewEntry::Counter(_)) => Ok(FILE),
        Node::Entry(ViewEntry::Link(_)) => Ok(LINK),
        Node::Entry(ViewEntry::Device { .. }) => Ok(DEVICE),
        Node::Entry(ViewEntry::Elsewhere(_)) | Node::Elsewhere(_) => Err(libc::ENOENT),
        Node::Missing(code) => Err(*code),
    }
}

fn status(found: &ViewPath) -> Result<libc::stat, c_int> {
    // SAFETY: all zeroes is valid: integers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_mode = mode(&found.node)?;
    stat.st_dev = sysfs();
    stat.st_nlink = if stat.st_mode == DIRECTORY { 2 } else { 1 };
    stat.st_ino = inode(&found.path);
    stat.st_blksize = BLOCK;
    match &found.node {
        // Not the page that sysfs says: copies would be filled up with zeroes.
        Node::Entry(ViewEntry::Text(text)) => stat.st_size = text.len() as i64,
        Node::Entry(ViewEntry::Device { major, minor }) => {
            stat.st_rdev = libc::makedev(*major, *minor);
        }
        _ => {}
    }
    Ok(stat)
}

/// Answers a `stat`.
///
/// # Safety
/// `out` is writable.
pub unsafe fn write_stat(found: &ViewPath, out: *mut libc::stat) -> c_int {
    match status(found) {
        // SAFETY: writable by contract.
        Ok(stat) => unsafe { out.write(stat) },
        Err(code) => return errno::minus_one(code),
    }
    0
}

/// Answers a `statx`.
///
/// # Safety
/// `out` is writable.
pub unsafe fn write_statx(found: &ViewPath, out: *mut libc::statx) -> c_int {
    let stat = match status(found) {
        Ok(stat) => stat,
        Err(code) => return errno::minus_one(code),
    };
    // SAFETY: all zeroes is valid: integers.
    let mut more: libc::statx = unsafe { std::mem::zeroed() };
    more.stx_mask = libc::STATX_BASIC_STATS;
    more.stx_mode = stat.st_mode as u16;
    more.stx_nlink = stat.st_nlink as u32;
    more.stx_ino = stat.st_ino;
    more.stx_blksize = stat.st_blksize as u32;
    more.stx_size = stat.st_size as u64;
    (more.stx_dev_major, more.stx_dev_minor) = (libc::major(stat.st_dev), libc::minor(stat.st_dev));
    (more.stx_rdev_major, more.stx_rdev_minor) =
        (libc::major(stat.st_rdev), libc::minor(stat.st_rdev));
    // SAFETY: writable by contract.
    unsafe { out.write(more) };
    0
}

/// Answers an `access`: nothing can be written but the device nodes, and root is told so too.
pub fn access(found: &ViewPath, wanted: c_int) -> c_int {
    match mode(&found.node) {
        Err(code) => errno::minus_one(code),
        Ok(mode) if wanted as libc::mode_t & !mode & 0o7 != 0 => errno::minus_one(libc::EACCES),
        Ok(_) => 0,
    }
}
