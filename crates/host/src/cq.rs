//! Completion queues that make progress when they are polled.
//!
//! Once a completion is lost, every queue pair that completes there fails: its application could
//! not know any more what became of its requests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use weft_os::clock::{self, Moment};
use weft_reactor::{Pollable, Readiness};
use weft_sync::{Mutex, RwLock};
use weft_verbs::{Cq, CqError, Misuse, Wake, Wc};

use crate::ProgressMode;
use crate::conn_slot::ConnSlot;
use crate::device_kind::DeviceId;
use crate::faults::CqLimit;
use crate::host::Host;
use crate::poll_group::PollGroup;

/// Connections looked at by one empty poll, each by itself.
const LOOKS_MAX: usize = 4;
/// After this many empty polls in a row, some tens of microseconds, only every fourth asks the
/// kernel: that is soon enough for whatever took so long, and leaves the application its time.
const QUIET: u32 = 256;
const THINNED: u32 = 4;

/// One of so many polls that find something looks at many connections all the same: a thread may
/// never find the queue empty.
const BUSY_LOOKS: u32 = 32;

/// Every eighth empty poll helps a connection of another queue: two are less than a microsecond
/// apart.
const HELP_AFTER: usize = 8;

/// Counts where a count may be lost: what it was, without an access to memory that other threads
/// wait for.
fn count_up(count: &AtomicU32) -> u32 {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(1), Ordering::Relaxed);
    before
}

/// The connections of the queue pairs that complete into a queue.
#[derive(Default)]
struct CqMembers {
    all: Vec<Arc<ConnSlot>>,
    /// Those that are looked at by themselves: a few.
    single: Vec<Arc<ConnSlot>>,
    /// Those of the others.
    groups: Vec<Arc<PollGroup>>,
}

impl CqMembers {
    /// Has `slot` polled with others, with `own` if it is with none yet; whether it is now.
    fn gather(&mut self, slot: &Arc<ConnSlot>, own: Option<&Arc<PollGroup>>, cq: &Arc<Cq>) -> bool {
        if let Some(own) = own {
            slot.join(own);
        }
        let Some(group) = slot.group() else { return false };
        group.serve(cq);
        if !self.groups.iter().any(|known| Arc::ptr_eq(known, group)) {
            self.groups.push(Arc::clone(group));
        }
        true
    }
}

/// A completion queue and the queue pairs that complete into it.
pub struct HostCq {
    host: Arc<Host>,
    /// That of the host when it was made.
    generation: usize,
    inner: Arc<weft_verbs::Cq>,
    members: RwLock<CqMembers>,
    /// Its own, once it has many connections; none if the system had no means for it.
    group: OnceLock<Option<Arc<PollGroup>>>,
    turn: AtomicU32,
    /// Empty polls in a row.
    quiet: AtomicU32,
    /// Polls that found something, of a queue of many connections.
    busy: AtomicU32,
    max_cqe: u32,
    /// Completions that the application is still given, where the queue is to end after them.
    left: Option<(Mutex<u64>, CqLimit)>,
}

impl HostCq {
    pub(crate) fn new(
        host: &Arc<Host>,
        id: DeviceId,
        inner: weft_verbs::Cq,
        max_cqe: u32,
    ) -> Arc<Self> {
        let limit = host
            .faults()
            .and_then(|faults| faults.limit_of_queue(host.number_completion_queue(), id));
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            host: Arc::clone(host),
            generation: host.generation(),
            inner: Arc::new(inner.with_warden(Box::new(Warden(Arc::clone(host), this.clone())))),
            members: RwLock::default(),
            group: OnceLock::new(),
            turn: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            max_cqe,
            left: limit.map(|limit| (Mutex::new(limit.completions), limit)),
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

    /// Makes progress on `slot` when it is polled. Those that are too many to be looked at one by
    /// one are polled together from then on.
    pub(crate) fn join(&self, slot: &Arc<ConnSlot>) {
        let mut members = self.members.write();
        if members.all.iter().any(|known| Arc::ptr_eq(known, slot)) {
            return;
        }
        members.all.push(Arc::clone(slot));
        if members.gather(slot, None, &self.inner) {
            return;
        }
        members.single.push(Arc::clone(slot));
        if members.all.len() > LOOKS_MAX || self.group.get().is_some() {
            self.gather(&mut members);
        }
    }

    /// Has those that are looked at by themselves polled together, if the system has the means.
    fn gather(&self, members: &mut CqMembers) {
        let Some(number) = members.single.first().map(|slot| slot.number()) else { return };
        let own = self.group.get_or_init(|| PollGroup::new(&self.host, number));
        let own = own.as_ref().filter(|own| !own.is_inherited());
        let mut single = std::mem::take(&mut members.single);
        single.retain(|slot| !members.gather(slot, own, &self.inner));
        members.single = single;
    }

    /// Has all its connections polled together, for a thread that sleeps until one of them has
    /// something.
    pub(crate) fn gather_all(&self) {
        if !self.members.read().single.is_empty() {
            self.gather(&mut self.members.write());
        }
    }

    /// Adds what its connections are polled by to `groups`; whether those are all of them.
    pub(crate) fn add_groups(&self, groups: &mut Vec<Arc<PollGroup>>) -> bool {
        let members = self.members.read();
        for group in &members.groups {
            if !groups.iter().any(|known| Arc::ptr_eq(known, group)) {
                groups.push(Arc::clone(group));
            }
        }
        members.single.is_empty()
    }

    /// The host that it belongs to.
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(crate) fn leave(&self, slot: &Arc<ConnSlot>) {
        let mut members = self.members.write();
        let CqMembers { all, single, groups } = &mut *members;
        all.retain(|known| !Arc::ptr_eq(known, slot));
        single.retain(|known| !Arc::ptr_eq(known, slot));
        let own = groups.clone();
        if all.is_empty() {
            groups.drain(..).for_each(|group| group.stop_serving(&self.inner));
        }
        drop(members);
        // What is left to the next poll is done now, on a connection that may stay in use.
        own.iter().for_each(|group| group.forget(slot));
    }

    /// Whether it was made before the process was forked: what completes there is the parent's, and
    /// a lock of it may be one that a thread of the parent holds for ever.
    pub fn is_inherited(&self) -> bool {
        self.generation != self.host.generation()
    }

    /// Moves the oldest completions to `out`; gives how many. When there is none, makes progress
    /// on the queue pairs and looks again.
    ///
    /// # Errors
    /// After the queue overflowed, once the completions before that are polled; in a child of the
    /// process that made the queue.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize, CqError> {
        if self.is_inherited() {
            return Err(CqError);
        }
        let count = self.poll_limited(out)?;
        if count > 0 {
            self.host.events().note_completions(&out[..count]);
        }
        Ok(count)
    }

