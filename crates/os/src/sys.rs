//! System calls that the standard library has no safe form of.
//!
//! A call that an old kernel or a container's filter may refuse is done without:
//! `interop/clients/tests/sandbox.rs` lists these calls and has each fail in turn.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::calls::sleeping;
use crate::thread::Uncancelled;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the system call that returned `fd` just made it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A new epoll instance.
pub fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// A non-blocking counter to wake a sleeper with.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Adds, changes or removes (`EPOLL_CTL_*`) the interest of `fd`.
pub fn epoll_ctl(
    epoll: BorrowedFd<'_>,
    operation: libc::c_int,
    fd: RawFd,
    events: u32,
    token: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: token };
    // SAFETY: `event` is a live local for the length of the call.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &mut event) }).map(drop)
}

/// Waits for events; `None` waits for ever. Gives how many came, 0 when a signal interrupted.
///
/// # Errors
/// `EBADF` or `EINVAL` once the application has closed the descriptor.
pub fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    match epoll_wait_somehow(epoll, events, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        waited => waited,
    }
}

fn epoll_wait_somehow(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    // Pacing needs more than milliseconds. Kernels before 5.11 have no more, and filters of system
    // calls that are older refuse what they do not know, each with an errno of its own.
    static COARSE: AtomicBool = AtomicBool::new(false);
    if COARSE.load(Ordering::Relaxed) {
        return epoll_wait_coarsely(epoll, events, timeout);
    }
    match epoll_wait_precisely(epoll, events, timeout) {
        Err(error) if ![libc::EINTR, libc::EBADF].contains(&error.raw_os_error().unwrap_or(0)) => {
            let waited = epoll_wait_coarsely(epoll, events, timeout);
            // What fails both ways is no matter of the call.
            COARSE.fetch_or(waited.is_ok(), Ordering::Relaxed);
            waited
        }
        waited => waited,
    }
}

fn epoll_wait_precisely(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (fd, place) = (epoll.as_raw_fd(), events.as_mut_ptr());
    let (room, mask) = (events.len() as libc::c_int, std::ptr::null::<libc::sigset_t>());
    // SAFETY: `events` is a live slice of `room` entries; the time is a live local or NULL; there
    // is no signal mask.
    let n = unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, place, room, time, mask, 0_usize) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn epoll_wait_coarsely(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    // Rounded up: waking before the time is due would spin.
    let timeout_ms =
        timeout.map_or(-1, |t| t.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32);
    let (room, _uncancelled) = (events.len() as libc::c_int, Uncancelled::begin());
    // SAFETY: `events` is a live slice of `room` entries.
    let n = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Descriptors that [`wait_readable`] can watch at once.
pub const WATCHED_MAX: usize = 8;

/// Sleeps until one of the first [`WATCHED_MAX`] descriptors is readable, or for `limit`; gives a
/// bit for each of them that is, the lowest for the first. A thread that is cancelled meanwhile
/// ends here.
///
/// # Errors
/// `Interrupted` when a signal was handled, whatever its handler says of restarting
/// ([`handlers`]); else the errno of the system.
pub fn wait_readable(fds: &[BorrowedFd<'_>], limit: Duration) -> io::Result<u32> {
    let mut watched = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; WATCHED_MAX];
    for (place, fd) in watched.iter_mut().zip(fds) {
        place.fd = fd.as_raw_fd();
    }
    let count = fds.len().min(WATCHED_MAX);
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let (place, mask) = (watched.as_mut_ptr(), std::ptr::null::<libc::sigset_t>());
    let sleep = || {
        // SAFETY: `watched` has `count` entries or more; the time is a live local; there is no
        // mask.
        check(unsafe { libc::ppoll(place, count as libc::nfds_t, &limit, mask) })
    };
    sleeping(sleep)?;
    let is_closed = |place: &libc::pollfd| place.revents & libc::POLLNVAL != 0;
    let closed = fds.iter().zip(&watched).filter(|(_, place)| is_closed(place));
    closed.for_each(|(fd, _)| crate::fds::note_lost(*fd));
    let readable = |bits: u32, (at, place): (usize, &libc::pollfd)| {
        if place.revents != 0 { bits | 1 << at } else { bits }
    };
    Ok(watched[..count].iter().enumerate().fold(0, readable))
}

/// What may come of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyFor {
    /// Bytes, or their end.
    Reading,
    /// Room for bytes, or a failure.
    Writing,
}

