//! The background thread: readiness, timers, and the leases of those who poll.
//!
//! It sleeps in epoll until a descriptor is ready, a timer is due or a lease has to be looked at.
//! While an application thread polls a connection it holds a lease on it and the engine does not
//! watch that connection: otherwise every packet would wake two threads. A lease lasts as long as
//! it is renewed; when it ends the engine watches again.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use crate::cell;
use crate::fds::HighFd;
use crate::{clock, process, sys};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 64;
/// How often leases are looked at.
const LEASE_CHECK: Duration = Duration::from_millis(1);

/// What a source wants to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Octets have arrived, or the peer closed.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
}

impl Interest {
    /// Nothing for now.
    pub const NONE: Self = Self { read: false, write: false };
    /// Arriving octets.
    pub const READ: Self = Self { read: true, write: false };
    /// Room to write.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const BOTH: Self = Self { read: true, write: true };

    fn bits(self) -> u32 {
        let read = if self.read { libc::EPOLLIN as u32 } else { 0 };
        let write = if self.write { libc::EPOLLOUT as u32 } else { 0 };
        read | write
    }
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// A read would not wait.
    pub read: bool,
    /// A write would not wait.
    pub write: bool,
}

/// Something that the engine calls. No lock of the engine is held meanwhile.
pub trait Source: Send + Sync {
    /// Its descriptor is ready.
    fn ready(&self, readiness: Readiness);
    /// A timer set with [`Engine::set_timer`] is due.
    fn timeout(&self, now: Instant);
    /// The process exits normally and waits until then at most; called on the thread that ends it.
    fn at_exit(&self, _until: Instant) {}
}

/// Something that a polling thread has a lease on.
pub(crate) trait Leased: Send + Sync {
    /// Takes the lease back if it was not renewed since `before`; whether it did.
    fn reclaim(&self, before: Instant) -> bool;
}

/// Names a source within the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

struct Registered {
    fd: RawFd,
    source: Arc<dyn Source>,
}

#[derive(Default)]
struct Timers {
    queue: BTreeMap<(Instant, u64), Weak<dyn Source>>,
    next: u64,
}

thread_local! {
    /// Whether this is the background thread.
    static IS_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// The background thread and what it watches.
pub struct Engine {
    epoll: HighFd,
    wake: HighFd,
    sources: Mutex<HashMap<u64, Registered>>,
    next_token: AtomicU64,
    timers: Mutex<Timers>,
    leases: Mutex<Vec<Weak<dyn Leased>>>,
    has_leases: AtomicBool,
    cells: RwLock<Vec<Arc<cell::Cell>>>,
}

const WAKE_TOKEN: u64 = 0;

/// One engine for each process in a line of forks: a child finds its parent's without a thread
/// and starts its own. Deeper lines than this share the last.
static ENGINES: [OnceLock<Engine>; 64] = [const { OnceLock::new() }; 64];
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Counts the engines in this line of forks.
pub(crate) fn generation() -> usize {
    GENERATION.load(Ordering::Acquire)
}

fn slot() -> &'static OnceLock<Engine> {
    &ENGINES[generation().min(ENGINES.len() - 1)]
}

