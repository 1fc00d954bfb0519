//! What a reactor calls, and the table of what it watches.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use weft_sync::Mutex;

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
    /// A timer set with [`crate::Reactor::set_timer`] is due.
    fn timeout(&self, now: Instant);
    /// Its number among those that share the reactor's threads out; always the same. Those without
    /// one are called by the first.
    fn number(&self) -> usize {
        0
    }
    /// The process exits normally and waits until then at most; called on the thread that ends it.
    fn at_exit(&self, _until: Instant) {}
}

/// Something that a polling thread has a lease on.
pub trait Leased: Send + Sync {
    /// Takes the lease back if it was not renewed since `before`; whether it did.
    fn reclaim(&self, before: Instant) -> bool;
}

/// Names a source within its reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) u64);

/// A source and the descriptor that is watched for it.
pub(crate) struct RegisteredSource {
    pub fd: RawFd,
    pub source: Arc<dyn Pollable>,
}

/// What is watched, by token.
#[derive(Default)]
pub(crate) struct Sources(Mutex<HashMap<u64, RegisteredSource>>);

impl Sources {
    pub fn insert(&self, token: u64, registered: RegisteredSource) {
        self.0.lock().insert(token, registered);
    }

    pub fn remove(&self, token: u64) -> Option<RegisteredSource> {
        self.0.lock().remove(&token)
    }

    /// What `look` finds of a source, if it is watched.
    pub fn find<T>(&self, token: u64, look: impl FnOnce(&RegisteredSource) -> T) -> Option<T> {
        self.0.lock().get(&token).map(look)
    }

    /// Each source once, however many descriptors are watched for it.
    pub fn all(&self) -> Vec<Arc<dyn Pollable>> {
        let mut all: Vec<_> = self.0.lock().values().map(|r| Arc::clone(&r.source)).collect();
        all.sort_by_key(|source| Arc::as_ptr(source).cast::<()>().addr());
        all.dedup_by(|one, other| Arc::ptr_eq(one, other));
        all
    }
}