/// Sleeps until `fd` is ready, or a signal was handled.
///
/// # Errors
/// The errno of the system.
pub fn wait_ready(fd: BorrowedFd<'_>, ready: ReadyFor) -> io::Result<()> {
    let events = match ready {
        ReadyFor::Reading => libc::POLLIN,
        ReadyFor::Writing => libc::POLLOUT,
    };
    let mut watched = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: `watched` is one live entry.
    match check(unsafe { libc::poll(&mut watched, 1, -1) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Whether a descriptor is one on which nobody waits (`O_NONBLOCK`).
pub fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: plain arguments.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// What the signal handlers of the process say of calls that they interrupt (`SA_RESTART`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handlers {
    /// Those calls go on; or there are no handlers.
    Restart,
    /// They fail with `EINTR`.
    Interrupt,
    /// Some say this, some that.
    Mixed,
}

/// What the signal handlers of the process say.
pub fn handlers() -> Handlers {
    let (mut restart, mut interrupt) = (false, false);
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: all zeroes is valid: integers, an empty set and an absent function.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is changed; `action` is a live local.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } == 0;
        let handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        if known && handled {
            let restarts = action.sa_flags & libc::SA_RESTART != 0;
            (restart, interrupt) = (restart | restarts, interrupt | !restarts);
        }
    }
    match (restart, interrupt) {
        (_, false) => Handlers::Restart,
        (false, true) => Handlers::Interrupt,
        (true, true) => Handlers::Mixed,
    }
}

/// Adds one to an eventfd; whether there is one.
pub fn notify(fd: BorrowedFd<'_>) -> bool {
    let (one, _uncancelled) = (1u64.to_ne_bytes(), Uncancelled::begin());
    // SAFETY: `one` is a live array of its own length.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) >= 0 }
}

/// Takes everything out of an eventfd.
pub fn drain(fd: BorrowedFd<'_>) {
    let (mut count, _uncancelled) = ([0u8; 8], Uncancelled::begin());
    // SAFETY: `count` is a live array of its own length.
    unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Copies `fd` to the lowest free number from `from` on.
pub fn duplicate(fd: BorrowedFd<'_>, from: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    owned(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from) })
}

/// Has the number of `fd` mean what `by` does, with close-on-exec. What `fd` was is closed, unless
/// another descriptor is the same.
pub fn replace(fd: BorrowedFd, by: BorrowedFd) -> io::Result<()> {
    // SAFETY: takes no pointers; the number stays one of the same owner.
    let done = unsafe { libc::dup3(by.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the number is a descriptor's, which the application may have closed; it is taken for one
/// where a filter refuses to tell.
pub fn is_open(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: plain arguments.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    flags >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EBADF)
}

/// A number that is no descriptor's, for what has lost its own: every call with it fails.
pub fn no_descriptor() -> BorrowedFd<'static> {
    // SAFETY: it is not -1, and above the kernel's numbers, so nobody owns it or ever will.
    unsafe { BorrowedFd::borrow_raw(RawFd::MAX) }
}

/// Closes a descriptor by number, for the child of a fork.
pub fn close(fd: RawFd) {
    // SAFETY: takes no pointers; the caller gives up whatever owned the number.
    unsafe { libc::close(fd) };
}

/// The highest descriptor number this process may use, exclusive.
pub fn descriptor_limit() -> RawFd {
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: `limit` is a live local.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur.min(1 << 20) as RawFd
}

/// Lets this process have as many descriptors as it may. Where the system refuses it keeps its
/// limit.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live local.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// Up to 256 bytes of the kernel's random numbers, which are never cut short once its pool is
/// ready.
pub fn getrandom(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: `bytes` is a live slice of its own length.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(n) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(n) if n < bytes.len() => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
    }
}

/// Takes one from a counter (`EFD_SEMAPHORE`) that is not zero; whether it did. It never sleeps,
/// whatever the application made of the descriptor's flags.
pub fn take_one(fd: BorrowedFd<'_>) -> bool {
    let (mut count, _uncancelled) = ([0u8; 8], Uncancelled::begin());
    let len = count.len();
    let buffer = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: one buffer of 8 bytes that outlives the call.
    let n = unsafe { libc::preadv2(fd.as_raw_fd(), &buffer, 1, -1, libc::RWF_NOWAIT) };
    if n >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
        return n >= 0;
    }
    // The kernel or a filter does not know the call.
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one live entry.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) } == 1 && poll.revents & libc::POLLIN != 0;
    // SAFETY: `count` is a live array of its own length.
    ready && unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), len) } >= 0
}

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: takes no pointers.
    unsafe { libc::geteuid() }
}

