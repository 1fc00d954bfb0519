//! The functions of the C library that search: `glob`, `ftw` and `nftw` go through directories
//! without a call that could be intercepted, so each is told how here.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem;

use super::directories::{closedir, opendir, readdir64};
use super::files::{Lacking, lstat, stat};
use super::tree::{Last, Node, ViewPath};
use super::{current, lookup, shared};
use crate::errno;
use crate::real::next;

/// The C library's `glob_t`, which libc declares without its functions.
#[repr(C)]
pub struct Glob {
    pathc: usize,
    pathv: *mut *mut c_char,
    offs: usize,
    flags: c_int,
    closedir: Option<unsafe extern "C" fn(*mut libc::DIR)>,
    readdir: Option<unsafe extern "C" fn(*mut libc::DIR) -> *mut libc::dirent64>,
    opendir: Option<unsafe extern "C" fn(*const c_char) -> *mut libc::DIR>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
}

const _: () = assert!(mem::size_of::<Glob>() == mem::size_of::<libc::glob_t>());

/// Directories are read by the functions that the caller names.
const GLOB_ALTDIRFUNC: c_int = 1 << 9;

type OnError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;
type GlobFn = unsafe extern "C" fn(*const c_char, c_int, OnError, *mut Glob) -> c_int;

unsafe extern "C" fn close(dir: *mut libc::DIR) {
    // SAFETY: the C library closes what it opened.
    unsafe { closedir(dir) };
}

/// `glob`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn glob(
    pattern: *const c_char,
    flags: c_int,
    on_error: OnError,
    out: *mut Glob,
) -> c_int {
    // SAFETY: as for the C function.
    unsafe { search(next!(glob(pattern, flags, on_error, out)), pattern, flags, on_error, out) }
}

/// `glob64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn glob64(
    pattern: *const c_char,
    flags: c_int,
    on_error: OnError,
    out: *mut Glob,
) -> c_int {
    // SAFETY: as for the C function.
    unsafe { search(next!(glob64(pattern, flags, on_error, out)), pattern, flags, on_error, out) }
}

/// # Safety
/// As for `glob`.
unsafe fn search(
    real: Option<GlobFn>,
    pattern: *const c_char,
    flags: c_int,
    on_error: OnError,
    out: *mut Glob,
) -> c_int {
    let Some(real) = real else { return Lacking::lacking() };
    // SAFETY: NUL-terminated, as for the C function.
    let bytes = unsafe { CStr::from_ptr(pattern) }.to_bytes();
    let there = bytes.starts_with(b"/sys/") || bytes.starts_with(b"/dev/");
    let there = there || current::descriptor().is_some() && !bytes.starts_with(b"/");
    if !there || flags & GLOB_ALTDIRFUNC != 0 {
        // SAFETY: the caller's arguments.
        return unsafe { real(pattern, flags, on_error, out) };
    }
    // SAFETY: writable, as for the C function; with the flag these are the caller's to set.
    let hooks = unsafe { &mut *out };
    hooks.closedir = Some(close);
    hooks.readdir = Some(readdir64);
    hooks.opendir = Some(opendir);
    hooks.lstat = Some(lstat);
    hooks.stat = Some(stat);
    // SAFETY: the caller's arguments, and functions that do what the C library's own do.
    let result = unsafe { real(pattern, flags | GLOB_ALTDIRFUNC, on_error, out) };
    // SAFETY: as above.
    unsafe { (*out).flags &= !GLOB_ALTDIRFUNC };
    result
}

/// Offset and depth, which `nftw` reports with the path.
#[repr(C)]
pub struct FtwPlace {
    base: c_int,
    level: c_int,
}

/// Kinds of files for visitors of a tree (`ftw.h`).
const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
/// How a tree is walked.
const FTW_PHYS: c_int = 1;
const FTW_DEPTH: c_int = 8;
/// `FTW_MOUNT` and `FTW_CHDIR`: what only the C library does.
const ELSEWHERE: c_int = 2 | 4;
const FTW_ACTIONRETVAL: c_int = 16;
/// Return values of a visitor with `FTW_ACTIONRETVAL`.
const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;
type VisitAt =
    unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut FtwPlace) -> c_int;

/// The application's function that is called for each file.
#[derive(Clone, Copy)]
enum Visitor {
    Plain(Visit),
    Placed(VisitAt),
}

struct Walk {
    visitor: Visitor,
    flags: c_int,
    /// Directories that were entered: without `FTW_PHYS` links lead back to some.
    entered: BTreeSet<(u64, u64)>,
}

/// Defines the exported walks: of a tree of ours here, otherwise the next definition.
macro_rules! walks {
    ($($name:ident($visit:ident: $kind:ty $(, $flags:ident)?) = $visitor:expr, $how:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                path: *const c_char, $visit: $kind, descriptors: c_int $(, $flags: c_int)?
            ) -> c_int {
                // SAFETY: as for the C function.
                match unsafe { lookup::at(libc::AT_FDCWD, path, Last::Follow) } {
                    // SAFETY: as for the C function.
                    None if $how & ELSEWHERE == 0 && unsafe { shared::is_shared(path) } => {
                        // SAFETY: as for the C function.
                        unsafe { walk(path, $visitor, $how) }
                    }
                    None | Some(ViewPath { node: Node::Elsewhere(_), .. }) => {
                        match next!($name(path, $visit, descriptors $(, $flags)?)) {
                            // SAFETY: as for the C function.
                            Some(real) => unsafe { real(path, $visit, descriptors $(, $flags)?) },
                            None => Lacking::lacking(),
                        }
                    }
                    // SAFETY: as for the C function.
                    Some(_) => unsafe { walk(path, $visitor, $how) },
                }
            }
        )*
    };
}

