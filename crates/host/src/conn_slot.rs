//! A queue pair's place for its connection: the lock, the doorbell, and who has the lease.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use weft_os::clock;
use weft_os::fds::HighFd;
use weft_reactor::{Leased, Readiness, Source};
use weft_rnic::shuttle::Route;
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::{MpaQp, RetryLimits};
use weft_sync::MutexGuard;
use weft_verbs::{AsyncKind, Cq, Qp, QpState, Wake};

use crate::Progress;
use crate::backoff::Backoff;
use crate::connections::Connection;
use crate::device_kind::Personality;
use crate::diagnostics::{self, ToldState};
use crate::driver::todo::{POSTED, RECEIVE, SEND, TIME, WRITABLE};
use crate::driver::{Driver, LinkWatcher, Notices, Woken};
use crate::host::Host;
use crate::qp_faults::QpFaultInjector;
use crate::slot::Slot;

/// Doorbells whose work goes out together.
const BATCH: u32 = 16;
/// Doorbells between two polls that make a stream.
const STREAM: u32 = 8;
/// Empty polls closer together than this are a loop, which takes the lease.
const POLL_LOOP: Duration = Duration::from_micros(50);

/// Each arrival that nobody sees takes as long as a lease.
const UNSEEN_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// One acknowledgement in this time may be late by as long as a lease.
const DEFERRED_BACKOFF_MAX: Duration = Duration::from_millis(200);

/// What has come of a step.
struct Outcome {
    notices: Notices,
    /// The connection, of which nothing is left: its socket is closed once the reactor has let go
    /// of it.
    over: Option<Box<Driver>>,
}

/// A queue pair's place for its connection.
pub(crate) struct ConnSlot {
    host: Arc<Host>,
    /// Boxed, because a step may take it out, and moving it costs even a step that does not.
    slot: Slot<Option<Box<Driver>>, Outcome>,
    attached: AtomicBool,
    /// Its messages wait for their receives without end.
    waits_forever: AtomicBool,
    /// The process it was made in; a forked child leaves it alone.
    generation: usize,
    /// Whether the engine looks at this connection every now and then.
    attended: AtomicBool,
    /// Doorbells since the last poll.
    rung: AtomicU32,
    /// Whether there were many before the last poll, so that there will be many again.
    streaming: AtomicBool,
    /// A polling thread has done work here since the engine last looked. That may have taken as
    /// long as a lease lasts.
    worked: AtomicBool,
    /// Nanoseconds from `born` to the last empty poll of its own completion queues.
    owned_at: AtomicU64,
    /// The same, of any completion queue of the process.
    polled_at: AtomicU64,
    /// The same, to the last doorbell that left its work to a poll.
    deferred_at: AtomicU64,
    /// From leases: a program that polls memory after it polled a completion queue leaves what
    /// arrives unseen while it has the lease.
    lease_backoff: Backoff,
    /// From having acknowledgements wait for its next call: it stays away after a completion.
    defer_backoff: Backoff,
    born: Instant,
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
    /// A place for the connection of `qp`.
    pub fn new(host: &Arc<Host>, qp: &Arc<Qp>) -> Arc<Self> {
        let number = host.number_queue_pair();
        let told_state = Arc::new(ToldState::new(qp.state()));
        Self::numbered(host, qp, number, QpFaultInjector::of(host, number), told_state)
    }

    /// A place for one more connection of `qp`, of which this one is the first; nothing is posted
    /// on it.
    pub fn new_secondary(&self, qp: &Arc<Qp>) -> Arc<Self> {
        Self::numbered(&self.host, qp, self.number, None, Arc::clone(&self.told_state))
    }

    fn numbered(
        host: &Arc<Host>,
        qp: &Arc<Qp>,
        number: u32,
        faults: Option<QpFaultInjector>,
        told_state: Arc<ToldState>,
    ) -> Arc<Self> {
        let cqs = [Arc::clone(qp.send_cq()), Arc::clone(qp.recv_cq())];
        Arc::new_cyclic(|this| Self {
            host: Arc::clone(host),
            slot: Slot::new(None),
            attached: AtomicBool::new(false),
            waits_forever: AtomicBool::new(false),
            generation: host.generation(),
            attended: AtomicBool::new(false),
            rung: AtomicU32::new(0),
            streaming: AtomicBool::new(false),
            worked: AtomicBool::new(false),
            owned_at: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            deferred_at: AtomicU64::new(0),
            lease_backoff: Backoff::up_to(UNSEEN_BACKOFF_MAX),
            defer_backoff: Backoff::up_to(DEFERRED_BACKOFF_MAX),
            born: clock::now(),
            qp: Arc::downgrade(qp),
            cqs,
            number,
            faults,
            told_state,
            this: this.clone(),
        })
    }

