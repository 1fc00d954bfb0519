//! The functions of the C library that take the path of a file.
//!
//! Each looks whether its path is ours, answers if so, and is the next definition otherwise.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use super::status::{access as access_found, write_stat, write_statx};
use super::tree::{Last, Node, ViewEntry, ViewPath};
use super::{devices, handles, lookup};
use crate::real::next;
use crate::{dl, errno};

/// Defines exported functions: what each does for a path that is ours, and otherwise the next
/// definition. `in DIR` is the directory that the path is relative to, `last` what happens to a
/// link at its end.
macro_rules! hooks {
    ($($name:ident($($before:ident: $bt:ty,)* @ $path:ident $(, $after:ident: $at:ty)*)
        -> $result:ty [in $dir:expr, $last:expr] = |$found:ident| $answer:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe, reason = "some answers write nothing")]
            pub unsafe extern "C" fn $name(
                $($before: $bt,)* $path: *const c_char $(, $after: $at)*
            ) -> $result {
                let real = next!($name($($before,)* $path $(, $after)*));
                let real = |$path: *const c_char| match real {
                    // SAFETY: the caller's arguments, of which only the path may be another.
                    Some(real) => unsafe { real($($before,)* $path $(, $after)*) },
                    None => Lacking::lacking(),
                };
                // SAFETY: as for the C function.
                match unsafe { lookup::at($dir, $path, $last) } {
                    None => real($path),
                    Some(ViewPath { node: Node::Elsewhere(target), .. }) => real(target.as_ptr()),
                    // SAFETY: as for the C function, for those that write to its arguments.
                    Some($found) => unsafe { $answer },
                }
            }
        )*
    };
}

/// The directory of functions that take none.
const HERE: c_int = libc::AT_FDCWD;

fn open_last(flags: c_int) -> Last {
    if flags & libc::O_NOFOLLOW == 0 { Last::Follow } else { Last::Keep }
}

fn last(flags: c_int) -> Last {
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Last::Follow } else { Last::Keep }
}

