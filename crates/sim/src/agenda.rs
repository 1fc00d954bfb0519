//! What happens next.
//!
//! Every source of events (a link, a flow, the meter) has one time at which it is due. Invariant:
//! the earliest is first, and of two that are due at once the one with the lower number, so that
//! the order of events is a function of the times alone.

/// A time that never comes.
pub const NEVER_NS: u64 = u64::MAX;

/// A tournament of due times: the winner is found at once, a change costs one match a level.
#[derive(Debug)]
pub struct TimerTournament {
    due_ns: Vec<u64>,
    /// The winners, the final at 1; leaves stand from `leaves` on.
    winners: Vec<u32>,
    leaves: usize,
}

impl TimerTournament {
    /// An agenda of `sources` that are never due.
    ///
    /// # Panics
    /// Without a source, or with more than 2^31.
    pub fn new(sources: usize) -> Self {
        assert!(sources > 0 && sources < 1 << 31, "{sources} sources of events");
        let leaves = sources.next_power_of_two();
        let mut winners = vec![0; 2 * leaves];
        for at in (1..2 * leaves).rev() {
            winners[at] = if at >= leaves { (at - leaves) as u32 } else { winners[2 * at] };
        }
        Self { due_ns: vec![NEVER_NS; leaves], winners, leaves }
    }

    /// Says when `source` is due next.
    pub fn set(&mut self, source: usize, due_ns: u64) {
        if self.due_ns[source] == due_ns {
            return;
        }
        self.due_ns[source] = due_ns;
        let mut at = (self.leaves + source) / 2;
        while at > 0 {
            let (left, right) = (self.winners[2 * at], self.winners[2 * at + 1]);
            let right_first = self.due_ns[right as usize] < self.due_ns[left as usize];
            self.winners[at] = if right_first { right } else { left };
            at /= 2;
        }
    }

    /// The source that is due first, and when.
    pub fn first(&self) -> (usize, u64) {
        let source = self.winners[1] as usize;
        (source, self.due_ns[source])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_first_and_the_lower_number_breaks_ties() {
        let mut agenda = TimerTournament::new(5);
        assert_eq!(agenda.first(), (0, NEVER_NS));
        for (source, due_ns) in [(4, 30), (2, 20), (3, 20), (0, 50)] {
            agenda.set(source, due_ns);
        }
        let mut order = Vec::new();
        while let (source, due_ns) = agenda.first()
            && due_ns < NEVER_NS
        {
            order.push((source, due_ns));
            agenda.set(source, NEVER_NS);
        }
        assert_eq!(order, [(2, 20), (3, 20), (4, 30), (0, 50)]);
    }

    #[test]
    fn it_agrees_with_a_sorted_list() {
        for sources in 1..=9 {
            let mut agenda = TimerTournament::new(sources);
            let mut due = vec![NEVER_NS; sources];
            let mut number = 7u64;
            for _ in 0..500 {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let source = (number >> 33) as usize % sources;
                due[source] = (number >> 40) % 16;
                agenda.set(source, due[source]);
                let best = (0..sources).min_by_key(|source| (due[*source], *source)).unwrap();
                assert_eq!(agenda.first(), (best, due[best]), "{due:?}");
            }
        }
    }
}
