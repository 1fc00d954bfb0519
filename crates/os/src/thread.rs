//! Threads without those of the standard library, which ends the process where it has no memory for
//! a handle.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use crate::last_thread::OwnThread;
use crate::sys;

/// As much as the standard library gives its threads.
const STACK_OCTETS: usize = 2 << 20;

type ThreadBody = Box<dyn FnOnce() + Send>;

struct Job {
    name: &'static CStr,
    work: ThreadBody,
}

/// Has a thread of that name do `work`, on its own.
///
/// # Errors
/// The errno of the system that has no thread left.
pub fn spawn(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let job = Box::into_raw(Box::new(Job { name, work: Box::new(work) }));
    // It begins with them blocked: no handler of the application runs on it.
    let code = sys::without_signals(|| start(job.cast()));
    if code == 0 {
        return Ok(());
    }
    // SAFETY: no thread was made that would have taken it.
    drop(unsafe { Box::from_raw(job) });
    Err(io::Error::from_raw_os_error(code))
}

fn start(job: *mut c_void) -> libc::c_int {
    let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: makes the attributes.
    let code = unsafe { libc::pthread_attr_init(attr.as_mut_ptr()) };
    if code != 0 {
        return code;
    }
    // A size that the system refuses leaves its own, which will do.
    // SAFETY: the attributes were made above.
    unsafe { libc::pthread_attr_setstacksize(attr.as_mut_ptr(), STACK_OCTETS) };
    // SAFETY: as above.
    unsafe { libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes were made above, and `begin` takes the job over.
    let code = unsafe { libc::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), begin, job) };
    // SAFETY: as above, and not used any more.
    unsafe { libc::pthread_attr_destroy(attr.as_mut_ptr()) };
    code
}

extern "C" fn begin(job: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` gave the job to this thread alone.
    let job = unsafe { Box::from_raw(job.cast::<Job>()) };
    // SAFETY: gives this thread.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: a thread may name itself; the name is NUL-terminated.
    unsafe { libc::pthread_setname_np(this, job.name.as_ptr()) };
    let _own = OwnThread::begin();
    (job.work)();
    ptr::null_mut()
}

/// Tells threads that live at the same time apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(usize);

/// This thread.
pub fn this_thread() -> ThreadId {
    thread_local! {
        static PLACE: Cell<u8> = const { Cell::new(0) };
    }
    ThreadId(PLACE.with(|place| ptr::from_ref(place).addr()))
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of Linux, which the `libc` crate lacks.
const CANCEL_DISABLE: libc::c_int = 1;

thread_local! {
    /// The guards that this thread has, and what the application had set before the first.
    static UNCANCELLED: Cell<(u32, libc::c_int)> = const { Cell::new((0, 0)) };
}

fn set_cancel_state(state: libc::c_int) -> libc::c_int {
    let mut before = state;
    // SAFETY: changes this thread alone, and writes to a live local.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// Has a cancellation of this thread (`pthread_cancel`) wait until the guard is dropped. A thread
/// ends in the first call of the C library that reads, writes or waits, and what it has locked then
/// is locked for ever: applications cancel threads that make calls in which an adapter's library
/// makes none of these.
#[must_use]
pub struct Uncancelled(());

impl Uncancelled {
    /// Begins. Guards of one thread may overlap.
    pub fn begin() -> Self {
        let (guards, before) = UNCANCELLED.get();
        let before = if guards == 0 { set_cancel_state(CANCEL_DISABLE) } else { before };
        UNCANCELLED.set((guards + 1, before));
        Self(())
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let (guards, before) = UNCANCELLED.get();
        UNCANCELLED.set((guards.saturating_sub(1), before));
        if guards == 1 {
            set_cancel_state(before);
        }
    }
}

/// Does `sleep`, in which this thread may be cancelled whatever guards it has, as far as the
/// application permits it. The thread must hold no lock.
pub(crate) fn while_cancellable<T>(sleep: impl FnOnce() -> T) -> T {
    let (guards, before) = UNCANCELLED.get();
    if guards == 0 {
        return sleep();
    }
    set_cancel_state(before);
    let result = sleep();
    set_cancel_state(CANCEL_DISABLE);
    result
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_does_its_work_under_its_name() {
        let (tell, told) = mpsc::channel();
        let work = move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            tell.send((name, this_thread())).unwrap();
        };
        spawn(c"weft-test", work).unwrap();
        let (name, other) = told.recv().unwrap();
        assert_eq!(name, "weft-test\n");
        assert_ne!(other, this_thread());
        assert_eq!(this_thread(), this_thread());
    }

    /// What the thread's state of cancellation is.
    fn cancel_state() -> libc::c_int {
        let state = set_cancel_state(CANCEL_DISABLE);
        set_cancel_state(state);
        state
    }

    #[test]
    fn a_thread_is_cancellable_but_under_guards_and_as_the_application_has_it_where_it_sleeps() {
        for own in [0, CANCEL_DISABLE] {
            set_cancel_state(own);
            let outer = Uncancelled::begin();
            let inner = Uncancelled::begin();
            drop(outer);
            assert_eq!(cancel_state(), CANCEL_DISABLE);
            assert_eq!(while_cancellable(cancel_state), own);
            assert_eq!(cancel_state(), CANCEL_DISABLE);
            drop(inner);
            assert_eq!([cancel_state(), while_cancellable(cancel_state)], [own, own]);
        }
    }
}
