//! Which epoll instances watch a socket whose connection is not made.
//!
//! The kernel watches what is open, not its number. When something else is put at the number, it is
//! watched again in the same way, so that a program which registered its socket before it called
//! `connect`, or while that was under way, is told what it expects.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_sync::{Mutex, MutexGuard};

use libc::{c_int, epoll_event};

use crate::registry::{self, GENERATIONS};

/// A place where a number is watched.
#[derive(Clone, Copy)]
struct Watch {
    epoll: RawFd,
    event: epoll_event,
}

type Watches = Option<HashMap<RawFd, Vec<Watch>>>;

/// For each process in a line of forks: the lock of a parent may be taken for ever in its child.
static WATCHES: [Mutex<Watches>; GENERATIONS] = [const { Mutex::new(None) }; GENERATIONS];
/// How many numbers are watched, for who has no time to look.
static WATCHED: AtomicUsize = AtomicUsize::new(0);

fn watches() -> MutexGuard<'static, Watches> {
    WATCHES[registry::generation()].lock()
}

/// The program watches `fd` so; gives how it did before.
pub fn note(epoll: RawFd, fd: RawFd, event: epoll_event) -> Option<epoll_event> {
    let mut watches = watches();
    let list = watches.get_or_insert_default().entry(fd).or_default();
    let before = list.iter().position(|watch| watch.epoll == epoll);
    let before = before.map(|at| list.swap_remove(at).event);
    list.push(Watch { epoll, event });
    WATCHED.store(watches.as_ref().map_or(0, HashMap::len), Ordering::Release);
    before
}

/// It does not any more.
pub fn drop_one(epoll: RawFd, fd: RawFd) {
    if let Some(watches) = watches().as_mut()
        && let Some(list) = watches.get_mut(&fd)
    {
        list.retain(|watch| watch.epoll != epoll);
        if list.is_empty() {
            watches.remove(&fd);
            WATCHED.store(watches.len(), Ordering::Release);
        }
    }
}

/// The number has another meaning, or none.
pub fn forget(fd: RawFd) {
    if let Some(watches) = watches().as_mut() {
        watches.remove(&fd);
        WATCHED.store(watches.len(), Ordering::Release);
    }
}

/// Whether anything is known of any number.
pub fn is_empty() -> bool {
    WATCHED.load(Ordering::Acquire) == 0
}

/// Puts something else at `fd` by `change`, which is watched as what was there.
pub fn carry<T>(fd: RawFd, change: impl FnOnce() -> T) -> T {
    let watches = watches();
    let list = watches.as_ref().and_then(|watches| watches.get(&fd)).cloned().unwrap_or_default();
    // What is not watched any more, or was never what is meant, is not watched afterwards.
    let alive: Vec<Watch> =
        list.into_iter().filter(|watch| control(watch, libc::EPOLL_CTL_DEL, fd)).collect();
    let done = change();
    for watch in &alive {
        control(watch, libc::EPOLL_CTL_ADD, fd);
    }
    done
}

/// Whether an instance did it: one that is closed, or has forgotten the number, does not.
fn control(watch: &Watch, operation: c_int, fd: RawFd) -> bool {
    let mut event = watch.event;
    let at = &raw mut event;
    // SAFETY: the event outlives the call.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, watch.epoll, operation, fd, at) == 0 }
}