    /// Gives a TCP connection to the queue pair's reactor.
    pub fn attach(&self, mpa: MpaQp, socket: HighFd, watcher: Arc<dyn LinkWatcher>) {
        let woken = self.woken(mpa.qp());
        self.hold(Box::new(Driver::mpa(&self.host, woken, mpa, socket, watcher)));
    }

    /// Gives any connection to the queue pair's engine.
    pub fn hold(&self, mut driver: Box<Driver>) {
        let Some(this) = self.this.upgrade() else { return };
        driver.register(Arc::clone(&this) as Arc<dyn Source>);
        driver.inject_faults(self.number);
        if self.waits_forever.load(Ordering::Acquire) {
            driver.wait_for_recv_forever();
        }
        *self.lock() = Some(driver);
        self.attached.store(true, Ordering::Release);
        self.host.local().connections.enlist(this);
        self.drive(SEND | RECEIVE | TIME);
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
        let driver = self.lock().take()?;
        self.attached.store(false, Ordering::Release);
        self.host.local().connections.strike(self);
        Some(driver)
    }

    /// The queue pair, and what is woken when a receive is posted that a message waits for.
    pub fn woken(&self, qp: &Arc<Qp>) -> Woken {
        (Arc::clone(qp), self.this.clone())
    }

    /// Is woken when a receive is posted that a message waits for.
    pub fn waker(&self) -> Weak<dyn Wake> {
        self.this.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Driver>>> {
        self.slot.lock()
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
        self.lock().as_deref().and_then(Driver::capabilities)
    }

    /// Does what `work` says on this thread, or leaves it to the thread that holds the lock.
    pub fn drive(&self, work: u8) {
        self.slot.drive(work, |guard| self.step(guard, clock::now(), |_| ()));
    }

    /// Runs `change` on the connection and everything that follows from it.
    fn with_driver(&self, change: impl FnOnce(&mut Driver)) {
        let guard = self.lock();
        self.step(guard, clock::now(), change);
        self.drive(0);
    }

    fn step(
        &self,
        guard: MutexGuard<'_, Option<Box<Driver>>>,
        now: Instant,
        change: impl FnOnce(&mut Driver),
    ) {
        let act = |held: &mut Option<Box<Driver>>, work| {
            let driver = held.as_deref_mut()?;
            change(driver);
            let notices = self.act(driver, work, now);
            let over = held.take_if(|driver| driver.is_over());
            (over.is_some() || !notices.are_none()).then_some(Outcome { notices, over })
        };
        self.slot.step(guard, act, |outcome| self.tell(outcome));
    }

    fn act(&self, driver: &mut Driver, work: u8, now: Instant) -> Notices {
        driver.work(work, now);
        if let Some(faults) = &self.faults
            && let Some(again) = faults.act(driver, now)
        {
            self.host.reactor().set_timer(again, self.this.clone());
        }
        if let Some(tally) = self.host.tally() {
            driver.note_work(tally);
        }
        let this: Weak<dyn Source> = self.this.clone();
        let notices = driver.finish_step(now, &this);
        self.note_state(driver.kind(), driver.qp());
        notices
    }

    /// Tells the state of its queue pair, on a device of this kind, if it is another one.
    pub fn note_state(&self, kind: Personality, qp: &Qp) {
        self.told_state.note(self.host.devices().name(kind), qp);
    }

    fn tell(&self, outcome: Outcome) {
        outcome.notices.tell(&self.host);
        let Some(over) = outcome.over else { return };
        self.host.local().connections.strike(self);
        // Only now that the engine has let go of it may the socket be closed.
        drop(over);
        // Another connection may have been attached meanwhile.
        if self.is_attached()
            && self.lock().is_some()
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
        self.owned_at.store(self.elapsed(now), Ordering::Release);
        self.count_doorbells();
        // Waiting for the holder, which may need this very core, beats spinning until the scheduler
        // sees to it.
        self.poll_locked(self.lock(), now);
    }

    fn poll_locked(&self, mut guard: MutexGuard<'_, Option<Box<Driver>>>, now: Instant) {
        let Some(driver) = guard.as_deref_mut() else { return };
        let at = self.elapsed(now);
        let last = self.polled_at.swap(at, Ordering::AcqRel);
        let looping = self.host.settings().progress == Progress::Inline
            || at.saturating_sub(last) < POLL_LOOP.as_nanos() as u64;
        // Who waits for an event may stop polling at any moment.
        let lease = looping
            && !self.lease_backoff.holds(at)
            && !driver.is_leased()
            && !self.cqs.iter().any(|cq| cq.is_armed());
        driver.schedule().patient = looping && !self.defer_backoff.holds(at);
        let work = driver.look();
        let plain = !lease && work == RECEIVE && self.slot.pending() == 0;
        if plain && driver.finds_nothing(now) || !lease && work == 0 {
            drop(guard);
        } else {
            let work = if plain { 0 } else { work };
            self.slot.leave(work);
            self.step(guard, now, |driver| self.set_leased(driver, lease || driver.is_leased()));
            self.worked.store(true, Ordering::Release);
        }
        self.drive(0);
        if lease {
            self.attend();
        }
    }

    /// The application is about to sleep until something happens: the engine takes over at once.
    pub fn rest(&self) {
        self.polled_at.store(0, Ordering::Release);
        if self.is_attached() {
            self.end_lease();
        }
    }

    fn end_lease(&self) {
        self.with_driver(|driver| self.set_leased(driver, false));
    }

    fn set_leased(&self, driver: &mut Driver, leased: bool) {
        if driver.is_leased() != leased {
            driver.schedule().leased = leased;
            let device = self.host.devices().name(driver.kind());
            diagnostics::tell_lease(device, driver.qp(), leased);
        }
    }

    /// Takes the lease from a thread that has stopped polling, which has its consequences if
    /// something arrived that it did not see, or waited for it to leave.
    fn take_lease(&self) {
        let (mut unseen, mut unsaid) = (false, false);
        self.with_driver(|driver| {
            unseen = driver.is_leased() && driver.has_arrivals();
            unsaid = driver.has_deferred_reply();
            self.set_leased(driver, false);
        });
        let now = self.elapsed(clock::now());
        if unseen {
            self.lease_backoff.begin(now);
        }
        if unsaid {
            self.defer_backoff.begin(now);
        }
    }

    /// Posted work waits: sends it from here, or has the engine send it.
    ///
    /// A program that posts many requests one by one between its polls has them sent in batches:
    /// a doorbell in the middle of a batch leaves its work to the next poll. Should that not come,
    /// the engine finds the work within a millisecond and there are no more batches for this
    /// program until it streams again.
    pub fn ring(&self) {
        if self.host.settings().progress == Progress::Engine {
            self.with_driver(|driver| driver.schedule().blocked = true);
            return;
        }
        let rung = self.rung.fetch_add(1, Ordering::AcqRel);
        if rung.is_multiple_of(BATCH) || !self.streaming.load(Ordering::Acquire) {
            self.drive(SEND);
            return;
        }
        self.attend();
        self.slot.leave(SEND);
        // The engine may have looked for the last time just before.
        if !self.attended.load(Ordering::SeqCst) {
            self.drive(0);
        }
    }

    /// A poll found something: work that waited for it goes out.
    pub fn flush(&self) {
        if self.count_doorbells() > 1 {
            self.drive(0);
        }
    }

    /// Ends a run of doorbells; says how long it was.
    fn count_doorbells(&self) -> u32 {
        let rung = self.rung.swap(0, Ordering::AcqRel);
        if rung > 0 {
            self.streaming.store(rung >= STREAM, Ordering::Release);
        }
        rung
    }

    /// Has the engine look after this connection until nothing happens for a while.
    fn attend(&self) {
        self.deferred_at.store(self.elapsed(clock::now()), Ordering::Release);
        if !self.attended.swap(true, Ordering::SeqCst) {
            self.host.reactor().lease(self.this.clone());
        }
    }

    /// Says what the program set for its requests; see [`Driver::set_requester`].
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
        self.disconnect();
        qp.fail(None);
        if !failed {
            qp.raise(AsyncKind::QpFatal);
        }
    }

