//! The state of this process: its connections, its listeners, and their environment.
//!
//! Invariant: the child of a fork begins with none; its parent goes on to serve those that it had.
//! This file has the only static of the crate, and only hooks and their direct callees use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_os::{borrowed, forks};
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
/// How long something may stay locked before `_exit` gives it up: its lock is then held by this
/// thread, which a signal interrupted while it worked on that.
const HELD_LIMIT: Duration = Duration::from_millis(500);

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
    weft_memory::return_to_c_library();
    REGISTRIES.enter_child();
}

extern "C" fn at_exit() {
    weft_os::sys::hold_handlers();
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
        Some(Some(listener)) => {
            listener.admit(&id, &event, registry.listeners.grants_max());
        }
        Some(None) => id.destroy(),
        None => registry.conns.handle_event(id.cookie(), &event),
    }
}

impl Registry {
    /// The registry of this process; the first call makes it. The caller holds a
    /// [`guard::HookGuard`].
    pub fn get() -> &'static Self {
        forks::notice();
        REGISTRIES.get_or_init(Self::new)
    }

    /// The registry of this process, if it has one.
    pub fn current() -> Option<&'static Self> {
        forks::notice();
        REGISTRIES.current()
    }

    fn new(parent: Option<&'static Self>) -> Self {
        if parent.is_none() {
            // A child inherits it.
            forks::in_children(in_child);
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

    /// Whether the registry is that of this very process, not one of the parent of a `vfork`.
    pub fn is_own() -> bool {
        Self::current().is_some_and(|registry| registry.owner == std::process::id())
    }

    /// Whether this process shares the memory of another one, whose registry it is: the child of a
    /// `vfork`.
    pub fn is_lent() -> bool {
        Self::current().is_some_and(|registry| registry.owner != std::process::id())
    }

    /// The table that names the offers which this process has from a parent, and whether it is its
    /// own: else it is that of the last ancestor which had one. `None` if there are no offers, and
    /// in a child of `vfork`.
    pub fn inherited_offers() -> Option<(&'static ListenerTable, bool)> {
        forks::notice();
        let (nearest, is_own) = REGISTRIES.nearest()?;
        let listeners = &nearest.listeners;
        // Asked first: few have any, and every `close` comes here.
        let may_be = listeners.may_have_inherited(is_own) && !borrowed::is_guest();
        may_be.then_some((listeners, is_own))
    }

    /// The environment that connections and listeners share.
    pub fn env(&self) -> &Env {
        &self.conns.env
    }

    /// The process ends: closes the sockets that the application has left open, and waits until
    /// their bytes have arrived, up to [`LINGER_LIMIT`].
    pub fn linger(output: HeldOutput) {
        let Some(registry) = Self::current().filter(|_| Self::is_own()) else {
            return;
        };
        let _inside = guard::enter();
        if output == HeldOutput::Dropped {
            // A signal handler may be what ends the process so, in the middle of `malloc`.
            weft_memory::leave_c_library();
        }
        let (conns, began) = (&registry.conns, clock::now());
        let until = began + LINGER_LIMIT;
        let mut wait = LingerWait::new(output);
        // What is locked for so long is left as it is.
        let sockets = conns.app_sockets(began + wait.patience).unwrap_or_default();
        let Some(all) = conns.all(began + wait.patience) else { return };
        if sockets.is_empty() && all.is_empty() {
            return;
        }
        if output == HeldOutput::Written {
            // It would be written after the sockets are closed.
            stdio::flush();
        }
        sys::close_sockets(&sys::find_all(|socket| sockets.contains(&socket)));
        while let Some(open) = conns.all(until) {
            let unsent: Vec<_> = open.iter().map(|conn| conn.has_unsent()).collect();
            let now = clock::now();
            if wait.is_over(&unsent, now) || now >= until {
                return;
            }
            sys::pause(LINGER_INTERVAL);
        }
    }
}

/// How the end of the process waits for the bytes of its connections.
struct LingerWait {
    /// How long something may stay locked.
    patience: Duration,
    /// Since when the only connections that may have unsent bytes are locked.
    held_since: Option<Moment>,
}

impl LingerWait {
    /// Only `_exit` may be called by a signal handler, whose thread may hold any lock.
    fn new(output: HeldOutput) -> Self {
        let patience = match output {
            HeldOutput::Written => LINGER_LIMIT,
            HeldOutput::Dropped => HELD_LIMIT,
        };
        Self { patience, held_since: None }
    }

    /// Whether there is nothing left to wait for, now that connections have `unsent` bytes, or are
    /// locked where that is none.
    fn is_over(&mut self, unsent: &[Option<bool>], now: Moment) -> bool {
        if unsent.contains(&Some(true)) {
            self.held_since = None;
            return false;
        }
        let is_held = unsent.contains(&None);
        !is_held || now >= *self.held_since.get_or_insert(now) + self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_stays_locked_is_given_up_where_a_signal_handler_may_wait() {
        let start = clock::now();
        for (output, limit) in
            [(HeldOutput::Dropped, HELD_LIMIT), (HeldOutput::Written, LINGER_LIMIT)]
        {
            let mut wait = LingerWait::new(output);
            let moment = Duration::from_nanos(1);
            assert!(!wait.is_over(&[Some(false), None], start));
            assert!(!wait.is_over(&[Some(true), None], start + limit), "another one goes on");
            assert!(!wait.is_over(&[None], start + limit));
            assert!(!wait.is_over(&[None], start + 2 * limit - moment));
            assert!(wait.is_over(&[None, Some(false)], start + 2 * limit));
            assert!(wait.is_over(&[Some(false)], start) && wait.is_over(&[], start));
        }
    }
}
