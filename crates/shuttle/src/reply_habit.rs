//! Whether this end's application answers what it receives, and soon: then an acknowledgement that
//! is wanted at once waits for the answer and leaves with it (S-40).
//!
//! A wrong guess delays the acknowledgement by [`REPLY_WAIT_NS`], so it takes a row of answers
//! before the first wait, and a longer one after each wait in vain.

/// Longest wait for an answer, 250 µs: a thread that sleeps is woken, reads and answers in less,
/// and the peer's probe timeout allows for more.
pub const REPLY_WAIT_NS: u64 = 250_000;
/// Answers in a row before an acknowledgement waits for the next.
const ROW_MIN: u16 = 4;
/// The most, which bounds what applications lose that answer and then do not.
const ROW_MAX: u16 = 4096;
/// Factor by which a wait in vain lengthens the row.
const ROW_GROWTH: u16 = 4;

/// Answers seen so far.
#[derive(Debug)]
pub struct ReplyHabit {
    /// Since when the peer has waited for an acknowledgement, unless data has left since.
    asked_ns: Option<u64>,
    /// Answers in a row, and how many it takes.
    row: u16,
    needed: u16,
}

impl Default for ReplyHabit {
    /// No answer was seen.
    fn default() -> Self {
        Self { asked_ns: None, row: 0, needed: ROW_MIN }
    }
}

impl ReplyHabit {
    /// The peer wants to be acknowledged at once; returns when it is due.
    pub fn handle_asked(&mut self, now_ns: u64) -> u64 {
        if self.asked_ns.take_if(|at_ns| *at_ns + REPLY_WAIT_NS < now_ns).is_some() {
            self.row = 0;
        }
        let asked_ns = *self.asked_ns.get_or_insert(now_ns);
        if self.row >= self.needed { asked_ns + REPLY_WAIT_NS } else { now_ns }
    }

    /// Until when an acknowledgement waits for an answer, if one does.
    pub fn waits_until_ns(&self) -> Option<u64> {
        self.asked_ns.filter(|_| self.row >= self.needed).map(|at_ns| at_ns + REPLY_WAIT_NS)
    }

    /// Data leaves. Returns whether it answers what was to be acknowledged at once.
    pub fn handle_data(&mut self, now_ns: u64) -> bool {
        let Some(asked_ns) = self.asked_ns.take() else { return false };
        if now_ns > asked_ns + REPLY_WAIT_NS {
            self.row = 0;
            return false;
        }
        if self.row >= self.needed {
            self.needed = self.needed.saturating_sub(1).max(ROW_MIN);
        }
        self.row = self.row.saturating_add(1);
        true
    }