    /// The connection, for a thread that ends the process. It does not wait for the lock: a signal
    /// handler may have interrupted its holder.
    fn seize(&self, until: Instant) -> Option<MutexGuard<'_, Option<Box<Driver>>>> {
        loop {
            if let Some(guard) = self.slot.try_lock() {
                return Some(guard);
            }
            if clock::now() >= until {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// Forgets the connection, so that another one may be attached.
    pub fn abandon(&self) {
        if self.is_attached() {
            self.attached.store(false, Ordering::Release);
            self.with_driver(|driver| driver.abandon());
        }
    }

    fn elapsed(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.born).as_nanos() as u64
    }
}

impl Connection for ConnSlot {
    fn help(&self, now: Instant) {
        let owned = Duration::from_nanos(self.owned_at.load(Ordering::Acquire));
        if self.born + owned + POLL_LOOP < now
            && let Some(guard) = self.slot.try_lock()
        {
            self.poll_locked(guard, now);
        }
    }

    fn hush(&self) {
        if let Some(qp) = self.qp.upgrade() {
            qp.hush();
        }
    }

    fn flush_now(&self, until: Instant) {
        if let Some(driver) = self.seize(until).as_mut().and_then(|guard| guard.as_deref_mut()) {
            driver.work(SEND, clock::now());
        }
    }
}

impl Wake for ConnSlot {
    fn wake(&self) {
        if self.is_attached() {
            self.drive(POSTED);
        }
    }
}

impl Source for ConnSlot {
    fn ready(&self, readiness: Readiness) {
        let receive = if readiness.read { RECEIVE } else { 0 };
        let send = if readiness.write { SEND | WRITABLE } else { 0 };
        self.slot.leave(receive | send);
        // The engine waits for the lock: going round would find the same event again.
        self.with_driver(|_| ());
    }