const PAGE: u64 = 4096;

/// Whether all pages of `addr..addr + len` are mapped, and the first and the last of them with the
/// rights that an access needs. `len` is not zero.
///
/// Asking every page for its rights would bring it in, which takes ten times as long.
pub fn check_mapped(addr: u64, len: u64, write: bool) -> io::Result<()> {
    let fault = || io::Error::from_raw_os_error(libc::EFAULT);
    let first = addr & !(PAGE - 1);
    let end = addr.checked_add(len).and_then(|e| e.checked_next_multiple_of(PAGE));
    let end = end.ok_or_else(fault)?;
    bring_in(first, write)?;
    if end - first > PAGE {
        bring_in(end - PAGE, write)?;
    }
    // The kernel answers with a byte for each page.
    let mut resident = [0u8; 4096];
    let step = resident.len() as u64 * PAGE;
    for start in (first..end).step_by(step as usize) {
        let (place, len) = (start as *mut libc::c_void, (end - start).min(step) as usize);
        let out = resident.as_mut_ptr();
        // Not `mincore`, which an application may have a function named.
        // SAFETY: `resident` has a byte for each of the pages asked about.
        let asked =
            check(unsafe { libc::syscall(libc::SYS_mincore, place, len, out) as libc::c_int });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => return Err(fault()),
            // A filter that refuses the call says nothing about the pages.
            _ => {}
        }
    }
    Ok(())
}

/// Maps one page in, if it has the rights. Kernels before 5.14 cannot, nor can who is not allowed
/// to, and then nothing is known of those.
fn bring_in(page: u64, write: bool) -> io::Result<()> {
    match populate(page, write) {
        Err(_) if can_populate(write) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        _ => Ok(()),
    }
}

fn populate(page: u64, write: bool) -> io::Result<()> {
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let place = page as *mut libc::c_void;
    // SAFETY: populating changes no content, and an unmapped page makes it fail, not fault.
    check(unsafe { libc::madvise(place, PAGE as usize, advice) }).map(drop)
}

/// Whether the kernel knows how to, by a page that is there. It says the same of what it does not
/// know and of what a page does not allow.
fn can_populate(write: bool) -> bool {
    static CAN: [OnceLock<bool>; 2] = [OnceLock::new(), OnceLock::new()];
    let page = (&raw const CAN).addr() as u64 & !(PAGE - 1);
    *CAN[usize::from(write)].get_or_init(|| populate(page, write).is_ok())
}

/// Nanoseconds since the machine started.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of CPU time that the process has used.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Brings pages in ahead of their use, as far as the kernel can; content and rights stay.
pub fn prefetch(addr: u64, len: u64, write: bool) {
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let first = addr & !(PAGE - 1);
    let octets = addr.saturating_add(len) - first;
    // SAFETY: populating changes no content, and an unmapped page makes it fail, not fault.
    unsafe { libc::madvise(first as *mut libc::c_void, octets as usize, advice) };
}

/// Does `act` with all signals blocked for the calling thread, and for those that it makes: the
/// application's handlers run on its own. Not those of a fault: the kernel would end the process
/// instead of calling the handler.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: an all-zero set is a valid place for sigfillset to fill.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live local.
    unsafe { libc::sigfillset(&mut set) };
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: `set` is initialised.
        unsafe { libc::sigdelset(&mut set, signal) };
    }
    let before = blocked_signals();
    set_blocked_signals(&set);
    let result = act();
    set_blocked_signals(&before);
    result
}

