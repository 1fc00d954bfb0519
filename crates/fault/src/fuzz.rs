//! Random plans, and the smallest part of one that still does what the whole does.

use crate::{
    CallFault, CorruptPlace, Dice, FaultDirection, FaultKind, FaultPlan, FaultSelector,
    PlannedFault, Share, Verb, When, word,
};

/// Faults of a random plan at most.
const FAULTS_MAX: u64 = 4;
/// Requests, completions or calls before a random fault at most.
const AFTER_MAX: u64 = 2_000;
/// The latest time of a random fault, in milliseconds.
const AT_MS_MAX: u64 = 2_000;
/// The longest time of a random outage or delay, in milliseconds.
const LENGTH_MS_MAX: u64 = 500;
const NS_PER_MS: u64 = 1_000_000;

impl FaultPlan {
    /// The random plan of a seed, which is its seed as well.
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 0, 0);
        let count = 1 + dice.below(FAULTS_MAX);
        let faults = (0..count).map(|_| random_fault(&mut dice)).collect();
        Self { faults, seed: Some(seed) }
    }

    /// The smallest plan that is made of this one by leaving out faults and what is said of them,
    /// and that still `fails`. It takes as many tries as the plan has faults, squared, at most.
    pub fn reduced(&self, mut fails: impl FnMut(&Self) -> bool) -> Self {
        let mut plan = self.clone();
        reduce_faults(&mut plan, &mut fails);
        for place in 0..plan.faults.len() {
            for simplify in simplifications(&plan.faults[place]) {
                let mut trial = plan.clone();
                simplify(&mut trial.faults[place]);
                if trial != plan && fails(&trial) {
                    plan = trial;
                }
            }
        }
        plan
    }
}

/// Delta debugging: leaves out ever smaller parts as long as the rest fails.
fn reduce_faults(plan: &mut FaultPlan, fails: &mut impl FnMut(&FaultPlan) -> bool) {
    let mut part = plan.faults.len() / 2;
    while part > 0 {
        let mut from = 0;
        let mut left_out = false;
        while from < plan.faults.len() && plan.faults.len() > 1 {
            let until = plan.faults.len().min(from + part);
            let mut trial = plan.clone();
            trial.faults.drain(from..until);
            if !trial.faults.is_empty() && fails(&trial) {
                *plan = trial;
                left_out = true;
            } else {
                from = until;
            }
        }
        // With a smaller rest a part that was needed may not be any more.
        part = if left_out && part == 1 { 1 } else { part / 2 };
        if plan.faults.len() == 1 {
            break;
        }
    }
}

/// Leaves out something that is said of a fault.
type Simplification = Box<dyn Fn(&mut PlannedFault)>;

/// What can be left out of a fault, one after the other.
fn simplifications(fault: &PlannedFault) -> Vec<Simplification> {
    let mut all: Vec<Simplification> = vec![
        Box::new(|fault| fault.on = FaultSelector::default()),
        Box::new(|fault| fault.until_ns = None),
    ];
    match fault.when {
        When::After(count) if count > 0 => {
            let smaller = [0, 1, 10, 100, 1_000].into_iter().filter(move |small| *small < count);
            // From the largest to the smallest: each that fails is kept.
            all.extend(
                smaller.rev().map(|n| -> Simplification {
                    Box::new(move |fault| fault.when = When::After(n))
                }),
            );
        }
        When::AtNs(ns) if ns > 0 => {
            all.push(Box::new(|fault| fault.when = When::AtNs(0)));
        }
        _ => {}
    }
    all
}

fn random_fault(dice: &mut Dice) -> PlannedFault {
    let after = When::After(dice.below(AFTER_MAX));
    let at = When::AtNs(dice.below(AT_MS_MAX) * NS_PER_MS);
    let length_ns = (1 + dice.below(LENGTH_MS_MAX)) * NS_PER_MS;
    let tenths = 1 + dice.below(50);
    // As text is read, so that the plan reads as itself.
    let share = word::share(&format!("{}.{}%", tenths / 10, tenths % 10));
    let share = share.unwrap_or(Share::new(0.0));
    let verbs = Verb::ALL;
    let verb = verbs[dice.below(verbs.len() as u64) as usize].1;
    let statuses = word::STATUSES;
    let (name, code) = statuses[dice.below(statuses.len() as u64) as usize];
    let (kind, when) = match dice.below(16) {
        0 => (FaultKind::QpError(crate::Status { code, name }), after),
        1 => (FaultKind::Rnr(1 + dice.below(5) as u32), after),
        2 => (FaultKind::SlowAck { delay_ns: length_ns, jitter_ns: 0 }, at),
        3 => (FaultKind::CqOverflow, after),
        4 => (FaultKind::CqOverrun, after),
        5 => (FaultKind::MrInvalid, after),
        6 => {
            let call = CallFault { verb, errno: word::ENOMEM, times: 1 };
            (FaultKind::Call(call), When::After(dice.below(20)))
        }
        7 => {
            let fault = FaultKind::AllocFail { verb: None, times: 1 };
            (fault, When::After(dice.below(20)))
        }
        8 => (FaultKind::DeviceFatal(length_ns), at),
        9 => (FaultKind::PortDown(length_ns), at),
        10 => (FaultKind::GidChange, at),
        11 => (FaultKind::AddrGone(length_ns), at),
        12 => (FaultKind::PeerGone, after),
        13 => (FaultKind::Drop(share, FaultDirection::Both), When::AtNs(0)),
        14 => (FaultKind::Corrupt(share, CorruptPlace::Wire), When::AtNs(0)),
        _ => {
            let fault = FaultKind::Delay { delay_ns: length_ns / 100, jitter_ns: 0 };
            (fault, When::AtNs(0))
        }
    };
    PlannedFault { kind, when, until_ns: None, on: FaultSelector::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_plan_reads_as_itself_and_repeats_with_its_seed() {
        for seed in 0..500 {
            let plan = FaultPlan::random(seed);
            assert_eq!(FaultPlan::parse(&plan.to_string()).as_ref(), Ok(&plan), "{plan}");
            assert_eq!(plan, FaultPlan::random(seed));
        }
        assert_ne!(FaultPlan::random(1).faults, FaultPlan::random(2).faults);
    }

    #[test]
    fn what_is_left_is_what_fails() {
        let text = "drop=1%; hang:after=700,only=2; delay=1ms; port-down=1s:at=1s; rnr:2,after=3; \
                    corrupt=1%; cq-overrun; peer-gone:at=2s; seed=4";
        let plan = FaultPlan::parse(text).unwrap();
        let has = |plan: &FaultPlan, text: &str| plan.to_string().contains(text);
        let mut tries = 0;
        let reduced = plan.reduced(|trial| {
            tries += 1;
            has(trial, "hang") && has(trial, "cq-overrun")
        });
        assert_eq!(reduced.to_string(), "hang; cq-overrun; seed=4");
        assert!(tries < 64, "{tries}");
        let limit = plan.reduced(|trial| {
            let hangs = trial.faults.iter().any(|fault| {
                fault.kind == FaultKind::Hang && matches!(fault.when, When::After(100..))
            });
            hangs && !trial.faults.is_empty()
        });
        assert_eq!(limit.to_string(), "hang:after=100; seed=4");
    }

    #[test]
    fn a_plan_of_one_fault_is_its_smallest() {
        let plan = FaultPlan::parse("gid-change:at=1s; seed=4").unwrap();
        assert_eq!(plan.reduced(|trial| trial == &plan), plan);
    }
}
