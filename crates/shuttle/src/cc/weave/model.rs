//! What weave believes of the path: its rate, its round trip, and the rounds that pass.

use crate::cc::controller::Acked;
use crate::cc::max_filter::MaxFilter;
use crate::cc::rate::octets_in;

/// Probe cycles over which the rate is the largest.
const BW_CYCLES: u64 = 2;
/// A round trip this much above the smallest still confirms it.
const CONFIRMS_SHARE: u64 = 64;
const MIN_RTT_AGE_NS: u64 = 10_000_000_000;
/// A queue is what makes round trips longer by this share of the smallest, within limits.
const QUEUE_SHARE: u64 = 16;
const QUEUE_NS_MIN: u64 = 1_000_000;
const QUEUE_NS_MAX: u64 = 8_000_000;
/// And by no less than so many packets take to leave.
const QUEUE_PACKETS: u64 = 4;
/// And by no less than so many times the path's own unrest.
const QUEUE_UNRESTS: u64 = 6;
/// The unrest follows what is seen by this part.
const UNREST_PART: u64 = 32;
const UNREST_NS_MIN: u64 = 10_000;
/// Acknowledgements come together; so long is covered beyond the round trip.
const ACK_SLACK_NS: u64 = 1_500_000;

/// A round that has passed: what was acknowledged between a packet's sending and its
/// acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The smallest round trip in it; a queue that lasts shows even there.
    pub floor_rtt_ns: u64,
    /// Packets acknowledged.
    pub acked: u64,
    /// Packets lost, of those sent after the last reaction.
    pub lost: u64,
    /// Octets delivered.
    pub octets: u64,
    /// How long it took.
    pub lasted_ns: u64,
    /// There was not always something to send, so what arrived says little of the path.
    pub app_limited: bool,
}

impl Round {
    /// What one acknowledgement tells.
    pub fn of(acked: &Acked) -> Self {
        let [acked, lost] = [acked.packets, acked.lost_packets].map(u64::from);
        Self { acked, lost, ..EMPTY }
    }
}

const EMPTY: Round = Round {
    floor_rtt_ns: u64::MAX,
    acked: 0,
    lost: 0,
    octets: 0,
    lasted_ns: 0,
    app_limited: false,
};

/// The model.
#[derive(Clone, Debug)]
pub struct Model {
    bw: MaxFilter,
    cycle: u64,
    min_rtt_ns: Option<u64>,
    min_rtt_at_ns: u64,
    /// The last two round trips, and by how much one differs from what they let expect: the
    /// median. A queue grows or goes steadily, while a path that is not at rest leaps.
    trail_ns: [u64; 2],
    unrest_ns: u64,
    /// What is delivered of packets sent before this says nothing of the present rate.
    stale_before_ns: u64,
    round: Round,
    floor_rtt_ns: u64,
    round_began_ns: u64,
    round_end_octets: u64,
}

impl Model {
    /// A model of a path that nothing is known of.
    pub fn new() -> Self {
        Self {
            bw: MaxFilter::new(BW_CYCLES),
            cycle: 0,
            min_rtt_ns: None,
            min_rtt_at_ns: 0,
            trail_ns: [0; 2],
            unrest_ns: 0,
            stale_before_ns: 0,
            round: EMPTY,
            floor_rtt_ns: u64::MAX,
            round_began_ns: 0,
            round_end_octets: 0,
        }
    }

    /// Takes an acknowledgement; returns a round if one ends with it.
    pub fn handle(&mut self, acked: &Acked) -> Option<Round> {
        if let Some(rtt) = acked.rtt {
            self.take_rtt(acked.now_ns, rtt.latest_ns);
        }
        self.round.acked += u64::from(acked.packets);
        self.round.octets += acked.octets;
        let sample = acked.rate?;
        self.round.app_limited |= sample.app_limited;
        let rate_bps = sample.rate_bps();
        let counts = !sample.app_limited || rate_bps > self.bw.max();
        if counts && acked.sent_ns >= self.stale_before_ns {
            self.bw.add(self.cycle, rate_bps);
        }
        if sample.prior_delivered_octets < self.round_end_octets {
            return None;
        }
        self.round_end_octets = acked.delivered_octets;
        let lasted_ns = acked.now_ns - self.round_began_ns;
        self.round_began_ns = acked.now_ns;
        self.floor_rtt_ns = self.round.floor_rtt_ns;
        Some(Round { lasted_ns, ..std::mem::replace(&mut self.round, EMPTY) })
    }

