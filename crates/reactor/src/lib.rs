//! Background threads that wait for everybody: for descriptors to be ready, timers to be due, and
//! leases to run out.
//!
//! A [`Pollable`] is whatever the reactor calls; it knows nothing of connections. Each source
//! belongs to one of the threads, so that an application with many busy connections that sleeps
//! until something happens uses more than one processor. The first thread starts with
//! [`Reactor::start`], which fails if it cannot; those beyond start with the first source that is
//! theirs, and the first does their work if they cannot. They end with the [`Reactor`].
//!
//! While an application thread polls a connection it holds a lease ([`Leased`]) on it and the
//! reactor does not watch that connection: otherwise every packet would wake two threads. A lease
//! lasts as long as it is renewed; when it ends the reactor watches again.
//!
//! A program may close descriptors that it does not know. Then the threads tell each source
//! ([`Pollable::lost`]) and end, and no other ones start.
//!
//! Many sources that are polled together are in a [`PollSet`], which the reactor watches as one.
//!
//! Invariant: no lock of the reactor is held while a source is called.
//!
//! Order of calls: [`Reactor::start`], then [`Reactor::add`] and [`Reactor::set_timer`] for any
//! source; [`Reactor::remove`] before a descriptor is closed. Who forks calls [`Reactor::park`]
//! before and [`Reactor::resume`] in the parent; the child has no threads, and makes a reactor of
//! its own.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod fork_gate;
mod poll_set;
mod source;
pub mod warm;
mod worker;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_os::random;
use weft_sync::TryOnceLock;

use self::fork_gate::ForkGate;
pub use self::poll_set::PollSet;
pub use self::source::{Interest, Leased, Pollable, Readiness, Token};
use self::source::{Place, RegisteredSource, Sources};
use self::worker::{EpollOperation, WAKE_TOKEN, Worker};
pub use self::worker::{look_until, runs_here};

/// Threads that a reactor can have.
pub const THREADS_MAX: usize = 16;
/// How long a source rests that cannot take what it is told of, for want of descriptors or memory.
pub const REST: Duration = Duration::from_millis(100);

/// How a reactor is set up.
#[derive(Clone, Copy, Debug)]
pub struct ReactorSetup {
    /// Threads, at least one and at most [`THREADS_MAX`].
    pub threads: usize,
    /// Which of the reactors in a line of forks it is: no token of another one names anything here.
    pub generation: usize,
    /// Called by each thread before anything else.
    pub at_thread_start: Option<fn()>,
    /// Called once if the application has closed the descriptors of the reactor.
    pub at_loss: Option<fn()>,
}

impl Default for ReactorSetup {
    fn default() -> Self {
        Self { threads: 1, generation: 0, at_thread_start: None, at_loss: None }
    }
}

/// The background threads and what they watch.
pub struct Reactor {
    setup: ReactorSetup,
    /// Those of all threads, also of those that have yet to start.
    gates: Vec<Arc<ForkGate>>,
    first: TryOnceLock<Arc<Worker>>,
    /// Those beyond the first; none for one that the system had no means for.
    others: [OnceLock<Option<Arc<Worker>>>; THREADS_MAX - 1],
    sources: Arc<Sources>,
    next_token: AtomicU64,
}

impl Reactor {
    /// A reactor whose threads have yet to start.
    pub fn new(setup: ReactorSetup) -> Self {
        let threads = setup.threads.clamp(1, THREADS_MAX);
        Self {
            setup: ReactorSetup { threads, ..setup },
            gates: (0..threads).map(|_| Arc::new(ForkGate::new())).collect(),
            first: TryOnceLock::new(),
            others: [const { OnceLock::new() }; THREADS_MAX - 1],
            sources: Arc::new(Sources::new(setup.at_loss)),
            next_token: AtomicU64::new(((setup.generation as u64) << 32) + WAKE_TOKEN + 1),
        }
    }

    /// Starts the first thread, if it does not run. Whoever makes an object that needs the reactor
    /// calls this first; without, what is added is watched only if the thread can start then.
    ///
    /// # Errors
    /// The errno of the system that has no descriptor, thread or random numbers left for it;
    /// `EBADF` once the application has closed its descriptors.
    pub fn start(&self) -> io::Result<()> {
        self.check()?;
        self.first().map(drop)
    }