hooks! {
    open(@ path, flags: c_int, mode: libc::mode_t) -> c_int
        [in HERE, open_last(flags)] = |found| open_found(&found, flags);
    open64(@ path, flags: c_int, mode: libc::mode_t) -> c_int
        [in HERE, open_last(flags)] = |found| open_found(&found, flags);
    __open_2(@ path, flags: c_int) -> c_int
        [in HERE, open_last(flags)] = |found| open_found(&found, flags);
    __open64_2(@ path, flags: c_int) -> c_int
        [in HERE, open_last(flags)] = |found| open_found(&found, flags);
    openat(dir: c_int, @ path, flags: c_int, mode: libc::mode_t) -> c_int
        [in dir, open_last(flags)] = |found| open_found(&found, flags);
    openat64(dir: c_int, @ path, flags: c_int, mode: libc::mode_t) -> c_int
        [in dir, open_last(flags)] = |found| open_found(&found, flags);
    __openat_2(dir: c_int, @ path, flags: c_int) -> c_int
        [in dir, open_last(flags)] = |found| open_found(&found, flags);
    __openat64_2(dir: c_int, @ path, flags: c_int) -> c_int
        [in dir, open_last(flags)] = |found| open_found(&found, flags);
    fopen(@ path, mode: *const c_char) -> *mut libc::FILE
        [in HERE, Last::Follow] = |found| open_stream(&found, mode);
    fopen64(@ path, mode: *const c_char) -> *mut libc::FILE
        [in HERE, Last::Follow] = |found| open_stream(&found, mode);
    stat(@ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Follow] = |found| write_stat(&found, out);
    stat64(@ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Follow] = |found| write_stat(&found, out);
    lstat(@ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Keep] = |found| write_stat(&found, out);
    lstat64(@ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Keep] = |found| write_stat(&found, out);
    fstatat(dir: c_int, @ path, out: *mut libc::stat, flags: c_int) -> c_int
        [in dir, last(flags)] = |found| write_stat(&found, out);
    fstatat64(dir: c_int, @ path, out: *mut libc::stat, flags: c_int) -> c_int
        [in dir, last(flags)] = |found| write_stat(&found, out);
    __xstat(version: c_int, @ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Follow] = |found| write_stat(&found, out);
    __xstat64(version: c_int, @ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Follow] = |found| write_stat(&found, out);
    __lxstat(version: c_int, @ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Keep] = |found| write_stat(&found, out);
    __lxstat64(version: c_int, @ path, out: *mut libc::stat) -> c_int
        [in HERE, Last::Keep] = |found| write_stat(&found, out);
    __fxstatat(version: c_int, dir: c_int, @ path, out: *mut libc::stat, flags: c_int) -> c_int
        [in dir, last(flags)] = |found| write_stat(&found, out);
    __fxstatat64(version: c_int, dir: c_int, @ path, out: *mut libc::stat, flags: c_int) -> c_int
        [in dir, last(flags)] = |found| write_stat(&found, out);
    statx(dir: c_int, @ path, flags: c_int, mask: u32, out: *mut libc::statx) -> c_int
        [in dir, last(flags)] = |found| write_statx(&found, out);
    access(@ path, mode: c_int) -> c_int
        [in HERE, Last::Follow] = |found| access_found(&found, mode);
    euidaccess(@ path, mode: c_int) -> c_int
        [in HERE, Last::Follow] = |found| access_found(&found, mode);
    eaccess(@ path, mode: c_int) -> c_int
        [in HERE, Last::Follow] = |found| access_found(&found, mode);
    faccessat(dir: c_int, @ path, mode: c_int, flags: c_int) -> c_int
        [in dir, last(flags)] = |found| access_found(&found, mode);
    readlink(@ path, out: *mut c_char, room: usize) -> isize
        [in HERE, Last::Keep] = |found| read_link(&found, out, room);
    __readlink_chk(@ path, out: *mut c_char, room: usize, size: usize) -> isize
        [in HERE, Last::Keep] = |found| read_link(&found, out, room.min(size));
    readlinkat(dir: c_int, @ path, out: *mut c_char, room: usize) -> isize
        [in dir, Last::Keep] = |found| read_link(&found, out, room);
    __readlinkat_chk(dir: c_int, @ path, out: *mut c_char, room: usize, size: usize) -> isize
        [in dir, Last::Keep] = |found| read_link(&found, out, room.min(size));
    realpath(@ path, out: *mut c_char) -> *mut c_char
        [in HERE, Last::Follow] = |found| real_path(found, out);
    __realpath_chk(@ path, out: *mut c_char, room: usize) -> *mut c_char
        [in HERE, Last::Follow] = |found| real_path(found, out);
    canonicalize_file_name(@ path) -> *mut c_char
        [in HERE, Last::Follow] = |found| real_path(found, ptr::null_mut());
    getxattr(@ path, name: *const c_char, value: *mut c_void, size: usize) -> isize
        [in HERE, Last::Follow] = |found| no_attribute(&found);
    lgetxattr(@ path, name: *const c_char, value: *mut c_void, size: usize) -> isize
        [in HERE, Last::Keep] = |found| no_attribute(&found);
    listxattr(@ path, list: *mut c_char, size: usize) -> isize
        [in HERE, Last::Follow] = |found| no_attribute(&found);
    llistxattr(@ path, list: *mut c_char, size: usize) -> isize
        [in HERE, Last::Keep] = |found| no_attribute(&found);
}

/// Defines exported functions of a descriptor: for one of the view they tell of the file that it
/// stands for.
macro_rules! descriptor_hooks {
    ($($name:ident($($before:ident: $bt:ty,)* @ $fd:ident);)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                $($before: $bt,)* $fd: c_int, out: *mut libc::stat
            ) -> c_int {
                let found = handles::path_of($fd).and_then(|path| lookup::find(&path, Last::Keep));
                match (found, next!($name($($before,)* $fd, out))) {
                    // SAFETY: as for the C function.
                    (Some(found), _) => unsafe { write_stat(&found, out) },
                    // SAFETY: as for the C function.
                    (None, Some(real)) => unsafe { real($($before,)* $fd, out) },
                    (None, None) => Lacking::lacking(),
                }
            }
        )*
    };
}