walks! {
    ftw(visit: Visit) = Visitor::Plain(visit), 0;
    ftw64(visit: Visit) = Visitor::Plain(visit), 0;
    nftw(visit: VisitAt, flags) = Visitor::Placed(visit), flags;
    nftw64(visit: VisitAt, flags) = Visitor::Placed(visit), flags;
}

/// # Safety
/// `path` is NUL-terminated; the visitor is the application's.
unsafe fn walk(path: *const c_char, visitor: Visitor, flags: c_int) -> c_int {
    // SAFETY: NUL-terminated by contract.
    let path = unsafe { CStr::from_ptr(path) };
    let text = path.to_bytes();
    let cut = text.iter().rposition(|byte| *byte != b'/').map_or(text.len(), |last| last + 1);
    let Ok(path) = CString::new(&text[..cut]) else { return errno::minus_one(libc::ENOENT) };
    let mut walk = Walk { visitor, flags, entered: BTreeSet::new() };
    match walk.go(&path, 0) {
        SKIP_SUBTREE | SKIP_SIBLINGS if flags & FTW_ACTIONRETVAL != 0 => 0,
        end => end,
    }
}

impl Walk {
    /// Visits the file at `path` and, if it is a directory, what is in it.
    fn go(&mut self, path: &CStr, level: c_int) -> c_int {
        // SAFETY: all zeroes is valid: integers.
        let mut status: libc::stat = unsafe { mem::zeroed() };
        let look = if self.flags & FTW_PHYS != 0 { lstat } else { stat };
        // SAFETY: NUL-terminated, and writable.
        if unsafe { look(path.as_ptr(), &raw mut status) } != 0 {
            let kind = match (errno::get(), self.visitor) {
                (libc::ENOENT | libc::EACCES, Visitor::Placed(_)) if level > 0 => {
                    // SAFETY: NUL-terminated, and writable.
                    let found = unsafe { lstat(path.as_ptr(), &raw mut status) } == 0;
                    let is_link = status.st_mode & libc::S_IFMT == libc::S_IFLNK;
                    if found && is_link { FTW_SLN } else { FTW_NS }
                }
                (libc::ENOENT | libc::EACCES, Visitor::Plain(_)) if level > 0 => FTW_NS,
                // Of the path itself nothing can be said.
                _ => return -1,
            };
            return self.visit(path, &status, kind, level);
        }
        let kind = match status.st_mode & libc::S_IFMT {
            libc::S_IFDIR => return self.enter(path, &status, level),
            libc::S_IFLNK => FTW_SL,
            _ => FTW_F,
        };
        self.visit(path, &status, kind, level)
    }

    fn enter(&mut self, path: &CStr, status: &libc::stat, level: c_int) -> c_int {
        if !self.entered.insert((status.st_dev, status.st_ino)) {
            return 0;
        }
        let Some(names) = names(path) else { return self.visit(path, status, FTW_DNR, level) };
        let last = self.flags & FTW_DEPTH != 0;
        let end = if last { 0 } else { self.visit(path, status, FTW_D, level) };
        match end {
            0 => {}
            SKIP_SUBTREE if self.flags & FTW_ACTIONRETVAL != 0 => return 0,
            end => return end,
        }
        for name in names {
            match self.go(&name, level + 1) {
                0 => {}
                SKIP_SUBTREE if self.flags & FTW_ACTIONRETVAL != 0 => {}
                SKIP_SIBLINGS if self.flags & FTW_ACTIONRETVAL != 0 => break,
                end => return end,
            }
        }
        if last { self.visit(path, status, FTW_DP, level) } else { 0 }
    }

    fn visit(&self, path: &CStr, status: &libc::stat, kind: c_int, level: c_int) -> c_int {
        let slash = path.to_bytes().iter().rposition(|byte| *byte == b'/');
        let base = slash.map_or(0, |at| at + 1) as c_int;
        match self.visitor {
            // SAFETY: the application's function, as for the C function.
            Visitor::Plain(visit) => unsafe { visit(path.as_ptr(), status, kind) },
            Visitor::Placed(visit) => {
                let mut place = FtwPlace { base, level };
                // SAFETY: as above.
                unsafe { visit(path.as_ptr(), status, kind, &raw mut place) }
            }
        }
    }
}

/// The paths of what is in a directory; nothing if it cannot be read.
fn names(path: &CStr) -> Option<Vec<CString>> {
    // SAFETY: NUL-terminated.
    let dir = unsafe { opendir(path.as_ptr()) };
    if dir.is_null() {
        return None;
    }
    let mut names = Vec::new();
    loop {
        // SAFETY: a stream that nobody else has.
        let entry = unsafe { readdir64(dir) };
        if entry.is_null() {
            break;
        }
        // SAFETY: the entry is valid until the next read.
        let name = unsafe { (&raw const (*entry).d_name).cast() };
        // SAFETY: the name is NUL-terminated.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        if name != b"." && name != b".." {
            names.extend(CString::new([path.to_bytes(), b"/", name].concat()));
        }
    }
    // SAFETY: opened above.
    unsafe { closedir(dir) };
    Some(names)
}
