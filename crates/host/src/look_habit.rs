//! Whether it pays to look for what a peer sends next before sleeping: sleeping and waking takes 10
//! to 40 us on a virtual machine, and a peer that reads repeatedly sends its next Read sooner, as
//! one that waits for each answer sends its next request.

use std::time::Duration;

use weft_os::clock::{self, Moment};

/// How long the reactor looks for the next Read of a peer that is reached by the network.
const LOOK: Duration = Duration::from_micros(20);

/// Whether messages of a peer follow each other so closely that it pays to look for the next one
/// before sleeping. A wrong guess wastes the looks, so it costs more credit than a right one gains.
#[derive(Debug)]
pub(crate) struct LookHabit {
    /// Answers that were seen.
    responses: u64,
    /// Balance of right and wrong guesses.
    credit: u16,
    /// Answers without a guess.
    unguessed: u16,
    /// Until when the reactor looks for the next Read.
    until: Option<Moment>,
}

impl LookHabit {
    /// The most credit: eight wrong guesses in a row use it up.
    const CREDIT_MAX: u16 = 64;
    /// What a right guess gains, and what a wrong one costs.
    const RIGHT: u16 = 4;
    const WRONG: u16 = 8;
    /// Without credit one in so many answers is followed by a guess.
    const TRY_AFTER: u16 = 64;

    pub fn new() -> Self {
        Self { responses: 0, credit: Self::WRONG, unguessed: 0, until: None }
    }

    /// Whether to look for what comes next, now that there were so many `responses`.
    pub fn guesses(&mut self, responses: u64) -> bool {
        if std::mem::replace(&mut self.responses, responses) == responses {
            return false;
        }
        self.unguessed += 1;
        let guesses = self.credit >= Self::WRONG || self.unguessed >= Self::TRY_AFTER;
        if guesses {
            self.unguessed = 0;
        }
        guesses
    }

    /// Until when the reactor is to look for the next Read, at the end of a step that began at
    /// `began`, and after which there were so many `responses`; none if it may sleep. A guess was
    /// right if the next Read was there by its end.
    pub fn look_until(&mut self, responses: u64, began: Moment) -> Option<Moment> {
        if responses == self.responses {
            return None;
        }
        if let Some(until) = self.until.take() {
            self.note(began <= until);
        }
        self.until = self.guesses(responses).then(|| clock::now() + LOOK);
        self.until
    }

    /// A guess was right or wrong.
    pub fn note(&mut self, is_right: bool) {
        self.credit = match is_right {
            true => (self.credit + Self::RIGHT).min(Self::CREDIT_MAX),
            false => self.credit.saturating_sub(Self::WRONG),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_that_follow_each_other_closely_are_looked_for() {
        let (mut habit, mut guesses) = (LookHabit::new(), 0);
        assert!(!habit.guesses(0), "nothing was answered");
        for response in 1..=6400 {
            if habit.guesses(response) {
                habit.note(false);
                guesses += 1;
            }
        }
        assert!(guesses <= 101, "{guesses}");
        for response in 6401..=7200 {
            if habit.guesses(response) {
                habit.note(true);
            }
        }
        assert!(habit.guesses(7201) && !habit.guesses(7201), "one guess for each answer");
    }

    #[test]
    fn a_look_that_ended_before_the_next_read_was_wrong() {
        let (mut habit, mut began, mut looks) = (LookHabit::new(), clock::now(), 0);
        assert_eq!(habit.look_until(0, began), None, "nothing was answered");
        for response in 1..=6400 {
            let until = habit.look_until(response, began);
            assert_eq!(habit.look_until(response, began), None, "one look for each answer");
            looks += u32::from(until.is_some());
            began = until.unwrap_or(began) + Duration::from_nanos(1);
        }
        assert!(looks <= 101, "{looks}");
        for response in 6401..=7200 {
            began = habit.look_until(response, began).unwrap_or(began);
        }
        assert!(habit.look_until(7201, began).is_some());
    }
}
