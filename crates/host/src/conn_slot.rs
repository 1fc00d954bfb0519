//! A queue pair's place for its connection: the lock on it, and what is done under it.

mod polling;
mod roles;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use weft_capture::CaptureTap;
use weft_net::stream::MpaCarrier;
use weft_os::clock::{self, Moment};
use weft_os::fds;
use weft_os::thread::Uncancelled;
use weft_reactor::Pollable;
use weft_rnic::shuttle::Route;
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::{MpaQp, RetryLimits};
use weft_sync::MutexGuard;
use weft_verbs::mr::Lends;
use weft_verbs::{AsyncKind, Cq, Misuse, Qp, QpFailure, QpState};

use crate::connections::DrivenConnection;
use crate::device_kind::DeviceId;
use crate::diagnostics::ToldState;
use crate::driver::todo::{RECEIVE, SEND, TIME};
use crate::driver::{Driver, LinkWatcher, Notices, Woken};
use crate::faults::EndsWithDevice;
use crate::host::Host;
use crate::lease::Lease;
use crate::poll_group::PollGroup;
use crate::poll_history::PollHistory;
use crate::qp_faults::QpFaultInjector;
use crate::slot::Slot;
use crate::wakes::PostponedWakes;

/// Steps in which what has arrived is taken, where it is to be told before something else: more
/// than the buffers of a socket need, and few enough for a peer that never stops sending.
const SETTLING_STEPS: usize = 16;

/// What has come of a step.
struct Outcome {
    notices: Notices,
    /// The connection, of which nothing is left: its socket is closed once the reactor has let go
    /// of it.
    over: Option<Box<Driver>>,
}

/// What the lock of a slot protects.
struct Guarded {
    /// Boxed, because a step may take it out, and moving it costs even a step that does not.
    driver: Option<Box<Driver>>,
    polls: PollHistory,
    /// The queue pair is destroyed: who brings a connection has come too late.
    is_retired: bool,
    /// Connections that were brought so far.
    brought: u64,
}

/// Which of the connections of a queue pair it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment(u64);

/// A queue pair's place for its connection.
pub(crate) struct ConnSlot {
    host: Arc<Host>,
    slot: Slot<Guarded, Outcome>,
    attached: AtomicBool,
    /// Its messages wait for their receives without end.
    waits_forever: AtomicBool,
    /// The process it was made in; a forked child leaves it alone.
    generation: usize,
    lease: Lease,
    /// Whether a polling thread has the lease, for who does not hold the lock.
    leased: AtomicBool,
    /// The connections that it is polled with, if those are many.
    group: OnceLock<Arc<PollGroup>>,
    /// It is among the active ones of the group.
    active: AtomicBool,
    /// It is among those of the group whose doorbells rang.
    is_rung: AtomicBool,
    /// When something of it is due, in nanoseconds, and whether it is polled by reading a lane, as
    /// of the last step, for who polls the group.
    due_ns: AtomicU64,
    polls_lane: AtomicBool,
    /// When a thread of the application has last had something to do for it, in nanoseconds.
    news_ns: AtomicU64,
    /// An acknowledgement waits for the application's next call, as far as others can tell.
    owes_reply: AtomicBool,
    /// The device of its queue pair.
    device: DeviceId,
    qp: Weak<Qp>,
    /// Where its requests complete: sends, and receives.
    cqs: [Arc<Cq>; 2],
    /// Its number among the queue pairs of the process, and what is to go wrong with it.
    number: u32,
    faults: Option<QpFaultInjector>,
    told_state: Arc<ToldState>,
    this: Weak<Self>,
}

impl ConnSlot {
    /// A place for the connection of `qp`, which is one of `device`.
    pub fn new(host: &Arc<Host>, device: DeviceId, qp: &Arc<Qp>) -> Arc<Self> {
        let number = host.number_queue_pair();
        let told_state = Arc::new(ToldState::new(qp.state()));
        let faults = QpFaultInjector::of(host, number, qp, device);
        Self::numbered(host, (device, qp), number, faults, told_state)
    }

    /// A place for one more connection of `qp`, of which this one is the first; nothing is posted
    /// on it.
    pub fn new_secondary(&self, qp: &Arc<Qp>) -> Arc<Self> {
        let told_state = Arc::clone(&self.told_state);
        Self::numbered(&self.host, (self.device, qp), self.number, None, told_state)
    }