/// Keeps handlers of the application from running on this thread, which is ending the process: what
/// they work on may be gone. Signals without a handler act as ever.
pub fn hold_handlers() {
    const FAULTS: [i32; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];
    let has_handler = |signal: i32| {
        // SAFETY: an action of zeroes is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `action` is a live local, and nothing is changed.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
        asked == 0 && !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    };
    let mut set = blocked_signals();
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)) {
        if has_handler(signal) {
            // SAFETY: `set` is initialised.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
    }
    set_blocked_signals(&set);
}

/// The signals that the calling thread blocks.
pub fn blocked_signals() -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid one, without signals.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live local, and nothing is changed.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set) };
    set
}

/// Has the calling thread block these signals and no others.
pub fn set_blocked_signals(set: &libc::sigset_t) {
    // SAFETY: `set` is initialised, and the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set, std::ptr::null_mut()) };
}

/// Sleeps for `time`, or until a signal handler ran, without the handle of a thread that the
/// standard library would allocate. That library ends the process where a filter refuses the call.
pub fn pause(time: Duration) {
    let spec = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
    // SAFETY: `spec` is a live local, and what is left of it is not asked for.
    let slept = check(unsafe { libc::nanosleep(&spec, std::ptr::null_mut()) });
    if slept.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
        let millis = i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: no descriptors are watched.
        unsafe { libc::poll(std::ptr::null_mut(), 0, millis) };
    }
}

/// The kernel's id of the calling thread.
pub fn thread_id() -> u32 {
    // Not `gettid`, which applications define that are older than the C library's.
    // SAFETY: takes no pointers.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(id).unwrap_or_default()
}

/// Has the kernel wake the calling thread when its time has come, not up to 50 us later so as to
/// wake several at once.
pub fn wake_on_time() {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
}

/// Words of a file, mapped for ever and shared with every process that maps them.
///
/// Whoever may write the file can make it shorter meanwhile. A word that is gone is not a fault of
/// the process, where [`weft_guard`] works.
pub struct SharedWords {
    /// Where the first of them is.
    first: u64,
    count: usize,
}

impl SharedWords {
    /// Maps the first `count` words of a file.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map(file: &File, count: usize) -> io::Result<Self> {
        weft_guard::install();
        let (len, both) = (count * size_of::<AtomicU64>(), libc::PROT_READ | libc::PROT_WRITE);
        let (fd, shared) = (file.as_raw_fd(), libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), len, both, shared, fd, 0) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { first: place as u64, count })
    }

    /// Adds `more` to the word at `place`, counted from 0; whether there is one, in the mapping and
    /// in the file.
    #[must_use]
    pub fn add(&self, place: usize, more: u64) -> bool {
        if place >= self.count {
            return false;
        }
        let at = self.first + (place * size_of::<AtomicU64>()) as u64;
        let add = || {
            // SAFETY: the address is in the mapping, which is aligned to a page and never unmapped;
            // all who write the word do so atomically.
            let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
            word.fetch_add(more, Ordering::Relaxed);
        };
        // SAFETY: an atomic operation holds nothing, and happens as a whole or not at all.
        unsafe { weft_guard::attempt(at..at + size_of::<AtomicU64>() as u64, add) }
    }
}

/// Functions that [`at_exit`] has room for.
const EXIT_HANDLERS_MAX: usize = 8;

type ExitHandler = extern "C" fn();

/// What runs when the process exits, in the order in which it was added.
static EXIT_HANDLERS: [OnceLock<ExitHandler>; EXIT_HANDLERS_MAX] =
    [const { OnceLock::new() }; EXIT_HANDLERS_MAX];

/// Runs `handler` when the process exits normally, after the handlers and destructors of the
/// application, which may still use what the handler ends; the one that was added last runs first.
/// Functions of `atexit` would run before those that the application has registered earlier.
pub fn at_exit(handler: ExitHandler) {
    let kept = EXIT_HANDLERS.iter().any(|place| place.set(handler).is_ok());
    if !kept {
        // SAFETY: `handler` is a function of this library, which is never unloaded.
        unsafe { libc::atexit(handler) };
    }
}

extern "C" fn run_exit_handlers() {
    EXIT_HANDLERS.iter().rev().filter_map(OnceLock::get).for_each(|handler| handler());
}

/// The C library calls what is in this section once the functions of `atexit` have returned.
// SAFETY: a section of pointers to functions without arguments, of which this is one.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END_OF_EXIT: ExitHandler = run_exit_handlers;
