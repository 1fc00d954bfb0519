//! Receiver's clock: delivery rates over arrival times, which acknowledgements that are late or
//! come in bunches do not change.
//!
//! [`ArrivalClock::take`] for each acknowledgement that tells when its newest packet arrived, then
//! [`ArrivalClock::rate_bps`]. Invariant: rates are taken between two arrival instants, each with
//! all that had arrived by then, so that data in bunches shows no more than its mean rate.

use std::collections::VecDeque;

use crate::cc::controller::Acked;
use crate::cc::rate::{bits_per_second, octets_in};

/// Instants of the span of a rate: arrivals that are closer are one (`real-paths`, `back:bunch`).
const SPAN_INSTANTS: u64 = 64;
/// Instants remembered: twice the span.
const INSTANTS_MAX: usize = 2 * SPAN_INSTANTS as usize;
/// Longest gaps that the span of a rate holds at least: chance moves each of its ends by one
/// (`real-paths`: bunches of 8 ms over one round trip of 70 ms show a rate 11 % too high).
const SPAN_GAPS: u64 = 16;
/// Part of the longest gap by which it shrinks in a round in which there is none as long: half of
/// it is left after 11 rounds.
const GAP_FADE_PART: u64 = 16;
/// Part of what the sender may send in a time that it must have sent: with less it paused, and the
/// gap between arrivals is its own.
const PAUSE_PART: u64 = 2;
/// Part of the wished span that shows a rate while no more is remembered, but for a round trip.
const KNOWN_PART: u64 = 2;

/// What an acknowledgement says of one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Instant {
    /// When the newest packet arrived, by the receiver's clock, in nanoseconds.
    pub(super) arrived_ns: i64,
    /// When that packet was sent.
    pub(super) sent_ns: u64,
    /// Bytes delivered by then.
    pub(super) delivered_octets: u64,
}

impl Instant {
    /// That of an acknowledgement.
    pub(super) fn of(acked: &Acked) -> Self {
        Self {
            arrived_ns: (acked.sent_ns as i64).wrapping_add(acked.one_way_ns),
            sent_ns: acked.sent_ns,
            delivered_octets: acked.delivered_octets,
        }
    }

    /// Rate between `before` and this; 0 if no time has passed.
    pub(super) fn rate_since_bps(&self, before: &Self) -> u64 {
        let octets = self.delivered_octets - before.delivered_octets;
        // Aggregation cannot show a higher rate than that of sending.
        bits_per_second(octets, self.ns_since(before).max(self.sent_since_ns(before)))
    }

    /// Time between the arrivals, in nanoseconds.
    pub(super) fn ns_since(&self, before: &Self) -> u64 {
        self.arrived_ns.saturating_sub(before.arrived_ns).max(0) as u64
    }

    /// Time between the sendings, in nanoseconds.
    pub(super) fn sent_since_ns(&self, before: &Self) -> u64 {
        self.sent_ns.saturating_sub(before.sent_ns)
    }
}

/// Instants of the last round trips, and how far they are apart.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrivalClock {
    instants: VecDeque<Instant>,
    /// When the first packet of the newest instant arrived.
    began_ns: i64,
    /// Longest time between two arrivals of data that was sent without a pause, in nanoseconds.
    gap_ns: u64,
    /// The same of this round.
    round_gap_ns: u64,
}

impl ArrivalClock {
    /// Adds an instant; `paced_bps` is the rate of sending, to tell pauses of the sender from gaps.
    pub(super) fn take(&mut self, instant: Instant, span_ns: u64, paced_bps: u64) {
        if let Some(last) = self.instants.back_mut() {
            if instant.arrived_ns < last.arrived_ns {
                return;
            }
            let octets = instant.delivered_octets - last.delivered_octets;
            let sent_ns = instant.sent_since_ns(last);
            if PAUSE_PART * octets >= octets_in(paced_bps, sent_ns) {
                self.round_gap_ns = self.round_gap_ns.max(instant.ns_since(last));
            }
            if instant.arrived_ns.saturating_sub(self.began_ns) < (span_ns / SPAN_INSTANTS) as i64 {
                *last = instant;
                return;
            }
        }
        self.began_ns = instant.arrived_ns;
        if self.instants.len() == INSTANTS_MAX {
            self.instants.pop_front();
        }
        self.instants.push_back(instant);
    }

    /// Ends a round: the longest gap is known.
    pub(super) fn end_round(&mut self) {
        let before_ns = self.gap_ns - self.gap_ns / GAP_FADE_PART;
        self.gap_ns = std::mem::take(&mut self.round_gap_ns).max(before_ns);
    }

    /// Longest gap between arrivals of late, in nanoseconds.
    pub(super) fn gap_ns(&self) -> u64 {
        self.gap_ns.max(self.round_gap_ns)
    }

