//! What a connection's polling threads and the reactor know of each other: the states, and the only
//! transitions between them.
//!
//! A thread that polls in a loop has the *lease* on a connection and drives it alone, and doorbells
//! that come in large numbers leave their work to its next poll. Both end when no poll comes:
//! meanwhile the reactor *attends* to the connection. It looks every millisecond, and takes over
//! when nothing has happened from one look to the next.
//!
//! All of this is one atomic word, so that a doorbell costs one operation on it. What only the
//! holder of the slot's lock needs is not atomic and elsewhere: the lease itself
//! ([`crate::driver::Schedule`]) and the times of polls ([`crate::poll_history`]).
//!
//! Invariant: nobody has the lease, and no doorbell has left its work, unless the reactor attends
//! or is about to be told to. For a connection that is polled with many others it attends to the
//! group that has the lease ([`crate::poll_group`]).
//!
//! Order of calls: [`Lease::claim`] after the lease was taken; [`Lease::ring`], then
//! `Slot::leave`, then [`Lease::is_attended`]; [`Lease::look`] under the lock of who wants to end
//! it, before the work that is left is taken.
//!
//! `tests/slot.rs` compiles this file with the atomics of a model checker, together with the slot.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Doorbells whose work goes out together.
const BATCH: u32 = 16;
/// Doorbells between two polls that make a stream.
const STREAM: u32 = 8;
/// Empty polls closer together than this, in nanoseconds, are a loop, which takes the lease.
pub const POLL_LOOP_NS: u64 = 50_000;

/// Whether the reactor looks after a connection that a polling thread is to look after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// It does not: there is no lease, and no work is left to a poll.
    Absent,
    /// It looks, and no polling thread has done or left anything since the last look.
    Quiet,
    /// It looks, and one has.
    Busy,
}

/// What happens to the attendance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttendanceChange {
    /// A polling thread has taken the lease, or a doorbell leaves its work.
    Claimed,
    /// A polling thread has done some work, which may have taken as long as a lease lasts.
    Worked,
    /// The reactor has looked.
    Looked {
        /// Nobody is at work, and no poll came since the last look.
        idle: bool,
    },
}

impl Attendance {
    /// The attendance after `change`.
    pub fn after(self, change: AttendanceChange) -> Self {
        use AttendanceChange::*;
        match (self, change) {
            (_, Claimed) | (Self::Quiet, Worked) => Self::Busy,
            (Self::Busy, Looked { .. }) => Self::Quiet,
            (Self::Quiet, Looked { idle: true }) => Self::Absent,
            (same, _) => same,
        }
    }
}

/// How the application rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingHabit {
    /// Few times between two polls: the work of each doorbell goes out at once.
    Single,
    /// Many times: only every [`BATCH`]th sends, and the others leave their work.
    Stream,
}

/// What becomes of a doorbell's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// It goes out now, with what earlier ones have left.
    Send,
    /// It is left to the next poll. The reactor attends.
    Leave,
    /// The same, and the caller tells the reactor to attend.
    LeaveAndAttend,
}

/// The whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseState {
    attendance: Attendance,
    habit: RingHabit,
    /// Doorbells since the last poll, modulo 2^29.
    rung: u32,
}

const RUNG_SHIFT: u32 = 3;
const STREAM_BIT: u32 = 4;

impl LeaseState {
    const START: Self = Self { attendance: Attendance::Absent, habit: RingHabit::Single, rung: 0 };

    /// The count of doorbells is on top, where what it overflows by is lost.
    fn pack(self) -> u32 {
        let attendance = match self.attendance {
            Attendance::Absent => 0,
            Attendance::Quiet => 1,
            Attendance::Busy => 2,
        };
        let habit = if self.habit == RingHabit::Stream { STREAM_BIT } else { 0 };
        self.rung << RUNG_SHIFT | habit | attendance
    }

    fn unpack(word: u32) -> Self {
        let attendance = match word & (STREAM_BIT - 1) {
            0 => Attendance::Absent,
            1 => Attendance::Quiet,
            _ => Attendance::Busy,
        };
        let streams = word & STREAM_BIT != 0;
        let habit = if streams { RingHabit::Stream } else { RingHabit::Single };
        Self { attendance, habit, rung: word >> RUNG_SHIFT }
    }

    fn attended(self, change: AttendanceChange) -> Self {
        Self { attendance: self.attendance.after(change), ..self }
    }

    /// What the next doorbell does.
    fn doorbell(self) -> Doorbell {
        if self.habit == RingHabit::Single || self.rung.is_multiple_of(BATCH) {
            Doorbell::Send
        } else if self.attendance == Attendance::Absent {
            Doorbell::LeaveAndAttend
        } else {
            Doorbell::Leave
        }
    }

    fn rung(self) -> Self {
        let after = match self.doorbell() {
            Doorbell::Send => self,
            Doorbell::Leave | Doorbell::LeaveAndAttend => self.attended(AttendanceChange::Claimed),
        };
        Self { rung: self.rung.wrapping_add(1), ..after }
    }

    /// A poll ends a run of doorbells, whose length says what the next ones do.
    fn polled(self) -> Self {
        let habit = match self.rung {
            0 => self.habit,
            1..STREAM => RingHabit::Single,
            STREAM.. => RingHabit::Stream,
        };
        Self { habit, rung: 0, ..self }
    }

    /// The poll that work was left to did not come.
    fn missed(self) -> Self {
        Self { habit: RingHabit::Single, ..self }
    }
}

/// What a connection's polling threads and the reactor know of each other.
pub struct Lease {
    state: AtomicU32,
    /// When an empty completion queue of the connection's own was polled last, in nanoseconds.
    /// Stands alone: it decides only whether others help.
    own_poll_ns: AtomicU64,
}

