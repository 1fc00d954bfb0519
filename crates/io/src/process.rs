//! What happens to the engine when the process forks or exits.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::drive::LINGER;
use crate::engine::Engine;
use crate::{clock, fds, sys};

/// The process whose exit is worth a flush: the one that started the engine.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Registers the handlers, once.
pub(crate) fn prepare() {
    static REGISTERED: Once = Once::new();
    OWNER.store(std::process::id(), Ordering::Release);
    REGISTERED.call_once(|| {
        sys::at_exit(exit);
        sys::at_fork(in_child);
    });
}

extern "C" fn exit() {
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    if let Some(engine) = Engine::running() {
        let until = clock::now() + LINGER;
        for source in engine.all() {
            source.at_exit(until);
        }
    }
}

/// The child has neither the engine's thread nor business with its parent's connections.
extern "C" fn in_child() {
    Engine::forget();
    fds::close_all();
}
