//! The forks of the process, by whatever call they are made.
//!
//! The C library runs handlers for its own `fork` only, not for `_Fork`, nor for the system calls
//! of an application. So there is a word that the kernel clears in a child with memory of its own
//! (`MADV_WIPEONFORK`), and what uses the state of a process looks at that first ([`notice`]). A
//! child of `vfork` sees the word of its parent, as all else of it. On kernels before Linux 4.14
//! only the handlers tell.
//!
//! Invariant: functions for children run once in a child, before anything that follows [`notice`].
#![allow(unsafe_code)]

use std::cell::Cell;
use std::process;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::thread;

/// Functions for children that there is room for.
const HANDLERS_MAX: usize = 8;
/// Bytes that are mapped for the word: the kernel makes whole pages of them.
const PAGE_BYTES: usize = 4096;

/// No function for children has run in this process, as the kernel leaves the word.
const UNNOTICED: u32 = 0;
/// A thread runs them.
const HANDLED: u32 = 1;
/// They have run, or this process is no child.
const NOTICED: u32 = 2;

type ForkHandler = extern "C" fn();

/// What runs in a child, in the order in which it was added.
static IN_CHILD: [OnceLock<ForkHandler>; HANDLERS_MAX] = [const { OnceLock::new() }; HANDLERS_MAX];
/// The word where the kernel clears none.
static UNCLEARED: AtomicU32 = AtomicU32::new(NOTICED);
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNCLEARED).cast_mut());
static WATCH: OnceLock<()> = OnceLock::new();
/// The process whose memory this is; 0 before it is watched.
static OWNER: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// This thread is the one that runs the functions.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `before` every fork of the C library, then `parent` in this process, and `child` in every
/// child.
pub fn at_fork(before: ForkHandler, parent: ForkHandler, child: ForkHandler) {
    in_children(child);
    // SAFETY: they are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), None) };
}

/// Runs `child` in every child.
pub fn in_children(child: ForkHandler) {
    begin();
    let kept = IN_CHILD.iter().any(|place| place.set(child).is_ok());
    if !kept {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    }
}

/// Watches for children from now on.
pub fn begin() {
    WATCH.get_or_init(watch);
}

/// The process whose memory this is: the calling one, or its parent if it is a child of `vfork`;
/// none before [`begin`].
pub fn owner() -> Option<u32> {
    notice();
    Some(OWNER.load(Ordering::Relaxed)).filter(|owner| *owner != 0)
}

fn watch() {
    OWNER.store(process::id(), Ordering::Relaxed);
    if let Some(word) = cleared_word() {
        word.store(NOTICED, Ordering::Release);
        WORD.store(ptr::from_ref(word).cast_mut(), Ordering::Release);
    }
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(handle_fork)) };
}

/// A word that the kernel clears in children, if it can.
fn cleared_word() -> Option<&'static AtomicU32> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory at a place that the kernel chooses.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the memory was mapped above, and nobody uses it yet.
    if unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above.
        unsafe { libc::munmap(page, PAGE_BYTES) };
        return None;
    }
    // SAFETY: it is never unmapped, begins with a word of zero, and holds nothing else.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

fn word() -> &'static AtomicU32 {
    // SAFETY: one of two words that live as long as the process.
    unsafe { &*WORD.load(Ordering::Acquire) }
}

/// The C library has forked, and this is the child.
extern "C" fn handle_fork() {
    // Older kernels refuse to clear the word, and emulators accept it and do nothing. It is right
    // where the application has made a call in a handler that ran earlier.
    if OWNER.load(Ordering::Relaxed) != process::id() {
        word().store(UNNOTICED, Ordering::Release);
    }
    notice();
}

/// Runs the functions for children, if this process is a child in which they have not run.
#[inline]
pub fn notice() {
    if word().load(Ordering::Acquire) != NOTICED {
        handle_child();
    }
}

#[cold]
fn handle_child() {
    // The functions may look too, and so may a handler of signals.
    if RUNS.get() {
        return;
    }
    let word = word();
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    if word.compare_exchange(UNNOTICED, HANDLED, success, failure).is_ok() {
        RUNS.set(true);
        OWNER.store(process::id(), Ordering::Relaxed);
        IN_CHILD.iter().filter_map(OnceLock::get).for_each(|child| child());
        RUNS.set(false);
        word.store(NOTICED, Ordering::Release);
    }
    // The child has made another thread, which was first.
    while word.load(Ordering::Acquire) != NOTICED {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CHILDREN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count() {
        CHILDREN.fetch_add(1, Ordering::SeqCst);
        notice();
    }

    type Fork = fn() -> libc::pid_t;

    fn by_library() -> libc::pid_t {
        // SAFETY: the child only counts, forks and exits.
        unsafe { libc::fork() }
    }

    fn by_system_call() -> libc::pid_t {
        // SAFETY: as above; the child has the stack of its parent, as after `fork`.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
    }

    /// Counts in a child of a child and so on, made by `forks`, each of which looks twice.
    fn counted_by(forks: &[Fork]) -> i32 {
        let Some((fork, rest)) = forks.split_first() else {
            return CHILDREN.load(Ordering::SeqCst).cast_signed();
        };
        let child = fork();
        if child == 0 {
            notice();
            notice();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(counted_by(rest)) };
        }
        let mut status = 0;
        // SAFETY: `status` is a live local.
        unsafe { libc::waitpid(child, &mut status, 0) };
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn every_child_is_noticed_once() {
        in_children(count);
        assert_eq!(counted_by(&[by_library]), 1);
        assert_eq!(counted_by(&[by_system_call]), 1);
        assert_eq!(counted_by(&[by_system_call, by_system_call, by_library]), 3);
        notice();
        assert_eq!(CHILDREN.load(Ordering::SeqCst), 0);
    }
}
