//! The functions of the C library that take the path of a file.
//!
//! Each looks whether its path is ours, answers if so, and is the next definition otherwise.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use super::tree::{self, Node};
use crate::errno;
use crate::real::next;

/// Rights and kind of what is shown.
const DIRECTORY: libc::mode_t = libc::S_IFDIR | 0o555;
const FILE: libc::mode_t = libc::S_IFREG | 0o444;
const DEVICE: libc::mode_t = libc::S_IFCHR | 0o666;

/// Defines an exported function: what it does for a path that is ours, and otherwise the next
/// definition. `$path` names the argument that is the path.
macro_rules! hooks {
    ($($name:ident($($before:ident: $bt:ty,)* @ $path:ident $(, $after:ident: $at:ty)*)
        -> $result:ty = |$real:ident, $node:ident| $answer:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                $($before: $bt,)* $path: *const c_char $(, $after: $at)*
            ) -> $result {
                let real = next!($name($($before,)* $path $(, $after)*));
                let $real = |path: *const c_char| match real {
                    // SAFETY: the caller's arguments, of which only the path may be another.
                    Some(real) => unsafe { real($($before,)* path $(, $after)*) },
                    None => Lacking::lacking(),
                };
                // SAFETY: as for the C function.
                match unsafe { tree::at($path) } {
                    None => $real($path),
                    Some((_, Node::Elsewhere(target))) => $real(target.as_ptr()),
                    Some($node) => $answer,
                }
            }
        )*
    };
}

