//! Memory regions that become invalid, and payload that is changed where no CRC sees it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_fault::{CorruptPlace, Dice, FaultKind, Share, When};
use weft_os::clock::{self, Moment};
use weft_reactor::{Pollable, Reactor, Readiness};
use weft_rnic::RdmaDevice;
use weft_sync::Mutex;

use super::wire::Window;
use super::{DrawnFault, Faults};
use crate::device_kind::DeviceId;

/// Regions that are to become invalid once so many requests were posted.
#[derive(Default)]
pub(crate) struct RegionFaults {
    /// Regions so far.
    made: AtomicU32,
    posted: AtomicU64,
    counted: Mutex<Vec<CountedRegion>>,
    /// Whether there are some, for who posts.
    any: AtomicBool,
    /// What the reactor's timers call, which know it weakly.
    ends: Mutex<Vec<Arc<RegionEnd>>>,
}

struct CountedRegion {
    place: usize,
    after: u64,
    device: Weak<RdmaDevice>,
    key: u32,
}

impl RegionFaults {
    /// A request was posted: the regions that end with it do.
    pub fn note_post(&self, faults: &Faults) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let posted = self.posted.fetch_add(1, Ordering::Relaxed);
        let mut counted = self.counted.lock();
        counted.retain(|region| {
            if region.after > posted {
                return true;
            }
            faults.note(region.place);
            invalidate(&region.device, region.key);
            false
        });
    }
}

fn invalidate(device: &Weak<RdmaDevice>, key: u32) {
    if let Some(device) = device.upgrade() {
        device.regions().spoil(key);
    }
}

/// Ends a region when its time has come.
struct RegionEnd {
    faults: Weak<Faults>,
    place: usize,
    device: Weak<RdmaDevice>,
    key: u32,
}

impl Pollable for RegionEnd {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, _: Moment) {
        if let Some(faults) = self.faults.upgrade() {
            faults.note(self.place);
        }
        invalidate(&self.device, self.key);
    }
}

impl Faults {
    /// Plans the end of the region `key` of a device, which was just made, if it is to have one.
    pub(crate) fn plan_region(
        self: &Arc<Self>,
        (reactor, device): (&Reactor, &Arc<RdmaDevice>),
        id: DeviceId,
        key: u32,
    ) {
        let number = self.regions.made.fetch_add(1, Ordering::Relaxed) + 1;
        for (place, fault, _) in self.of(number, None, id) {
            let device = Arc::downgrade(device);
            match (fault.kind, fault.when) {
                (FaultKind::MrInvalid, When::After(after)) => {
                    let region = CountedRegion { place, after, device, key };
                    self.regions.counted.lock().push(region);
                    self.regions.any.store(true, Ordering::Release);
                }
                (FaultKind::MrInvalid, When::AtNs(ns)) => {
                    let end = RegionEnd { faults: Arc::downgrade(self), place, device, key };
                    let end = Arc::new(end);
                    let called = Arc::clone(&end) as Arc<dyn Pollable>;
                    let at = clock::now() + Duration::from_nanos(ns);
                    reactor.set_timer(at, Arc::downgrade(&called));
                    self.regions.ends.lock().push(end);
                }
                _ => {}
            }
        }
    }
}

/// Chooses the bits that are changed in payload which the transport found to be right.
pub(crate) struct Tamper {
    faults: Weak<Faults>,
    chances: Mutex<Vec<TamperChance>>,
}

struct TamperChance {
    place: usize,
    share: Share,
    /// Known from the first payload on.
    window: Option<Window>,
    dice: Dice,
}

impl Tamper {
    /// For a device of this kind; none if nothing is planned.
    pub fn of(faults: &Arc<Faults>, id: DeviceId) -> Option<Self> {
        let chance = |(place, fault, dice): DrawnFault<'_>| match fault.kind {
            FaultKind::Corrupt(share, CorruptPlace::Payload) => {
                Some(TamperChance { place, share, window: None, dice })
            }
            _ => None,
        };
        let chances: Vec<_> = faults.of(0, None, id).filter_map(chance).collect();
        let faults = Arc::downgrade(faults);
        (!chances.is_empty()).then(|| Self { faults, chances: Mutex::new(chances) })
    }

    /// The bit to change in a piece of so many bytes, if one is.
    pub fn bit(&self, bytes: u64) -> Option<u64> {
        let faults = self.faults.upgrade()?;
        let mut chosen = None;
        for TamperChance { place, share, window, dice } in self.chances.lock().iter_mut() {
            let window =
                window.get_or_insert_with(|| Window::of(&faults, faults.planned_at(*place)));
            if window.is_open() && dice.falls(*share) && bytes > 0 {
                faults.note(*place);
                chosen = chosen.or(Some(dice.below(bytes.saturating_mul(8))));
            }
        }
        chosen
    }
}
