//! The functions of the C library that list a directory.
//!
//! A stream of ours is known by its address; any other is passed on.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_sync::{Mutex, MutexGuard};

use super::files::Lacking;
use super::status::inode;
use super::tree::{DirentKind, Last, Node, ViewPath};
use super::{handles, lookup, shared};
use crate::errno;
use crate::real::next;

/// A directory that is being read.
struct DirStream {
    path: String,
    names: Vec<(String, DirentKind)>,
    next: usize,
    /// The descriptor that it was made of, or that the application wanted to know.
    fd: Option<c_int>,
    /// The entry that the last read returned; the next read overwrites it.
    entry: libc::dirent64,
}

/// Addresses of the streams that are open. They are few, and mostly there are none, which the
/// count tells without a lock.
static OPEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn streams() -> MutexGuard<'static, Vec<usize>> {
    OPEN.lock()
}

impl DirStream {
    /// Opens the directory that was found.
    fn open(found: ViewPath, fd: Option<c_int>) -> *mut libc::DIR {
        match found.node {
            Node::Directory => {}
            Node::Missing(code) => return errno::null(code),
            _ => return errno::null(libc::ENOTDIR),
        }
        let dots = [".", ".."].map(|name| (name.to_owned(), libc::DT_DIR));
        let names = dots.into_iter().chain(lookup::children(&found.path)).collect();
        // SAFETY: all zeroes is valid: integers.
        let entry = unsafe { std::mem::zeroed() };
        let stream = DirStream { path: found.path, names, next: 0, fd, entry };
        let stream = Box::into_raw(Box::new(stream));
        streams().push(stream as usize);
        COUNT.fetch_add(1, Ordering::AcqRel);
        stream.cast()
    }

    /// The stream at `dir`, if it is ours.
    ///
    /// # Safety
    /// A stream of ours is used by one thread at a time, as the C library asks for any stream.
    unsafe fn of<'a>(dir: *mut libc::DIR) -> Option<&'a mut DirStream> {
        let ours = COUNT.load(Ordering::Acquire) > 0 && streams().contains(&(dir as usize));
        // SAFETY: an address on the list is that of a live stream, which nobody else uses now.
        ours.then(|| unsafe { &mut *dir.cast::<DirStream>() })
    }

    fn close(&mut self) -> c_int {
        let address = ptr::from_mut(self);
        streams().retain(|open| *open != address as usize);
        COUNT.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: made by `Box::into_raw`; whoever closes a stream gives it up.
        let stream = unsafe { Box::from_raw(address) };
        // SAFETY: the stream owns its descriptor.
        stream.fd.map_or(0, |fd| unsafe { libc::close(fd) })
    }

    fn read(&mut self) -> *mut libc::dirent64 {
        let Some((name, kind)) = self.names.get(self.next) else { return ptr::null_mut() };
        self.next += 1;
        self.entry = entry(&self.path, name, *kind, self.next);
        &raw mut self.entry
    }

    /// Its descriptor, which is closed with it.
    fn descriptor(&mut self) -> c_int {
        *self.fd.get_or_insert_with(|| handles::make(&self.path, "", libc::O_CLOEXEC))
    }
}

/// The entry of a name in the directory at `path`.
pub fn entry(path: &str, name: &str, kind: DirentKind, position: usize) -> libc::dirent64 {
    // SAFETY: all zeroes is valid: integers.
    let mut entry: libc::dirent64 = unsafe { std::mem::zeroed() };
    entry.d_ino = inode(&format!("{path}/{name}"));
    entry.d_off = position as i64;
    entry.d_reclen = size_of::<libc::dirent64>() as u16;
    entry.d_type = kind;
    let room = entry.d_name.len() - 1;
    for (to, from) in entry.d_name.iter_mut().zip(name.bytes().take(room)) {
        *to = from as c_char;
    }
    entry
}

/// `opendir`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    let real = |path| match next!(opendir(path)) {
        // SAFETY: as for the C function.
        Some(real) => unsafe { real(path) },
        None => Lacking::lacking(),
    };
    // SAFETY: an open stream.
    let watched = |dir| shared::watched(dir, || unsafe { dirfd(dir) });
    // SAFETY: as for the C function.
    match unsafe { lookup::at(libc::AT_FDCWD, path, Last::Follow) } {
        None => watched(real(path)),
        Some(ViewPath { node: Node::Elsewhere(target), .. }) => watched(real(target.as_ptr())),
        Some(found) => DirStream::open(found, None),
    }
}

