//! The epoll instances that watch a socket which is not connected yet.
//!
//! The kernel watches an open file, not a descriptor. When another socket takes a descriptor's
//! place, it is registered in the same instances with the same events, so an application that
//! registered its socket before `connect`, or while it was under way, sees the events it expects.

use std::collections::HashMap;
use std::fs;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, epoll_event};
use weft_sync::{Mutex, MutexGuard};

use crate::sys;

/// A registration of a descriptor.
#[derive(Clone, Copy)]
struct Registration {
    epoll: RawFd,
    event: epoll_event,
}

type ByDescriptor = HashMap<RawFd, Vec<Registration>>;

/// The registrations of a process, by descriptor.
#[derive(Default)]
pub struct Watches {
    all: Mutex<ByDescriptor>,
    /// Watched descriptors, readable without the lock.
    count: AtomicUsize,
}

impl Watches {
    /// Those that a `parent` had, unless another of its threads held the lock at the fork.
    pub fn new(parent: Option<&Self>) -> Self {
        let inherited = parent.and_then(|parent| parent.all.try_lock().map(|all| all.clone()));
        let all = inherited.unwrap_or_default();
        Self { count: AtomicUsize::new(all.len()), all: Mutex::new(all) }
    }

    /// Changes the registrations by `change`.
    fn update<T>(&self, change: impl FnOnce(&mut ByDescriptor) -> T) -> T {
        let mut all = self.all.lock();
        let done = change(&mut all);
        self.count.store(all.len(), Ordering::Release);
        done
    }

    fn lock(&self) -> MutexGuard<'_, ByDescriptor> {
        self.all.lock()
    }

    /// `epoll` watches `fd` for `event`; returns the event of an earlier registration.
    pub fn add(&self, epoll: RawFd, fd: RawFd, event: epoll_event) -> Option<epoll_event> {
        self.update(|all| {
            let list = all.entry(fd).or_default();
            let before = list.iter().position(|watch| watch.epoll == epoll);
            let before = before.map(|at| list.swap_remove(at).event);
            list.push(Registration { epoll, event });
            before
        })
    }

    /// `epoll` no longer watches `fd`.
    pub fn remove(&self, epoll: RawFd, fd: RawFd) {
        self.update(|all| {
            let Some(list) = all.get_mut(&fd) else { return };
            list.retain(|watch| watch.epoll != epoll);
            if list.is_empty() {
                all.remove(&fd);
            }
        });
    }

    /// Forgets a descriptor that was closed.
    pub fn forget(&self, fd: RawFd) {
        self.update(|all| all.remove(&fd));
    }

    /// Whether no descriptor is watched.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Replaces what is open at `fd` by `replace`, and registers it as what was there before.
    pub fn carry<T>(&self, fd: RawFd, replace: impl FnOnce() -> T) -> T {
        let is_known = self.lock().contains_key(&fd);
        let by_ring = if is_known || !has_ring() { Vec::new() } else { registered_by_ring(fd) };
        let all = self.lock();
        let list = all.get(&fd).cloned().unwrap_or(by_ring);
        // An instance that was closed, or watches another file at this descriptor, is left out.
        let alive: Vec<Registration> =
            list.into_iter().filter(|watch| control(watch, libc::EPOLL_CTL_DEL, fd)).collect();
        let done = replace();
        for watch in &alive {
            control(watch, libc::EPOLL_CTL_ADD, fd);
        }
        done
    }
}

/// Whether this process uses an io_uring, which it can only map.
fn has_ring() -> bool {
    static SEEN: AtomicBool = AtomicBool::new(false);
    if SEEN.load(Ordering::Relaxed) {
        return true;
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let found = maps.lines().any(|line| line.ends_with("anon_inode:[io_uring]"));
    SEEN.fetch_or(found, Ordering::Relaxed);
    found
}

/// The registrations of a non-blocking socket that nobody has made by `epoll_ctl`: libuv has made
/// them by an io_uring, as the kernel tells.
fn registered_by_ring(fd: RawFd) -> Vec<Registration> {
    let waits = sys::flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0);
    let open = match fs::read_dir("/proc/self/fd") {
        Ok(open) if !waits => open.flatten(),
        _ => return Vec::new(),
    };
    let is_instance = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|link| link.as_os_str() == "anon_inode:[eventpoll]")
    };
    let instances = open.map(|entry| entry.path()).filter(is_instance);
    let numbers = instances.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    numbers.flat_map(|epoll: RawFd| registration(epoll, fd)).collect()
}

fn registration(epoll: RawFd, fd: RawFd) -> Option<Registration> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).ok()?;
    text.lines().find_map(|line| Some(Registration { epoll, event: event_of(line, fd)? }))
}

/// The event in a line such as `tfd: 5 events: 19 data: 5 pos:0`, if it is of `fd` (proc(5)).
fn event_of(line: &str, fd: RawFd) -> Option<epoll_event> {
    let mut words = line.split_ascii_whitespace();
    let mut next = |label| (words.next()? == label).then(|| words.next())?;
    let of: RawFd = next("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(next("events:")?, 16).ok()?;
    let data = u64::from_str_radix(next("data:")?, 16).ok()?;
    (of == fd).then_some(epoll_event { events, u64: data })
}

/// Whether the instance took it: one that is closed, or does not have the descriptor, does not.
fn control(watch: &Registration, operation: c_int, fd: RawFd) -> bool {
    let mut event = watch.event;
    let at = &raw mut event;
    // SAFETY: the event outlives the call.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, watch.epoll, operation, fd, at) == 0 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    const EVENT: epoll_event = epoll_event { events: 1, u64: 7 };

    #[test]
    fn a_child_inherits_what_its_parent_watches() {
        let parent = Watches::new(None);
        assert!(parent.is_empty());
        assert!(parent.add(3, 4, EVENT).is_none());
        let child = Watches::new(Some(&parent));
        assert!(!child.is_empty());
        child.remove(3, 4);
        assert!(child.is_empty() && !parent.is_empty());
        let held = parent.lock();
        assert!(Watches::new(Some(&parent)).is_empty());
        drop(held);
    }

    #[test]
    fn what_the_kernel_tells_of_an_instance_is_read() {
        let (one, _other) = sys::stream_pair().unwrap();
        sys::set_flags(one.as_raw_fd(), libc::O_NONBLOCK).unwrap();
        // SAFETY: plain arguments.
        let epoll = unsafe { libc::epoll_create1(0) };
        let wanted = epoll_event { events: 0x8000_2019, u64: 0xdead_beef_0000_0007 };
        let watch = Registration { epoll, event: wanted };
        assert!(control(&watch, libc::EPOLL_CTL_ADD, one.as_raw_fd()));
        let found = registered_by_ring(one.as_raw_fd());
        let found: Vec<_> = found.iter().map(|w| (w.epoll, w.event.events, w.event.u64)).collect();
        // SAFETY: made above.
        unsafe { libc::close(epoll) };
        assert_eq!(found, [(epoll, 0x8000_2019 & 0x0fff_ffff | 0x8000_0000, wanted.u64)]);
        assert!(event_of("tfd: 5 events: xx data: 5", 5).is_none());
        assert!(event_of("pos: 0", 5).is_none());
    }

    #[test]
    fn an_instance_watches_a_descriptor_once() {
        let watches = Watches::new(None);
        watches.add(3, 4, EVENT);
        let before = watches.add(3, 4, epoll_event { events: 2, u64: 8 });
        assert_eq!(before.map(|event| event.u64), Some(7));
        watches.forget(4);
        assert!(watches.is_empty());
    }
}
