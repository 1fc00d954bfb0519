//! The active connections of a group, and which of them a poll looks at.
//!
//! Of a connection by the network the set says that something has come. A connection by shared
//! memory says so only to who looks there: polls look at the one that had news last, and at some of
//! the others in turn. One that has had none for a while leaves, and is woken by its peer.
//!
//! Invariant: a connection is in one of the lists, once, while it is marked as active
//! ([`ConnSlot::set_active`]), or about to be.
//!
//! Order of calls: [`ActiveList::looks`] in each poll that looks, and [`ConnSlot::deactivate`] for
//! those that it says have left.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_os::clock::{Moment, ns_at};

use crate::conn_slot::ConnSlot;

/// Connections of each list.
const ACTIVE_MAX: usize = 1024;
/// Lanes that one poll looks at in turn. Each look takes some 25 ns, the system call after those
/// that find nothing ten times as long.
const LANE_LOOKS: usize = 4;
/// A lane leaves after so many looks without news, and no news for so long: then its peer makes a
/// system call for the next message. In a long list it is long between two looks.
const QUIET_LOOKS: u32 = 4;
const QUIET_NS: u64 = 4_000_000;
/// Connections by the network that an empty poll looks at for something that is due, and how often
/// one looks at all of them.
const DUE_LOOKS: usize = 16;
const SWEEP_NS: u64 = 1_000_000;

/// A connection that is polled by reading its lane.
struct ActiveLane {
    slot: Arc<ConnSlot>,
    /// When it had news, as of the last look at it, and looks since.
    news_ns: u64,
    quiet: u32,
}

impl ActiveLane {
    fn new(slot: Arc<ConnSlot>) -> Self {
        let news_ns = slot.news_ns();
        Self { slot, news_ns, quiet: 0 }
    }

    /// Counts a look; whether it has a reason to stay.
    fn stays(&mut self, now_ns: u64) -> bool {
        let news_ns = self.slot.news_ns();
        let is_new = std::mem::replace(&mut self.news_ns, news_ns) != news_ns;
        self.quiet = if is_new { 0 } else { self.quiet + 1 };
        let is_quiet = self.quiet >= QUIET_LOOKS && news_ns.saturating_add(QUIET_NS) < now_ns;
        !is_quiet && (self.slot.is_leased() || self.slot.owes_reply())
    }
}

/// Connections that have a lease or an acknowledgement that waits.
#[derive(Default)]
pub struct ActiveList {
    /// The last one had news last; the next to be looked at is the first.
    lanes: VecDeque<ActiveLane>,
    others: VecDeque<Arc<ConnSlot>>,
    /// When all of them were looked at for something due, in nanoseconds.
    swept_ns: u64,
}

/// What a poll looks at.
#[derive(Default)]
pub struct TurnLooks {
    /// For arrivals, of lanes.
    pub lanes: [Option<Arc<ConnSlot>>; 1 + LANE_LOOKS],
    /// The same, of the others.
    pub others: [Option<Arc<ConnSlot>>; 2],
    /// For what is due.
    pub due: Vec<Arc<ConnSlot>>,
    /// Is active no longer.
    pub left: Vec<Arc<ConnSlot>>,
}

impl ActiveList {
    /// Adds `slot`, which is not there; gives the one that makes room for it.
    pub fn add(&mut self, slot: &Arc<ConnSlot>) -> Option<Arc<ConnSlot>> {
        if slot.polls_lane() {
            self.lanes.push_back(ActiveLane::new(Arc::clone(slot)));
            let surplus = (self.lanes.len() > ACTIVE_MAX).then(|| self.lanes.pop_front());
            return surplus.flatten().map(|lane| lane.slot);
        }
        self.others.push_back(Arc::clone(slot));
        (self.others.len() > ACTIVE_MAX).then(|| self.others.pop_front()).flatten()
    }

    pub fn remove(&mut self, slot: &Arc<ConnSlot>) {
        self.lanes.retain(|lane| !Arc::ptr_eq(&lane.slot, slot));
        self.others.retain(|other| !Arc::ptr_eq(other, slot));
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ConnSlot>> {
        self.lanes.iter().map(|lane| &lane.slot).chain(&self.others)
    }

    /// What the poll `turn` looks at. An application that is idle has answered what it wanted to:
    /// acknowledgements that waited for that are due.
    pub fn looks(&mut self, turn: usize, now: Moment, is_idle: bool) -> TurnLooks {
        let mut looks = TurnLooks::default();
        self.next_lanes(ns_at(now), &mut looks);
        if is_idle {
            looks.others = self.next_others(turn);
        }
        let is_due = |slot: &&Arc<ConnSlot>| slot.is_due(now) || is_idle && slot.owes_reply();
        if self.swept_ns.saturating_add(SWEEP_NS) > ns_at(now) {
            let others = &self.others;
            let first = turn.wrapping_mul(DUE_LOOKS);
            let some = (0..DUE_LOOKS.min(others.len()))
                .map(|at| &others[first.wrapping_add(at) % others.len()]);
            looks.due = some.filter(is_due).cloned().collect();
            return looks;
        }
        self.swept_ns = ns_at(now);
        looks.due = self.all().filter(is_due).cloned().collect();
        self.sort_lanes(&mut looks.left);
        looks
    }

    /// The lane that had news last, and the next ones.
    fn next_lanes(&mut self, now_ns: u64, looks: &mut TurnLooks) {
        self.promote();
        let [last, others @ ..] = &mut looks.lanes;
        *last = self.lanes.back().map(|lane| Arc::clone(&lane.slot));
        let before = self.lanes.len().saturating_sub(1);
        for other in others.iter_mut().take(before) {
            let Some(mut lane) = self.lanes.pop_front() else { return };
            *other = Some(Arc::clone(&lane.slot));
            if lane.stays(now_ns) {
                // Behind all but the one that had news last.
                self.lanes.insert(self.lanes.len() - 1, lane);
            } else {
                looks.left.push(lane.slot);
            }
        }
    }

    /// Puts that one of the lanes that were looked at last to the end which had news last.
    fn promote(&mut self) {
        let first = self.lanes.len().saturating_sub(1 + LANE_LOOKS);
        let newest = (first..self.lanes.len()).max_by_key(|at| self.lanes[*at].slot.news_ns());
        if let (Some(newest), Some(last)) = (newest, self.lanes.len().checked_sub(1)) {
            self.lanes.swap(newest, last);
        }
    }

    /// The one of the others that was added last, and one of those before; which is no longer there
    /// if it has no reason to be.
    fn next_others(&mut self, turn: usize) -> [Option<Arc<ConnSlot>>; 2] {
        let list = &mut self.others;
        let before = list.len().saturating_sub(1);
        let last = list.back().cloned();
        if before == 0 {
            return [last, None];
        }
        let other = Arc::clone(&list[turn % before]);
        if !other.is_leased() && !other.owes_reply() {
            list.remove(turn % before);
            other.set_active(false);
        }
        [last, Some(other)]
    }

    /// Puts those among the lanes that have got one since they became active; gives those that make
    /// room for them.
    fn sort_lanes(&mut self, left: &mut Vec<Arc<ConnSlot>>) {
        let new: Vec<_> = self.others.iter().filter(|slot| slot.polls_lane()).cloned().collect();
        self.others.retain(|slot| !new.iter().any(|lane| Arc::ptr_eq(lane, slot)));
        left.extend(new.iter().filter_map(|slot| self.add(slot)));
    }
}
