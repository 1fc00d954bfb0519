//! Faults on purpose, as `WEFT_FAULT` asks for them (docs/faults.md).
//!
//! Each has one place. At the verbs: a [`crate::qp_faults::QpFaultInjector`] holds back the request
//! of a queue pair that is to fail and fails it in its turn, [`Faults::refuse`] fails calls, a
//! [`CqLimit`] ends a completion queue, a [`RegionFaults`] invalidates regions; a [`DeviceWatch`]
//! tells of the device and its port. Below them: a [`LinkFaults`] between a connection and its
//! socket loses, changes and delays what arrives.
//!
//! Invariant: without a plan there is no injector and no wire, and what looks for them is a test of
//! an `Option` that is `None`.

mod calls;
mod device;
mod identity;
mod journal;
mod late;
mod line;
mod regions;
mod wire;

use std::sync::{OnceLock, Weak};
use std::time::Duration;

use calls::CallCounter;
use device::PlannedChange;
pub use device::{DeviceChanges, DeviceState, DeviceUser, Outages, PORT_COOKIE, ToldDevice};
pub(crate) use device::{DeviceWatch, EndsWithDevice};
use identity::ProcessIdentity;
use journal::FaultJournal;
pub use journal::VARIABLE as JOURNAL_VARIABLE;
pub(crate) use late::LateCompletions;
pub(crate) use regions::{RegionFaults, Tamper};
use weft_fault::{Dice, FaultKind, FaultPlan, FaultSubject, PlannedFault, Verb, When};
use weft_os::clock::{self, Moment};
use weft_sync::Mutex;
use weft_verbs::Misuse;
pub(crate) use wire::LinkFaults;
pub use wire::Window;

use crate::device_kind::DeviceId;
use crate::devices::Devices;

/// The variable with the plan.
const VARIABLE: &str = "WEFT_FAULT";
/// The variable by which faults go to the machine's own devices, and not to Weft's.
const PASSTHROUGH: &str = "WEFT_PASSTHROUGH";

/// A fault for an object: its place in the plan, what it is, and its chance.
pub type DrawnFault<'a> = (usize, &'a PlannedFault, Dice);

/// The plan of a host, and how far its calls have come. The devices are Weft's own, by their
/// [`DeviceId`], or those of other providers, by their names.
pub struct Faults {
    plan: FaultPlan,
    seed: u64,
    devices: Devices,
    /// Which of the faults are for this process.
    own: Vec<bool>,
    calls: Vec<CallCounter>,
    pub(crate) regions: RegionFaults,
    /// When it was first asked what time it is.
    start: OnceLock<Moment>,
    /// When a device was opened first.
    opened: OnceLock<Moment>,
    journal: Option<FaultJournal>,
    users: Mutex<Vec<Weak<dyn DeviceUser>>>,
}

/// After how many completions a queue ends, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqLimit {
    /// The place of the fault in the plan.
    pub place: usize,
    /// Completions that the application is given.
    pub completions: u64,
    /// What it holds then can still be polled, and polling does not fail.
    pub is_overrun: bool,
}

impl Faults {
    /// What the environment asks for. A text that is no plan is none; the preload says so.
    pub(crate) fn plan_from_environment() -> Option<FaultPlan> {
        if std::env::var_os(PASSTHROUGH).is_some_and(|value| value == "1") {
            return None;
        }
        FaultPlan::parse(&std::env::var(VARIABLE).ok()?).ok()
    }

    /// The plan for a host with these devices, as far as it is for this process.
    pub(crate) fn new(plan: FaultPlan, devices: &Devices) -> Self {
        let identity = ProcessIdentity::own();
        let admits = |fault: &PlannedFault| {
            let names = identity.names();
            names.iter().any(|name| fault.on.admits_process(name, identity.rank))
        };
        let own: Vec<bool> = plan.faults.iter().map(admits).collect();
        let planned = || plan.faults.iter().enumerate().filter(|(place, _)| own[*place]);
        Self {
            seed: plan.seed.unwrap_or(0),
            devices: devices.clone(),
            calls: planned().filter_map(|(place, fault)| CallCounter::of(place, fault)).collect(),
            regions: RegionFaults::default(),
            start: OnceLock::new(),
            opened: OnceLock::new(),
            journal: FaultJournal::from_environment(&identity, plan.faults.len()),
            users: Mutex::default(),
            own,
            plan,
        }
    }

