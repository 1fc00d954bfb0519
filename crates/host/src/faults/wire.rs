//! A bad wire between a connection and its socket.

use std::time::Duration;

use weft_fault::{CorruptPlace, Dice, FaultDirection, FaultKind, PlannedFault, Share, When};
use weft_os::clock::{self, Moment};

use super::line::DelayQueue;
use super::{Faults, Outages};
use crate::device_kind::DeviceId;

/// What a queue pair's wire does to what passes.
pub(crate) struct LinkFaults<T> {
    losses: Vec<(Share, FaultDirection, Window, Dice)>,
    changes: Vec<(Share, Window, Dice)>,
    delays: Vec<(u64, u64, Window, Dice)>,
    /// Nothing passes meanwhile.
    outages: Outages,
    /// Nothing passes any more.
    cut: bool,
    /// What has arrived and is not here yet.
    pub line: DelayQueue<T>,
    /// Whoever sends has closed its end, behind everything on the line.
    pub closed: bool,
}

/// From when until when a fault lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    from: Option<Moment>,
    until: Option<Moment>,
}

impl Window {
    /// That of `fault`, by the clock of `faults`.
    pub fn of(faults: &Faults, fault: &PlannedFault) -> Self {
        let from = match fault.when {
            When::AtNs(ns) if ns > 0 => Some(faults.at(ns)),
            _ => None,
        };
        Self { from, until: fault.until_ns.map(|ns| faults.at(ns)) }
    }

    /// Whether it is now. Without limits no clock is asked.
    pub fn is_open(self) -> bool {
        if self == Self::default() {
            return true;
        }
        let now = clock::now();
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }
}

impl<T> LinkFaults<T> {
    /// The wire of the queue pair `number` of a device of this kind, if it has one; `qpn` is its
    /// number there.
    pub fn of(faults: Option<&Faults>, number: u32, qpn: u32, id: DeviceId) -> Option<Box<Self>> {
        let faults = faults?;
        let mut wire = Self {
            losses: Vec::new(),
            changes: Vec::new(),
            delays: Vec::new(),
            outages: faults.changes(id).outages(),
            cut: false,
            line: DelayQueue::default(),
            closed: false,
        };
        let mut needed = wire.outages.are_planned();
        for (_, fault, dice) in faults.of(number, Some(qpn), id) {
            let window = Window::of(faults, fault);
            match fault.kind {
                FaultKind::Drop(share, way) => wire.losses.push((share, way, window, dice)),
                FaultKind::Corrupt(share, CorruptPlace::Wire) => {
                    wire.changes.push((share, window, dice));
                }
                FaultKind::Delay { delay_ns, jitter_ns } => {
                    wire.delays.push((delay_ns, jitter_ns, window, dice));
                }
                FaultKind::PeerGone => {}
                _ => continue,
            }
            needed = true;
        }
        needed.then(|| Box::new(wire))
    }

    /// Nothing passes from now on.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// Whether the next datagram of this direction is lost.
    pub fn loses(&mut self, way: FaultDirection) -> bool {
        let own = self.losses.iter_mut().filter(|(_, of, window, _)| {
            [way, FaultDirection::Both].contains(of) && window.is_open()
        });
        // Each is asked, so that each is asked as often.
        let lost = own.fold(false, |lost, (share, _, _, dice)| lost | dice.falls(*share));
        lost || self.cut || self.outage_left().is_some()
    }

    /// Whether a datagram that arrives is here now. It may be lost, or come later.
    pub fn passes(&mut self, now: Moment, note: T, datagram: &mut [u8]) -> bool {
        if self.loses(FaultDirection::In) {
            return false;
        }
        self.spoil(datagram);
        let Some(late) = self.lateness() else { return true };
        // As a router does whose queue is full.
        if !self.line.is_full() {
            self.line.push(now + late, datagram.to_vec(), note);
        }
        false
    }

    /// Changes a bit of what arrives, perhaps; whether it did.
    pub fn spoil(&mut self, octets: &mut [u8]) -> bool {
        let mut spoiled = false;
        for (share, window, dice) in &mut self.changes {
            if window.is_open() && dice.falls(*share) && !octets.is_empty() {
                let bit = dice.below(octets.len() as u64 * 8);
                octets[(bit / 8) as usize] ^= 1 << (bit % 8);
                spoiled = true;
            }
        }
        spoiled
    }

    fn outage_left(&self) -> Option<Duration> {
        self.outages.are_planned().then(|| self.outages.left(clock::now())).flatten()
    }

    /// How much later something comes that arrives now, if it does.
    pub fn lateness(&mut self) -> Option<Duration> {
        let late = |(delay_ns, jitter_ns, window, dice): &mut (u64, u64, Window, Dice)| {
            window.is_open().then(|| *delay_ns + dice.below(jitter_ns.saturating_add(1)))
        };
        let late: Vec<u64> = self.delays.iter_mut().filter_map(late).collect();
        // Of a stream nothing is lost: it comes when the port is back.
        let outage = self.outage_left();
        let delayed = outage.is_some() || !late.is_empty();
        let ns = late.iter().sum();
        delayed.then(|| Duration::from_nanos(ns) + outage.unwrap_or_default())
    }

    /// When something on the line is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.line.next_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_kind::DeviceKind;
    use crate::faults::tests::plan_of;

    fn wire(plan: &str) -> Option<Box<LinkFaults<()>>> {
        LinkFaults::of(Some(&plan_of(plan)), 1, 9, DeviceKind::Roce.into())
    }

    #[test]
    fn what_is_not_yet_or_no_more_does_nothing() {
        assert!(wire("drop=100%:until=3600s").unwrap().loses(FaultDirection::In));
        assert!(!wire("drop=100%:at=3600s").unwrap().loses(FaultDirection::In));
        assert_eq!(wire("delay=5ms:at=3600s").unwrap().lateness(), None);
        assert!(!wire("corrupt=100%:until=1ns").unwrap().spoil(&mut [0]));
    }

    #[test]
    fn only_faults_below_the_verbs_make_a_wire() {
        assert!(wire("qp-error; cq-overflow; rnr:3; drop=1%:only=2").is_none());
        assert!(wire("peer-gone").is_some());
    }

    #[test]
    fn directions_are_kept_apart() {
        let mut wire = wire("drop=100%:way=in").unwrap();
        assert!(wire.loses(FaultDirection::In) && !wire.loses(FaultDirection::Out));
        wire.cut();
        assert!(wire.loses(FaultDirection::Out));
    }

    #[test]
    fn one_bit_is_changed_and_the_same_one_again() {
        let spoilt = || {
            let mut octets = [0_u8; 64];
            assert!(wire("corrupt=100%; seed=3").unwrap().spoil(&mut octets));
            octets
        };
        assert_eq!(spoilt().iter().map(|octet| octet.count_ones()).sum::<u32>(), 1);
        assert_eq!(spoilt(), spoilt());
        assert!(!wire("corrupt=100%").unwrap().spoil(&mut []));
    }

    #[test]
    fn delays_add_up_and_vary_no_more_than_they_may() {
        assert_eq!(wire("drop=1%").unwrap().lateness(), None);
        let mut wire = wire("delay=5ms; delay=2ms:jitter=1ms").unwrap();
        let range = Duration::from_millis(7)..=Duration::from_millis(8);
        assert!((0..100).all(|_| range.contains(&wire.lateness().unwrap())));
    }
}