    fn numbered(
        host: &Arc<Host>,
        (device, qp): (DeviceId, &Arc<Qp>),
        number: u32,
        faults: Option<QpFaultInjector>,
        told_state: Arc<ToldState>,
    ) -> Arc<Self> {
        let cqs = [Arc::clone(qp.send_cq()), Arc::clone(qp.recv_cq())];
        Arc::new_cyclic(|this| Self {
            host: Arc::clone(host),
            slot: Slot::new(Guarded {
                driver: None,
                polls: PollHistory::new(),
                is_retired: false,
                brought: 0,
            }),
            attached: AtomicBool::new(false),
            waits_forever: AtomicBool::new(false),
            generation: host.generation(),
            lease: Lease::new(),
            leased: AtomicBool::new(false),
            group: OnceLock::new(),
            active: AtomicBool::new(false),
            is_rung: AtomicBool::new(false),
            due_ns: AtomicU64::new(u64::MAX),
            polls_lane: AtomicBool::new(false),
            news_ns: AtomicU64::new(0),
            owes_reply: AtomicBool::new(false),
            device,
            qp: Arc::downgrade(qp),
            cqs,
            number,
            faults,
            told_state,
            this: this.clone(),
        })
    }

    /// Gives a TCP connection to the queue pair's reactor.
    ///
    /// # Errors
    /// The application has reset the queue pair meanwhile.
    pub fn attach(
        &self,
        mpa: MpaQp,
        stream: MpaCarrier,
        watcher: Arc<dyn LinkWatcher>,
    ) -> Result<Attachment, Misuse> {
        let woken = self.woken(mpa.qp());
        let held = self.hold(Box::new(Driver::mpa(&self.host, woken, mpa, stream, watcher)));
        held.ok_or(Misuse::Invalid("the queue pair was reset meanwhile"))
    }

    /// Gives any connection to the queue pair's engine. That of a queue pair which was destroyed or
    /// failed meanwhile ends; none is held of one that was reset.
    pub fn hold(&self, mut driver: Box<Driver>) -> Option<Attachment> {
        let this = self.this.upgrade()?;
        driver.inject_faults(self.number);
        driver.set_tap(self.number);
        if self.waits_forever.load(Ordering::Acquire) {
            driver.wait_for_recv_forever();
        }
        let mut guarded = self.slot.lock();
        if driver.was_reset() {
            return None;
        }
        match guarded.is_retired {
            true => driver.retire(),
            false => driver.register(this, self.set()),
        }
        driver.follow_failure();
        guarded.driver = Some(driver);
        guarded.brought += 1;
        let attachment = Attachment(guarded.brought);
        // Under the lock: whoever finds the connection there may end it.
        self.attached.store(true, Ordering::Release);
        drop(guarded);
        self.list();
        self.drive(SEND | RECEIVE | TIME);
        Some(attachment)
    }

    /// Has the connection among those of the host if there is one, and only then. Another thread
    /// may end it, or bring another one, and do the same: the last to do so finds what is so.
    fn list(&self) {
        let Some(this) = self.this.upgrade() else { return };
        let connections = &self.host.local().connections;
        loop {
            let is_held = self.inspect(|driver| driver.is_some());
            match is_held {
                true => connections.enlist(Arc::clone(&this) as Arc<dyn DrivenConnection>),
                false => connections.strike(self),
            }
            if self.inspect(|driver| driver.is_some()) == is_held {
                return;
            }
        }
    }

    /// The queue pair is destroyed: its connection ends, and so does any that comes later.
    pub fn retire(&self) {
        if !self.is_inherited() {
            self.with_guarded(|guarded| {
                guarded.is_retired = true;
                if let Some(driver) = &mut guarded.driver {
                    driver.disconnect();
                }
            });
        }
    }

    /// The device of its queue pair.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The host whose device the queue pair is one of.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// What is to go wrong with it at the verbs.
    pub fn faults(&self) -> Option<&QpFaultInjector> {
        self.faults.as_ref()
    }

    /// Gives the connection away, so that another one may be held.
    pub fn release(&self) -> Option<Box<Driver>> {
        let mut guarded = self.slot.lock();
        let driver = guarded.driver.take()?;
        self.attached.store(false, Ordering::Release);
        drop(guarded);
        self.list();
        Some(driver)
    }

    /// The queue pair, and what is woken when a receive is posted that a message waits for.
    pub fn woken(&self, qp: &Arc<Qp>) -> Woken {
        Woken { qp: Arc::clone(qp), waker: self.this.clone(), device: self.device }
    }