    /// Tells `user` when a device is reset, if that is planned.
    pub(crate) fn add_user(&self, user: Weak<dyn DeviceUser>) {
        let resets =
            |(_, fault): (usize, &PlannedFault)| matches!(fault.kind, FaultKind::DeviceFatal(_));
        if self.planned().any(resets) {
            let mut users = self.users.lock();
            users.retain(|user| user.strong_count() > 0);
            users.push(user);
        }
    }

    fn tell_users_of_removal(&self, device: DeviceId) {
        let users: Vec<_> = self.users.lock().iter().filter_map(Weak::upgrade).collect();
        users.iter().for_each(|user| user.device_removed(device));
    }

    /// The plan for devices of other providers.
    pub fn for_other_devices(plan: FaultPlan) -> Self {
        Self::new(plan, &Devices::read(|_| None))
    }

    fn name(&self, id: DeviceId) -> &str {
        self.devices.name(id)
    }

    /// Those of the faults that are for this process, with their places in the plan.
    pub fn planned(&self) -> impl Iterator<Item = (usize, &PlannedFault)> {
        self.plan.faults.iter().enumerate().filter(|(place, _)| self.own[*place])
    }

    /// The fault at `place` of the plan.
    fn planned_at(&self, place: usize) -> &PlannedFault {
        &self.plan.faults[place]
    }

    /// The fault at `place` of the plan happens.
    pub fn note(&self, place: usize) {
        if let Some(journal) = &self.journal {
            journal.fault(place);
        }
    }

    /// The same, of one that happens once in a process.
    pub fn note_once(&self, place: usize) {
        if let Some(journal) = &self.journal {
            journal.fault_once(place);
        }
    }

    /// Fails a call of a device of this kind, if it is to fail.
    pub(crate) fn refuse(&self, verb: Verb, id: DeviceId) -> Result<(), Misuse> {
        self.errno_of(verb, self.name(id)).map_or(Ok(()), |errno| Err(Misuse::System(errno)))
    }

    /// Counts a call of the device of this name; the errno that it fails with, if it does.
    pub fn errno_of(&self, verb: Verb, device: &str) -> Option<i32> {
        for call in &self.calls {
            if self.plan.faults[call.place].on.admits_device(device)
                && let Some(errno) = call.count(verb)
            {
                self.note(call.place);
                return Some(errno);
            }
        }
        None
    }

    /// After how many completions the queue `number` of a device of this kind ends, if it does.
    pub(crate) fn limit_of_queue(&self, number: u32, id: DeviceId) -> Option<CqLimit> {
        self.limit_of(number, self.name(id))
    }