    fn take_rtt(&mut self, now_ns: u64, rtt_ns: u64) {
        self.take_unrest(rtt_ns);
        self.round.floor_rtt_ns = self.round.floor_rtt_ns.min(rtt_ns);
        let min_ns = self.min_rtt_ns.get_or_insert(rtt_ns);
        *min_ns = rtt_ns.min(*min_ns);
        if rtt_ns <= *min_ns + *min_ns / CONFIRMS_SHARE {
            self.min_rtt_at_ns = now_ns;
        }
    }

    fn take_unrest(&mut self, rtt_ns: u64) {
        let [first_ns, second_ns] = self.trail_ns;
        self.trail_ns = [second_ns, rtt_ns];
        if first_ns == 0 {
            return;
        }
        let leap_ns = (first_ns + rtt_ns).abs_diff(2 * second_ns);
        let step_ns = self.unrest_ns / UNREST_PART;
        self.unrest_ns = match leap_ns > self.unrest_ns {
            true => self.unrest_ns + step_ns.max(UNREST_NS_MIN),
            false => self.unrest_ns - step_ns,
        };
    }

    /// Takes packets that were lost; `counts` unless a reaction has answered for them.
    pub fn lose(&mut self, packets: u32, counts: bool) {
        self.round.lost += if counts { u64::from(packets) } else { 0 };
    }

    /// Takes back all losses of the round.
    pub fn forget_losses(&mut self) {
        self.round.lost = 0;
    }

    /// Takes back losses that were none.
    pub fn restore(&mut self, packets: u32) {
        self.round.lost = self.round.lost.saturating_sub(u64::from(packets));
    }

    /// Begins a probe cycle: what is older than the one before is forgotten.
    pub fn begin_cycle(&mut self) {
        self.cycle += 1;
        self.bw.expire(self.cycle);
    }

    /// Sets the rate; nothing delivered of what was sent before `stale_before_ns` raises it.
    pub fn set_bw(&mut self, bw_bps: u64, stale_before_ns: u64) {
        self.bw.reset(self.cycle, bw_bps);
        self.stale_before_ns = stale_before_ns;
        self.round.lost = 0;
    }

    /// The largest rate of delivery of late, in bits per second.
    pub fn bw_bps(&self) -> u64 {
        self.bw.max()
    }

    /// The smallest round trip, once there is one.
    pub fn min_rtt_ns(&self) -> Option<u64> {
        self.min_rtt_ns
    }

    /// The smallest round trip of the round that passed last.
    pub fn floor_rtt_ns(&self) -> u64 {
        self.floor_rtt_ns
    }

    /// Whether the smallest round trip has not been seen for so long that it may be wrong.
    pub fn min_rtt_is_old(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.min_rtt_at_ns) > MIN_RTT_AGE_NS
    }

    /// Forgets the smallest round trip for the one at hand.
    pub fn forget_min_rtt(&mut self, now_ns: u64, rtt_ns: u64) {
        (self.min_rtt_ns, self.min_rtt_at_ns) = (Some(rtt_ns), now_ns);
    }

    /// How much a queue adds to the round trip before it counts as one that stands.
    pub fn queue_ns(&self, datagram_octets: u16) -> u64 {
        let packets = QUEUE_PACKETS * u64::from(datagram_octets);
        let leave_ns = crate::cc::rate::time_for_ns(packets, self.bw.max());
        self.usual_queue_ns().max(leave_ns).max(self.restless_ns())
    }

    fn usual_queue_ns(&self) -> u64 {
        (self.min_rtt_ns.unwrap_or(0) / QUEUE_SHARE).clamp(QUEUE_NS_MIN, QUEUE_NS_MAX)
    }

    /// How much longer round trips may be because the path is not at rest; 0 where that is less
    /// than what would count as a queue.
    fn restless_ns(&self) -> u64 {
        let unrest_ns = QUEUE_UNRESTS * self.unrest_ns;
        if unrest_ns > self.usual_queue_ns() { unrest_ns } else { 0 }
    }

    /// Octets that the path holds at its rate without a queue.
    pub fn bdp_octets(&self) -> u64 {
        octets_in(self.bw.max(), self.min_rtt_ns.unwrap_or(0))
    }

    /// Octets in flight beyond the path's own because acknowledgements come together, and not when
    /// they would.
    pub fn slack_octets(&self) -> u64 {
        octets_in(self.bw.max(), ACK_SLACK_NS + self.restless_ns())
    }
}
