//! What happens to a host when its process forks or exits.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_os::{calls, fds, forks, sys};
use weft_reactor::Pollable;

use crate::connections::LINGER;
use crate::host::{Host, HostSetup, Local};

/// Who ends at once waits no longer than this for those who are at work on its connections.
const LAST_WORDS: Duration = Duration::from_millis(10);
/// Who forks waits no longer than this for calls of other threads, and for the engine's threads.
/// What a thread has locked stays so in the child, which hangs if it uses a device: on a busy
/// machine a thread in the middle of a call may not run for hundreds of milliseconds.
const STILLNESS: Duration = Duration::from_secs(2);

/// Where a library keeps its host, and whether that follows the forks of the process.
pub struct HostPlace {
    host: OnceLock<Arc<Host>>,
    follows_forks: Once,
}

impl Default for HostPlace {
    fn default() -> Self {
        Self::new()
    }
}

impl HostPlace {
    /// Without a host yet.
    pub const fn new() -> Self {
        Self { host: OnceLock::new(), follows_forks: Once::new() }
    }

    /// The host, if there is one.
    pub fn get(&self) -> Option<&Arc<Host>> {
        self.host.get()
    }
}

/// A library that is loaded into the processes of others and keeps one host there: it follows the
/// forks of the process and its exit.
pub trait HostHome: Sized + 'static {
    /// Where the host is kept.
    fn place() -> &'static HostPlace;

    /// Has it follow the forks of the process. A library does so when it is loaded: before a fork
    /// the handler that was registered first runs last, so those that the application registers
    /// later do not wait for a thread that waits for the fork. The others do, for as long as a call
    /// waits for a fork at most.
    fn follow_forks() {
        Self::place().follows_forks.call_once(|| {
            forks::at_fork(before_fork::<Self>, in_parent::<Self>, in_child::<Self>);
        });
    }

    /// What the host is made of.
    fn setup() -> HostSetup {
        HostSetup::from_environment()
    }

    /// The host. The first call makes it.
    fn host() -> &'static Arc<Host> {
        Self::place().host.get_or_init(|| {
            sys::at_exit(exit::<Self>);
            Self::follow_forks();
            Host::new(Self::setup())
        })
    }
}

fn local<H: HostHome>() -> Option<&'static Local> {
    H::place().get().and_then(|host| host.running())
}

impl Host {
    /// The process ends at once, without handlers: what was received and has yet to be acknowledged
    /// is acknowledged, as an adapter would have done before the application saw it, and who waits
    /// for an answer is refused. Nothing is closed. No lock is waited for that this thread might
    /// hold, nor that of `malloc`.
    pub fn say_last_words(&self) {
        if let Some(local) = self.running() {
            weft_memory::leave_c_library();
            let until = clock::now() + LAST_WORDS;
            local.connections.each(until, |connection| connection.flush_now(until));
            // The end of one may need locks that this thread holds, so none ends here.
            say_to_all(local, until).into_iter().for_each(mem::forget);
            local.open_at_exit.tell();
            if let Some(Some(publisher)) = local.publisher.get() {
                publisher.vanish();
            }
        }
    }
}

/// Has every source say its last words; gives the sources.
fn say_to_all(local: &Local, until: Moment) -> Vec<Arc<dyn Pollable>> {
    let sources = local.reactor.all_by(until);
    sources.iter().for_each(|source| source.last_words(until));
    sources
}

extern "C" fn exit<H: HostHome>() {
    if let Some(local) = local::<H>() {
        sys::hold_handlers();
        let until = clock::now() + LINGER;
        local.exits.store(true, Ordering::Release);
        local.connections.each(until, |connection| connection.hush());
        let sources = say_to_all(local, until);
        sources.iter().for_each(|source| source.at_exit(until));
        local.open_at_exit.tell();
        if let (Some(host), Some(Some(publisher))) = (H::place().get(), local.publisher.get()) {
            publisher.end(host);
        }
    }
}

extern "C" fn before_fork<H: HostHome>() {
    let until = clock::now() + STILLNESS;
    calls::pause(until);
    if let Some(local) = local::<H>() {
        local.reactor.park(until);
    }
}

extern "C" fn in_parent<H: HostHome>() {
    if let Some(local) = local::<H>() {
        local.reactor.resume();
    }
    calls::resume();
}

/// The child has neither the threads of its parent nor business with its connections.
extern "C" fn in_child<H: HostHome>() {
    weft_memory::return_to_c_library();
    if let Some(host) = H::place().get() {
        host.forget();
    }
    calls::forget();
    fds::close_all();
}
