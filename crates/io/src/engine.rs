//! The background threads: readiness, timers, and the leases of those who poll.
//!
//! They sleep in epoll until a descriptor is ready, a timer is due or a lease has to be looked at.
//! Each source belongs to one of them, so that a program with many busy connections that sleeps
//! until something happens uses more than one processor. The first starts when a device or an event
//! channel is opened, which fails if it cannot; those beyond start with the first connection that
//! is theirs, and the first does their work if they cannot.
//!
//! While an application thread polls a connection it holds a lease on it and the engine does not
//! watch that connection: otherwise every packet would wake two threads. A lease lasts as long as
//! it is renewed; when it ends the engine watches again.

mod rest;
mod worker;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use weft_sync::{Mutex, MutexGuard, RwLock, TryOnceLock};

use self::rest::Rest;
use self::worker::{WAKE_TOKEN, Worker};
use crate::cell;
use crate::config::THREADS_MAX;
use crate::{Settings, process, sys};

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
    /// Its number among those that share the engine's threads out; always the same. Those without
    /// one are called by the first.
    fn number(&self) -> usize {
        0
    }
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

static AT_THREAD_START: OnceLock<fn()> = OnceLock::new();

/// Has each of the engine's threads call this before anything else; the first call counts, and it
/// is to come before anything else of the engine is used.
pub fn at_thread_start(call: fn()) {
    let _first = AT_THREAD_START.set(call);
}

/// The background threads and what they watch.
pub struct Engine {
    first: TryOnceLock<Arc<Worker>>,
    /// Those beyond the first; none for one that the system had no means for.
    others: [OnceLock<Option<Arc<Worker>>>; THREADS_MAX - 1],
    sources: Mutex<HashMap<u64, Registered>>,
    next_token: AtomicU64,
    cells: RwLock<Vec<Arc<cell::Cell>>>,
}