/// `fdopendir`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut libc::DIR {
    let path = handles::path_of(fd);
    match (path.and_then(|path| lookup::find(&path, Last::Keep)), next!(fdopendir(fd))) {
        (Some(found), _) => DirStream::open(found, Some(fd)),
        // SAFETY: as for the C function.
        (None, Some(real)) => shared::watched(unsafe { real(fd) }, || fd),
        (None, None) => Lacking::lacking(),
    }
}

/// Defines exported functions of a stream: what they do with one of ours, and with another, of
/// which the next definition is given.
macro_rules! hooks {
    ($($name:ident($dir:ident $(, $arg:ident: $kind:ty)*) -> $result:ty =
        |$stream:ident| $answer:expr, |$real:ident| $other:expr;)*)
    => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($dir: *mut libc::DIR $(, $arg: $kind)*) -> $result {
                let next = next!($name($dir $(, $arg)*));
                let $real = || match next {
                    // SAFETY: as for the C function.
                    Some(real) => unsafe { real($dir $(, $arg)*) },
                    None => Lacking::lacking(),
                };
                // SAFETY: as for the C function.
                match unsafe { DirStream::of($dir) } {
                    Some($stream) => $answer,
                    None => $other,
                }
            }
        )*
    };
}

hooks! {
    readdir(dir) -> *mut libc::dirent64 =
        |stream| stream.read(), |real| shared::read(dir, real);
    readdir64(dir) -> *mut libc::dirent64 =
        |stream| stream.read(), |real| shared::read(dir, real);
    rewinddir(dir) -> () = |stream| stream.next = 0, |real| { shared::rewind(dir); real() };
    telldir(dir) -> libc::c_long = |stream| stream.next as libc::c_long, |real| real();
    seekdir(dir, position: libc::c_long) -> () =
        |stream| stream.next = usize::try_from(position).unwrap_or(0),
        |real| { shared::rewind(dir); real() };
    dirfd(dir) -> c_int = |stream| stream.descriptor(), |real| real();
    closedir(dir) -> c_int =
        |stream| DirStream::close(stream), |real| { shared::close(dir); real() };
}

/// `readdir_r` and `readdir64_r` of streams in which the view has names.
///
/// # Safety
/// As for the C function.
unsafe fn read_into(
    dir: *mut libc::DIR,
    entry: *mut libc::dirent64,
    result: *mut *mut libc::dirent64,
) -> c_int {
    let before = errno::get();
    errno::set(0);
    // SAFETY: as for the C function.
    let found = unsafe { readdir64(dir) };
    let code = errno::get();
    errno::set(before);
    if !found.is_null() {
        // SAFETY: an entry is valid until the next read. The kernel's are as long as their names.
        let bytes = usize::from(unsafe { (*found).d_reclen }).min(size_of::<libc::dirent64>());
        // SAFETY: the caller's has room for any entry.
        unsafe { ptr::copy_nonoverlapping(found.cast::<u8>(), entry.cast(), bytes) };
    }
    // SAFETY: writable, as for the C function.
    unsafe { result.write(if found.is_null() { ptr::null_mut() } else { entry }) };
    if found.is_null() { code } else { 0 }
}

/// Defines the functions that read an entry into memory of the application's.
macro_rules! readers {
    ($($name:ident),*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                dir: *mut libc::DIR,
                entry: *mut libc::dirent64,
                result: *mut *mut libc::dirent64,
            ) -> c_int {
                // SAFETY: as for the C function.
                let is_of_view = unsafe { DirStream::of(dir) }.is_some() || shared::has(dir);
                match next!($name(dir, entry, result)) {
                    // SAFETY: as for the C function.
                    Some(real) if !is_of_view => unsafe { real(dir, entry, result) },
                    // SAFETY: as for the C function.
                    _ => unsafe { read_into(dir, entry, result) },
                }
            }
        )*
    };
}

readers! { readdir_r, readdir64_r }

type ScanFilter = Option<unsafe extern "C" fn(*const libc::dirent64) -> c_int>;
type ScanOrderFn =
    unsafe extern "C" fn(*mut *const libc::dirent64, *mut *const libc::dirent64) -> c_int;
