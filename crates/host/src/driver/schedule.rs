//! Who drives a connection, a polling thread or the reactor, and when it is called next.

use std::sync::Weak;

use weft_os::clock::Moment;
use weft_reactor::{Pollable, Reactor};

/// Who drives a connection: a polling thread or the reactor.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// A polling thread looks after it, and the reactor does not.
    pub leased: bool,
    /// A thread that sleeps for events looks after it with others.
    pub slept_for: bool,
    /// It polls in a loop, or sleeps for moments: what is only to be acknowledged may wait for its
    /// next call, which likely brings something to send with it.
    pub patient: bool,
    /// The socket takes no more for now.
    pub blocked: bool,
    /// When the reactor calls next.
    pub timer: Option<Moment>,
}

impl Schedule {
    /// Wants the reactor to call at `due` at the latest; whether it must be told.
    fn wants(&mut self, due: Moment) -> bool {
        let sooner = self.timer.is_none_or(|timer| due < timer);
        if sooner {
            self.timer = Some(due);
        }
        sooner
    }

    /// Has `source` called by `reactor` at `due` at the latest.
    pub fn set_timer(&mut self, due: Moment, reactor: &Reactor, source: &Weak<dyn Pollable>) {
        if self.wants(due) {
            reactor.set_timer(due, Weak::clone(source));
        }
    }

    /// The reactor calls. It also does so for timers that sooner ones have replaced: were those
    /// taken for the one that counts, each would bring another, and they would be ever more.
    pub fn heed_timer(&mut self, now: Moment) {
        self.timer = self.timer.filter(|timer| *timer > now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_that_sooner_ones_replace_do_not_become_more() {
        let (start, ms) = (weft_os::clock::now(), Duration::from_millis);
        let (mut schedule, mut reactor) = (Schedule::default(), Vec::new());
        for step in 0..1000 {
            let now = start + ms(step);
            let (due, later): (Vec<_>, Vec<_>) = reactor.into_iter().partition(|at| *at <= now);
            reactor = later;
            // It always wants to be called in 10 ms, and after each call in 2 ms for once.
            for _ in due {
                schedule.heed_timer(now);
                reactor.extend(schedule.wants(now + ms(10)).then_some(now + ms(10)));
            }
            reactor.extend(schedule.wants(now + ms(2)).then_some(now + ms(2)));
            assert!(schedule.timer.is_some_and(|at| reactor.contains(&at)));
            assert!(reactor.len() <= 12, "{} timers at {step} ms", reactor.len());
        }
    }
}
