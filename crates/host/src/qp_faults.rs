//! Breaks a queue pair at the verbs: when it is to happen, and what is seen of it.
//!
//! The request that a fault is for, and all behind it, are held back in the send queue; once
//! everything before it is complete its turn has come, and it fails, or waits as it would for a
//! receiver that is not ready. So the application sees as many requests succeed as the plan says.
//!
//! Order: [`QpFaultInjector::post`] for each request, [`QpFaultInjector::act`] after each step of
//! the connection. Lock order: driver, fault injector, send queue.

use std::sync::Arc;
use std::time::Duration;

use weft_fault::{Dice, FaultKind, PlannedFault, Status, When};
use weft_os::clock::Moment;
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::{AsyncKind, Misuse, Qp, QpFailure, QpState, SendOp, WcStatus};

use crate::device_kind::{DeviceId, DeviceKind};
use crate::driver::{Driver, todo};
use crate::faults::{DrawnFault, Faults, LateCompletions};
use crate::host::Host;

/// How long a request waits for a receiver that is not ready.
const RNR_WAIT: Duration = Duration::from_millis(1);
/// The `rnr_retry` that is without end; RNICs have no other.
const RNR_ENDLESS: u8 = 7;

/// The faults of one queue pair.
pub(crate) struct QpFaultInjector {
    host: Arc<Host>,
    state: Mutex<InjectorState>,
}

struct InjectorState {
    faults: Vec<Planned>,
    late: Option<LateCompletions>,
    /// The fault whose request is held back.
    holding: Option<usize>,
    /// How often the request found no receive, and until when it waits.
    refusals: u32,
    waits_until: Option<Moment>,
}

struct Planned {
    place: usize,
    kind: FaultKind,
    when: When,
    dice: Dice,
    /// What it counts: requests that were posted.
    posted: u64,
    /// It has happened.
    spent: bool,
    /// The run's journal has it.
    noted: bool,
}

impl Planned {
    fn new((place, fault, dice): DrawnFault<'_>) -> Option<Self> {
        let PlannedFault { kind, when, .. } = *fault;
        let own = matches!(
            kind,
            FaultKind::QpError(_) | FaultKind::Rnr(_) | FaultKind::Hang | FaultKind::PeerGone
        );
        own.then_some(Self { place, kind, when, dice, posted: 0, spent: false, noted: false })
    }

    /// Whether the request that is posted next is the one; not asked twice about one request,
    /// unless the first time was [taken back](Planned::take_back).
    fn hits(&mut self, op: &SendOp) -> bool {
        let counts = match self.kind {
            FaultKind::QpError(_) | FaultKind::Hang => true,
            FaultKind::Rnr(_) => needs_receive(op),
            _ => false,
        };
        if !counts || self.spent {
            return false;
        }
        self.posted += 1;
        match self.when {
            When::After(count) => self.posted > count,
            When::Chance(share) => self.dice.falls(share),
            When::AtNs(_) => false,
        }
    }

    /// The request could not be posted, for want of room mostly, and does not count.
    fn take_back(&mut self, posted: u64) {
        self.posted = posted;
    }

    /// Whether it is time, for a fault of the whole queue pair; else when it may be.
    fn is_due(&self, qp: &Qp, faults: &Faults, now: Moment) -> (bool, Option<Moment>) {
        // Until then the application still walks it through its states.
        let ready = matches!(qp.state(), QpState::Rtr | QpState::Rts | QpState::Sqd);
        match (self.kind, self.when) {
            _ if self.spent => (false, None),
            (_, When::AtNs(ns)) => {
                let at = faults.at(ns);
                // A timer in the past would have the reactor call until the queue pair is ready.
                (ready && at <= now, Some(at).filter(|at| *at > now))
            }
            (FaultKind::PeerGone, When::After(count)) => {
                (ready && qp.sq().succeeded() >= count, None)
            }
            _ => (false, None),
        }
    }
}

