//! A queue pair's place for its connection: the lock, the doorbell, and who has the lease.

mod roles;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use weft_capture::CaptureTap;
use weft_net::stream::MpaCarrier;
use weft_os::clock::{self, ns_at};
use weft_reactor::{PollSet, Pollable};
use weft_rnic::shuttle::Route;
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::{MpaQp, RetryLimits};
use weft_sync::MutexGuard;
use weft_verbs::{AsyncKind, Cq, Qp, QpFailure, QpState};

use crate::ProgressMode;
use crate::connections::retry;
use crate::device_kind::DeviceId;
use crate::diagnostics::{self, ToldState};
use crate::driver::todo::{RECEIVE, SEND, TIME};
use crate::driver::{Driver, LinkWatcher, Notices, Woken};
use crate::faults::EndsWithDevice;
use crate::host::Host;
use crate::lease::{Doorbell, Lease};
use crate::poll_group::PollGroup;
use crate::poll_history::PollHistory;
use crate::qp_faults::QpFaultInjector;
use crate::slot::Slot;
use crate::wakes::PostponedWakes;

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
}

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
            slot: Slot::new(Guarded { driver: None, polls: PollHistory::new() }),
            attached: AtomicBool::new(false),
            waits_forever: AtomicBool::new(false),
            generation: host.generation(),
            lease: Lease::new(),
            leased: AtomicBool::new(false),
            group: OnceLock::new(),
            active: AtomicBool::new(false),
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
    pub fn attach(&self, mpa: MpaQp, stream: MpaCarrier, watcher: Arc<dyn LinkWatcher>) {
        let woken = self.woken(mpa.qp());
        self.hold(Box::new(Driver::mpa(&self.host, woken, mpa, stream, watcher)));
    }

    /// Gives any connection to the queue pair's engine.
    pub fn hold(&self, mut driver: Box<Driver>) {
        let Some(this) = self.this.upgrade() else { return };
        driver.inject_faults(self.number);
        driver.set_tap(self.number);
        if self.waits_forever.load(Ordering::Acquire) {
            driver.wait_for_recv_forever();
        }
        let mut guarded = self.slot.lock();
        driver.register(Arc::clone(&this) as Arc<dyn Pollable>, self.set());
        guarded.driver = Some(driver);
        drop(guarded);
        self.attached.store(true, Ordering::Release);
        self.host.local().connections.enlist(this);
        self.drive(SEND | RECEIVE | TIME);
    }

    fn set(&self) -> Option<&Arc<PollSet>> {
        self.group().map(|group| group.set())
    }

    /// The connections that it is polled with, if those are many.
    pub fn group(&self) -> Option<&Arc<PollGroup>> {
        self.group.get()
    }

    /// Has it polled with `group` from now on, unless it is with another one.
    pub fn join(&self, group: &Arc<PollGroup>) {
        let Some(this) = self.this.upgrade() else { return };
        if self.is_inherited() || self.group.set(Arc::clone(group)).is_err() {
            return;
        }
        if self.is_attached() {
            self.with_guarded(|Guarded { driver, polls }| {
                polls.forget();
                if let Some(driver) = driver {
                    self.set_leased(driver, false);
                    driver.register(this, self.set());
                }
            });
        }
    }

    /// Puts it on the list of its group's active connections, or off; whether it was there.
    pub fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::AcqRel)
    }

    /// Whether a polling thread has the lease, as far as this thread can tell.
    pub fn is_leased(&self) -> bool {
        self.leased.load(Ordering::Acquire)
    }

    /// It is not among the active ones any more: what they wait for is done now.
    /// The acknowledgement among it was `missed` if the call that it waited for has not come.
    pub fn deactivate(&self, missed: bool) {
        self.set_active(false);
        self.flush();
        self.send_reply(missed);
        if self.is_leased() {
            self.rest();
        }
    }

    /// Whether an acknowledgement waits for the application's next call, as far as this thread can
    /// tell.
    pub fn owes_reply(&self) -> bool {
        self.owes_reply.load(Ordering::Acquire)
    }

    /// Sends the acknowledgement that has waited for the application's next call: that was to
    /// sleep, or has not come, if it was `missed`.
    fn send_reply(&self, missed: bool) {
        if self.owes_reply() {
            if missed {
                self.slot.lock().polls.defer_backoff.begin(clock::now());
            }
            self.drive(SEND);
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
        let driver = self.slot.lock().driver.take()?;
        self.attached.store(false, Ordering::Release);
        self.host.local().connections.strike(self);
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

    fn step(&self, guard: MutexGuard<'_, Guarded>, wakes: PostponedWakes, now: Instant) {
        let act = |guarded: &mut Guarded, work| {
            let driver = guarded.driver.as_deref_mut()?;
            let notices = self.act(driver, work, now);
            let over = guarded.driver.take_if(|driver| driver.is_over());
            if let Some(over) = &over {
                // Under the lock: whoever finds no connection here finds what it did there.
                self.host.local().past_work.add(self.device, &over.counters());
            }
            (over.is_some() || !notices.are_none()).then_some(Outcome { notices, over })
        };
        self.slot.step(guard, act, || drop(wakes), |outcome| self.tell(outcome));
        if self.owes_reply() {
            self.note_reply();
        }
    }

    /// An acknowledgement waits for the application's next call: whoever finds that there is none
    /// sends it.
    fn note_reply(&self) {
        self.activate();
        // A lease that has ended meanwhile was perhaps not told of this connection.
        if !self.is_leased() && !self.is_slept_for() {
            self.send_reply(false);
        }
    }

    /// Whether a thread that sleeps for events looks after it with others.
    fn is_slept_for(&self) -> bool {
        self.group().is_some_and(|group| group.is_slept_for())
    }

    fn act(&self, driver: &mut Driver, work: u8, now: Instant) -> Notices {
        driver.schedule().slept_for = self.is_slept_for();
        driver.work(work, now);
        if let Some(faults) = &self.faults
            && let Some(again) = faults.act(driver, now)
        {
            self.host.reactor().set_timer(again, self.this.clone());
        }
        if let Some(tally) = self.host.tally() {
            driver.note_work(tally);
        }
        let this: Weak<dyn Pollable> = self.this.clone();
        let notices = driver.finish_step(now, &this);
        driver.note_metrics(now);
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
        outcome.notices.tell(&self.host);
        let Some(over) = outcome.over else { return };
        self.host.local().connections.strike(self);
        // Only now that the engine has let go of it may the socket be closed.
        drop(over);
        // Another connection may have been attached meanwhile.
        if self.is_attached()
            && self.inspect(|driver| driver.is_some())
            && let Some(this) = self.this.upgrade()
        {
            self.host.local().connections.enlist(this);
        }
    }

    /// Takes what has arrived, and returns once all that has come of it is told.
    pub fn settle(&self) {
        if self.is_attached() {
            self.slot.leave(RECEIVE);
            self.with_driver(|_| ());
            self.slot.settle();
        }
    }

    /// An application thread found its completion queue empty.
    pub fn poll(&self, now: Instant) {
        if !self.is_attached() {
            return;
        }
        self.lease.note_own_poll(ns_at(now));
        self.lease.end_run();
        // Waiting for the holder, which may need this very core, beats spinning until the scheduler
        // sees to it.
        self.poll_locked(self.slot.lock(), false, now);
    }

    fn poll_locked(&self, mut guard: MutexGuard<'_, Guarded>, is_readable: bool, now: Instant) {
        let wakes = PostponedWakes::begin();
        let Guarded { driver: Some(driver), polls } = &mut *guard else { return };
        let inline = self.host.settings().progress == ProgressMode::Inline;
        let group = self.group();
        let alone = polls.note(now) || inline;
        let looping = group.map_or(alone, |group| group.is_polled(ns_at(now)));
        // Who waits for an event may stop polling at any moment.
        let lease = looping
            && !polls.lease_backoff.holds(now)
            && !driver.is_leased()
            && !self.cqs.iter().any(|cq| cq.is_armed());
        driver.schedule().slept_for = self.is_slept_for();
        driver.schedule().patient = looping && !polls.defer_backoff.holds(now);
        let work = driver.look(now);
        let plain = !lease && work == RECEIVE && self.slot.pending() == 0;
        if plain && driver.finds_nothing(is_readable, now) || !lease && work == 0 {
            drop(guard);
            drop(wakes);
        } else {
            if lease {
                self.set_leased(driver, true);
            }
            if !plain {
                self.slot.leave(work);
            }
            self.step(guard, wakes, now);
            self.lease.note_work();
        }
        self.drive(0);
        if lease {
            self.note_lease();
        }
    }

    /// A thread that polls has taken the lease: others are to know.
    fn note_lease(&self) {
        if self.lease.claim() {
            self.attend();
        }
        self.activate();
        // Who armed a queue meanwhile may have looked at the active ones just before.
        if self.group().is_some() && self.cqs.iter().any(|cq| cq.is_armed()) {
            self.deactivate(false);
        }
    }

    /// Has the next poll or arming of its group see it.
    fn activate(&self) {
        if let Some(group) = self.group()
            && !self.active.load(Ordering::Acquire)
            && let Some(this) = self.this.upgrade()
        {
            group.activate(&this);
        }
    }

    /// The application is about to sleep until something happens: the reactor takes over at once.
    pub fn rest(&self) {
        if self.is_attached() {
            self.with_guarded(|Guarded { driver, polls }| {
                polls.forget();
                if let Some(driver) = driver {
                    self.set_leased(driver, false);
                }
            });
        }
    }

    fn set_leased(&self, driver: &mut Driver, leased: bool) {
        if driver.is_leased() != leased {
            driver.schedule().leased = leased;
            self.leased.store(leased, Ordering::Release);
            let device = self.host.devices().name(self.device);
            diagnostics::tell_lease(device, driver.qp(), leased);
        }
    }

    /// Takes the lease from a thread that has stopped polling, which has its consequences if
    /// something arrived that it did not see, or waited for it to leave.
    fn take_lease(&self, mut guard: MutexGuard<'_, Guarded>) {
        let (now, wakes) = (clock::now(), PostponedWakes::begin());
        if let Guarded { driver: Some(driver), polls } = &mut *guard {
            if driver.is_leased() && driver.has_arrivals() {
                polls.lease_backoff.begin(now);
            }
            if driver.has_deferred_reply() {
                polls.defer_backoff.begin(now);
            }
            self.set_leased(driver, false);
        }
        self.step(guard, wakes, now);
    }

    /// What sees the packets of its connection, if they are captured.
    pub fn tap(&self, qp: &Qp) -> Option<CaptureTap> {
        self.host.tap(self.device, qp, self.number)
    }

    /// Posted work waits: sends it from here, or has the reactor send it.
    ///
    /// An application that posts many requests one by one between its polls has them sent in
    /// batches: a doorbell in the middle of a batch leaves its work to the next poll. Should that
    /// not come, the reactor finds the work within a millisecond and there are no more batches for
    /// this application until it streams again.
    pub fn ring(&self) {
        if self.host.settings().progress == ProgressMode::Engine {
            self.with_driver(|driver| driver.schedule().blocked = true);
            return;
        }
        let doorbell = self.lease.ring();
        self.activate();
        match doorbell {
            Doorbell::Send => return self.drive(SEND),
            Doorbell::Leave => {}
            Doorbell::LeaveAndAttend => self.attend(),
        }
        self.slot.leave(SEND);
        // The reactor may have looked for the last time just before.
        if !self.lease.is_attended() {
            self.drive(0);
        }
    }

    /// A poll found something: work that waited for it goes out.
    pub fn flush(&self) {
        if self.end_run() {
            self.drive(0);
        }
    }

    /// A poll ends a run of doorbells; whether they may have left work.
    pub fn end_run(&self) -> bool {
        self.lease.end_run() > 1
    }

    /// Has the reactor look after this connection until nothing happens for a while.
    fn attend(&self) {
        self.host.reactor().lease(self.this.clone());
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

    /// Fails the queue pair: a completion of it is lost.
    pub fn break_down(&self) {
        let Some(qp) = self.qp.upgrade() else { return };
        let failed = qp.state() == QpState::Err;
        qp.failure().note(QpFailure::QueueOver);
        self.disconnect();
        qp.fail(None);
        if !failed {
            qp.raise(AsyncKind::QpFatal);
        }
    }

    /// The connection, for a thread that ends the process.
    fn seize(&self, until: Instant) -> Option<MutexGuard<'_, Guarded>> {
        retry(until, || self.slot.try_lock())
    }

    /// Forgets the connection, so that another one may be attached.
    pub fn abandon(&self) {
        if self.is_attached() {
            self.with_guarded(|guarded| {
                if let Some(driver) = &mut guarded.driver {
                    driver.abandon();
                }
                self.attached.store(false, Ordering::Release);
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
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Context, DeviceKind, HostQpInit, HostSetup};
    use weft_reactor::Leased;
    use weft_verbs::{QpCap, QpType, Wake};

    struct Silent;
    impl Wake for Silent {
        fn wake(&self) {}
    }

    #[test]
    fn a_lease_stays_with_the_thread_that_is_at_work() {
        let context =
            Context::open(&Host::new(HostSetup::default()), DeviceKind::Iwarp, Box::new(Silent))
                .unwrap();
        let cq = || context.create_cq(1, None, 0).unwrap();
        let qp = context.create_qp(HostQpInit {
            kind: QpType::Rc,
            pd: context.alloc_pd(),
            send_cq: cq(),
            recv_cq: cq(),
            srq: None,
            xrcd: None,
            cap: QpCap::default(),
            sq_sig_all: false,
            cookie: 0,
        });
        let cell = Arc::clone(&qp.unwrap().slot);
        let long_after = clock::now() + Duration::from_secs(1);
        assert!(cell.lease.claim());
        assert!(!cell.reclaim(long_after), "it was taken since the last look");
        let at_work = cell.slot.lock();
        assert!(!cell.reclaim(long_after), "somebody works on it now");
        drop(at_work);
        cell.lease.note_work();
        assert!(!cell.reclaim(long_after), "somebody did since the last look");
        assert!(cell.reclaim(long_after), "nobody did since then");
    }
}
