//! Threads that sleep for completion events, in the reactor's place.
//!
//! A thread that sleeps in a read of its channel's descriptor is woken by the reactor, which what
//! arrived has woken: two wake-ups for each message. One that does so again and again for moments
//! watches the sockets itself instead, under a lease on their [`PollGroup`]: it drives the
//! connections until one of them has brought an event. The lease lasts from one wait to the next.
//! Before it sleeps under a lease, it looks for the next message as long as that has paid.
//!
//! Invariant: nothing depends on the thread's return. A wait under a lease ends after
//! [`LEASED_WAIT`], and the reactor takes back the lease of a thread that does not wait again.
//!
//! Order of calls: [`EventWaiter::serve`] for each completion queue; [`EventWaiter::wait`] in place
//! of each read of the channel's [`EventCounter`].

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_os::fds;
use weft_os::sys::{self, Handlers};
use weft_sync::Mutex;
use weft_verbs::CompChannel;

use crate::ProgressMode;
use crate::backoff::Backoff;
use crate::cq::HostCq;
use crate::look_habit::LookHabit;
use crate::poll_group::PollGroup;

/// A wait of this length ends the lease: the reactor may sleep as long as nothing happens.
const LEASED_WAIT: Duration = Duration::from_millis(2);
/// Longer waits are no moments.
const MOMENT: Duration = Duration::from_millis(1);
/// In less time no thread has slept.
const AWAKE: Duration = Duration::from_micros(2);
/// Work on what has arrived for one event that is worth a thread of its own: the reactor does it
/// while the application is at work, and two wake-ups take a fraction of it.
const BULK: Duration = Duration::from_micros(100);
/// What leaves the sockets to the reactor does so for so long at first and at most.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// How long a thread looks for the next message before it sleeps, where that has paid
/// ([`LookHabit`]): as long as a peer takes that has slept and is woken by what went out before.
const LOOK: Duration = Duration::from_micros(50);
/// Who gives up its processor for so long has given it to others than the peer, whose answer takes
/// less: the scheduler's shortest slices are longer.
const CROWDED: Duration = Duration::from_micros(500);
/// Groups of connections that are watched beside the channel.
const GROUPS_MAX: usize = sys::WATCHED_MAX - 1;

/// How a wait went.
#[derive(Clone, Copy, Debug, Default)]
struct WaitTimes {
    /// From its beginning to its end.
    whole: Duration,
    /// Of these, at work on what has arrived.
    worked: Duration,
}

/// Whether a channel's thread sleeps again and again for moments. Several of them say so; waits
/// without sleep, twice as many, or two long ones in a row say that it is over: one alone may be a
/// peer that waited for a processor. So does bulk, from which the habit backs off.
struct SleepHabit {
    credit: u32,
    formed: bool,
    backoff: Backoff,
    looks: LeasedLooks,
}

impl SleepHabit {
    /// Credit at which the habit is formed: eight sleeps of a moment in a row.
    const ENOUGH: u32 = 16;

    fn new() -> Self {
        let (backoff, looks) = (Backoff::new(BACKOFF), LeasedLooks::new());
        Self { credit: 0, formed: false, backoff, looks }
    }

    /// Notes a wait that ended `now`; whether that has ended the habit.
    fn note(&mut self, wait: WaitTimes, now: Moment) -> bool {
        let is_bulk = wait.worked >= BULK;
        self.credit = match wait.whole {
            _ if is_bulk => self.credit.saturating_sub(4),
            whole if whole < AWAKE => self.credit.saturating_sub(1),
            whole if whole < MOMENT => (self.credit + 2).min(Self::ENOUGH),
            _ => self.credit.saturating_sub(Self::ENOUGH / 2),
        };
        if self.credit > 0 {
            self.formed |= self.credit == Self::ENOUGH && !self.backoff.holds(now);
            return false;
        }
        if is_bulk && self.formed {
            self.backoff.begin(now);
        }
        std::mem::replace(&mut self.formed, false)
    }

    /// What this thread does does not go with the lease.
    fn refuse(&mut self, now: Moment) {
        (self.credit, self.formed) = (0, false);
        self.backoff.begin(now);
    }
}

/// What a thread looks for under a lease before it sleeps.
struct LeasedLooks {
    /// Waits so far, and whether looking before sleeping shortens them.
    waits: u64,
    habit: LookHabit,
    /// From when others took the processor meanwhile: who sleeps gets it back sooner.
    crowded: Backoff,
}

impl LeasedLooks {
    fn new() -> Self {
        Self { waits: 0, habit: LookHabit::new(), crowded: Backoff::forgiving(BACKOFF) }
    }

