//! Path MTU discovery by probe packets (RFC 8899), S-76 to S-78.
//!
//! Invariant: the size in use has been acknowledged, or is the one that every path must carry.

/// Lost probes of one size before it counts as too large: at 5 % loss a fitting size is missed once
/// in 160,000.
const TRIES: u8 = 4;
/// Resolution of the search in bytes: 1.3 % of the smallest datagram.
const GRAIN: u16 = 16;
/// Time after which a finished search is repeated, 10 min as in RFC 8899: routes change.
const AGAIN_NS: u64 = 600_000_000_000;

/// State of the search on one path; sizes in bytes.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    /// Size that the path carries for certain.
    base: u16,
    /// Largest size that both hosts support.
    goal: u16,
    /// Largest size acknowledged.
    low: u16,
    /// Largest size not yet ruled out.
    high: u16,
    /// A probe is in flight.
    waiting: bool,
    losses: u8,
    next_ns: u64,
}

impl MtuSearch {
    /// A search between `base`, which is known to fit, and `goal`.
    pub(crate) fn new(base: u16, goal: u16) -> Self {
        let goal = goal.max(base);
        Self { base, goal, low: base, high: goal, waiting: false, losses: 0, next_ns: 0 }
    }

    /// Whether a probe may be due.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        !self.waiting && now_ns >= self.next_ns && self.goal - self.low >= GRAIN
    }

    /// Size of a probe to send now. The goal is tried first: it is often right.
    pub(crate) fn poll(&mut self, now_ns: u64) -> Option<u16> {
        if self.waiting || now_ns < self.next_ns {
            return None;
        }
        if self.high - self.low < GRAIN {
            if self.goal - self.low < GRAIN {
                return None;
            }
            if self.next_ns == 0 {
                self.next_ns = now_ns + AGAIN_NS;
                return None;
            }
            (self.high, self.next_ns) = (self.goal, 0);
        }
        self.waiting = true;
        Some(self.size())
    }

    /// Largest size acknowledged.
    pub(crate) fn found(&self) -> u16 {
        self.low
    }

    fn size(&self) -> u16 {
        if self.high == self.goal {
            self.goal
        } else {
            self.low + (self.high - self.low).div_ceil(2)
        }
    }

    /// Records that a probe of `octets` arrived; returns the new size if it grew.
    pub(crate) fn handle_acked(&mut self, octets: u16) -> Option<u16> {
        (self.waiting, self.losses) = (false, 0);
        let grew = octets > self.low;
        self.low = self.low.max(octets);
        self.high = self.high.max(self.low);
        grew.then_some(self.low)
    }

    /// Records that a probe of `octets` was lost.
    pub(crate) fn handle_lost(&mut self, octets: u16) {
        self.waiting = false;
        self.losses += 1;
        if self.losses == TRIES {
            self.losses = 0;
            self.high = self.high.min(octets - 1).max(self.low);
        }
    }

    /// Gives up the size in use, which is lost more often than smaller ones. Returns the size to
    /// use; the search continues in the lower half, because a size a little smaller is as suspect.
    pub(crate) fn handle_suspect(&mut self) -> u16 {
        self.high = self.base + (self.low - self.base) / 2;
        self.low = self.base;
        (self.waiting, self.losses, self.next_ns) = (false, 0, 0);
        self.base
    }

    /// Restarts after an outage: the path may have become smaller. Returns the size to use.
    pub(crate) fn handle_black_hole(&mut self) -> u16 {
        *self = Self::new(self.base, self.goal);
        self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size found on a path that carries `carries`, and the probes that it took.
    fn search(goal: u16, carries: u16) -> (u16, u32) {
        let (mut search, mut probes) = (MtuSearch::new(1200, goal), 0);
        while let Some(octets) = search.poll(1) {
            probes += 1;
            assert!(octets > search.low && octets <= goal);
            match octets <= carries {
                true => drop(search.handle_acked(octets)),
                false => search.handle_lost(octets),
            }
        }
        (search.low, probes)
    }

    #[test]
    fn it_finds_what_the_path_carries() {
        assert_eq!(search(1472, 1472), (1472, 1));
        assert_eq!(search(1200, 9000), (1200, 0));
        for carries in [1200, 1300, 1452, 4000, 8972, 60_000] {
            let (found, probes) = search(65_507, carries);
            assert!(found <= carries && carries - found < GRAIN, "{found} of {carries}");
            assert!(probes < 70, "{probes}");
        }
    }

    #[test]
    fn it_starts_over_later_and_after_a_black_hole() {
        let mut search = MtuSearch::new(1200, 9000);
        for _ in 0..100 {
            if let Some(octets) = search.poll(1) {
                search.handle_lost(octets);
            }
        }
        assert_eq!(search.poll(2), None);
        assert_eq!(search.poll(1 + AGAIN_NS), Some(9000));
        assert_eq!(search.handle_acked(9000), Some(9000));
        assert_eq!(search.handle_suspect(), 1200);
        assert_eq!(search.poll(5), Some(1200 + 3900 / 2));
        assert_eq!(search.handle_black_hole(), 1200);
        assert_eq!(search.poll(5), Some(9000));
    }

    /// What may be due must be looked for before a connection sleeps.
    #[test]
    fn a_probe_may_be_due_until_one_is_in_flight_or_there_is_nothing_to_find() {
        let mut search = MtuSearch::new(1200, 1216);
        assert!(search.is_due(0));
        assert_eq!(search.poll(0), Some(1216));
        assert!(!search.is_due(0), "one at a time");
        search.handle_acked(1216);
        assert!(!search.is_due(0) && search.poll(0).is_none());
        assert!(!MtuSearch::new(1200, 1215).is_due(0));
        let mut search = MtuSearch::new(1200, 9000);
        while let Some(octets) = search.poll(5) {
            search.handle_lost(octets);
        }
        assert!(!search.is_due(5 + AGAIN_NS - 1) && search.is_due(5 + AGAIN_NS));
    }

    /// Half of what was given up, since a size a little smaller is as suspect; and no loss of
    /// before counts.
    #[test]
    fn each_size_has_four_probes_to_itself() {
        let mut search = MtuSearch::new(1200, 9000);
        for at in 0..TRIES {
            assert_eq!(search.poll(0), Some(9000), "{at}");
            search.handle_lost(9000);
        }
        let next = search.poll(0).unwrap();
        assert_eq!(next, 1200 + (8999 - 1200_u16).div_ceil(2));
        search.handle_lost(next);
        assert_eq!(search.poll(0), Some(next));
        assert_eq!(search.handle_acked(next), Some(next));
        assert_eq!(search.handle_acked(next), None, "nothing new");
        assert_eq!(search.found(), next);
    }
}
