//! What happens to the engine when the process forks or exits.

use std::sync::Once;
use std::time::Duration;

use weft_os::{clock, fds, sys};

use crate::connections::LINGER;
use crate::host::{Host, Local};

/// Who ends at once waits no longer than this for those who are at work on its connections.
const LAST_WORDS: Duration = Duration::from_millis(10);
/// Who forks waits no longer than this for the engine's threads.
const STILLNESS: Duration = Duration::from_millis(100);

/// Registers the handlers, once.
pub(crate) fn prepare() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        sys::at_exit(exit);
        sys::at_fork(before_fork, in_parent, in_child);
    });
}

fn local() -> Option<&'static Local> {
    Host::existing().and_then(|host| host.running())
}

/// The process ends at once, without handlers: what was received and has yet to be acknowledged is
/// acknowledged, as an adapter would have done before the program saw it. Nothing is closed, and no
/// lock is waited for that this thread might hold.
pub fn say_last_words() {
    if let Some(local) = local() {
        let until = clock::now() + LAST_WORDS;
        local.connections.each(|connection| connection.flush_now(until));
    }
}

extern "C" fn exit() {
    if let Some(local) = local() {
        let until = clock::now() + LINGER;
        local.connections.each(|connection| connection.hush());
        for source in local.reactor.all() {
            source.at_exit(until);
        }
    }
}

extern "C" fn before_fork() {
    if let Some(local) = local() {
        local.reactor.park(clock::now() + STILLNESS);
    }
}

extern "C" fn in_parent() {
    if let Some(local) = local() {
        local.reactor.resume();
    }
}

/// The child has neither the engine's thread nor business with its parent's connections.
extern "C" fn in_child() {
    if let Some(host) = Host::existing() {
        host.forget();
    }
    fds::close_all();
}