    /// The same as far as the queue is not to overflow.
    fn poll_limited(&self, out: &mut [Wc]) -> Result<usize, CqError> {
        let Some((left, limit)) = &self.left else { return self.take(out) };
        // One thread at a time, so that the same completion is the last one every time.
        let mut left = left.lock();
        let room = out.len().min(*left as usize);
        if room > 0 || out.is_empty() {
            let count = self.take(&mut out[..room])?;
            *left -= count as u64;
            return Ok(count);
        }
        // Whoever polls makes progress, and there is an overflow once there is one too many.
        self.look();
        if self.inner.has_entries() {
            if limit.is_overrun {
                self.inner.overrun();
            } else {
                self.inner.overflow();
            }
            if let Some(faults) = self.host.faults() {
                faults.note(limit.place);
            }
            self.break_down();
        }
        self.inner.poll(out)
    }

    /// Fails the queue pairs that complete here.
    fn break_down(&self) {
        // Whoever hears of it may destroy a queue pair.
        let cells = self.members.read().all.clone();
        for cell in cells {
            cell.break_down();
        }
    }

    fn take(&self, out: &mut [Wc]) -> Result<usize, CqError> {
        let count = self.inner.poll(out)?;
        if count > 0 {
            self.quiet.store(0, Ordering::Relaxed);
            let members = self.members.read();
            members.single.iter().for_each(|slot| slot.flush());
            if members.groups.is_empty() {
                return Ok(count);
            }
            let looks = count_up(&self.busy).is_multiple_of(BUSY_LOOKS);
            let now = looks.then(clock::now);
            for group in &members.groups {
                match now {
                    Some(now) => group.look_meanwhile(now),
                    None => group.flush(),
                }
            }
            return Ok(count);
        }
        let quiet = count_up(&self.quiet);
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
        let turn = count_up(&self.turn) as usize;
        let members = self.members.read();
        let single = &members.single;
        let looks = single.len().min(LOOKS_MAX);
        for i in 0..looks {
            single[(turn * looks + i) % single.len()].poll(now);
        }
        for group in &members.groups {
            group.look(now, || self.inner.has_entries());
        }
        if self.inner.may_have_entries() {
            return true;
        }
        if turn.is_multiple_of(HELP_AFTER)
            && let Some(local) = self.host.begun()
            && let Some(other) = local.connections.in_turn(turn / HELP_AFTER)
        {
            other.help(now);
        }
        looks > 0 || !members.groups.is_empty()
    }

    /// Asks for one event at the next completion, or the next solicited or failed one. The caller
    /// may sleep after it: the engine takes over. In a child of the process that made the queue
    /// there is none.
    pub fn req_notify(&self, solicited_only: bool) {
        if self.is_inherited() {
            return;
        }
        self.inner.req_notify(solicited_only);
        let members = self.members.read();
        for slot in &members.single {
            slot.rest();
            if let Some(group) = slot.group() {
                group.resume();
            }
        }
        members.groups.iter().for_each(|group| group.rest());
    }

    /// How many completions it holds.
    pub fn cqe(&self) -> u32 {
        self.inner.capacity()
    }

    /// Changes how many completions it holds.
    pub fn resize(&self, cqe: u32) -> Result<(), Misuse> {
        if self.is_inherited() {
            return Err(Misuse::Invalid("the completion queue is the parent process's"));
        }
        if cqe == 0 || cqe > self.max_cqe {
            return Err(Misuse::Invalid("the completion queue exceeds the limits of the device"));
        }
        self.inner.resize(cqe)
    }

    /// Ends it, if no queue pair uses it; gives how many of its asynchronous events were announced
    /// and not taken.
    pub fn destroy(&self) -> Result<usize, Misuse> {
        use weft_verbs::usage::Counted;
        if self.inner.users().any() { Err(Misuse::Busy) } else { Ok(self.inner.retire()) }
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

    fn timeout(&self, _: Moment) {
        self.break_down();
    }
}