    /// Time of the gaps that a rate spans at least, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        SPAN_GAPS * self.gap_ns()
    }

    /// Rate over the last `span_ns`, or 16 gaps if that is longer, as far as it is remembered and
    /// was sent at `stale_before_ns` or later, in bits per second.
    pub(super) fn rate_bps(&self, span_ns: u64, stale_before_ns: u64) -> Option<u64> {
        let last = self.instants.back()?;
        let most_ns = span_ns.max(self.span_ns());
        let is_fresh = |instant: &&Instant| instant.sent_ns >= stale_before_ns;
        let fresh = self.instants.iter().rev().take_while(is_fresh);
        let mut first = last;
        for instant in fresh {
            first = instant;
            if last.ns_since(first) >= most_ns {
                break;
            }
        }
        let least_ns = span_ns.max(most_ns / KNOWN_PART);
        (last.ns_since(first) >= least_ns).then(|| last.rate_since_bps(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SPAN_NS: u64 = 64 * MS;
    /// A packet of 1250 bytes each millisecond.
    const PACED_BPS: u64 = 10_000_000;

    fn at(arrived_ms: u64, sent_ms: u64, packets: u64) -> Instant {
        let (arrived_ns, sent_ns) = ((arrived_ms * MS) as i64, sent_ms * MS);
        Instant { arrived_ns, sent_ns, delivered_octets: packets * 1250 }
    }

    /// A clock that saw these arrivals, the last of which ended a round.
    fn clock(instants: &[Instant]) -> ArrivalClock {
        let mut clock = ArrivalClock::default();
        instants.iter().for_each(|instant| clock.take(*instant, SPAN_NS, PACED_BPS));
        clock.end_round();
        clock
    }

    #[test]
    fn arrivals_within_a_64th_of_the_span_are_one_instant() {
        let mut clock = ArrivalClock::default();
        let arrivals = [(0, 0), (1, MS as i64 - 1), (2, MS as i64), (3, 2 * MS as i64 - 1)];
        for (number, arrived_ns) in arrivals {
            let instant = Instant { arrived_ns, sent_ns: number, delivered_octets: 1250 * number };
            clock.take(instant, SPAN_NS, PACED_BPS);
        }
        let kept = clock.instants.iter().map(|instant| instant.arrived_ns);
        assert_eq!(
            kept.collect::<Vec<_>>(),
            [MS as i64 - 1, 2 * MS as i64 - 1],
            "the newest of each"
        );
        clock.take(at(1, 9, 9), SPAN_NS, PACED_BPS);
        assert_eq!(clock.instants.len(), 2, "it arrived before");
        clock.take(Instant { delivered_octets: 5000, ..clock.instants[1] }, SPAN_NS, PACED_BPS);
        assert_eq!(clock.instants[1].delivered_octets, 5000, "it arrived at the same time");
        clock.take(Instant { arrived_ns: 0, ..clock.instants[1] }, SPAN_NS, PACED_BPS);
        assert_eq!(clock.instants[1].arrived_ns, 2 * MS as i64 - 1);
        (0..300).for_each(|ms| clock.take(at(2 + ms, ms, 9 + ms), SPAN_NS, PACED_BPS));
        assert_eq!(clock.instants.len(), INSTANTS_MAX);
    }

    #[test]
    fn a_gap_counts_unless_the_sender_paused() {
        // Ten milliseconds are ten packets.
        assert_eq!(clock(&[at(0, 0, 1), at(10, 10, 6)]).gap_ns(), 10 * MS);
        assert_eq!(clock(&[at(0, 0, 1), at(10, 10, 5)]).gap_ns(), 0);
        let mut clock = clock(&[at(0, 0, 1), at(16, 0, 2)]);
        assert_eq!(clock.gap_ns(), 16 * MS);
        clock.end_round();
        assert_eq!(clock.gap_ns(), 15 * MS, "a sixteenth less");
        clock.take(at(31, 1, 3), SPAN_NS, PACED_BPS);
        assert_eq!(clock.gap_ns(), 15 * MS);
        clock.take(at(48, 2, 4), SPAN_NS, PACED_BPS);
        assert_eq!(clock.gap_ns(), 17 * MS, "within a round, too");
    }

    /// The last milliseconds of a packet each, and twice as much before.
    fn two_rates(slow_ms: u64) -> ArrivalClock {
        let fast = (0..100).map(|ms| at(ms, ms, 2 * ms));
        let slow = (1..=slow_ms).map(|ms| at(99 + ms, 99 + ms, 198 + ms));
        clock(&fast.chain(slow).collect::<Vec<_>>())
    }

    #[test]
    fn a_rate_is_that_of_the_last_span() {
        assert_eq!(two_rates(64).rate_bps(SPAN_NS, 0), Some(10_000_000));
        assert_eq!(two_rates(63).rate_bps(SPAN_NS, 0), Some(10_156_250));
        assert_eq!(two_rates(64).rate_bps(64 * MS, 99 * MS), Some(10_000_000));
        assert_eq!(two_rates(64).rate_bps(64 * MS, 100 * MS), None, "what is fresh is too short");
        assert_eq!(ArrivalClock::default().rate_bps(0, 0), None);
    }

    #[test]
    fn a_span_holds_sixteen_gaps_or_half_of_that_while_no_more_is_known() {
        // A gap of 10 ms: 160 ms, of which 80 must be known.
        let bunches =
            |count| clock(&(0..count).map(|n| at(10 * n, 10 * n, 10 * n)).collect::<Vec<_>>());
        assert_eq!(bunches(8).rate_bps(10 * MS, 0), None);
        assert_eq!(bunches(9).rate_bps(10 * MS, 0), Some(10_000_000));
        assert_eq!(bunches(9).rate_bps(81 * MS, 0), None, "a span is known whole");
    }

    #[test]
    fn what_was_sent_slower_than_it_arrived_shows_the_rate_of_sending() {
        assert_eq!(at(10, 20, 11).rate_since_bps(&at(0, 0, 1)), 5_000_000);
        assert_eq!(at(20, 10, 11).rate_since_bps(&at(0, 0, 1)), 5_000_000);
        assert_eq!(at(5, 5, 1).ns_since(&at(10, 10, 1)), 0);
    }
}