impl Lease {
    /// Nobody has polled or rung.
    pub fn new() -> Self {
        Self { state: AtomicU32::new(LeaseState::START.pack()), own_poll_ns: AtomicU64::new(0) }
    }

    /// Makes a transition, with no write where nothing changes. Gives the state before it.
    fn update(&self, change: impl Fn(LeaseState) -> LeaseState) -> LeaseState {
        let mut word = self.state.load(Ordering::Acquire);
        loop {
            let before = LeaseState::unpack(word);
            let after = change(before).pack();
            if after == word {
                return before;
            }
            match self.state.compare_exchange(word, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return before,
                Err(other) => word = other,
            }
        }
    }

    /// A doorbell rings; what becomes of its work. Where that is left, the caller does so now, and
    /// then does it after all unless [`Lease::is_attended`].
    pub fn ring(&self) -> Doorbell {
        self.update(LeaseState::rung).doorbell()
    }

    /// A poll ends a run of doorbells; gives how many they were.
    pub fn end_run(&self) -> u32 {
        self.update(LeaseState::polled).rung
    }

    /// A polling thread has taken the lease; whether the caller has to tell the reactor.
    pub fn claim(&self) -> bool {
        let before = self.update(|state| state.attended(AttendanceChange::Claimed));
        before.attendance == Attendance::Absent
    }

    /// A polling thread has done some work.
    pub fn note_work(&self) {
        self.update(|state| state.attended(AttendanceChange::Worked));
    }

    /// The reactor looks; whether it does not look again. `idle` as in
    /// [`AttendanceChange::Looked`], by who has the slot's lock.
    pub fn look(&self, idle: bool) -> bool {
        let looked = AttendanceChange::Looked { idle };
        let before = self.update(|state| state.attended(looked)).attendance;
        before.after(looked) == Attendance::Absent
    }

    /// The reactor has found work that was left to a poll: doorbells send by themselves until they
    /// come in large numbers again.
    pub fn end_stream(&self) {
        self.update(LeaseState::missed);
    }

    /// Whether the reactor will look again.
    pub fn is_attended(&self) -> bool {
        let state = LeaseState::unpack(self.state.load(Ordering::Acquire));
        state.attendance != Attendance::Absent
    }

    /// A completion queue of the connection's own was found empty.
    pub fn note_own_poll(&self, now_ns: u64) {
        self.own_poll_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether somebody polls the connection's own completion queues in a loop.
    pub fn is_polled(&self, now_ns: u64) -> bool {
        self.own_poll_ns.load(Ordering::Relaxed) + POLL_LOOP_NS >= now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::Attendance::*;
    use super::AttendanceChange::*;
    use super::*;

    #[test]
    fn the_attendance_ends_only_after_two_looks_at_which_nothing_happened() {
        let idle = Looked { idle: true };
        let not_idle = Looked { idle: false };
        let table = [
            (Absent, [(Claimed, Busy), (Worked, Absent), (idle, Absent), (not_idle, Absent)]),
            (Quiet, [(Claimed, Busy), (Worked, Busy), (idle, Absent), (not_idle, Quiet)]),
            (Busy, [(Claimed, Busy), (Worked, Busy), (idle, Quiet), (not_idle, Quiet)]),
        ];
        for (before, changes) in table {
            for (change, after) in changes {
                assert_eq!(before.after(change), after, "{before:?}, {change:?}");
            }
        }
    }

    #[test]
    fn every_state_fits_into_the_word_and_the_count_stays_out_of_the_rest() {
        for attendance in [Absent, Quiet, Busy] {
            for habit in [RingHabit::Single, RingHabit::Stream] {
                for rung in [0, 1, BATCH, (1 << 29) - 1] {
                    let state = LeaseState { attendance, habit, rung };
                    assert_eq!(LeaseState::unpack(state.pack()), state);
                    let next = LeaseState::unpack(state.rung().pack());
                    assert_eq!((next.habit, next.rung), (habit, (rung + 1) % (1 << 29)));
                }
            }
        }
    }

    /// Rings so many times; what becomes of each doorbell.
    fn ring(state: &mut LeaseState, times: u32) -> Vec<Doorbell> {
        let one = |_| {
            let before = *state;
            *state = before.rung();
            before.doorbell()
        };
        (0..times).map(one).collect()
    }

    #[test]
    fn doorbells_of_a_stream_leave_their_work_but_for_every_sixteenth() {
        let mut state = LeaseState::START;
        assert_eq!(ring(&mut state, STREAM), [Doorbell::Send; STREAM as usize]);
        assert_eq!(state.attendance, Absent);
        state = state.polled();
        let rung = ring(&mut state, BATCH + 1);
        assert_eq!(rung[..2], [Doorbell::Send, Doorbell::LeaveAndAttend]);
        assert_eq!(rung[2..16], [Doorbell::Leave; 14]);
        assert_eq!((rung[16], state.attendance), (Doorbell::Send, Busy));
    }

    #[test]
    fn a_stream_ends_by_a_short_run_or_by_a_poll_that_did_not_come() {
        let mut state = LeaseState::START;
        ring(&mut state, STREAM);
        // A poll without doorbells before it says nothing.
        state = state.polled().polled();
        assert_eq!(ring(&mut state, 2)[1], Doorbell::LeaveAndAttend);
        state = state.polled();
        assert_eq!(ring(&mut state, STREAM), [Doorbell::Send; STREAM as usize]);
        state = state.polled();
        assert_eq!(ring(&mut state, 2)[1], Doorbell::Leave);
        assert_eq!(ring(&mut state.missed(), 1), [Doorbell::Send]);
    }
}
