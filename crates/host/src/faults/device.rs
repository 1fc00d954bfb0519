//! What changes about a device and its port at planned times, and who is told of it.
//!
//! What the device is like is a function of the time ([`DeviceChanges::state`]), so that it needs
//! no thread; a [`DeviceWatch`] tells the events of it to one context, and ends the queue pairs of
//! the context when the device is reset.
//!
//! The events, as Linux 6.12 raises them. Port: one `PORT_ERR`, one `PORT_ACTIVE` for an outage
//! (mlx5 `mlx5_netdev_event`, rxe `rxe_port_down` and `rxe_port_up`). GIDs: one `GID_CHANGE` for
//! all that leave with an interface and one for each that comes (`ib_cache_gid_del_all_netdev_gids`
//! and `__ib_cache_gid_add` in ib_core), one for each address that goes (`_ib_cache_gid_del`). Keys
//! and local identifiers: one `PKEY_CHANGE` or `LID_CHANGE` (mlx5 `handle_port_change`). Reset: the
//! completion queues are told first, then one `DEVICE_FATAL` (mlx5
//! `mlx5_ib_handle_sys_error_event`), and from then on every command of a context that was open
//! says `EIO` (ib_uverbs, after `ib_uverbs_free_hw_resources`).
//!
//! Order of calls: [`DeviceWatch::begin`] for each context, after its host's reactor has started;
//! [`DeviceWatch::enlist`] for each of its queue pairs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_fault::FaultKind;
use weft_os::clock::Moment;
use weft_reactor::{Pollable, Reactor, Readiness};
use weft_sync::Mutex;
use weft_verbs::{AsyncKind, AsyncQueue, Misuse};

use super::Faults;
use crate::device_kind::DeviceId;

/// No object is called so: the event is the port's or the device's.
pub const PORT_COOKIE: u64 = u64::MAX;

/// The default partition, with full membership.
const PKEY_DEFAULT: u16 = 0xffff;

/// What a device and its port are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// The port is down.
    pub down: bool,
    /// By how many rows the GID table has moved.
    pub gids_moved: u32,
    /// The port has no addresses.
    pub addresses_gone: bool,
    /// The first partition key.
    pub pkey: u16,
    /// The local identifier.
    pub lid: u16,
    /// The device is being reset: it is not there.
    pub resetting: bool,
}

impl Default for DeviceState {
    fn default() -> Self {
        Self {
            down: false,
            gids_moved: 0,
            addresses_gone: false,
            pkey: PKEY_DEFAULT,
            lid: 0,
            resetting: false,
        }
    }
}

/// When something does not pass: from, until.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages(pub Vec<(Moment, Moment)>);

impl Outages {
    /// Whether there are some.
    pub fn are_planned(&self) -> bool {
        !self.0.is_empty()
    }

    /// How long it lasts from now on, if it does.
    pub fn left(&self, now: Moment) -> Option<Duration> {
        let during = self.0.iter().filter(|(from, until)| (*from..*until).contains(&now));
        during.map(|(_, until)| until.saturating_duration_since(now)).max()
    }
}

/// A planned change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedChange {
    /// Its place in the plan.
    pub place: usize,
    pub kind: FaultKind,
    pub from: Moment,
}

impl PlannedChange {
    /// When it is undone, if it is.
    fn until(&self) -> Option<Moment> {
        match self.kind {
            FaultKind::PortDown(ns) | FaultKind::AddrGone(ns) | FaultKind::DeviceFatal(ns) => {
                Some(self.from + Duration::from_nanos(ns))
            }
            _ => None,
        }
    }

    fn is_so(&self, now: Moment) -> bool {
        self.from <= now && self.until().is_none_or(|until| now < until)
    }
}

/// The planned changes of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceChanges(pub(super) Vec<PlannedChange>);

impl DeviceChanges {
    /// What the device is like.
    pub fn state(&self, now: Moment) -> DeviceState {
        let mut state = DeviceState::default();
        for change in self.0.iter().filter(|change| change.is_so(now)) {
            match change.kind {
                FaultKind::PortDown(_) => state.down = true,
                FaultKind::GidChange => state.gids_moved += 1,
                FaultKind::AddrGone(_) => state.addresses_gone = true,
                FaultKind::PkeyChange(pkey) => state.pkey = pkey,
                FaultKind::LidChange(lid) => state.lid = lid,
                FaultKind::DeviceFatal(_) => state.resetting = true,
                _ => {}
            }
        }
        state
    }

    /// When nothing passes between the port and the network.
    pub fn outages(&self) -> Outages {
        let cuts = |change: &&PlannedChange| {
            matches!(change.kind, FaultKind::PortDown(_) | FaultKind::AddrGone(_))
        };
        let outages = self.0.iter().filter(cuts);
        Outages(outages.filter_map(|change| Some((change.from, change.until()?))).collect())
    }

