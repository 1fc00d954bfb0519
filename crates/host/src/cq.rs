//! Completion queues that make progress when they are polled.
//!
//! Once a completion is lost, every queue pair that completes there fails: its application could
//! not know any more what became of its requests.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_os::clock;
use weft_reactor::{Pollable, Readiness};
use weft_sync::RwLock;
use weft_verbs::{CqError, Misuse, Wake, Wc};

use crate::ProgressMode;
use crate::conn_slot::ConnSlot;
use crate::host::Host;

/// Connections looked at by one empty poll.
const LOOKS_MAX: usize = 4;
/// After this many empty polls in a row, some tens of microseconds, only every fourth asks the
/// kernel: that is soon enough for whatever took so long, and leaves the application its time.
const QUIET: u32 = 256;
const THINNED: u32 = 4;

/// A completion queue and the queue pairs that complete into it.
pub struct HostCq {
    host: Arc<Host>,
    inner: Arc<weft_verbs::Cq>,
    slots: RwLock<Vec<Arc<ConnSlot>>>,
    turn: AtomicUsize,
    /// Empty polls in a row.
    quiet: AtomicU32,
    max_cqe: u32,
    /// Completions that the application is still given, where the queue is to overflow after them.
    left: Option<AtomicU64>,
}

impl HostCq {
    pub(crate) fn new(host: &Arc<Host>, inner: weft_verbs::Cq, max_cqe: u32) -> Arc<Self> {
        let overflow = host
            .faults()
            .and_then(|faults| faults.completions_until_overflow(host.number_completion_queue()));
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            host: Arc::clone(host),
            inner: Arc::new(inner.with_warden(Box::new(Warden(Arc::clone(host), this.clone())))),
            slots: RwLock::default(),
            turn: AtomicUsize::new(0),
            quiet: AtomicU32::new(0),
            max_cqe,
            left: overflow.map(AtomicU64::new),
        })
    }

    /// When the completion was added that was polled last, by [`clock::ticks_ns`]; 0 if the queue
    /// was made without time stamps.
    pub fn stamp_ns(&self) -> u64 {
        self.inner.stamp_ns()
    }

    pub(crate) fn inner(&self) -> &Arc<weft_verbs::Cq> {
        &self.inner
    }

    pub(crate) fn join(&self, cell: &Arc<ConnSlot>) {
        let mut cells = self.slots.write();
        if !cells.iter().any(|c| Arc::ptr_eq(c, cell)) {
            cells.push(Arc::clone(cell));
        }
    }

    pub(crate) fn leave(&self, cell: &Arc<ConnSlot>) {
        let mut cells = self.slots.write();
        cells.retain(|c| !Arc::ptr_eq(c, cell));
    }

    /// Moves the oldest completions to `out`; gives how many. When there is none, makes progress
    /// on the queue pairs and looks again.
    ///
    /// # Errors
    /// After the queue overflowed, once the completions before that are polled.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize, CqError> {
        let Some(left) = &self.left else { return self.take(out) };
        let room = out.len().min(left.load(Ordering::Acquire) as usize);
        if room > 0 || out.is_empty() {
            let count = self.take(&mut out[..room])?;
            left.fetch_sub(count as u64, Ordering::AcqRel);
            return Ok(count);
        }
        // Whoever polls makes progress, and there is an overflow once there is one too many.
        self.look();
        if self.inner.has_entries() {
            self.inner.overflow();
            self.break_down();
        }
        self.inner.poll(out)
    }

    /// Fails the queue pairs that complete here.
    fn break_down(&self) {
        // Whoever hears of it may destroy a queue pair.
        let cells = self.slots.read().clone();
        for cell in cells {
            cell.break_down();
        }
    }

    fn take(&self, out: &mut [Wc]) -> Result<usize, CqError> {
        let count = self.inner.poll(out)?;
        if count > 0 {
            self.quiet.store(0, Ordering::Relaxed);
            for cell in self.slots.read().iter() {
                cell.flush();
            }
            return Ok(count);
        }
        let quiet = self.quiet.fetch_add(1, Ordering::Relaxed);
        let skip = quiet > QUIET && !quiet.is_multiple_of(THINNED);
        if skip || out.is_empty() || !self.look() {
            return Ok(0);
        }
        let count = self.inner.poll(out)?;
        if count > 0 {
            self.quiet.store(0, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// Makes progress on some of the queue pairs, in turn, and on one of the others of the
    /// host: a thread that polls in a loop has time, and may need the core that the engine
    /// waits for. Gives whether the queue can have anything new.
    fn look(&self) -> bool {
        if self.host.settings().progress == ProgressMode::Engine {
            return true;
        }
        let now = clock::now();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let cells = self.slots.read();
        let looks = cells.len().min(LOOKS_MAX);
        for i in 0..looks {
            cells[(turn * looks + i) % cells.len()].poll(now);
        }
        if self.inner.has_entries() {
            return true;
        }
        if let Some(other) = self.host.running().and_then(|local| local.connections.in_turn(turn)) {
            other.help(now);
        }
        looks > 0
    }

    /// Asks for one event at the next completion, or the next solicited or failed one. The caller
    /// may sleep after it: the engine takes over.
    pub fn req_notify(&self, solicited_only: bool) {
        self.inner.req_notify(solicited_only);
        for cell in self.slots.read().iter() {
            cell.rest();
        }
    }

    /// How many completions it holds.
    pub fn cqe(&self) -> u32 {
        self.inner.capacity()
    }

    /// Changes how many completions it holds.
    pub fn resize(&self, cqe: u32) -> Result<(), Misuse> {
        if cqe == 0 || cqe > self.max_cqe {
            return Err(Misuse::Invalid("the completion queue exceeds the limits of the device"));
        }
        self.inner.resize(cqe)
    }

    /// Ends it, if no queue pair uses it.
    pub fn destroy(&self) -> Result<(), Misuse> {
        use weft_verbs::usage::Counted;
        if self.inner.users().any() { Err(Misuse::Busy) } else { Ok(()) }
    }
}

/// Has the engine break a completion queue down: whoever finds that it has no room holds locks.
struct Warden(Arc<Host>, Weak<HostCq>);

impl Wake for Warden {
    fn wake(&self) {
        let cq: Weak<dyn Pollable> = self.1.clone();
        self.0.reactor().set_timer(clock::now(), cq);
    }
}

impl Pollable for HostCq {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, _: Instant) {
        self.break_down();
    }
}
