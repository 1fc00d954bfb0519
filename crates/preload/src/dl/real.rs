//! The real functions of the dynamic linker, and this library as it sees it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::elf;

/// The type of `dlsym`.
pub type DlSym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// The type of `dlopen`.
pub type DlOpen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Address of the real `dlsym`; the hooks jump through it.
pub static DLSYM: AtomicUsize = AtomicUsize::new(0);
/// Address of the real `dlvsym`.
pub static DLVSYM: AtomicUsize = AtomicUsize::new(0);
/// Address of the real `dlopen`.
pub static DLOPEN: AtomicUsize = AtomicUsize::new(0);

/// The real `dlsym`: the next one after this library, or the C library's.
pub fn dlsym() -> DlSym {
    let address = cached(&DLSYM, || {
        let first = bootstrap(c"dlsym");
        // SAFETY: the C library's symbol of this name has this signature.
        let first_fn = unsafe { transmute::<usize, DlSym>(first) };
        // SAFETY: a NUL-terminated name.
        let next = unsafe { first_fn(libc::RTLD_NEXT, c"dlsym".as_ptr()) };
        if next.is_null() { first } else { next as usize }
    });
    // SAFETY: only addresses of functions with this signature are stored there.
    unsafe { transmute::<usize, DlSym>(address) }
}

/// Finds the real `dlvsym` and keeps it in [`DLVSYM`].
pub fn resolve_dlvsym() {
    cached(&DLVSYM, || bootstrap(c"dlvsym"));
}

/// The real `dlopen`: the next one after this library.
pub fn dlopen() -> DlOpen {
    let address = cached(&DLOPEN, || {
        // SAFETY: a NUL-terminated name.
        let next = unsafe { dlsym()(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        if next.is_null() { bootstrap(c"dlopen") } else { next as usize }
    });
    // SAFETY: only addresses of functions with this signature are stored there.
    unsafe { transmute::<usize, DlOpen>(address) }
}

/// The address that this library exports under `name`.
pub fn own(name: &CStr) -> Option<*mut c_void> {
    let handle = own_handle()?;
    // SAFETY: the handle is this library's, which is never unloaded; the name is NUL-terminated.
    let found = unsafe { dlsym()(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// A handle of this library, as `dlopen` would give it.
pub fn own_handle() -> Option<*mut c_void> {
    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    let handle = cached(&HANDLE, || {
        let path = object_of(own_handle as *const c_void);
        // SAFETY: the path of a loaded object is NUL-terminated and lives as long as it.
        unsafe { dlopen()(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) as usize }
    });
    (handle != 0).then_some(handle as *mut c_void)
}

/// The path of the object that `address` lies in; NULL if in none.
pub fn object_of(address: *const c_void) -> *const c_char {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is writable; any address may be asked for.
    unsafe { libc::dladdr(address, &raw mut info) };
    info.dli_fname
}

/// The value in `cell`, computed at the first call. Racing threads compute the same value.
fn cached(cell: &AtomicUsize, compute: impl FnOnce() -> usize) -> usize {
    let known = cell.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    let value = compute();
    cell.store(value, Ordering::Release);
    value
}

/// The C library's own definition, found without asking the dynamic linker by name.
fn bootstrap(name: &CStr) -> usize {
    // Before glibc 2.34 these lived in a library of their own.
    let found = elf::find(c"libc.so.6", name).or_else(|| elf::find(c"libdl.so.2", name));
    // Without it no name could be resolved any more in this process.
    found.unwrap_or_else(|| std::process::abort())
}