    /// Looks whether one of `watched` is readable as long as that pays, then sleeps for it; a bit
    /// for each that is, none after [`LEASED_WAIT`].
    fn await_readable(&mut self, watched: &[BorrowedFd<'_>]) -> io::Result<u32> {
        match self.look(watched)? {
            0 => sys::wait_readable(watched, LEASED_WAIT),
            readable => Ok(readable),
        }
    }

    /// The same for [`LOOK`] at most, and without sleep.
    fn look(&mut self, watched: &[BorrowedFd<'_>]) -> io::Result<u32> {
        let mut now = clock::now();
        if self.crowded.holds(now) || !self.habit.guesses(self.waits) {
            return Ok(0);
        }
        let until = now + LOOK;
        let (mut readable, mut looked) = (0, now);
        while now < until {
            readable = sys::wait_readable(watched, Duration::ZERO)?;
            if readable != 0 {
                break;
            }
            // The peer may need this very processor, for less time than anybody else.
            std::thread::yield_now();
            (looked, now) = (now, clock::now());
        }
        if now >= looked + CROWDED {
            self.crowded.begin(now);
        }
        self.habit.note(readable != 0);
        Ok(readable)
    }
}

/// The descriptor of a channel, which counts the events that wait to be taken.
pub trait EventCounter {
    /// Readable while there is an event.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// Takes one event, and waits for it as the descriptor is set up.
    ///
    /// # Errors
    /// The errno of the system.
    fn take(&self) -> Result<(), i32>;
    /// Does `act`; gives the events that it has brought, which are not counted.
    fn collect(&self, act: &mut dyn FnMut()) -> u32;
    /// Counts events.
    fn add(&self, events: u32);
}

/// How a wait under a lease ended.
enum LeasedWait {
    /// An event is taken.
    Taken,
    /// An event is there.
    Event,
    /// None came, or the thread may not watch the sockets: it waits as any other.
    None,
    /// By a signal.
    Interrupted,
}

/// What the threads that wait for the events of a channel have in common.
pub struct EventWaiter {
    channel: Arc<CompChannel>,
    cqs: Mutex<Vec<Weak<HostCq>>>,
    /// Locked by a thread that waits; others at the same time wait as ever.
    habit: Mutex<SleepHabit>,
    /// Another thread has waited at the same time.
    is_shared: AtomicBool,
}

impl EventWaiter {
    /// For the events of `channel`.
    pub fn new(channel: Arc<CompChannel>) -> Self {
        let habit = Mutex::new(SleepHabit::new());
        Self { channel, cqs: Mutex::default(), habit, is_shared: AtomicBool::new(false) }
    }

    /// `cq` tells the channel of its completions.
    pub fn serve(&self, cq: &Arc<HostCq>) {
        let mut cqs = self.cqs.lock();
        cqs.retain(|cq| cq.strong_count() > 0);
        cqs.push(Arc::downgrade(cq));
    }

    /// Takes an event of `counter`, and waits for it as [`EventCounter::take`] does.
    ///
    /// # Errors
    /// The errno of the system: `EINTR` if a signal handler has interrupted the wait that does not
    /// let calls go on.
    pub fn wait(&self, counter: &dyn EventCounter) -> Result<(), i32> {
        // A thread that is cancelled while it waits never gives this back.
        let Some(mut habit) = self.habit.try_lock() else {
            if !self.is_shared.swap(true, Ordering::AcqRel) {
                self.release();
            }
            return counter.take();
        };
        let (begun, mut wait) = (clock::now(), WaitTimes::default());
        if self.is_shared.swap(false, Ordering::AcqRel) {
            habit.refuse(begun);
        }
        let ended = match habit.formed && !self.channel.has_events() {
            true => self.wait_leased(counter, &mut habit, &mut wait),
            false => LeasedWait::None,
        };
        let result = match ended {
            LeasedWait::Taken => Ok(()),
            LeasedWait::Event | LeasedWait::None => counter.take(),
            LeasedWait::Interrupted => Err(libc::EINTR),
        };
        let now = clock::now();
        wait.whole = now.saturating_duration_since(begun);
        let over = habit.note(wait, now);
        // Which of several handlers it was is not told: the next wait is no leased one.
        let interrupted = result == Err(libc::EINTR);
        if interrupted {
            habit.refuse(now);
        }
        if over || interrupted {
            self.release();
        }
        result
    }

    /// Leaves the sockets to the reactor.
    fn release(&self) {
        let mut groups = Vec::new();
        for cq in self.cqs.lock().iter().filter_map(Weak::upgrade) {
            cq.add_groups(&mut groups);
        }
        groups.iter().for_each(|group| group.resume());
    }

    fn wait_leased(
        &self,
        counter: &dyn EventCounter,
        habit: &mut SleepHabit,
        wait: &mut WaitTimes,
    ) -> LeasedWait {
        let Some(groups) = self.groups().filter(|groups| self.claim(groups, counter)) else {
            habit.refuse(clock::now());
            self.release();
            return LeasedWait::None;
        };
        let mut watched = vec![counter.as_fd()];
        watched.extend(groups.iter().map(|group| group.set().fd()));
        habit.looks.waits += 1;
        loop {
            groups.iter().for_each(|group| group.prepare_sleep());
            let readable = match habit.looks.await_readable(&watched) {
                Ok(readable) => readable,
                Err(_) if sys::handlers() == Handlers::Restart => 0,
                Err(_) => return LeasedWait::Interrupted,
            };
            // A number that is not ours any more may be always ready.
            if readable == 0 || fds::are_lost() {
                self.release();
                return LeasedWait::None;
            }
            let now = clock::now();
            let ready = |at: usize| readable & 2 << at != 0;
            let looks = groups.iter().enumerate().filter(|(at, _)| ready(*at));
            let mut look = || looks.clone().for_each(|(_, group)| group.look_for_sleeper(now));
            let brought = counter.collect(&mut look);
            wait.worked += clock::now().saturating_duration_since(now);
            if brought > 0 {
                counter.add(brought - 1);
                return LeasedWait::Taken;
            }
            if readable & 1 != 0 || self.channel.has_events() {
                return LeasedWait::Event;
            }
        }
    }

    /// What the connections are watched by whose completions may bring an event; none if those are
    /// too many, or not all.
    fn groups(&self) -> Option<Vec<Arc<PollGroup>>> {
        let mut groups = Vec::new();
        let complete = self.cqs.lock().iter().filter_map(Weak::upgrade).all(|cq| {
            if cq.host().settings().progress == ProgressMode::Engine {
                return false;
            }
            cq.gather_all();
            cq.add_groups(&mut groups)
        });
        (complete && !groups.is_empty() && groups.len() <= GROUPS_MAX).then_some(groups)
    }

    /// Takes the leases; whether all could be had, and a read of `counter` may be replaced.
    fn claim(&self, groups: &[Arc<PollGroup>], counter: &dyn EventCounter) -> bool {
        if sys::is_nonblocking(counter.as_fd()) {
            return false;
        }
        let now = clock::now();
        for group in groups {
            // Which of the handlers interrupts a wait is not told: none is replaced then.
            let claimed = match group.claim_for_sleeper(&self.channel, now) {
                Some(begins) => !begins || sys::handlers() != Handlers::Mixed,
                None => false,
            };
            if !claimed {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Notes a wait of this length and work at the time `at`.
    fn note(habit: &mut SleepHabit, (whole, worked): (Duration, Duration), at: Moment) -> bool {
        habit.note(WaitTimes { whole, worked }, at)
    }

    const SLEEP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(5));
    const NO_SLEEP: (Duration, Duration) = (Duration::from_micros(1), Duration::ZERO);

    #[test]
    fn a_habit_is_formed_by_moments_of_sleep_and_lost_by_two_long_waits_in_a_row() {
        let (mut habit, now) = (SleepHabit::new(), clock::now());
        for _ in 0..7 {
            assert!(!note(&mut habit, SLEEP, now) && !habit.formed);
        }
        assert!(!note(&mut habit, SLEEP, now) && habit.formed);
        let long = (MOMENT, Duration::ZERO);
        assert!(!note(&mut habit, long, now) && habit.formed);
        assert!(note(&mut habit, long, now) && !habit.formed);
    }

    #[test]
    fn waits_without_sleep_form_no_habit_and_end_one_after_a_while() {
        let (mut habit, now) = (SleepHabit::new(), clock::now());
        for _ in 0..1000 {
            for wait in [NO_SLEEP, NO_SLEEP, SLEEP] {
                note(&mut habit, wait, now);
            }
            assert!(!habit.formed);
        }
        (0..100).for_each(|_| assert!(!note(&mut habit, SLEEP, now)));
        for _ in 1..SleepHabit::ENOUGH {
            assert!(!note(&mut habit, NO_SLEEP, now) && habit.formed);
        }
        assert!(note(&mut habit, NO_SLEEP, now) && !habit.formed);
    }

    #[test]
    fn a_look_finds_what_is_there_unless_others_need_the_processor() {
        let (mut looks, event) = (LeasedLooks::new(), sys::eventfd().unwrap());
        assert!(sys::notify(event.as_fd()));
        looks.waits = 1;
        assert_eq!(looks.look(&[event.as_fd()]).unwrap(), 1);
        assert_eq!(looks.look(&[event.as_fd()]).unwrap(), 0, "one look for each wait");
        looks.waits = 2;
        looks.crowded.begin(clock::now() + Duration::from_secs(3600));
        assert_eq!(looks.look(&[event.as_fd()]).unwrap(), 0);
    }

    #[test]
    fn bulk_ends_a_habit_for_longer_each_time() {
        let (mut habit, mut now) = (SleepHabit::new(), clock::now());
        let mut pauses = Vec::new();
        for _ in 0..3 {
            while !habit.formed {
                note(&mut habit, SLEEP, now);
                now += SLEEP.0;
            }
            while habit.formed {
                note(&mut habit, (BULK, BULK), now);
            }
            let ended = now;
            while !habit.formed {
                note(&mut habit, SLEEP, now);
                now += SLEEP.0;
            }
            pauses.push(now - ended);
        }
        assert!(pauses.is_sorted_by(|one, next| 2 * *one <= *next + SLEEP.0 * 8), "{pauses:?}");
    }
}