descriptor_hooks! {
    fstat(@ fd);
    fstat64(@ fd);
    __fxstat(version: c_int, @ fd);
    __fxstat64(version: c_int, @ fd);
}

/// A descriptor of what was found. Nothing is behind the device nodes.
fn open_found(found: &ViewPath, flags: c_int) -> c_int {
    let only_path = flags & libc::O_PATH != 0;
    let writes = !only_path && flags & libc::O_ACCMODE != libc::O_RDONLY;
    let refused = match &found.node {
        Node::Missing(libc::ENOENT) if flags & libc::O_CREAT != 0 => libc::EACCES,
        Node::Missing(code) => *code,
        Node::Elsewhere(_) => libc::ENOENT,
        _ if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 => libc::EEXIST,
        Node::Directory if writes => libc::EISDIR,
        Node::Directory => return handles::make(&found.path, "", flags),
        Node::Entry(ViewEntry::Link(_)) if !only_path => libc::ELOOP,
        Node::Entry(_) if flags & libc::O_DIRECTORY != 0 => libc::ENOTDIR,
        Node::Entry(ViewEntry::Device { .. }) if !only_path => libc::ENXIO,
        Node::Entry(_) if writes => libc::EACCES,
        Node::Entry(ViewEntry::Text(text)) => return handles::make(&found.path, text, flags),
        Node::Entry(_) => return handles::make(&found.path, "", flags),
    };
    errno::minus_one(refused)
}

/// # Safety
/// `mode` is NUL-terminated.
unsafe fn open_stream(found: &ViewPath, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: NUL-terminated by contract.
    let letters = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let writes = letters.iter().any(|c| b"wa+".contains(c));
    let close = if letters.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    let fd = open_found(found, close | if writes { libc::O_RDWR } else { libc::O_RDONLY });
    if fd < 0 {
        return ptr::null_mut();
    }
    // SAFETY: a descriptor of ours, and the caller's mode.
    unsafe { libc::fdopen(fd, mode) }
}

/// # Safety
/// `out` has room for `room` bytes.
unsafe fn read_link(found: &ViewPath, out: *mut c_char, room: usize) -> isize {
    let target = match &found.node {
        Node::Entry(ViewEntry::Link(target)) => target.as_bytes(),
        Node::Missing(code) => return errno::minus_one(*code) as isize,
        _ => return errno::minus_one(libc::EINVAL) as isize,
    };
    let len = target.len().min(room);
    // SAFETY: `out` has room for so many by contract.
    unsafe { ptr::copy_nonoverlapping(target.as_ptr().cast(), out, len) };
    len as isize
}

/// # Safety
/// `out` is NULL or has room for the longest path.
unsafe fn real_path(found: ViewPath, out: *mut c_char) -> *mut c_char {
    if let Node::Missing(code) = found.node {
        return errno::null(code);
    }
    // libfabric reads the PCI address off this path, and MPICH then ends where hwloc, of which it
    // brings one that does not scan the bus, has no adapter with that address.
    if devices::is_function(&found.path) && dl::has_mpich() {
        return errno::null(libc::ENOENT);
    }
    let Ok(path) = CString::new(found.path) else { return errno::null(libc::ENOENT) };
    if out.is_null() {
        // SAFETY: NUL-terminated; the application frees the copy.
        return unsafe { libc::strdup(path.as_ptr()) };
    }
    // SAFETY: it is shorter than the longest path.
    unsafe { libc::strcpy(out, path.as_ptr()) }
}

fn no_attribute(found: &ViewPath) -> isize {
    let code = if let Node::Missing(code) = found.node { code } else { libc::ENOTSUP };
    errno::minus_one(code) as isize
}

/// The return value of a function that this machine's C library does not have.
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
