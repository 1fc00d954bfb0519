//! What happens to the engine when the process forks or exits.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weft_os::{clock, fds, sys};
use weft_reactor::Reactor;

use crate::connections::{Connections, LINGER};
use crate::engine::Engine;

/// Who ends at once waits no longer than this for those who are at work on its connections.
const LAST_WORDS: Duration = Duration::from_millis(10);
/// Who forks waits no longer than this for the engine's threads.
const STILLNESS: Duration = Duration::from_millis(100);

/// The process whose exit is worth a flush: the one that started the engine.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Registers the handlers, once.
pub(crate) fn prepare() {
    static REGISTERED: Once = Once::new();
    OWNER.store(std::process::id(), Ordering::Release);
    REGISTERED.call_once(|| {
        sys::at_exit(exit);
        sys::at_fork(before_fork, in_parent, in_child);
    });
}

/// The engine, if it is this process's own: a child of `vfork` sees its parent's.
fn engine() -> Option<(&'static Reactor, &'static Connections)> {
    let owned = OWNER.load(Ordering::Acquire) == std::process::id();
    Engine::running().filter(|_| owned)
}

/// The process ends at once, without handlers: what was received and has yet to be acknowledged is
/// acknowledged, as an adapter would have done before the program saw it. Nothing is closed, and no
/// lock is waited for that this thread might hold.
pub fn say_last_words() {
    if let Some((_, connections)) = engine() {
        let until = clock::now() + LAST_WORDS;
        connections.each(|connection| connection.hurry(until));
    }
}

extern "C" fn exit() {
    if let Some((reactor, connections)) = engine() {
        let until = clock::now() + LINGER;
        connections.each(|connection| connection.hush());
        for source in reactor.all() {
            source.at_exit(until);
        }
    }
}

extern "C" fn before_fork() {
    if let Some((reactor, _)) = engine() {
        reactor.park(clock::now() + STILLNESS);
    }
}

extern "C" fn in_parent() {
    if let Some((reactor, _)) = engine() {
        reactor.resume();
    }
}

/// The child has neither the engine's thread nor business with its parent's connections.
extern "C" fn in_child() {
    Engine::forget();
    fds::close_all();
}
