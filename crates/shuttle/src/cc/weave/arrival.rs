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

    /// Rate over the last `span_ns`, or 16 gaps if that is longer, as far as it is remembered and
    /// was sent at `stale_before_ns` or later, in bits per second.
    pub(super) fn rate_bps(&self, span_ns: u64, stale_before_ns: u64) -> Option<u64> {
        let last = self.instants.back()?;
        let most_ns = span_ns.max(SPAN_GAPS * self.gap_ns());
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
