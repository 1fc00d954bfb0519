//! The bottleneck: its rate, the queue before it, and the policer before that.

use std::collections::VecDeque;

use serde::Serialize;

use super::wander::LinkRate;
use weft_units::Bitrate;

/// A token bucket that drops what comes faster than its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Policer {
    /// The rate at which the bucket fills.
    pub rate: Bitrate,
    /// How much the bucket holds.
    #[serde(rename = "burst_octets")]
    pub burst_bytes: u64,
}

/// Whether a packet came into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAdmission {
    /// Its last bit leaves the bottleneck at `at_ns`; its first waited for `waited_ns`.
    Leaves { at_ns: u64, waited_ns: u64 },
    /// The queue is full.
    Full,
}

/// A queue in bytes that drops at its tail, and the serialisation behind it.
///
/// When a packet leaves is known when it comes, because rates change by a schedule. So the queue
/// is only a list of departures, and a packet in service counts until its last bit has left.
#[derive(Debug)]
pub struct Bottleneck {
    rate: LinkRate,
    queue_bytes_max: u64,
    /// When the last bit of all that is queued will have left. In picoseconds, because a byte at
    /// 400 Gbit/s takes 20 of them.
    free_at_ps: u64,
    waiting: VecDeque<(u64, u32)>,
    backlog_bytes: u64,
}

const PS_PER_NS: u64 = 1000;
const PS_PER_SEC: u128 = 1_000_000_000_000;

impl Bottleneck {
    pub fn new(rate: LinkRate, queue_bytes_max: u64) -> Self {
        Self { rate, queue_bytes_max, free_at_ps: 0, waiting: VecDeque::new(), backlog_bytes: 0 }
    }

    /// Queues a packet, if there is room. One that finds the bottleneck idle needs no room.
    pub fn admit(&mut self, now_ns: u64, bytes: u32) -> QueueAdmission {
        self.advance(now_ns);
        let backlog = self.backlog_bytes + u64::from(bytes);
        if !self.waiting.is_empty() && backlog > self.queue_bytes_max {
            return QueueAdmission::Full;
        }
        let starts_ps = self.free_at_ps.max(now_ns.saturating_mul(PS_PER_NS));
        self.free_at_ps = self.finish_ps(starts_ps, bytes);
        let at_ns = self.free_at_ps.div_ceil(PS_PER_NS);
        let waited_ns = starts_ps / PS_PER_NS - now_ns;
        if at_ns > now_ns {
            self.waiting.push_back((at_ns, bytes));
            self.backlog_bytes = backlog;
        }
        QueueAdmission::Leaves { at_ns, waited_ns }
    }

    /// Forgets what has left by `now_ns`.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some((at_ns, bytes)) = self.waiting.front().copied()
            && at_ns <= now_ns
        {
            self.backlog_bytes -= u64::from(bytes);
            self.waiting.pop_front();
        }
    }

    /// What is queued or in service, in bytes.
    pub fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    /// When the last bit of a packet has left whose first leaves at `at_ps`, over all the changes
    /// of the rate meanwhile.
    fn finish_ps(&mut self, mut at_ps: u64, bytes: u32) -> u64 {
        let mut bits = u128::from(bytes) * 8;
        loop {
            let rate = self.rate.at(at_ps / PS_PER_NS);
            let Some(rate) = rate.map(|rate| u128::from(rate.bps())) else { return at_ps };
            let needed_ps = u64::try_from((bits * PS_PER_SEC).div_ceil(rate)).unwrap_or(u64::MAX);
            let end_ps = at_ps.saturating_add(needed_ps);
            let change_ps = self.rate.next_change_ns().map(|ns| ns.saturating_mul(PS_PER_NS));
            let Some(change_ps) = change_ps.filter(|change_ps| *change_ps < end_ps) else {
                return end_ps;
            };
            bits -= u128::from(change_ps - at_ps) * rate / PS_PER_SEC;
            at_ps = change_ps;
        }
    }
}

/// A policer at work.
#[derive(Debug)]
pub struct Bucket {
    policer: Policer,
    /// In units of a byte a nanosecond at 1 bit/s, so that no fraction is ever lost.
    tokens: u128,
    at_ns: u64,
}