/// One engine for each process in a line of forks: a child finds its parent's without threads and
/// starts its own. Deeper lines than this share the last.
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
    /// Starts the engine of this process, if it does not run.
    ///
    /// # Errors
    /// The errno of the system that has no descriptor, thread or random numbers left for it.
    pub fn start() -> io::Result<()> {
        Self::get().first().map(drop)
    }

    /// The engine of this process. Whoever makes an object that needs it calls [`Engine::start`]
    /// first; without, what is added is watched only if the engine can start now.
    pub fn get() -> &'static Self {
        slot().get_or_init(|| {
            process::prepare();
            Self::new()
        })
    }

    /// The engine, if it was started.
    pub(crate) fn running() -> Option<&'static Self> {
        slot().get()
    }

    /// Has the threads stay where they hold no lock, because this one is about to fork; gives up on
    /// those that do not come in time.
    pub(crate) fn hold_still(&self, until: Instant) {
        self.rests().for_each(Rest::ask);
        self.rests().for_each(|rest| rest.keep(until));
    }

    /// The fork is over: they may go on.
    pub(crate) fn go_on(&self) {
        self.rests().for_each(Rest::release);
    }

    fn rests(&self) -> impl Iterator<Item = &Rest> {
        let others = self.others.iter().filter_map(OnceLock::get).flatten();
        self.first.get().into_iter().chain(others).map(|worker| worker.rest())
    }

    /// Forgets the engine of the parent, in the child of a fork: its thread is not here.
    pub(crate) fn forget() {
        if slot().get().is_some() {
            GENERATION.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn new() -> Self {
        Self {
            first: TryOnceLock::new(),
            others: [const { OnceLock::new() }; THREADS_MAX - 1],
            sources: Mutex::default(),
            // No token of a parent names anything here.
            next_token: AtomicU64::new(((generation() as u64) << 32) + WAKE_TOKEN + 1),
            cells: RwLock::default(),
        }
    }

    /// The thread without which there is no engine; the first call that can starts it.
    fn first(&'static self) -> io::Result<&'static Worker> {
        let start = || {
            sys::random::prepare()?;
            Worker::start(self)
        };
        self.first.get_or_try_init(start).map(|worker| &**worker)
    }

    /// The thread that sources with this `number` belong to; the first call starts it. None if not
    /// even the first can be started.
    fn worker(&'static self, number: usize) -> Option<&'static Worker> {
        let beyond = (number % Settings::get().threads).checked_sub(1);
        let own = beyond.and_then(|index| self.others.get(index));
        let own = own.and_then(|own| own.get_or_init(|| Worker::start(self).ok()).as_deref());
        own.or_else(|| self.first().ok())
    }

    /// Watches `fd` for `source`, which is kept alive until [`Engine::remove`].
    pub fn add(
        &'static self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        source: Arc<dyn Source>,
    ) -> Token {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let (fd, worker) = (fd.as_raw_fd(), self.worker(source.number()));
        self.sources().insert(token, Registered { fd, source });
        if let Some(worker) = worker {
            worker.control(libc::EPOLL_CTL_ADD, fd, interest, token);
        }
        Token(token)
    }

    /// Changes what a source wants to be told.
    pub fn modify(&'static self, token: Token, interest: Interest) {
        let found = self.sources().get(&token.0).map(|r| (r.fd, r.source.number()));
        if let Some((fd, number)) = found
            && let Some(worker) = self.worker(number)
        {
            worker.control(libc::EPOLL_CTL_MOD, fd, interest, token.0);
        }
    }

    /// Stops watching. Call it before the descriptor is closed.
    pub fn remove(&'static self, token: Token) {
        let removed = self.sources().remove(&token.0);
        if let Some(Registered { fd, source }) = removed
            && let Some(worker) = self.worker(source.number())
        {
            worker.control(libc::EPOLL_CTL_DEL, fd, Interest::NONE, token.0);
        }
    }

    /// Calls `source.timeout` at `deadline`, if it still exists then. It cannot be cancelled; the
    /// source looks whether something is due.
    pub fn set_timer(&'static self, deadline: Instant, source: Weak<dyn Source>) {
        if let Some(number) = source.upgrade().map(|source| source.number())
            && let Some(worker) = self.worker(number)
        {
            worker.set_timer(deadline, source);
        }
    }

    /// Looks after a lease until it can be taken back.
    pub(crate) fn lease(&'static self, leased: Weak<dyn Leased>) {
        if let Some(worker) = self.worker(0) {
            worker.lease(leased);
        }
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<u64, Registered>> {
        self.sources.lock()
    }

    fn source(&self, token: u64) -> Option<Arc<dyn Source>> {
        self.sources().get(&token).map(|r| Arc::clone(&r.source))
    }

    /// Adds a connection to those that a polling thread helps with.
    pub(crate) fn enlist(&self, cell: Arc<cell::Cell>) {
        let mut cells = self.cells.write();
        if !cells.iter().any(|other| Arc::ptr_eq(other, &cell)) {
            cells.push(cell);
        }
    }

    /// Takes it off again.
    pub(crate) fn strike(&self, cell: &cell::Cell) {
        self.cells.write().retain(|c| !std::ptr::eq(&**c, cell));
    }

    /// The connection whose turn it is, of all that the process has.
    pub(crate) fn in_turn(&self, turn: usize) -> Option<Arc<cell::Cell>> {
        let cells = self.cells.read();
        (!cells.is_empty()).then(|| Arc::clone(&cells[turn % cells.len()]))
    }

    /// Every connection, unless the list is being changed just now.
    pub(crate) fn each_cell(&self, work: impl FnMut(&Arc<cell::Cell>)) {
        if let Some(cells) = self.cells.try_read() {
            cells.iter().for_each(work);
        }
    }

    /// Every source, for the handler that runs at exit.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Source>> {
        self.sources().values().map(|r| Arc::clone(&r.source)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::clock;

    struct Numbered {
        number: usize,
        /// Waits until all of them are called, and the test is there.
        called: Arc<Barrier>,
    }

    impl Source for Numbered {
        fn ready(&self, _: Readiness) {}

        fn timeout(&self, _: Instant) {
            self.called.wait();
        }

        fn number(&self) -> usize {
            self.number
        }
    }

    #[test]
    fn sources_with_other_numbers_have_other_threads_at_the_same_time() {
        let count = Settings::get().threads;
        let called = Arc::new(Barrier::new(count + 1));
        let sources: Vec<Arc<dyn Source>> = (0..count)
            .map(|number| {
                let called = Arc::clone(&called);
                Arc::new(Numbered { number, called }) as Arc<dyn Source>
            })
            .collect();
        for source in &sources {
            Engine::get().set_timer(clock::now(), Arc::downgrade(source));
        }
        // Were two of them called by one thread, the second would wait for ever.
        called.wait();
    }
}
