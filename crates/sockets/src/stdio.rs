//! The standard streams of the application, whose buffers the end of a process writes out.
//!
//! `fflush(NULL)` locks each stream, and so waits for ever for one in which another thread reads.

use std::ffi::{CStr, c_int, c_void};

use libc::FILE;

unsafe extern "C" {
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
    fn __fpending(stream: *mut FILE) -> usize;
    fn fflush_unlocked(stream: *mut FILE) -> c_int;
}

type StreamPlace = *mut c_void;

/// What the GNU C library has for who walks its list of streams.
struct StreamList {
    lock: unsafe extern "C" fn(),
    unlock: unsafe extern "C" fn(),
    begin: unsafe extern "C" fn() -> StreamPlace,
    next: unsafe extern "C" fn(StreamPlace) -> StreamPlace,
    end: unsafe extern "C" fn() -> StreamPlace,
    file: unsafe extern "C" fn(StreamPlace) -> *mut FILE,
}

/// The function of that name, if the C library has it.
///
/// # Safety
/// `F` is the type of a pointer to a function of its signature.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: the name is NUL-terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: a pointer to a function of that type, by contract.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

impl StreamList {
    fn find() -> Option<Self> {
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the signatures are those of `libio.h`.
                let found = unsafe { function($name) };
                found?
            }};
        }
        Some(Self {
            lock: function!(c"_IO_list_lock"),
            unlock: function!(c"_IO_list_unlock"),
            begin: function!(c"_IO_iter_begin"),
            next: function!(c"_IO_iter_next"),
            end: function!(c"_IO_iter_end"),
            file: function!(c"_IO_iter_file"),
        })
    }

    fn each(&self, act: impl Fn(*mut FILE)) {
        // SAFETY: takes nothing; undone below.
        unsafe { (self.lock)() };
        // SAFETY: the list is locked.
        let mut place = unsafe { (self.begin)() };
        // SAFETY: as above.
        let end = unsafe { (self.end)() };
        while place != end {
            // SAFETY: the list is locked, and this is one of its places.
            act(unsafe { (self.file)(place) });
            // SAFETY: as above.
            place = unsafe { (self.next)(place) };
        }
        // SAFETY: locked above.
        unsafe { (self.unlock)() };
    }
}

/// Writes out what streams hold, but of those that other threads are using.
pub fn flush() {
    match StreamList::find() {
        Some(list) => list.each(flush_one),
        None => {
            // SAFETY: null means every stream.
            unsafe { libc::fflush(std::ptr::null_mut()) };
        }
    }
}

fn flush_one(stream: *mut FILE) {
    // SAFETY: the stream is open as long as the list is locked.
    if unsafe { ftrylockfile(stream) } != 0 {
        return;
    }
    // SAFETY: locked by this thread.
    if unsafe { __fpending(stream) } > 0 {
        // SAFETY: as above.
        unsafe { fflush_unlocked(stream) };
    }
    // SAFETY: as above.
    unsafe { funlockfile(stream) };
}