    fn timeout(&self, now: Instant) {
        self.slot.leave(TIME | SEND);
        self.with_driver(|driver| driver.schedule().heed_timer(now));
    }

    fn number(&self) -> usize {
        self.number as usize - 1
    }

    fn at_exit(&self, until: Instant) {
        if let Some(driver) = self.seize(until).as_mut().and_then(|guard| guard.as_deref_mut()) {
            driver.flush_at_exit(until);
            if let Some(tally) = self.host.tally() {
                driver.note_work(tally);
            }
        }
    }
}

impl Leased for ConnSlot {
    fn reclaim(&self, before: Instant) -> bool {
        let missed = self.slot.pending() & SEND != 0;
        if missed {
            self.streaming.store(false, Ordering::Release);
        }
        // Who is at work, or was just now, will poll again: taking the lease would make two threads
        // share the work, often on one core.
        let working = self.worked.swap(false, Ordering::AcqRel) || self.slot.try_lock().is_none();
        let last = |at: &AtomicU64| at.load(Ordering::Acquire);
        let last = last(&self.polled_at).max(last(&self.deferred_at));
        let idle = !working && last < self.elapsed(before);
        if idle {
            self.attended.store(false, Ordering::SeqCst);
            self.take_lease();
        } else if missed {
            self.drive(0);
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, HostSetup, QpInit};
    use weft_verbs::{QpCap, QpType};

    struct Silent;
    impl Wake for Silent {
        fn wake(&self) {}
    }

    #[test]
    fn a_lease_stays_with_the_thread_that_is_at_work() {
        let context =
            Context::open(&Host::new(HostSetup::default()), Personality::Iwarp, Box::new(Silent))
                .unwrap();
        let cq = || context.create_cq(1, None, 0).unwrap();
        let qp = context.create_qp(QpInit {
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
        let cell = Arc::clone(&qp.unwrap().cell);
        let long_after = cell.born + Duration::from_secs(1);
        let at_work = cell.lock();
        assert!(!cell.reclaim(long_after), "somebody works on it now");
        drop(at_work);
        cell.worked.store(true, Ordering::Release);
        assert!(!cell.reclaim(long_after), "somebody did since the last look");
        assert!(cell.reclaim(long_after), "nobody did since then");
    }
}