    /// Whether nothing is planned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The places in the plan of what has begun.
    pub fn begun(&self, now: Moment) -> impl Iterator<Item = usize> {
        self.0.iter().filter(move |change| change.from <= now).map(|change| change.place)
    }

    /// Every time at which something changes.
    pub fn times(&self) -> impl Iterator<Item = Moment> {
        self.0.iter().flat_map(|change| [Some(change.from), change.until()]).flatten()
    }
}

/// What is told of one step from a state to the next, in this order. `rows` are those of the GID
/// table that are used.
fn events_between(before: DeviceState, now: DeviceState, rows: usize) -> Vec<AsyncKind> {
    let mut events = Vec::new();
    if before.pkey != now.pkey {
        events.push(AsyncKind::PkeyChange);
    }
    if before.lid != now.lid {
        events.push(AsyncKind::LidChange);
    }
    for _ in before.gids_moved..now.gids_moved {
        events.extend(std::iter::repeat_n(AsyncKind::GidChange, rows + 1));
    }
    if before.addresses_gone != now.addresses_gone {
        events.extend(std::iter::repeat_n(AsyncKind::GidChange, rows));
    }
    if before.down != now.down {
        events.push(if now.down { AsyncKind::PortErr } else { AsyncKind::PortActive });
    }
    if !before.resetting && now.resetting {
        events.push(AsyncKind::DeviceFatal);
    }
    events
}

/// What a context was told last, and of what time that was.
#[derive(Clone, Copy, Debug)]
pub struct ToldDevice {
    state: DeviceState,
    at: Moment,
}

impl ToldDevice {
    /// Of a context that was opened at `at`.
    pub(super) fn at(changes: &DeviceChanges, at: Moment) -> Self {
        Self { state: changes.state(at), at }
    }

    /// What the device is like, as it was told.
    pub fn state(&self) -> DeviceState {
        self.state
    }

    /// The events from then until `now`, in their order: of a short outage both, however late this
    /// is called.
    pub fn advance(&mut self, changes: &DeviceChanges, now: Moment, rows: usize) -> Vec<AsyncKind> {
        let mut times: Vec<_> = changes.times().filter(|at| *at > self.at && *at <= now).collect();
        times.sort_unstable();
        times.dedup();
        let mut events = Vec::new();
        for at in times {
            let state = changes.state(at);
            events.extend(events_between(self.state, state, rows));
            *self = Self { state, at };
        }
        events
    }
}

/// What ends when its device is reset.
pub(crate) trait EndsWithDevice: Send + Sync {
    /// Fails, and flushes what was posted, without an event.
    fn end_with_device(&self);
}

/// What hears of the reset of a device besides the queue pairs of its contexts: ids of rdma-cm.
pub trait DeviceUser: Send + Sync {
    /// The device is reset.
    fn device_removed(&self, device: DeviceId);
}

/// Tells a context what its device does, and ends its queue pairs with the device.
pub(crate) struct DeviceWatch {
    faults: Arc<Faults>,
    device: DeviceId,
    /// Rows of the GID table that are used.
    rows: Box<dyn Fn() -> usize + Send + Sync>,
    changes: DeviceChanges,
    events: Arc<AsyncQueue>,
    told: Mutex<ToldDevice>,
    members: Mutex<Vec<Weak<dyn EndsWithDevice>>>,
    gone: AtomicBool,
}

impl DeviceWatch {
    /// For the context with these `events`, of a device of this kind whose table of GIDs has so
    /// many `rows`; none if nothing is planned.
    ///
    /// # Errors
    /// `ENODEV` while the device is being reset.
    pub fn begin(
        faults: &Arc<Faults>,
        id: DeviceId,
        reactor: &Reactor,
        rows: Box<dyn Fn() -> usize + Send + Sync>,
        events: &Arc<AsyncQueue>,
    ) -> Result<Option<Arc<Self>>, Misuse> {
        let (changes, told) = faults.open(faults.name(id));
        if changes.0.is_empty() {
            return Ok(None);
        }
        if told.state.resetting {
            return Err(Misuse::System(libc::ENODEV));
        }
        let watch = Arc::new(Self {
            faults: Arc::clone(faults),
            device: id,
            rows,
            told: Mutex::new(told),
            changes,
            events: Arc::clone(events),
            members: Mutex::default(),
            gone: AtomicBool::new(false),
        });
        let called = Arc::clone(&watch) as Arc<dyn Pollable>;
        for at in watch.changes.times() {
            reactor.set_timer(at, Arc::downgrade(&called));
        }
        Ok(Some(watch))
    }