const TOKENS_PER_BYTE: u128 = 8_000_000_000;

impl Bucket {
    /// A full bucket.
    pub fn new(policer: Policer) -> Self {
        Self { policer, tokens: u128::from(policer.burst_bytes) * TOKENS_PER_BYTE, at_ns: 0 }
    }

    /// Whether a packet may pass.
    pub fn take(&mut self, now_ns: u64, bytes: u32) -> bool {
        let earned = u128::from(now_ns - self.at_ns) * u128::from(self.policer.rate.bps());
        let most = u128::from(self.policer.burst_bytes) * TOKENS_PER_BYTE;
        self.tokens = (self.tokens + earned).min(most);
        self.at_ns = now_ns;
        let rest = self.tokens.checked_sub(u128::from(bytes) * TOKENS_PER_BYTE);
        self.tokens = rest.unwrap_or(self.tokens);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::schedule::Stepped;

    fn stepped(rate: Stepped<Option<Bitrate>>, queue_bytes_max: u64) -> Bottleneck {
        Bottleneck::new(LinkRate::new(rate, None, 0), queue_bytes_max)
    }

    fn bottleneck(mbit: u64, queue_bytes_max: u64) -> Bottleneck {
        let rate = Bitrate::new(mbit * 1_000_000);
        stepped(Stepped::constant(Some(rate)), queue_bytes_max)
    }

    #[test]
    fn packets_leave_one_after_the_other() {
        let mut bottleneck = bottleneck(12, 4500);
        let leaves = |at_ns, waited_ns| QueueAdmission::Leaves { at_ns, waited_ns };
        assert_eq!(bottleneck.admit(0, 1500), leaves(1_000_000, 0));
        assert_eq!(bottleneck.admit(0, 1500), leaves(2_000_000, 1_000_000));
        assert_eq!(bottleneck.admit(0, 1500), leaves(3_000_000, 2_000_000));
        assert_eq!(bottleneck.admit(0, 1), QueueAdmission::Full);
        assert_eq!(bottleneck.admit(999_999, 1), QueueAdmission::Full);
        assert_eq!(bottleneck.admit(1_000_000, 1500), leaves(4_000_000, 2_000_000));
        bottleneck.advance(4_000_000);
        assert_eq!(bottleneck.backlog_bytes(), 0);
    }

    #[test]
    fn fractions_of_nanoseconds_are_not_lost() {
        let rate = Bitrate::new(400_000_000_000);
        let mut bottleneck = stepped(Stepped::constant(Some(rate)), u64::MAX);
        let mut last_ns = 0;
        for _ in 0..1000 {
            let QueueAdmission::Leaves { at_ns, .. } = bottleneck.admit(0, 1) else { panic!() };
            last_ns = at_ns;
        }
        assert_eq!(last_ns, 20);
    }

    #[test]
    fn a_packet_spans_changes_of_the_rate() {
        let mbit = |mbit: u64| Some(Bitrate::new(mbit * 1_000_000));
        let rate = Stepped::new(mbit(12), vec![(500_000, mbit(6)), (1_000_000, mbit(3))]);
        let mut bottleneck = stepped(rate, u64::MAX);
        // Half of the packet in the first half of a millisecond, a quarter in the second.
        let expected = QueueAdmission::Leaves { at_ns: 2_000_000, waited_ns: 0 };
        assert_eq!(bottleneck.admit(0, 1500), expected);
    }

    #[test]
    fn a_large_packet_passes_an_idle_bottleneck() {
        assert!(matches!(bottleneck(1, 100).admit(0, 1500), QueueAdmission::Leaves { .. }));
    }

    #[test]
    fn the_policer_keeps_its_rate() {
        let rate = Bitrate::new(8_000_000);
        let mut bucket = Bucket::new(Policer { rate, burst_bytes: 3000 });
        assert!(bucket.take(0, 1500) && bucket.take(0, 1500));
        assert!(!bucket.take(0, 1));
        assert!(!bucket.take(1_499_999, 1500));
        assert!(bucket.take(1_500_000, 1500));
        let passed = (0..10_000).filter(|i| bucket.take(2_000_000 + i * 100_000, 1000)).count();
        assert!((999..=1003).contains(&passed), "{passed}");
    }
}