    /// To be called where a call has failed because the application has closed its descriptor
    /// ([`weft_os::fds::are_lost`]): every source is told soon.
    pub fn heed_loss(&self) {
        if let Some(worker) = self.first.get() {
            worker.heed_loss();
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.sources.are_lost() {
            true => Err(io::Error::from_raw_os_error(libc::EBADF)),
            false => Ok(()),
        }
    }

    /// Has the threads stay where they hold no lock, because this one is about to fork; gives up on
    /// those that have not come by `until`.
    pub fn park(&self, until: Moment) {
        self.gates.iter().for_each(|gate| gate.park());
        self.gates.iter().for_each(|gate| gate.wait_parked(until));
    }

    /// The fork is over: the threads may go on.
    pub fn resume(&self) {
        self.gates.iter().for_each(|gate| gate.resume());
    }

    fn workers(&self) -> impl Iterator<Item = &Arc<Worker>> {
        let others = self.others.iter().filter_map(OnceLock::get).flatten();
        self.first.get().into_iter().chain(others)
    }

    /// The thread without which there is no reactor; the first call that can starts it.
    fn first(&self) -> io::Result<&Worker> {
        let start = || {
            random::prepare()?;
            self.start_worker(0)
        };
        self.first.get_or_try_init(start).map(|worker| &**worker)
    }

    /// The one with this index, less than the number of threads.
    fn start_worker(&self, index: usize) -> io::Result<Arc<Worker>> {
        self.check()?;
        let gate = self.gates.get(index).ok_or(io::ErrorKind::InvalidInput)?;
        Worker::start(Arc::clone(&self.sources), self.setup.at_thread_start, Arc::clone(gate))
    }

    /// The thread that sources with this `number` belong to; the first call starts it. None if not
    /// even the first can be started.
    fn worker(&self, number: usize) -> Option<&Worker> {
        let index = number % self.setup.threads;
        let own = index.checked_sub(1).and_then(|beyond| self.others.get(beyond));
        let own = own.and_then(|own| own.get_or_init(|| self.start_worker(index).ok()).as_deref());
        own.or_else(|| self.first().ok())
    }

    /// Watches `fd` for `source`, which is kept alive until [`Reactor::remove`].
    pub fn add(&self, fd: BorrowedFd<'_>, interest: Interest, source: Arc<dyn Pollable>) -> Token {
        self.add_to(None, fd, interest, source)
    }

    /// The same, as one of `set`.
    pub fn add_to(
        &self,
        set: Option<&Arc<PollSet>>,
        fd: BorrowedFd<'_>,
        interest: Interest,
        source: Arc<dyn Pollable>,
    ) -> Token {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let registered = RegisteredSource { fd: fd.as_raw_fd(), set: set.cloned(), source };
        let place = registered.place();
        self.sources.insert(token, registered);
        self.control(EpollOperation::Add, &place, interest, token);
        Token(token)
    }

    /// A set that is watched for `number`'s share of the sources, and its token. It is kept until
    /// [`Reactor::remove`].
    ///
    /// # Errors
    /// The errno of the system that has no descriptor left for it.
    pub fn new_set(&self, number: usize) -> io::Result<(Arc<PollSet>, Token)> {
        let set = Arc::new(PollSet::new(number, &self.sources)?);
        let token = self.add(set.fd(), Interest::READ, Arc::clone(&set) as Arc<dyn Pollable>);
        Ok((set, token))
    }

    /// Changes what a source wants to be told.
    pub fn modify(&self, token: Token, interest: Interest) {
        if let Some(place) = self.sources.find(token.0, RegisteredSource::place) {
            self.control(EpollOperation::Modify, &place, interest, token.0);
        }
    }

    /// Watches anew what the descriptor of a source has become: its number means another file.
    pub fn renew(&self, token: Token, interest: Interest) {
        if let Some(place) = self.sources.find(token.0, RegisteredSource::place) {
            self.control(EpollOperation::Add, &place, interest, token.0);
        }
    }

    /// Tells a source nothing until its timer is due, in a while: who cannot be accepted now would
    /// be announced again and again. What it wants to be told then is for its `timeout` to say.
    pub fn rest(&self, token: Token, source: Weak<dyn Pollable>) {
        self.modify(token, Interest::NONE);
        self.set_timer(clock::now() + REST, source);
    }

    /// Stops watching. Call it before the descriptor is closed.
    pub fn remove(&self, token: Token) {
        if let Some(removed) = self.sources.remove(token.0) {
            self.control(EpollOperation::Remove, &removed.place(), Interest::NONE, token.0);
        }
    }

    fn control(&self, operation: EpollOperation, place: &Place, interest: Interest, token: u64) {
        if let Some(set) = &place.set {
            operation.apply(set.fd(), place.fd, interest, token);
        } else if let Some(worker) = self.worker(place.number) {
            operation.apply(worker.list(), place.fd, interest, token);
        }
    }

    /// Calls `source.timeout` at `deadline`, if it still exists then. It cannot be cancelled; the
    /// source looks whether something is due.
    pub fn set_timer(&self, deadline: Moment, source: Weak<dyn Pollable>) {
        if let Some(number) = source.upgrade().map(|source| source.number())
            && let Some(worker) = self.worker(number)
        {
            worker.set_timer(deadline, source);
        }
    }

    /// Looks after a lease until it can be taken back.
    pub fn lease(&self, leased: Weak<dyn Leased>) {
        if let Some(worker) = self.worker(0) {
            worker.lease(leased);
        }
    }

    /// Every source that is watched, for who ends the process; without those whose lock this thread
    /// may have been interrupted with, which is waited for until then.
    pub fn all_by(&self, until: Moment) -> Vec<Arc<dyn Pollable>> {
        self.sources.all_by(until)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.workers().for_each(|worker| worker.stop());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Numbered {
        number: usize,
        /// Waits until all of them are called, and the test is there.
        called: Arc<Barrier>,
    }

    impl Pollable for Numbered {
        fn ready(&self, _: Readiness) {}

        fn timeout(&self, _: Moment) {
            self.called.wait();
        }

        fn number(&self) -> usize {
            self.number
        }
    }

    fn numbered(count: usize, called: &Arc<Barrier>) -> Vec<Arc<dyn Pollable>> {
        let source = |number| {
            let called = Arc::clone(called);
            Arc::new(Numbered { number, called }) as Arc<dyn Pollable>
        };
        (0..count).map(source).collect()
    }

    #[test]
    fn sources_with_other_numbers_have_other_threads_at_the_same_time() {
        let count = 3;
        let called = Arc::new(Barrier::new(count + 1));
        let reactor = Reactor::new(ReactorSetup { threads: count, ..ReactorSetup::default() });
        let sources = numbered(count, &called);
        for source in &sources {
            reactor.set_timer(clock::now(), Arc::downgrade(source));
        }
        // Were two of them called by one thread, the second would wait for ever.
        called.wait();
    }

    #[test]
    fn its_threads_end_with_it() {
        let called = Arc::new(Barrier::new(2));
        let reactor = Reactor::new(ReactorSetup::default());
        let sources = numbered(1, &called);
        reactor.set_timer(clock::now(), Arc::downgrade(&sources[0]));
        called.wait();
        let worker = Arc::downgrade(reactor.workers().next().unwrap());
        drop(reactor);
        while worker.strong_count() > 0 {
            std::thread::yield_now();
        }
    }

    /// Says that it was called.
    struct Called(AtomicBool);

    impl Pollable for Called {
        fn ready(&self, _: Readiness) {}

        fn timeout(&self, _: Moment) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn a_thread_that_starts_between_two_forks_stays_until_both_are_over() {
        let reactor = Reactor::new(ReactorSetup::default());
        let called = Arc::new(Called(AtomicBool::new(false)));
        let source = Arc::clone(&called) as Arc<dyn Pollable>;
        reactor.park(clock::now());
        reactor.set_timer(clock::now(), Arc::downgrade(&source));
        reactor.park(clock::now());
        reactor.resume();
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        assert!(!called.0.load(Ordering::Acquire), "it works while another thread forks");
        reactor.resume();
        while !called.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}