    /// Notes a queue pair of the context, which ends with the device.
    pub fn enlist(&self, member: Weak<dyn EndsWithDevice>) {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
    }

    /// Whether the device was reset since the context was opened: no command succeeds any more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn end_members(&self) {
        self.gone.store(true, Ordering::Release);
        let members: Vec<_> = std::mem::take(&mut *self.members.lock());
        for member in members.iter().filter_map(Weak::upgrade) {
            member.end_with_device();
        }
    }
}

impl Pollable for DeviceWatch {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, now: Moment) {
        // Held to the end, so that events of two times keep their order.
        let mut told = self.told.lock();
        let events = told.advance(&self.changes, now, (self.rows)());
        self.changes.begun(now).for_each(|place| self.faults.note_once(place));
        for kind in events {
            if kind == AsyncKind::DeviceFatal {
                // Before their connections end, which is not told besides.
                self.faults.tell_users_of_removal(self.device);
                self.end_members();
            }
            self.events.push(kind, PORT_COOKIE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(start: Moment, list: &[(FaultKind, u64)]) -> DeviceChanges {
        let change = |(kind, ms): &(FaultKind, u64)| PlannedChange {
            place: 0,
            kind: *kind,
            from: start + Duration::from_millis(*ms),
        };
        DeviceChanges(list.iter().map(change).collect())
    }

    /// All events of a plan, when it is looked at each `step` milliseconds.
    fn events_by(list: &[(FaultKind, u64)], rows: usize, step: usize) -> Vec<(u64, AsyncKind)> {
        let start = weft_os::clock::now();
        let changes = changes(start, list);
        let mut told = ToldDevice { state: DeviceState::default(), at: start };
        let mut events = Vec::new();
        for ms in (0..=100).step_by(step) {
            let now = start + Duration::from_millis(ms);
            events.extend(told.advance(&changes, now, rows).into_iter().map(|kind| (ms, kind)));
        }
        events
    }

    fn events(list: &[(FaultKind, u64)], rows: usize) -> Vec<(u64, AsyncKind)> {
        events_by(list, rows, 1)
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn overlapping_outages_are_one() {
        let start = weft_os::clock::now();
        let list = [(FaultKind::PortDown(20 * MS), 10), (FaultKind::PortDown(30 * MS), 20)];
        let outages = changes(start, &list).outages();
        let left = |ms| outages.left(start + Duration::from_millis(ms));
        assert_eq!((left(9), left(50)), (None, None));
        assert_eq!(left(25), Some(Duration::from_millis(25)));
        assert_eq!(events(&list, 1), [(10, AsyncKind::PortErr), (50, AsyncKind::PortActive)]);
    }

    #[test]
    fn an_outage_that_is_over_when_it_is_looked_at_is_told_all_the_same() {
        let list = [(FaultKind::PortDown(5 * MS), 10), (FaultKind::GidChange, 12)];
        use AsyncKind::{GidChange, PortActive, PortErr};
        let all = [PortErr, GidChange, GidChange, PortActive].map(|kind| (100, kind));
        assert_eq!(events_by(&list, 1, 100), all);
    }

    #[test]
    fn every_gid_that_goes_or_comes_has_its_event() {
        let gone = events(&[(FaultKind::AddrGone(5 * MS), 10)], 2);
        assert_eq!(gone, [10, 10, 15, 15].map(|ms| (ms, AsyncKind::GidChange)));
        let moved = events(&[(FaultKind::GidChange, 3)], 2);
        assert_eq!(moved, [3, 3, 3].map(|ms| (ms, AsyncKind::GidChange)));
    }

    #[test]
    fn a_reset_is_told_once_and_its_end_is_not() {
        let list = [(FaultKind::DeviceFatal(10 * MS), 5)];
        assert_eq!(events(&list, 1), [(5, AsyncKind::DeviceFatal)]);
        let start = weft_os::clock::now();
        let at = |ms| changes(start, &list).state(start + Duration::from_millis(ms)).resetting;
        assert_eq!([4, 5, 14, 15].map(at), [false, true, true, false]);
    }

    #[test]
    fn keys_and_identifiers_stay_changed() {
        let list = [(FaultKind::PkeyChange(0x8001), 1), (FaultKind::LidChange(7), 1)];
        assert_eq!(events(&list, 1), [(1, AsyncKind::PkeyChange), (1, AsyncKind::LidChange)]);
        let start = weft_os::clock::now();
        let state = changes(start, &list).state(start + Duration::from_secs(9));
        assert_eq!((state.pkey, state.lid), (0x8001, 7));
    }
}
