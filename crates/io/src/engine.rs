//! The reactor of this process: one for each process in a line of forks.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_reactor::{Reactor, Setup};

use crate::Settings;
use crate::connections::Connections;
use crate::process;

static AT_THREAD_START: OnceLock<fn()> = OnceLock::new();

/// Has each of the engine's threads call this before anything else; the first call counts, and it
/// is to come before anything else of the engine is used.
pub fn at_thread_start(call: fn()) {
    let _first = AT_THREAD_START.set(call);
}

/// A child finds its parent's without threads and starts its own. Deeper lines than this share the
/// last.
static ENGINES: [OnceLock<Local>; 64] = [const { OnceLock::new() }; 64];
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Counts the engines in this line of forks.
pub(crate) fn generation() -> usize {
    GENERATION.load(Ordering::Acquire)
}

fn slot() -> &'static OnceLock<Local> {
    &ENGINES[generation().min(ENGINES.len() - 1)]
}

/// What each process in a line of forks has of its own.
struct Local {
    reactor: Reactor,
    connections: Connections,
}

/// The connections of this process.
pub(crate) fn connections() -> &'static Connections {
    &local().connections
}

fn local() -> &'static Local {
    slot().get_or_init(|| {
        process::prepare();
        let reactor = Reactor::new(Setup {
            threads: Settings::get().threads,
            generation: generation(),
            at_thread_start: AT_THREAD_START.get().copied(),
        });
        Local { reactor, connections: Connections::default() }
    })
}

/// The reactor of this process.
pub struct Engine;

impl Engine {
    /// Starts the engine of this process, if it does not run.
    ///
    /// # Errors
    /// The errno of the system that has no descriptor, thread or random numbers left for it.
    pub fn start() -> io::Result<()> {
        Self::get().start()
    }

    /// The engine of this process. Whoever makes an object that needs it calls [`Engine::start`]
    /// first; without, what is added is watched only if the engine can start now.
    pub fn get() -> &'static Reactor {
        &local().reactor
    }

    /// The engine and its connections, if it was started.
    pub(crate) fn running() -> Option<(&'static Reactor, &'static Connections)> {
        slot().get().map(|local| (&local.reactor, &local.connections))
    }

    /// Forgets the engine of the parent, in the child of a fork: its thread is not here.
    pub(crate) fn forget() {
        if slot().get().is_some() {
            GENERATION.fetch_add(1, Ordering::AcqRel);
        }
    }
}
