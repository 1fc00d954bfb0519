//! The end of a process with the last thread of the application.
//!
//! The C library ends a process with the last thread that there is, once the first one has ended by
//! itself (pthread_exit(3)). Threads of this library do not end, so one more of them watches then
//! until no other is left, and calls exit(3) as the C library would have.
//!
//! Invariant: the process is ended only when each of its threads has ended or is in the table of
//! own ones. A thread that cannot be told about counts as one of the application.
//!
//! Order: [`end_with_application`] once, when the library is loaded; `OwnThread::begin` in each
//! own thread; `forget` in the child of a fork.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::{self, DirEntry};
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::sys;
use crate::thread::spawn;

/// Own threads that can be told from others; with more the process does not end this way.
const OWN_MAX: usize = 128;
/// Time between looks for other threads.
const LOOKS: Duration = Duration::from_millis(50);
/// Where `num_threads` is in `/proc/PID/stat` behind the name of the program (proc(5)).
const THREADS_FIELD: usize = 17;

/// The ids of own threads; 0 where there is none.
static OWN: [AtomicU32; OWN_MAX] = [const { AtomicU32::new(0) }; OWN_MAX];

/// The first thread runs; it has ended; and its end is watched.
const RUNS: u8 = 0;
const ENDED: u8 = 1;
const WATCHED: u8 = 2;
static FIRST: AtomicU8 = AtomicU8::new(RUNS);
/// The signals that it had blocked.
static MASK: OnceLock<libc::sigset_t> = OnceLock::new();
/// What tells of its end.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// The calling thread is one of this library.
pub(crate) struct OwnThread(Option<&'static AtomicU32>);

impl OwnThread {
    pub fn begin() -> Self {
        let id = sys::thread_id();
        let mark = |own: &&AtomicU32| {
            own.compare_exchange(0, id, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        let own = Self(OWN.iter().find(mark));
        watch();
        own
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(own) = self.0 {
            own.store(0, Ordering::SeqCst);
        }
    }
}

/// Has the process end with the last thread of the application, once the calling thread, its first
/// one, has ended by itself.
pub fn end_with_application() {
    let mut key = 0;
    // SAFETY: `key` is a live local, and the function is one of this library.
    if unsafe { libc::pthread_key_create(&mut key, Some(handle_end)) } == 0 {
        KEY.get_or_init(|| key);
        be_first();
    }
}

/// Arranges that [`handle_end`] is called when the calling thread ends, but not when the process
/// does by exit(3).
fn be_first() {
    if let Some(key) = KEY.get() {
        // SAFETY: the key was made. Only a value other than null is told of.
        unsafe { libc::pthread_setspecific(*key, ptr::dangling()) };
    }
}

/// The child of a fork has the thread that forked and no other.
pub(crate) fn forget() {
    FIRST.store(RUNS, Ordering::SeqCst);
    OWN.iter().for_each(|own| own.store(0, Ordering::SeqCst));
    be_first();
}

/// The first thread ends.
extern "C" fn handle_end(_: *mut c_void) {
    MASK.get_or_init(sys::blocked_signals);
    FIRST.store(ENDED, Ordering::SeqCst);
    // Without own threads the C library ends the process; the first of them watches.
    if own_count() > 0 {
        watch();
    }
}

/// Begins to watch, if the first thread has ended and nobody does.
fn watch() {
    let change = FIRST.compare_exchange(ENDED, WATCHED, Ordering::SeqCst, Ordering::Relaxed);
    if change.is_ok() && spawn(c"weft-end", end_after_others).is_err() {
        // The next own thread tries again.
        FIRST.store(ENDED, Ordering::SeqCst);
    }
}

fn end_after_others() {
    while has_others() {
        sys::pause(LOOKS);
    }
    if let Some(mask) = MASK.get() {
        sys::set_blocked_signals(mask);
    }
    // SAFETY: no thread of the application is left that it could surprise.
    unsafe { libc::exit(0) };
}

fn own_count() -> usize {
    OWN.iter().filter(|own| own.load(Ordering::SeqCst) != 0).count()
}

/// Whether there may be threads of the application. A list that is read while threads end may lack
/// some, their number does not.
fn has_others() -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return true };
    tasks.into_iter().any(|task| task.is_err() || task.is_ok_and(|task| is_other(&task)))
        || thread_count().is_none_or(|count| count > own_count() + 1)
}

fn is_other(task: &DirEntry) -> bool {
    let id = task.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
    if id.is_some_and(|id| OWN.iter().any(|own| own.load(Ordering::SeqCst) == id)) {
        return false;
    }
    match fs::read_to_string(task.path().join("stat")) {
        Ok(stat) => !after_name(&stat).is_some_and(|rest| rest.starts_with('Z')),
        Err(error) => !is_gone(&error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The threads of the process, with the first one.
fn thread_count() -> Option<usize> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    after_name(&stat)?.split(' ').nth(THREADS_FIELD)?.parse().ok()
}

/// What `/proc/PID/stat` says behind the name, which may be anything.
fn after_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(')')?.1.trim_start())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn own_threads_are_told_from_others() {
        let (begun, over) = (Barrier::new(2), Barrier::new(2));
        let other = |id: u32| {
            let tasks = fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap);
            let found = tasks.into_iter().find(|task| task.file_name() == *id.to_string());
            is_other(&found.unwrap())
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let id = sys::thread_id();
                assert!(other(id));
                let own = OwnThread::begin();
                assert!(!other(id) && own_count() > 0);
                drop(own);
                assert!(other(id));
                begun.wait();
                over.wait();
            });
            begun.wait();
            assert!(thread_count().unwrap() >= 2 && has_others());
            over.wait();
        });
    }
}
