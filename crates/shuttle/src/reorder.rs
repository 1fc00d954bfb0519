//! Reordering window: how much later than its successors a packet may arrive before it counts as
//! lost.
//!
//! The lateness of every reordered packet is measured, even after it was declared lost; the window
//! is 5/4 of the largest within memory (S-51).

/// Least window, 0.5 ms, however short the round trip.
const FLOOR_NS: u64 = 500_000;
/// Least window as a fraction of the smallest round trip.
const RTT_DIVISOR: u64 = 64;
/// Memory of the largest lateness: 16 to 32 round trips.
const MEMORY_RTTS: u64 = 16;

/// The reordering window of a path.
#[derive(Debug, Default)]
pub(crate) struct Reordering {
    recent_ns: u64,
    older_ns: u64,
    turn_at_ns: u64,
}

impl Reordering {
    /// Records a packet that arrived after one sent `late_ns` later.
    pub(crate) fn handle_late(&mut self, now_ns: u64, late_ns: u64, smoothed_ns: u64) {
        self.turn(now_ns, smoothed_ns);
        self.recent_ns = self.recent_ns.max(late_ns);
    }

    /// The window in nanoseconds; at most a round trip.
    pub(crate) fn window_ns(&mut self, now_ns: u64, smoothed_ns: u64, min_ns: u64) -> u64 {
        self.turn(now_ns, smoothed_ns);
        let least = FLOOR_NS.max(min_ns / RTT_DIVISOR);
        let seen = self.recent_ns.max(self.older_ns);
        (seen + seen / 4).min(smoothed_ns).max(least)
    }

    fn turn(&mut self, now_ns: u64, smoothed_ns: u64) {
        if now_ns >= self.turn_at_ns {
            let memory = MEMORY_RTTS * smoothed_ns;
            let long_ago = now_ns - self.turn_at_ns >= memory;
            self.older_ns = if long_ago { 0 } else { self.recent_ns };
            self.recent_ns = 0;
            self.turn_at_ns = now_ns.saturating_add(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_grows_with_what_is_seen_and_forgets() {
        let mut reordering = Reordering::default();
        assert_eq!(reordering.window_ns(0, 70 * MS, 64 * MS), MS);
        reordering.handle_late(1, 8 * MS, 70 * MS);
        assert_eq!(reordering.window_ns(2, 70 * MS, 64 * MS), 10 * MS);
        assert_eq!(reordering.window_ns(17 * 70 * MS, 70 * MS, 64 * MS), 10 * MS);
        assert_eq!(reordering.window_ns(40 * 70 * MS, 70 * MS, 64 * MS), MS);
    }

    #[test]
    fn it_ends_at_a_round_trip() {
        let mut reordering = Reordering::default();
        reordering.handle_late(0, 1000 * MS, 70 * MS);
        assert_eq!(reordering.window_ns(1, 70 * MS, 64 * MS), 70 * MS);
        assert_eq!(reordering.window_ns(1, MS / 10, MS / 10), MS / 2);
    }
}
