//! A bad wire between a connection and its socket.

use std::time::{Duration, Instant};

use weft_fault::{Dice, FaultDirection, FaultKind, Share};
use weft_os::clock;

use super::line::DelayQueue;
use super::{Faults, Outages};

/// What a queue pair's wire does to what passes.
pub(crate) struct LinkFaults<T> {
    losses: Vec<(Share, FaultDirection, Dice)>,
    changes: Vec<(Share, Dice)>,
    delays: Vec<(u64, u64, Dice)>,
    /// Nothing passes meanwhile.
    outages: Outages,
    /// Nothing passes any more.
    cut: bool,
    /// What has arrived and is not here yet.
    pub line: DelayQueue<T>,
    /// Whoever sends has closed its end, behind everything on the line.
    pub closed: bool,
}

impl<T> LinkFaults<T> {
    /// The wire of the queue pair `number`, if it has one.
    pub fn of(faults: Option<&Faults>, number: u32) -> Option<Box<Self>> {
        Self::planned(faults?, number)
    }

    fn planned(faults: &Faults, number: u32) -> Option<Box<Self>> {
        let mut wire = Self {
            losses: Vec::new(),
            changes: Vec::new(),
            delays: Vec::new(),
            outages: faults.outages(),
            cut: false,
            line: DelayQueue::default(),
            closed: false,
        };
        let mut needed = wire.outages.are_planned();
        for (fault, dice) in faults.of(number) {
            match fault.kind {
                FaultKind::Drop(share, way) => wire.losses.push((share, way, dice)),
                FaultKind::Corrupt(share) => wire.changes.push((share, dice)),
                FaultKind::Delay { delay_ns, jitter_ns } => {
                    wire.delays.push((delay_ns, jitter_ns, dice));
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
        let own =
            self.losses.iter_mut().filter(|(_, of, _)| [way, FaultDirection::Both].contains(of));
        // Each is asked, so that each is asked as often.
        let lost = own.fold(false, |lost, (share, _, dice)| lost | dice.falls(*share));
        lost || self.cut || self.outage_left().is_some()
    }

    /// Whether a datagram that arrives is here now. It may be lost, or come later.
    pub fn passes(&mut self, now: Instant, note: T, datagram: &mut [u8]) -> bool {
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
        for (share, dice) in &mut self.changes {
            if dice.falls(*share) && !octets.is_empty() {
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
        let late = |(delay_ns, jitter_ns, dice): &mut (u64, u64, Dice)| {
            *delay_ns + dice.below(jitter_ns.saturating_add(1))
        };
        let ns: u64 = self.delays.iter_mut().map(late).sum();
        // Of a stream nothing is lost: it comes when the port is back.
        let outage = self.outage_left();
        let delayed = outage.is_some() || !self.delays.is_empty();
        delayed.then(|| Duration::from_nanos(ns) + outage.unwrap_or_default())
    }

    /// When something on the line is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.line.next_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_fault::FaultPlan;

    fn wire(plan: &str) -> Option<Box<LinkFaults<()>>> {
        LinkFaults::planned(&Faults::new(FaultPlan::parse(plan).unwrap()), 1)
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