    /// An acknowledgement leaves, of all that has arrived. One that has waited for an answer has
    /// done so in vain.
    pub fn handle_reported(&mut self, now_ns: u64) {
        let waited = self.row >= self.needed;
        if waited && self.asked_ns.take_if(|at_ns| *at_ns + REPLY_WAIT_NS <= now_ns).is_some() {
            self.row = 0;
            self.needed = self.needed.saturating_mul(ROW_GROWTH).min(ROW_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has `count` requests answered after `answer_ns` each; returns for how long the last
    /// acknowledgement would have waited.
    fn answered(habit: &mut ReplyHabit, now_ns: &mut u64, count: u16, answer_ns: u64) -> u64 {
        let mut wait_ns = 0;
        for _ in 0..count {
            *now_ns += 1_000_000;
            wait_ns = habit.handle_asked(*now_ns) - *now_ns;
            if wait_ns < answer_ns {
                habit.handle_reported(*now_ns + wait_ns);
            }
            habit.handle_data(*now_ns + answer_ns);
        }
        wait_ns
    }

    #[test]
    fn only_who_answers_soon_is_waited_for() {
        let (mut habit, mut now_ns) = (ReplyHabit::default(), 0);
        assert_eq!(answered(&mut habit, &mut now_ns, ROW_MIN, 20_000), 0);
        assert_eq!(answered(&mut habit, &mut now_ns, 1, 20_000), REPLY_WAIT_NS);
        assert_eq!(answered(&mut habit, &mut now_ns, 1, 2 * REPLY_WAIT_NS), REPLY_WAIT_NS);
        assert_eq!(answered(&mut habit, &mut now_ns, 1000, 2 * REPLY_WAIT_NS), 0);
        assert_eq!(answered(&mut habit, &mut now_ns, ROW_MIN * ROW_GROWTH, 20_000), 0);
        assert_eq!(answered(&mut habit, &mut now_ns, 1, 20_000), REPLY_WAIT_NS);
    }

    #[test]
    fn one_request_after_the_other_waits_no_longer_than_the_first() {
        let (mut habit, mut now_ns) = (ReplyHabit::default(), 0);
        answered(&mut habit, &mut now_ns, ROW_MIN, 20_000);
        now_ns += 1_000_000;
        let due_ns = habit.handle_asked(now_ns);
        assert_eq!(habit.handle_asked(now_ns + 100_000), due_ns);
        assert!(habit.handle_data(due_ns) && !habit.handle_data(due_ns));
    }

    #[test]
    fn waits_in_vain_become_rare_and_are_forgiven() {
        let (mut habit, mut now_ns, mut in_vain) = (ReplyHabit::default(), 0, 0);
        for _ in 0..100_000 {
            now_ns += 1_000_000;
            let due_ns = habit.handle_asked(now_ns);
            if due_ns > now_ns {
                habit.handle_reported(due_ns);
                in_vain += 1;
            } else {
                habit.handle_data(now_ns + 10_000);
            }
        }
        assert!(in_vain < 40, "{in_vain}");
        answered(&mut habit, &mut now_ns, 3 * ROW_MAX, 20_000);
        assert_eq!(habit.needed, ROW_MIN);
    }

    /// Who has not answered the last time is not waited for, however often it had before.
    #[test]
    fn an_answer_that_never_came_ends_the_row() {
        for (later_ns, waits) in [(REPLY_WAIT_NS, true), (REPLY_WAIT_NS + 1, false)] {
            let (mut habit, mut now_ns) = (ReplyHabit::default(), 0);
            answered(&mut habit, &mut now_ns, ROW_MIN, 20_000);
            now_ns += 1_000_000;
            let due_ns = now_ns + REPLY_WAIT_NS;
            assert_eq!(habit.handle_asked(now_ns), due_ns);
            let asked_ns = now_ns + later_ns;
            assert_eq!(habit.handle_asked(asked_ns), if waits { due_ns } else { asked_ns });
        }
    }

    #[test]
    fn an_answer_in_the_last_moment_is_one_and_later_it_is_none() {
        for (late_ns, answers) in [(REPLY_WAIT_NS, true), (REPLY_WAIT_NS + 1, false)] {
            let (mut habit, mut now_ns) = (ReplyHabit::default(), 0);
            answered(&mut habit, &mut now_ns, ROW_MIN - 1, 20_000);
            now_ns += 1_000_000;
            habit.handle_asked(now_ns);
            assert_eq!(habit.handle_data(now_ns + late_ns), answers);
            now_ns += 1_000_000;
            let wait_ns = habit.handle_asked(now_ns) - now_ns;
            assert_eq!(wait_ns, if answers { REPLY_WAIT_NS } else { 0 });
        }
    }

    /// The row of answers goes on where the last of them came in the last moment.
    #[test]
    fn who_is_asked_again_in_the_last_moment_keeps_its_row() {
        let (mut habit, mut now_ns) = (ReplyHabit::default(), 0);
        answered(&mut habit, &mut now_ns, ROW_MIN, 20_000);
        now_ns += 1_000_000;
        habit.handle_asked(now_ns);
        now_ns += REPLY_WAIT_NS;
        habit.handle_asked(now_ns);
        assert!(habit.handle_data(now_ns));
        now_ns += 1_000_000;
        assert_eq!(habit.handle_asked(now_ns), now_ns + REPLY_WAIT_NS);
    }
}