type ScanOrder = Option<ScanOrderFn>;
type List = *mut *mut *mut libc::dirent64;

/// `scandir`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir(
    path: *const c_char,
    list: List,
    filter: ScanFilter,
    order: ScanOrder,
) -> c_int {
    let real = next!(scandir(path, list, filter, order));
    // SAFETY: as for the C function.
    unsafe { scan(real, path, list, filter, order) }
}

/// `scandir64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir64(
    path: *const c_char,
    list: List,
    filter: ScanFilter,
    order: ScanOrder,
) -> c_int {
    let real = next!(scandir64(path, list, filter, order));
    // SAFETY: as for the C function.
    unsafe { scan(real, path, list, filter, order) }
}

/// # Safety
/// As for `scandir`.
unsafe fn scan(
    real: Option<unsafe extern "C" fn(*const c_char, List, ScanFilter, ScanOrder) -> c_int>,
    path: *const c_char,
    list: List,
    filter: ScanFilter,
    order: ScanOrder,
) -> c_int {
    // SAFETY: as for the C function.
    let dir = match unsafe { lookup::at(libc::AT_FDCWD, path, Last::Follow) } {
        Some(ViewPath { node: Node::Elsewhere(target), .. }) => {
            // SAFETY: as for the C function.
            return real.map_or(-1, |real| unsafe { real(target.as_ptr(), list, filter, order) });
        }
        Some(found) => DirStream::open(found, None),
        // SAFETY: NUL-terminated, as for the C function.
        None if unsafe { shared::is_shared(path) } => unsafe { opendir(path) },
        // SAFETY: as for the C function.
        None => return real.map_or(-1, |real| unsafe { real(path, list, filter, order) }),
    };
    if dir.is_null() {
        return -1;
    }
    // SAFETY: a stream that nobody else has.
    let found = unsafe { collect(dir, filter, order) };
    // SAFETY: as above.
    unsafe { closedir(dir) };
    let bytes = size_of_val(found.as_slice());
    // SAFETY: plain arguments; the application frees the list and its entries.
    let place: *mut *mut libc::dirent64 = unsafe { libc::malloc(bytes.max(1)) }.cast();
    if place.is_null() {
        return errno::minus_one(libc::ENOMEM);
    }
    // SAFETY: the list has room for the entries.
    unsafe { ptr::copy_nonoverlapping(found.as_ptr(), place, found.len()) };
    // SAFETY: writable, as for the C function.
    unsafe { list.write(place) };
    found.len() as c_int
}

/// The entries that pass the filter, in order, each in memory of its own.
///
/// # Safety
/// `dir` is a stream that nobody else has; the functions are the application's.
unsafe fn collect(
    dir: *mut libc::DIR,
    filter: ScanFilter,
    order: ScanOrder,
) -> Vec<*mut libc::dirent64> {
    let mut found = Vec::new();
    loop {
        // SAFETY: by contract.
        let entry = unsafe { readdir64(dir) };
        if entry.is_null() {
            break;
        }
        // SAFETY: the application's function, on an entry.
        if filter.is_some_and(|filter| unsafe { filter(entry) } == 0) {
            continue;
        }
        // SAFETY: an entry is valid until the next read. The kernel's are as long as their names.
        let bytes = usize::from(unsafe { (*entry).d_reclen });
        // SAFETY: plain arguments.
        let copy: *mut c_void = unsafe { libc::malloc(bytes) };
        if copy.is_null() {
            break;
        }
        // SAFETY: both have room for an entry.
        unsafe { ptr::copy_nonoverlapping(entry.cast(), copy, bytes) };
        found.push(copy.cast::<libc::dirent64>());
    }
    if let Some(order) = order {
        type ListOrder = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
        // As the C library does it: functions that only tell "greater" order a list too.
        // SAFETY: both take two addresses of entries' addresses.
        let order = unsafe { std::mem::transmute::<ScanOrderFn, ListOrder>(order) };
        let (place, each) = (found.as_mut_ptr().cast(), size_of::<*mut libc::dirent64>());
        // SAFETY: the list, and the application's function on two of its entries.
        unsafe { libc::qsort(place, found.len(), each, Some(order)) };
    }
    found
}