hooks! {
    open(@ path, flags: c_int, mode: libc::mode_t) -> c_int =
        |_real, seen| open_node(&seen.1, flags);
    open64(@ path, flags: c_int, mode: libc::mode_t) -> c_int =
        |_real, seen| open_node(&seen.1, flags);
    __open_2(@ path, flags: c_int) -> c_int = |_real, seen| open_node(&seen.1, flags);
    __open64_2(@ path, flags: c_int) -> c_int = |_real, seen| open_node(&seen.1, flags);
    openat(dir: c_int, @ path, flags: c_int, mode: libc::mode_t) -> c_int =
        |_real, seen| open_node(&seen.1, flags);
    openat64(dir: c_int, @ path, flags: c_int, mode: libc::mode_t) -> c_int =
        |_real, seen| open_node(&seen.1, flags);
    __openat_2(dir: c_int, @ path, flags: c_int) -> c_int =
        |_real, seen| open_node(&seen.1, flags);
    __openat64_2(dir: c_int, @ path, flags: c_int) -> c_int =
        |_real, seen| open_node(&seen.1, flags);
    fopen(@ path, mode: *const c_char) -> *mut libc::FILE = |_real, seen| {
        // SAFETY: as for the C function.
        unsafe { open_stream(&seen.1, mode) }
    };
    fopen64(@ path, mode: *const c_char) -> *mut libc::FILE = |_real, seen| {
        // SAFETY: as for the C function.
        unsafe { open_stream(&seen.1, mode) }
    };
    stat(@ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: writable, as for the C function.
        unsafe { stat_node(&seen, out) }
    };
    stat64(@ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: as above; the structures are one.
        unsafe { stat_node(&seen, out) }
    };
    lstat(@ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    lstat64(@ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    fstatat(dir: c_int, @ path, out: *mut libc::stat, flags: c_int) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    fstatat64(dir: c_int, @ path, out: *mut libc::stat, flags: c_int) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    __xstat(version: c_int, @ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    __xstat64(version: c_int, @ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    __lxstat(version: c_int, @ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    __lxstat64(version: c_int, @ path, out: *mut libc::stat) -> c_int = |_real, seen| {
        // SAFETY: as above.
        unsafe { stat_node(&seen, out) }
    };
    statx(dir: c_int, @ path, flags: c_int, mask: u32, out: *mut libc::statx) -> c_int =
        |_real, seen| {
            // SAFETY: as above.
            unsafe { statx_node(&seen, out) }
        };
    access(@ path, mode: c_int) -> c_int = |_real, seen| access_node(&seen.1, mode);
    euidaccess(@ path, mode: c_int) -> c_int = |_real, seen| access_node(&seen.1, mode);
    eaccess(@ path, mode: c_int) -> c_int = |_real, seen| access_node(&seen.1, mode);
    faccessat(dir: c_int, @ path, mode: c_int, flags: c_int) -> c_int =
        |_real, seen| access_node(&seen.1, mode);
    readlink(@ path, out: *mut c_char, room: usize) -> isize =
        |_real, seen| isize::try_from(no_link(&seen.1)).unwrap_or(-1);
    realpath(@ path, out: *mut c_char) -> *mut c_char = |_real, seen| {
        // SAFETY: as for the C function.
        unsafe { real_path(seen, out) }
    };
    __realpath_chk(@ path, out: *mut c_char, room: usize) -> *mut c_char = |_real, seen| {
        // SAFETY: as for the C function.
        unsafe { real_path(seen, out) }
    };
    canonicalize_file_name(@ path) -> *mut c_char = |_real, seen| {
        // SAFETY: room is allocated.
        unsafe { real_path(seen, ptr::null_mut()) }
    };
}

/// A descriptor of a file in memory with the text. Directories are read by `opendir` only, and
/// nothing is behind the device nodes.
fn open_node(node: &Node, flags: c_int) -> c_int {
    let text = match node {
        Node::File(text) => text,
        Node::Device => return errno::minus_one(libc::ENXIO),
        Node::Directory(_) => return errno::minus_one(libc::EACCES),
        Node::Nothing | Node::Elsewhere(_) => return errno::minus_one(libc::ENOENT),
    };
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return errno::minus_one(libc::EACCES);
    }
    let close = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::memfd_create(c"weft".as_ptr(), close) };
    if fd >= 0 {
        // SAFETY: the text is readable; it is far shorter than what one call writes.
        unsafe { libc::write(fd, text.as_ptr().cast::<c_void>(), text.len()) };
        // SAFETY: plain arguments.
        unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
    }
    fd
}

/// # Safety
/// `mode` is NUL-terminated.
unsafe fn open_stream(node: &Node, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: NUL-terminated by contract.
    let letters = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let writes = letters.iter().any(|c| b"wa+".contains(c));
    let close = if letters.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    let fd = open_node(node, close | if writes { libc::O_RDWR } else { libc::O_RDONLY });
    if fd < 0 {
        return ptr::null_mut();
    }
    // SAFETY: a descriptor of ours, and the caller's mode.
    unsafe { libc::fdopen(fd, mode) }
}

fn mode_of(node: &Node) -> Option<libc::mode_t> {
    match node {
        Node::Directory(_) => Some(DIRECTORY),
        Node::File(_) => Some(FILE),
        Node::Device => Some(DEVICE),
        Node::Nothing | Node::Elsewhere(_) => None,
    }
}

/// A number for the file at `path`, the same each time.
pub fn inode(path: &str) -> u64 {
    // FNV-1a: programs only compare these.
    let mix = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    path.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The size that sysfs gives every file.
const SIZE: i64 = 4096;

/// # Safety
/// `out` is writable.
unsafe fn stat_node((path, node): &(String, Node), out: *mut libc::stat) -> c_int {
    let Some(mode) = mode_of(node) else { return errno::minus_one(libc::ENOENT) };
    // SAFETY: all zeroes is valid: integers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_mode = mode;
    stat.st_nlink = 1;
    stat.st_ino = inode(path);
    stat.st_blksize = SIZE;
    stat.st_size = if *node == Node::Device { 0 } else { SIZE };
    // SAFETY: writable by contract.
    unsafe { out.write(stat) };
    0
}

/// # Safety
/// `out` is writable.
unsafe fn statx_node((path, node): &(String, Node), out: *mut libc::statx) -> c_int {
    let Some(mode) = mode_of(node) else { return errno::minus_one(libc::ENOENT) };
    // SAFETY: all zeroes is valid: integers.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    stat.stx_mask = libc::STATX_BASIC_STATS;
    stat.stx_mode = mode as u16;
    stat.stx_nlink = 1;
    stat.stx_ino = inode(path);
    stat.stx_blksize = SIZE as u32;
    stat.stx_size = if *node == Node::Device { 0 } else { SIZE as u64 };
    // SAFETY: writable by contract.
    unsafe { out.write(stat) };
    0
}

fn access_node(node: &Node, mode: c_int) -> c_int {
    let refused = match node {
        Node::Directory(_) => libc::W_OK,
        Node::File(_) => libc::W_OK | libc::X_OK,
        Node::Device => libc::X_OK,
        Node::Nothing | Node::Elsewhere(_) => return errno::minus_one(libc::ENOENT),
    };
    if mode & refused != 0 { errno::minus_one(libc::EACCES) } else { 0 }
}

fn no_link(node: &Node) -> c_int {
    errno::minus_one(if mode_of(node).is_some() { libc::EINVAL } else { libc::ENOENT })
}

/// The path without its detours: there are no links in it.
///
/// # Safety
/// `out` is NULL or has room for the longest path.
unsafe fn real_path((path, node): (String, Node), out: *mut c_char) -> *mut c_char {
    let Some(path) = mode_of(&node).and_then(|_| CString::new(path).ok()) else {
        return errno::null(libc::ENOENT);
    };
    if out.is_null() {
        // SAFETY: NUL-terminated; the program frees the copy.
        return unsafe { libc::strdup(path.as_ptr()) };
    }
    // SAFETY: it is shorter than the longest path.
    unsafe { libc::strcpy(out, path.as_ptr()) }
}

/// What a function of the C library answers that this machine's does not have.
pub trait Lacking {
    /// The answer; `errno` is set.
    fn lacking() -> Self;
}

impl Lacking for c_int {
    fn lacking() -> Self {
        errno::minus_one(libc::ENOSYS)
    }
}

impl Lacking for i64 {
    fn lacking() -> Self {
        errno::minus_one(libc::ENOSYS).into()
    }
}

impl Lacking for isize {
    fn lacking() -> Self {
        errno::minus_one(libc::ENOSYS) as isize
    }
}

impl<T> Lacking for *mut T {
    fn lacking() -> Self {
        errno::null(libc::ENOSYS)
    }
}

impl Lacking for () {
    fn lacking() -> Self {}
}
