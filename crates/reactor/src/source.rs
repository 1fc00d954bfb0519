//! What a reactor calls, and the table of what it watches.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_os::clock::{self, Moment};
use weft_os::fds;
use weft_sync::{Mutex, MutexGuard};

use crate::poll_set::PollSet;

/// What a source wants to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Bytes have arrived, or the peer closed.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
}

impl Interest {
    /// Nothing for now.
    pub const NONE: Self = Self { read: false, write: false };
    /// Arriving bytes.
    pub const READ: Self = Self { read: true, write: false };
    /// Room to write.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const BOTH: Self = Self { read: true, write: true };

    /// As epoll has it.
    pub(crate) fn bits(self) -> u32 {
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

/// Something that the reactor calls. No lock of the reactor is held meanwhile.
pub trait Pollable: Send + Sync {
    /// Its descriptor is ready.
    fn ready(&self, readiness: Readiness);
    /// The same, found by a thread that polls the [`PollSet`] of the descriptor.
    fn polled(&self, readiness: Readiness, _now: Moment) {
        self.ready(readiness);
    }
    /// A timer set with [`crate::Reactor::set_timer`] is due.
    fn timeout(&self, now: Moment);
    /// Its number among those that share the reactor's threads out; always the same. Those without
    /// one are called by the first.
    fn number(&self) -> usize {
        0
    }
    /// The application has closed its descriptor, and those of the reactor: it is called no more.
    fn lost(&self) {}
    /// The process ends, by whatever call, and its peers would wait for more: they are told. This
    /// thread may have been interrupted in a call of the source, so no lock is waited for beyond
    /// `until`.
    fn last_words(&self, _until: Moment) {}
    /// The process exits normally and waits until then at most; called on the thread that ends it,
    /// after [`Pollable::last_words`] of every source.
    fn at_exit(&self, _until: Moment) {}
}

/// Something that a polling thread has a lease on.
pub trait Leased: Send + Sync {
    /// Takes the lease back if it was not renewed since `before`; whether it did.
    fn reclaim(&self, before: Moment) -> bool;
}

/// Names a source within its reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) u64);

/// A source and the descriptor that is watched for it.
pub(crate) struct RegisteredSource {
    pub fd: RawFd,
    /// Where the descriptor is watched, if that is not the thread's own list.
    pub set: Option<Arc<PollSet>>,
    pub source: Arc<dyn Pollable>,
}

/// Where a descriptor is watched.
pub(crate) struct Place {
    pub fd: RawFd,
    pub set: Option<Arc<PollSet>>,
    /// The number of its source.
    pub number: usize,
}

impl RegisteredSource {
    pub fn place(&self) -> Place {
        Place { fd: self.fd, set: self.set.clone(), number: self.source.number() }
    }
}

/// Parts of the table, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// What is watched, by token.
pub(crate) struct Sources {
    shards: [Mutex<HashMap<u64, RegisteredSource>>; SHARDS],
    /// The application has closed the descriptors of the reactor.
    lost: AtomicBool,
    at_loss: Option<fn()>,
}

impl Sources {
    /// None yet. `at_loss` is called if the descriptors are closed.
    pub fn new(at_loss: Option<fn()>) -> Self {
        Self { shards: Default::default(), lost: AtomicBool::new(false), at_loss }
    }

    /// Whether nothing is watched any more.
    pub fn are_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The application has closed the descriptors: each source is told, by the first call.
    pub fn lose(&self) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        fds::forget_all();
        if let Some(call) = self.at_loss {
            call();
        }
        self.all().iter().for_each(|source| source.lost());
    }

    fn shard(&self, token: u64) -> MutexGuard<'_, HashMap<u64, RegisteredSource>> {
        self.shards[token as usize % SHARDS].lock()
    }

    pub fn insert(&self, token: u64, registered: RegisteredSource) {
        self.shard(token).insert(token, registered);
    }

    pub fn remove(&self, token: u64) -> Option<RegisteredSource> {
        self.shard(token).remove(&token)
    }

    /// What `look` finds of a source, if it is watched.
    pub fn find<T>(&self, token: u64, look: impl FnOnce(&RegisteredSource) -> T) -> Option<T> {
        self.shard(token).get(&token).map(look)
    }

    /// Each source once, however many descriptors are watched for it.
    pub fn all(&self) -> Vec<Arc<dyn Pollable>> {
        Self::listed(self.shards.iter().map(Mutex::lock))
    }

    /// The same, without those whose lock cannot be had by `until`.
    pub fn all_by(&self, until: Moment) -> Vec<Arc<dyn Pollable>> {
        Self::listed(self.shards.iter().filter_map(|s| clock::retry(until, || s.try_lock())))
    }

    fn listed<'a>(
        shards: impl Iterator<Item = MutexGuard<'a, HashMap<u64, RegisteredSource>>>,
    ) -> Vec<Arc<dyn Pollable>> {
        let sources = |s: MutexGuard<'_, HashMap<u64, RegisteredSource>>| {
            s.values().map(|r| Arc::clone(&r.source)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = shards.flat_map(sources).collect();
        all.sort_by_key(|source| Arc::as_ptr(source).cast::<()>().addr());
        all.dedup_by(|one, other| Arc::ptr_eq(one, other));
        all
    }

    /// Has `call` tell the source that `event` names what its descriptor is ready for.
    pub fn dispatch(&self, event: &libc::epoll_event, call: impl FnOnce(&dyn Pollable, Readiness)) {
        let (bits, token) = (event.events, event.u64);
        let Some(source) = self.find(token, |r| Arc::clone(&r.source)) else { return };
        let failed = bits & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        let ready = |bit: libc::c_int| failed || bits & bit as u32 != 0;
        let (read, write) = (ready(libc::EPOLLIN), ready(libc::EPOLLOUT));
        call(&*source, Readiness { read, write });
    }
}
