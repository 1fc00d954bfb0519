//! Calls of the verbs that fail.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_fault::{CallFault, FaultKind, PlannedFault, Verb, When};

const ENOMEM: i32 = libc::ENOMEM;

/// One fault of calls, and how often it was asked.
pub(super) struct CallCounter {
    /// Its place in the plan.
    pub place: usize,
    verb: Option<Verb>,
    errno: i32,
    after: u64,
    times: u64,
    made: AtomicU64,
}

impl CallCounter {
    /// For `fault` at `place` of the plan, if it is one of calls.
    pub fn of(place: usize, fault: &PlannedFault) -> Option<Self> {
        let When::After(after) = fault.when else { return None };
        let (verb, errno, times) = match fault.kind {
            FaultKind::Call(CallFault { verb, errno, times }) => (Some(verb), errno, times),
            FaultKind::AllocFail { verb, times } => (verb, ENOMEM, times),
            _ => return None,
        };
        Some(Self { place, verb, errno, after, times, made: AtomicU64::new(0) })
    }

    /// Counts a call of `verb`; the errno that it fails with, if it does.
    pub fn count(&self, verb: Verb) -> Option<i32> {
        let counts = match self.verb {
            Some(own) => own == verb,
            None => verb.makes().is_some(),
        };
        if !counts {
            return None;
        }
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let fails = (self.after..self.after.saturating_add(self.times)).contains(&made);
        fails.then_some(self.errno)
    }
}

#[cfg(test)]
mod tests {
    use weft_fault::FaultPlan;

    use super::*;

    fn counter(text: &str) -> CallCounter {
        CallCounter::of(0, &FaultPlan::parse(text).unwrap().faults[0]).unwrap()
    }

    #[test]
    fn the_nth_of_a_kind_fails_and_no_other() {
        let third = counter("alloc-fail=mr:nth=3");
        let made = [Verb::RegMr, Verb::CreateQp, Verb::RegMr, Verb::RegMr, Verb::RegMr];
        let outcome = made.map(|verb| third.count(verb));
        assert_eq!(outcome, [None, None, None, Some(ENOMEM), None]);
    }

    #[test]
    fn of_any_kind_every_object_counts_and_nothing_else() {
        let second = counter("alloc-fail=any:nth=2,times=2");
        let made = [Verb::AllocPd, Verb::PostSend, Verb::CreateCq, Verb::RegMr, Verb::CreateQp];
        let outcome = made.map(|verb| second.count(verb).is_some());
        assert_eq!(outcome, [false, false, true, true, false]);
    }
}
