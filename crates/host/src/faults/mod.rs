//! Faults on purpose, as `WEFT_FAULT` asks for them (docs/faults.md).
//!
//! Each has one place. At the verbs: a [`crate::qp_faults::QpFaultInjector`] holds back the request
//! of a queue pair that is to fail and fails it in its turn, `refuse` fails calls,
//! `completions_until_overflow` ends a completion queue; a [`PortWatch`] tells of the port. Below
//! them: a [`LinkFaults`] between a connection and its socket loses, changes and delays what
//! arrives.
//!
//! Invariant: without a plan there is no injector and no wire, and what looks for them is a test of
//! an `Option` that is `None`.

mod line;
mod port;
mod wire;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use port::{Outages, PortWatch};
use weft_fault::{CallFault, Dice, FaultKind, FaultPlan, PlannedFault, Verb, When};
use weft_os::clock;
use weft_verbs::Misuse;
pub(crate) use wire::LinkFaults;

/// The variable with the plan.
const VARIABLE: &str = "WEFT_FAULT";

/// The plan of a host, and how far its calls have come.
pub(crate) struct Faults {
    plan: FaultPlan,
    seed: u64,
    calls: Vec<(CallFault, u64, AtomicU64)>,
    /// When it was first asked what time it is.
    start: OnceLock<Instant>,
    /// When a device was opened first.
    opened: OnceLock<Instant>,
}

impl Faults {
    /// What the environment asks for. A text that is no plan is none; the preload says so.
    pub(crate) fn plan_from_environment() -> Option<FaultPlan> {
        FaultPlan::parse(&std::env::var(VARIABLE).ok()?).ok()
    }

    pub(crate) fn new(plan: FaultPlan) -> Self {
        let call = |fault: &PlannedFault| match (fault.kind, fault.when) {
            (FaultKind::Call(call), When::After(count)) => Some((call, count, AtomicU64::new(0))),
            _ => None,
        };
        let calls = plan.faults.iter().filter_map(call).collect();
        Self {
            seed: plan.seed.unwrap_or(0),
            calls,
            plan,
            start: OnceLock::new(),
            opened: OnceLock::new(),
        }
    }

    /// Fails a call that is to fail.
    pub(crate) fn refuse(&self, verb: Verb) -> Result<(), Misuse> {
        for (call, after, made) in self.calls.iter().filter(|(call, _, _)| call.verb == verb) {
            let made = made.fetch_add(1, Ordering::Relaxed);
            if (*after..after.saturating_add(call.times)).contains(&made) {
                return Err(Misuse::System(call.errno));
            }
        }
        Ok(())
    }

    /// How many completions the application is to see of the completion queue `number`; without
    /// end if nothing is said.
    pub(crate) fn completions_until_overflow(&self, number: u32) -> Option<u64> {
        let overflow = |(fault, _): (&PlannedFault, Dice)| match (fault.kind, fault.when) {
            (FaultKind::CqOverflow, When::After(count)) => Some(count),
            _ => None,
        };
        self.of(number).filter_map(overflow).min()
    }

    /// When it is so long after the first connection, at the earliest of which this was called.
    pub(crate) fn at(&self, ns: u64) -> Instant {
        *self.start.get_or_init(clock::now) + Duration::from_nanos(ns)
    }

    /// When the port is down, counted from when this was called first: by who opens a device.
    pub(crate) fn outages(&self) -> Outages {
        let opened = *self.opened.get_or_init(clock::now);
        let outage = |fault: &PlannedFault| match (fault.kind, fault.when) {
            (FaultKind::PortDown(for_ns), When::AtNs(at_ns)) => {
                let from = opened + Duration::from_nanos(at_ns);
                Some((from, from + Duration::from_nanos(for_ns)))
            }
            _ => None,
        };
        Outages(self.plan.faults.iter().filter_map(outage).collect())
    }

    /// Whether the port is down.
    pub(crate) fn is_port_down(&self) -> bool {
        self.opened.get().is_some() && self.outages().left(clock::now()).is_some()
    }

    /// The faults for the object `number` of its kind, each with its dice.
    pub(crate) fn of(&self, number: u32) -> impl Iterator<Item = (&PlannedFault, Dice)> {
        let faults = self.plan.faults.iter().enumerate();
        let own = faults.filter(move |(_, fault)| fault.is_for(number));
        own.map(move |(place, fault)| (fault, Dice::new(self.seed, place, number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_their_own_faults_and_dice() {
        let faults = Faults::new(FaultPlan::parse("drop=50%; rnr:1,only=2; seed=7").unwrap());
        assert_eq!((faults.of(1).count(), faults.of(2).count()), (1, 2));
        let falls = |number| {
            let (fault, mut dice) = faults.of(number).next().unwrap();
            let FaultKind::Drop(share, _) = fault.kind else { panic!("{fault:?}") };
            (0..100).map(|_| dice.falls(share)).collect::<Vec<_>>()
        };
        assert_eq!(falls(1), falls(1));
        assert_ne!(falls(1), falls(2));
    }
}