    /// The same for a device of this name.
    pub fn limit_of(&self, number: u32, device: &str) -> Option<CqLimit> {
        let limit = |(place, fault, _): DrawnFault<'_>| {
            let When::After(completions) = fault.when else { return None };
            let is_overrun = match fault.kind {
                FaultKind::CqOverflow => false,
                FaultKind::CqOverrun => true,
                _ => return None,
            };
            Some(CqLimit { place, completions, is_overrun })
        };
        self.of_named(number, None, device).filter_map(limit).min_by_key(|limit| limit.completions)
    }

    /// When it is so long after the first connection, at the earliest of which this was called.
    pub fn at(&self, ns: u64) -> Moment {
        let begin = || {
            if let Some(journal) = &self.journal {
                journal.start();
            }
            clock::now()
        };
        *self.start.get_or_init(begin) + Duration::from_nanos(ns)
    }

    /// What is planned for a device, counted from when this was called first: by who opens one.
    pub(crate) fn changes(&self, id: DeviceId) -> DeviceChanges {
        self.changes_of(self.name(id))
    }

    /// The same for a device of this name.
    pub fn changes_of(&self, device: &str) -> DeviceChanges {
        let opened = *self.opened.get_or_init(clock::now);
        let change = |(place, fault): (usize, &PlannedFault)| {
            let When::AtNs(at_ns) = fault.when else { return None };
            let from = opened + Duration::from_nanos(at_ns);
            let own = fault.kind.is_of_device() && fault.on.admits_device(device);
            own.then_some(PlannedChange { place, kind: fault.kind, from })
        };
        DeviceChanges(self.planned().filter_map(change).collect())
    }

    /// What is planned for the device of this name, which is opened now, and what its context was
    /// told: what has happened before is no news to it, and what is planned for this moment comes
    /// after it.
    pub fn open(&self, device: &str) -> (DeviceChanges, ToldDevice) {
        // Before the plan begins with the first that is opened.
        let before = clock::now() - Duration::from_nanos(1);
        let changes = self.changes_of(device);
        let told = ToldDevice::at(&changes, before);
        (changes, told)
    }

    /// What a device is like now.
    pub(crate) fn state(&self, id: DeviceId) -> DeviceState {
        self.state_of(self.name(id))
    }

    /// The same of a device of this name.
    pub fn state_of(&self, device: &str) -> DeviceState {
        if self.opened.get().is_none() {
            return DeviceState::default();
        }
        self.changes_of(device).state(clock::now())
    }

    /// The faults for the object `number` of its kind, a queue pair with the number `qpn` if that
    /// is said, each with its dice.
    pub(crate) fn of(
        &self,
        number: u32,
        qpn: Option<u32>,
        id: DeviceId,
    ) -> impl Iterator<Item = DrawnFault<'_>> {
        self.of_named(number, qpn, self.name(id))
    }

    /// The same for an object of the device of this name.
    pub fn of_named<'a>(
        &'a self,
        number: u32,
        qpn: Option<u32>,
        device: &'a str,
    ) -> impl Iterator<Item = DrawnFault<'a>> {
        let subject = FaultSubject { number, qpn, device };
        let own = self.planned().filter(move |(_, fault)| fault.on.admits(&subject));
        own.map(move |(place, fault)| (place, fault, Dice::new(self.seed, place, number)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::device_kind::DeviceKind;

    /// The faults of a host with the usual devices.
    pub(crate) fn plan_of(text: &str) -> Faults {
        Faults::new(FaultPlan::parse(text).unwrap(), &Devices::read(|_| None))
    }

    #[test]
    fn one_of_many_is_chosen_by_device_number_or_process() {
        let faults = plan_of("hang:dev=weft0; hang:qpn=9; hang:process=nobody*; hang:rank=7777");
        let of = |qpn, kind| {
            faults
                .of(1, Some(qpn), DeviceId::from(kind))
                .map(|(place, _, _)| place)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(9, DeviceKind::Roce), [0, 1]);
        assert_eq!(of(8, DeviceKind::Roce), [0]);
        assert_eq!(of(9, DeviceKind::Iwarp), [1]);
    }

    #[test]
    fn objects_have_their_own_faults_and_dice() {
        let faults = plan_of("drop=50%; rnr:1,only=2; seed=7");
        let of = |number| faults.of(number, None, DeviceKind::Roce.into());
        assert_eq!((of(1).count(), of(2).count()), (1, 2));
        let falls = |number| {
            let (_, fault, mut dice) = of(number).next().unwrap();
            let FaultKind::Drop(share, _) = fault.kind else { panic!("{fault:?}") };
            (0..100).map(|_| dice.falls(share)).collect::<Vec<_>>()
        };
        assert_eq!(falls(1), falls(1));
        assert_ne!(falls(1), falls(2));
    }
}