fn needs_receive(op: &SendOp) -> bool {
    let sends = matches!(op, SendOp::Send | SendOp::SendImm { .. } | SendOp::SendInv { .. });
    sends || matches!(op, SendOp::WriteImm { .. })
}

impl QpFaultInjector {
    /// The faults of `qp`, the queue pair `number` of `host` on a device of this kind, if it has
    /// some.
    pub fn of(host: &Arc<Host>, number: u32, qp: &Qp, id: DeviceId) -> Option<Self> {
        let faults = host.faults()?;
        let late = LateCompletions::of(faults.of(number, Some(qp.num()), id));
        let own = faults.of(number, Some(qp.num()), id);
        let faults: Vec<_> = own.filter_map(Planned::new).collect();
        let planned = !faults.is_empty() || late.is_some();
        if late.is_some() {
            let mut sq = qp.sq();
            let tail = sq.tail();
            sq.complete_up_to(tail);
        }
        let state = InjectorState { faults, late, holding: None, refusals: 0, waits_until: None };
        planned.then(|| Self { host: Arc::clone(host), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, InjectorState> {
        self.state.lock()
    }

    /// Posts a request by `post`, and holds it back if it is to fail.
    pub fn post(
        &self,
        qp: &Qp,
        op: &SendOp,
        post: impl FnOnce() -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        let mut state = self.lock();
        if state.holding.is_some() && !qp.sq().is_holding() {
            // It was reset since.
            (state.holding, state.refusals, state.waits_until) = (None, 0, None);
        }
        if state.holding.is_some() {
            return post();
        }
        let counts: Vec<_> = state.faults.iter().map(|fault| fault.posted).collect();
        // Each is asked, so that each counts every request.
        let mut hit = None;
        for (place, fault) in state.faults.iter_mut().enumerate() {
            hit = hit.or(fault.hits(op).then_some(place));
        }
        if hit.is_some() {
            qp.sq().hold();
        }
        let result = post();
        if result.is_ok() {
            state.holding = hit;
        } else {
            state.faults.iter_mut().zip(counts).for_each(|(fault, count)| fault.take_back(count));
            if hit.is_some() {
                qp.sq().release();
            }
        }
        result
    }

    /// Does what it is time for; gives when to call again, where nothing else calls.
    pub fn act(&self, driver: &mut Driver, now: Moment) -> Option<Moment> {
        let qp = Arc::clone(driver.qp());
        let faults = self.host.faults()?;
        let mut state = self.lock();
        let mut again = None;
        for place in 0..state.faults.len() {
            let fault = &mut state.faults[place];
            let (due, later) = fault.is_due(&qp, faults, now);
            if due {
                fault.spent = true;
                faults.note(fault.place);
                match fault.kind {
                    FaultKind::QpError(status) => fail(&qp, driver, status_of(status)),
                    _ => driver.lose_peer(),
                }
            } else {
                again = again.into_iter().chain(later).min();
            }
        }
        let held = if qp.sq().is_held_up() { state.holding } else { None };
        let waits = held.and_then(|place| {
            if state.refusals == 0 && !std::mem::replace(&mut state.faults[place].noted, true) {
                faults.note(state.faults[place].place);
            }
            state.act_on_held(place, &qp, driver, now)
        });
        let late = state.late.as_mut().and_then(|late| late.act(&qp, faults, now));
        again.into_iter().chain(waits).chain(late).min()
    }
}

impl InjectorState {
    /// The turn of the request that is held back has come.
    fn act_on_held(
        &mut self,
        place: usize,
        qp: &Qp,
        driver: &mut Driver,
        now: Moment,
    ) -> Option<Moment> {
        let times = match self.faults[place].kind {
            FaultKind::Rnr(times) => times,
            FaultKind::QpError(status) => {
                self.faults[place].spent = true;
                fail(qp, driver, status_of(status));
                return None;
            }
            // Nothing ends it but the application, or the connection.
            _ => return None,
        };
        if self.waits_until.is_some_and(|until| now < until) {
            return self.waits_until;
        }
        self.waits_until = None;
        let patience = match driver.kind() {
            DeviceKind::Roce => qp.attrs().rnr_retry,
            DeviceKind::Iwarp => RNR_ENDLESS,
        };
        if self.refusals < times {
            self.refusals += 1;
            if patience != RNR_ENDLESS && self.refusals > u32::from(patience) {
                fail(qp, driver, WcStatus::RnrRetryExcErr);
                return None;
            }
            self.waits_until = Some(now + RNR_WAIT);
            return self.waits_until;
        }
        self.faults[place].spent = true;
        (self.holding, self.refusals) = (None, 0);
        qp.sq().release();
        driver.work(todo::SEND, now);
        None
    }
}

/// The oldest request ends as `status`, everything else is flushed, and the connection is over. A
/// queue pair without a request says so by an event.
fn fail(qp: &Qp, driver: &mut Driver, status: WcStatus) {
    qp.failure().note(QpFailure::Planned(status));
    let mut sq = qp.sq();
    let oldest = (!sq.is_idle()).then(|| sq.tail());
    if let Some(oldest) = oldest {
        sq.fail(oldest, qp.num(), qp.send_cq(), status, 0);
    }
    drop(sq);
    driver.disconnect();
    qp.fail(None);
    if oldest.is_none() || status == WcStatus::FatalErr {
        qp.raise(AsyncKind::QpFatal);
    }
}

fn status_of(status: Status) -> WcStatus {
    let all = [
        WcStatus::LocLenErr,
        WcStatus::LocQpOpErr,
        WcStatus::LocProtErr,
        WcStatus::WrFlushErr,
        WcStatus::RemInvReqErr,
        WcStatus::RemAccessErr,
        WcStatus::RemOpErr,
        WcStatus::RetryExcErr,
        WcStatus::RnrRetryExcErr,
    ];
    let found = all.into_iter().find(|known| *known as u32 == status.code);
    found.unwrap_or(WcStatus::FatalErr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_fault::FaultPlan;

    use crate::faults::tests::plan_of;

    fn planned(plan: &str) -> Planned {
        let faults = plan_of(plan);
        let planned =
            faults.of(1, Some(9), DeviceKind::Roce.into()).filter_map(Planned::new).next();
        planned.expect("a fault of a queue pair")
    }

    fn hit_at(plan: &str, op: SendOp) -> Option<usize> {
        let mut planned = planned(plan);
        (0..10_000).position(|_| planned.hits(&op))
    }

    #[test]
    fn the_request_after_so_many_is_the_one() {
        let write = SendOp::Write { to: 0, stag: 0 };
        assert_eq!(hit_at("qp-error:after=1000", write), Some(1000));
        assert_eq!(hit_at("qp-error", SendOp::Send), Some(0));
        assert_eq!(hit_at("hang:after=5", write), Some(5));
        assert_eq!(hit_at("rnr:3", write), None);
        assert_eq!(hit_at("rnr:3,after=7", SendOp::Send), Some(7));
        assert_eq!(hit_at("qp-error:at=1s", SendOp::Send), None);
    }

    #[test]
    fn chance_repeats_itself_with_its_seed() {
        let hit = |seed: u64| hit_at(&format!("qp-error=0.1%; seed={seed}"), SendOp::Send);
        assert_eq!(hit(1), hit(1));
        assert!((0..20).any(|seed| hit(seed) != hit(seed + 1)));
    }

    #[test]
    fn every_status_of_a_plan_is_one_of_the_verbs() {
        for name in ["loc-len", "flush", "rem-access", "retry-exc", "rnr-retry-exc", "fatal"] {
            let plan = FaultPlan::parse(&format!("qp-error:status={name}")).unwrap();
            let FaultKind::QpError(status) = plan.faults[0].kind else { panic!("{plan}") };
            assert_eq!(status_of(status) as u32, status.code, "{name}");
        }
    }
}
