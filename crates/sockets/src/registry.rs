//! The state of this process: its connections, its listeners, and their environment.
//!
//! Invariant: the child of a fork begins with none; its parent goes on to serve those that it had.
//! This file has the only static of the crate, and only hooks and their direct callees use it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_os::clock;
use weft_rdmacm::IdEvent;

use crate::cm_events::CmHandlers;
use crate::conn::table::ConnTable;
use crate::env::Env;
use crate::generations::PerProcess;
use crate::listener::ListenerTable;
use crate::{guard, stdio, sys};

/// How long the end of a process waits for its sent bytes to arrive.
const LINGER_LIMIT: Duration = Duration::from_secs(5);
/// The interval at which that is checked.
const LINGER_INTERVAL: Duration = Duration::from_millis(10);
/// Looks in a row that find a connection locked: the thread that works on it is this one, which a
/// signal has interrupted, or it would have been done.
const HELD_LOOKS_MAX: u32 = 20;

/// The state of a process.
pub struct Registry {
    /// The connections of this process.
    pub conns: ConnTable,
    /// Its listeners that are served.
    pub listeners: ListenerTable,
    /// The process id: a child may still see the registry of its parent.
    owner: u32,
    /// [`at_exit`] is registered, here or in an ancestor.
    lingers: AtomicBool,
}

static REGISTRIES: PerProcess<Registry> = PerProcess::new();

extern "C" fn in_child() {
    REGISTRIES.enter_child();
}

extern "C" fn at_exit() {
    Registry::linger(HeldOutput::Written);
}

/// What becomes of the output that standard streams hold when the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldOutput {
    /// It is written (`exit`).
    Written,
    /// It is not (`_exit`): it may be a copy of what the parent of a fork holds.
    Dropped,
}

/// Makes the end of the process wait for its bytes. The reactor ends by such a function too, and
/// functions that were registered last run first, so the reactor must run already.
fn register_exit() {
    if !Registry::get().lingers.swap(true, Ordering::AcqRel) {
        weft_os::sys::at_exit(at_exit);
    }
}

/// Handles an event of the connection manager.
fn dispatch(delivery: IdEvent) {
    let registry = Registry::get();
    let IdEvent { id, listen, event, .. } = delivery;
    match listen.map(|listen| registry.listeners.find_id(listen.cookie())) {
        Some(Some(listener)) => listener.admit(&id, &event),
        Some(None) => id.destroy(),
        None => registry.conns.handle_event(id.cookie(), &event),
    }
}

impl Registry {
    /// The registry of this process; the first call makes it. The caller holds a
    /// [`guard::HookGuard`].
    pub fn get() -> &'static Self {
        REGISTRIES.get_or_init(Self::new)
    }

    /// The registry of this process, if it has one.
    pub fn current() -> Option<&'static Self> {
        REGISTRIES.current()
    }

    fn new(parent: Option<&'static Self>) -> Self {
        if parent.is_none() {
            // A child inherits it.
            // SAFETY: the function takes nothing, and lives as long as the library.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        let handlers = CmHandlers { opened: register_exit, dispatch };
        let env = Env::new(parent.map(Self::env), handlers);
        let inherited = parent.is_some_and(|parent| parent.lingers.load(Ordering::Acquire));
        Self {
            conns: ConnTable::new(env),
            listeners: ListenerTable::new(parent.map(|parent| &parent.listeners)),
            owner: std::process::id(),
            lingers: AtomicBool::new(inherited),
        }
    }

    /// The environment that connections and listeners share.
    pub fn env(&self) -> &Env {
        &self.conns.env
    }

    /// The process ends: closes the sockets that the application has left open, and waits until
    /// their bytes have arrived, up to [`LINGER_LIMIT`].
    pub fn linger(output: HeldOutput) {
        let Some(registry) = Self::current().filter(|r| r.owner == std::process::id()) else {
            return;
        };
        let _inside = guard::enter();
        if output == HeldOutput::Dropped {
            // A signal handler may be what ends the process so, in the middle of `malloc`.
            weft_memory::leave_c_library();
        }
        let (conns, until) = (&registry.conns, clock::now() + LINGER_LIMIT);
        let (Some(sockets), Some(all)) = (conns.app_sockets(until), conns.all(until)) else {
            return;
        };
        if sockets.is_empty() && all.is_empty() {
            return;
        }
        if output == HeldOutput::Written {
            // It would be written after the sockets are closed.
            stdio::flush();
        }
        let fds: Vec<RawFd> = sockets.into_iter().flat_map(sys::find).collect();
        sys::close_sockets(&fds);
        let mut held = 0;
        while let Some(open) = conns.all(until) {
            let unsent: Vec<_> = open.iter().map(|conn| conn.has_unsent()).collect();
            let (waits, is_held) = (unsent.contains(&Some(true)), unsent.contains(&None));
            held = if waits || !is_held { 0 } else { held + 1 };
            let is_over = !waits && (held == 0 || held > HELD_LOOKS_MAX);
            if is_over || clock::now() >= until {
                return;
            }
            sys::pause(LINGER_INTERVAL);
        }
    }
}