    /// Whether it has, or had, a connection that this process may touch.
    pub fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire) && !self.is_inherited()
    }

    /// Whether it was made before the process was forked: its connections are the parent's.
    pub fn is_inherited(&self) -> bool {
        self.generation != self.host.generation()
    }

    /// Who does what below the verbs, while there is a connection.
    pub fn capabilities(&self) -> Option<Capabilities> {
        self.inspect(|driver| driver.and_then(Driver::capabilities))
    }

    /// Looks at the connection. Who found the lock taken meanwhile has left its work to this
    /// thread.
    fn inspect<T>(&self, look: impl FnOnce(Option<&Driver>) -> T) -> T {
        let found = look(self.slot.lock().driver.as_deref());
        self.drive(0);
        found
    }

    /// Waits for a thread that works on the connection.
    pub fn await_step(&self) {
        if self.is_attached() {
            self.inspect(|_| ());
        }
    }

    /// Does what `work` says on this thread, or leaves it to the thread that holds the lock.
    pub fn drive(&self, work: u8) {
        self.slot.drive(work, |guard| self.step(guard, PostponedWakes::begin(), clock::now()));
    }

    /// Runs `change` on the connection and everything that follows from it.
    fn with_driver(&self, change: impl FnOnce(&mut Driver)) {
        self.with_guarded(|guarded| {
            if let Some(driver) = &mut guarded.driver {
                change(driver);
            }
        });
    }

    fn with_guarded(&self, change: impl FnOnce(&mut Guarded)) {
        let mut guard = self.slot.lock();
        let wakes = PostponedWakes::begin();
        change(&mut guard);
        self.step(guard, wakes, clock::now());
        self.drive(0);
    }

    fn step(&self, guard: MutexGuard<'_, Guarded>, wakes: PostponedWakes, now: Moment) {
        // What it brings about is told to the end.
        let _uncancelled = Uncancelled::begin();
        let act = |guarded: &mut Guarded, work| {
            let driver = guarded.driver.as_deref_mut()?;
            let notices = self.act(driver, work, now);
            let over = guarded.driver.take_if(|driver| driver.is_over());
            if let Some(over) = &over {
                // Under the lock: whoever finds no connection here finds what it did there.
                self.host.local().past_work.add(self.device, &over.counters());
                // There is nothing that a poll could be needed for.
                self.leased.store(false, Ordering::Release);
                self.owes_reply.store(false, Ordering::Release);
                self.due_ns.store(u64::MAX, Ordering::Relaxed);
            }
            (over.is_some() || !notices.are_none()).then_some(Outcome { notices, over })
        };
        self.slot.step(guard, act, || drop(wakes), |outcome| self.tell(outcome));
        if self.owes_reply() {
            self.note_reply();
        }
        // The reactor's thread may sleep on what the application has closed.
        if fds::are_lost() {
            self.host.reactor().heed_loss();
        }
    }

    fn act(&self, driver: &mut Driver, work: u8, now: Moment) -> Notices {
        driver.schedule().slept_for = self.is_slept_for();
        driver.work(work, now);
        if let Some(faults) = &self.faults
            && let Some(again) = faults.act(driver, now)
        {
            let this: Weak<dyn Pollable> = self.this.clone();
            driver.schedule().set_timer(again, self.host.reactor(), &this);
        }
        if let Some(tally) = self.host.tally() {
            driver.note_work(tally);
        }
        let this: Weak<dyn Pollable> = self.this.clone();
        let notices = driver.finish_step(now, &this);
        driver.note_metrics(now);
        self.note_due(driver, now);
        if self.owes_reply.load(Ordering::Relaxed) != driver.has_deferred_reply() {
            self.owes_reply.store(driver.has_deferred_reply(), Ordering::Release);
        }
        self.note_state(driver.qp());
        notices
    }

    /// Tells the state of its queue pair, if it is another one.
    pub fn note_state(&self, qp: &Qp) {
        self.told_state.note(self.host.devices().name(self.device), qp, self.host.events());
    }

    fn tell(&self, outcome: Outcome) {
        outcome.notices.tell();
        let Some(over) = outcome.over else { return };
        // Only now that the engine has let go of it may the socket be closed.
        drop(over);
        // Another connection may have been attached meanwhile.
        self.list();
    }

    /// Takes what has arrived, and returns once all that has come of it is told.
    pub fn settle(&self) {
        if self.is_attached() {
            // One step takes a part only, and the end comes behind what was sent before.
            for _ in 0..SETTLING_STEPS {
                let mut arrived = false;
                self.slot.leave(RECEIVE);
                self.with_driver(|driver| arrived = driver.has_arrivals());
                if !arrived {
                    break;
                }
            }
            self.slot.settle();
        }
    }

    /// What sees the packets of its connection, if they are captured.
    pub fn tap(&self, qp: &Qp) -> Option<CaptureTap> {
        self.host.tap(self.device, qp, self.number)
    }

    /// Says what the application set for its requests; see [`Driver::set_requester`].
    pub fn set_requester(&self, ord: u16, retry_limits: RetryLimits) {
        if self.is_attached() {
            self.with_driver(|driver| driver.set_requester(ord, retry_limits));
        }
    }

    /// Has messages of this connection, or of the next, wait for their receives without end.
    pub fn wait_for_recv_forever(&self) {
        self.waits_forever.store(true, Ordering::Release);
        if self.is_attached() {
            self.with_driver(|driver| driver.wait_for_recv_forever());
        }
    }

    /// Has the connection take a datagram that reached another socket.
    pub fn handle_foreign_datagram(&self, from: (Route, bool), datagram: &mut [u8]) {
        self.with_driver(|driver| driver.handle_foreign_datagram(from, datagram));
    }

    /// Ends the connection: what is posted goes out as far as TCP takes it at once.
    pub fn disconnect(&self) {
        if self.is_attached() {
            self.with_driver(|driver| driver.disconnect());
        }
    }

    /// Ends that connection, unless another one has taken its place meanwhile.
    pub fn disconnect_only(&self, attachment: Attachment) {
        if self.is_attached() {
            self.with_guarded(|guarded| {
                let is_same = guarded.brought == attachment.0;
                if let Some(driver) = guarded.driver.as_mut().filter(|_| is_same) {
                    driver.disconnect();
                }
            });
        }
    }

    /// The queue pair has failed: a connection that another thread has brought just before ends.
    pub fn follow_failure(&self) {
        if !self.is_inherited() {
            self.with_driver(Driver::follow_failure);
        }
    }

    /// The application has reset the queue pair: a connection that another thread has brought just
    /// before ends, and fails it; whether there was one.
    pub fn follow_reset(&self) -> bool {
        let mut found = false;
        if !self.is_inherited() {
            self.with_guarded(|guarded| {
                if let Some(driver) = guarded.driver.as_mut().filter(|driver| driver.was_reset()) {
                    driver.abandon();
                    found = true;
                    self.attached.store(false, Ordering::Release);
                }
            });
        }
        found
    }

    /// Fails the queue pair: a completion of it is lost.
    pub fn break_down(&self) {
        let Some(qp) = self.qp.upgrade() else { return };
        let failed = qp.state() == QpState::Err;
        qp.failure().note(QpFailure::QueueOver);
        self.disconnect();
        qp.fail(None);
        self.follow_failure();
        if !failed {
            qp.raise(AsyncKind::QpFatal);
        }
    }

    /// The socket of its connection is gone, and nothing is sent or received any more.
    fn lose(&self) {
        let Some(qp) = self.qp.upgrade().filter(|_| !self.is_inherited()) else { return };
        let failed = qp.state() == QpState::Err;
        qp.failure().note(QpFailure::Transport);
        qp.fail(None);
        self.with_driver(Driver::retire);
        if !failed {
            qp.raise(AsyncKind::QpFatal);
        }
    }

    /// The connection, for a thread that ends the process.
    fn seize(&self, until: Moment) -> Option<MutexGuard<'_, Guarded>> {
        clock::retry(until, || self.slot.try_lock())
    }

    /// Whether no other connection has come after that one.
    pub fn is_last(&self, attachment: Attachment) -> bool {
        if self.is_inherited() {
            return true;
        }
        let brought = self.slot.lock().brought;
        self.drive(0);
        brought == attachment.0
    }

    /// Forgets the connection, so that another one may be attached; or that one `only`, unless
    /// another one has taken its place meanwhile.
    pub fn abandon(&self, only: Option<Attachment>) {
        if self.is_attached() {
            self.with_guarded(|guarded| {
                if only.is_some_and(|only| guarded.brought != only.0) {
                    return;
                }
                if let Some(driver) = &mut guarded.driver {
                    driver.abandon();
                }
                self.attached.store(false, Ordering::Release);
            });
        }
    }
}

impl Lends for ConnSlot {
    fn end_loans_of(&self, key: u32) {
        if self.is_attached() {
            self.with_driver(|driver| {
                driver.end_loans_of(key);
                // A failure is told to the peer, which may wait for nothing else.
                self.slot.leave(SEND);
            });
        }
    }
}

impl EndsWithDevice for ConnSlot {
    fn end_with_device(&self) {
        let Some(qp) = self.qp.upgrade() else { return };
        qp.failure().note(QpFailure::DeviceReset);
        self.disconnect();
        qp.fail(None);
        self.follow_failure();
    }
}

#[cfg(test)]
mod tests;
