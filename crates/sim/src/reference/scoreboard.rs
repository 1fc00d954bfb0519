//! What has been sent and what became of it, burst by burst.

use std::collections::VecDeque;

use super::PacketRun;

/// Packets that left together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBurst {
    /// The number of its first packet.
    pub first: u64,
    /// How many packets, at most 64.
    pub packets: u32,
    /// When it left.
    pub sent_ns: u64,
    /// Bytes delivered at that time.
    pub delivered_octets: u64,
    /// When the newest of those was acknowledged.
    pub delivered_ns: u64,
    /// When the packet was sent whose acknowledgement that was.
    pub first_sent_ns: u64,
    /// Nothing waited to be sent.
    pub app_limited: bool,
    acked: u64,
    lost: u64,
}

impl PacketBurst {
    /// A burst of which nothing is known yet.
    pub fn new(first: u64, packets: u32, sent_ns: u64) -> Self {
        Self {
            first,
            packets,
            sent_ns,
            delivered_octets: 0,
            delivered_ns: 0,
            first_sent_ns: 0,
            app_limited: false,
            acked: 0,
            lost: 0,
        }
    }

    fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }

    fn unresolved(&self) -> u64 {
        low_bits(u64::from(self.packets)) & !(self.acked | self.lost)
    }

    /// The bits of the packets numbered `from` to `end`.
    fn bits(&self, from: u64, end: u64) -> u64 {
        let from = from.max(self.first) - self.first;
        let end = end.min(self.end()).max(self.first) - self.first;
        if end > from { low_bits(end) & !low_bits(from) } else { 0 }
    }
}

/// What one burst's share of an acknowledgement was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstAck {
    /// The burst.
    pub burst: PacketBurst,
    /// Packets acknowledged for the first time that were in flight.
    pub acked: u32,
    /// Packets that had been declared lost.
    pub spurious: u32,
    /// Packets that had been acknowledged before.
    pub twice: u32,
}

/// The bursts that are not settled, the oldest first.
#[derive(Debug, Default)]
pub struct Scoreboard {
    bursts: VecDeque<PacketBurst>,
    /// How many of the oldest bursts hold nothing in flight.
    settled: usize,
    /// Where the last run was found.
    hint: usize,
}

impl Scoreboard {
    /// Notes a burst; its numbers follow those before.
    pub fn push(&mut self, burst: PacketBurst) {
        debug_assert!(self.bursts.back().is_none_or(|last| last.end() == burst.first));
        self.bursts.push_back(burst);
    }

    /// Notes that a run of packets arrived; `each` hears of every burst that it touches.
    pub fn acknowledge(&mut self, run: PacketRun, mut each: impl FnMut(BurstAck)) {
        let end = run.first + run.count;
        let mut at = self.find(run.first);
        while let Some(burst) = self.bursts.get_mut(at)
            && burst.first < end
        {
            let bits = burst.bits(run.first, end);
            let fresh = bits & !burst.acked;
            let heard = BurstAck {
                acked: (fresh & !burst.lost).count_ones(),
                spurious: (fresh & burst.lost).count_ones(),
                twice: (bits & burst.acked).count_ones(),
                burst: *burst,
            };
            burst.acked |= fresh;
            burst.lost &= !fresh;
            each(heard);
            self.hint = at;
            at += 1;
        }
    }

    /// Declares lost what was sent up to `sent_by_ns` with a number below `below`; `each` hears of
    /// every burst and how many it lost. Returns when the oldest packet below was sent that is
    /// still in flight.
    pub fn declare_lost(
        &mut self,
        below: u64,
        sent_by_ns: u64,
        mut each: impl FnMut(PacketBurst, u32),
    ) -> Option<u64> {
        while let Some(burst) = self.bursts.get_mut(self.settled) {
            let missing = burst.unresolved() & burst.bits(burst.first, below);
            if missing != 0 && burst.sent_ns > sent_by_ns {
                return Some(burst.sent_ns);
            }
            burst.lost |= missing;
            if missing != 0 {
                each(*burst, missing.count_ones());
            }
            if burst.unresolved() != 0 {
                break;
            }
            self.settled += 1;
        }
        None
    }

    /// Forgets settled bursts sent before `before_ns`, and all that were delivered whole.
    pub fn forget(&mut self, before_ns: u64) {
        while self.settled > 0
            && let Some(burst) = self.bursts.front()
            && (burst.lost == 0 || burst.sent_ns < before_ns)
        {
            self.bursts.pop_front();
            self.settled -= 1;
            self.hint = self.hint.saturating_sub(1);
        }
    }

    /// The index of the burst that holds `number`, or where the search for later ones begins.
    fn find(&self, number: u64) -> usize {
        let holds =
            |at: usize| self.bursts.get(at).is_some_and(|b| b.first <= number && number < b.end());
        for at in [self.hint, self.hint + 1] {
            if holds(at) {
                return at;
            }
        }
        self.bursts.partition_point(|burst| burst.end() <= number)
    }
}

/// The `count` lowest bits.
fn low_bits(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(bursts: &[(u64, u32)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for (index, (first, packets)) in bursts.iter().enumerate() {
            board.push(PacketBurst::new(*first, *packets, index as u64 * 10));
        }
        board
    }

    fn heard(board: &mut Scoreboard, first: u64, count: u64) -> Vec<(u32, u32, u32)> {
        let mut all = Vec::new();
        board.acknowledge(PacketRun { first, count }, |h| all.push((h.acked, h.spurious, h.twice)));
        all
    }

    #[test]
    fn a_run_touches_every_burst_that_it_crosses() {
        let mut board = board(&[(0, 4), (4, 64), (68, 2)]);
        assert_eq!(heard(&mut board, 2, 67), [(2, 0, 0), (64, 0, 0), (1, 0, 0)]);
        assert_eq!(heard(&mut board, 1, 2), [(1, 0, 1)]);
    }

    #[test]
    fn losses_are_declared_in_time_and_taken_back() {
        let mut board = board(&[(0, 4), (4, 4), (8, 4)]);
        heard(&mut board, 9, 1);
        let mut lost = Vec::new();
        let next = board.declare_lost(9, 10, |burst, count| lost.push((burst.first, count)));
        assert_eq!((lost, next), (vec![(0, 4), (4, 4)], Some(20)));
        assert_eq!(heard(&mut board, 3, 2), [(0, 1, 0), (0, 1, 0)]);
        board.forget(11);
        assert_eq!(heard(&mut board, 3, 2), []);
        assert_eq!(board.declare_lost(9, 20, |_, count| assert_eq!(count, 1)), None);
    }
}