impl Engine {
    /// The engine of this process; the first call starts it.
    ///
    /// # Panics
    /// When the system has no descriptor or thread left for it: nothing works without.
    pub fn get() -> &'static Self {
        let mut started = false;
        let engine = slot().get_or_init(|| {
            started = true;
            Self::new()
        });
        if started {
            process::prepare();
            std::thread::Builder::new()
                .name("weft".into())
                .spawn(|| engine.run())
                .expect("weft: no thread can be started for the engine");
        }
        engine
    }

    /// The engine, if it was started.
    pub(crate) fn running() -> Option<&'static Self> {
        slot().get()
    }

    /// Forgets the engine of the parent, in the child of a fork: its thread is not here.
    pub(crate) fn forget() {
        if slot().get().is_some() {
            GENERATION.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn new() -> Self {
        let epoll = HighFd::new(sys::epoll_create().expect("weft: no epoll instance"));
        let wake = HighFd::new(sys::eventfd().expect("weft: no eventfd"));
        let fd = wake.as_fd().as_raw_fd();
        let bits = Interest::READ.bits();
        sys::epoll_ctl(epoll.as_fd(), libc::EPOLL_CTL_ADD, fd, bits, WAKE_TOKEN)
            .expect("weft: epoll refuses its own eventfd");
        Self {
            epoll,
            wake,
            sources: Mutex::default(),
            // No token of a parent names anything here.
            next_token: AtomicU64::new(((generation() as u64) << 32) + WAKE_TOKEN + 1),
            timers: Mutex::default(),
            leases: Mutex::default(),
            has_leases: AtomicBool::new(false),
            cells: RwLock::default(),
        }
    }

    /// Watches `fd` for `source`, which is kept alive until [`Engine::remove`].
    pub fn add(&self, fd: BorrowedFd<'_>, interest: Interest, source: Arc<dyn Source>) -> Token {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let fd = fd.as_raw_fd();
        self.sources().insert(token, Registered { fd, source });
        // A descriptor that epoll refuses is never ready; the timers of its owner end it.
        let bits = interest.bits();
        let _ = sys::epoll_ctl(self.epoll.as_fd(), libc::EPOLL_CTL_ADD, fd, bits, token);
        Token(token)
    }

    /// Changes what a source wants to be told.
    pub fn modify(&self, token: Token, interest: Interest) {
        let Some(fd) = self.sources().get(&token.0).map(|r| r.fd) else { return };
        let (epoll, bits) = (self.epoll.as_fd(), interest.bits());
        let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, bits, token.0);
    }

    /// Stops watching. Call it before the descriptor is closed.
    pub fn remove(&self, token: Token) {
        let removed = self.sources().remove(&token.0);
        if let Some(registered) = &removed {
            let epoll = self.epoll.as_fd();
            let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, registered.fd, 0, token.0);
        }
    }

    /// Calls `source.timeout` at `deadline`, if it still exists then. It cannot be cancelled; the
    /// source looks whether something is due.
    pub fn set_timer(&self, deadline: Instant, source: Weak<dyn Source>) {
        let mut timers = self.timers.lock().expect("timer lock");
        let first = timers.queue.first_key_value().map(|(key, _)| key.0);
        let id = timers.next;
        timers.next += 1;
        timers.queue.insert((deadline, id), source);
        drop(timers);
        // The engine looks at its timers before it sleeps.
        if first.is_none_or(|first| deadline < first) && !IS_ENGINE.get() {
            self.wake();
        }
    }

    /// Looks after a lease until it can be taken back.
    pub(crate) fn lease(&self, leased: Weak<dyn Leased>) {
        self.leases.lock().expect("lease lock").push(leased);
        if !self.has_leases.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        sys::notify(self.wake.as_fd());
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<u64, Registered>> {
        self.sources.lock().expect("source lock")
    }

    fn run(&self) {
        IS_ENGINE.set(true);
        sys::block_signals();
        sys::wake_on_time();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        loop {
            let now = clock::now();
            // Timers last, because the end of a lease may set one.
            let deadline = [self.check_leases(now), self.run_timers(now)];
            let timeout = deadline.into_iter().flatten().min();
            let count = sys::epoll_wait(self.epoll.as_fd(), &mut events, timeout);
            for event in &events[..count] {
                self.dispatch(event);
            }
        }
    }

    fn dispatch(&self, event: &libc::epoll_event) {
        let (bits, token) = (event.events, event.u64);
        if token == WAKE_TOKEN {
            sys::drain(self.wake.as_fd());
            return;
        }
        let source = self.sources().get(&token).map(|r| Arc::clone(&r.source));
        let Some(source) = source else { return };
        let failed = bits & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        source.ready(Readiness {
            read: failed || bits & libc::EPOLLIN as u32 != 0,
            write: failed || bits & libc::EPOLLOUT as u32 != 0,
        });
    }

    /// Calls what is due; gives the time to the next timer. One that is set meanwhile has its turn
    /// after the descriptors, which it would keep waiting if it was due at once again and again.
    fn run_timers(&self, now: Instant) -> Option<Duration> {
        let due = {
            let mut timers = self.timers.lock().expect("timer lock");
            let later = timers.queue.split_off(&(now, u64::MAX));
            std::mem::replace(&mut timers.queue, later)
        };
        for source in due.values().filter_map(Weak::upgrade) {
            source.timeout(now);
        }
        let timers = self.timers.lock().expect("timer lock");
        let next = timers.queue.first_key_value()?.0.0;
        Some(next.saturating_duration_since(now))
    }

    /// Takes back the leases that nobody renewed; gives the time to look again.
    fn check_leases(&self, now: Instant) -> Option<Duration> {
        if !self.has_leases.load(Ordering::Acquire) {
            return None;
        }
        let mut leases = std::mem::take(&mut *self.leases.lock().expect("lease lock"));
        let before = now.checked_sub(LEASE_CHECK)?;
        leases.retain(|l| l.upgrade().is_some_and(|l| !l.reclaim(before)));
        let mut current = self.leases.lock().expect("lease lock");
        current.append(&mut leases);
        if current.is_empty() {
            self.has_leases.store(false, Ordering::Release);
            return None;
        }
        Some(LEASE_CHECK)
    }

    /// Adds a connection to those that a polling thread helps with.
    pub(crate) fn enlist(&self, cell: Arc<cell::Cell>) {
        self.cells.write().expect("cell list lock").push(cell);
    }

    /// Takes it off again.
    pub(crate) fn strike(&self, cell: &cell::Cell) {
        self.cells.write().expect("cell list lock").retain(|c| !std::ptr::eq(&**c, cell));
    }

    /// The connection whose turn it is, of all that the process has.
    pub(crate) fn in_turn(&self, turn: usize) -> Option<Arc<cell::Cell>> {
        let cells = self.cells.read().expect("cell list lock");
        (!cells.is_empty()).then(|| Arc::clone(&cells[turn % cells.len()]))
    }

    /// Every connection, unless the list is being changed just now.
    pub(crate) fn each_cell(&self, work: impl FnMut(&Arc<cell::Cell>)) {
        if let Ok(cells) = self.cells.try_read() {
            cells.iter().for_each(work);
        }
    }

    /// Every source, for the handler that runs at exit.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Source>> {
        self.sources().values().map(|r| Arc::clone(&r.source)).collect()
    }
}
