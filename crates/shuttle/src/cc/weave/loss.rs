//! Loss filter: separates random loss from congestion.
//!
//! Random loss is measured while there is no queue. Only loss in excess of it, beyond statistical
//! error, is a sign of congestion.

use super::model::Round;

/// Gain of the average of random loss: samples of about the last five count (`loss`).
const RANDOM_GAIN: f64 = 0.2;
/// Packets of a sample of the random loss: 0.5 % is then one packet (`lossy-wifi`: rounds of 45
/// packets lose 8 in two bursts).
const SAMPLE_PACKETS: u64 = 200;
/// Largest loss taken for random, 20 %: above it the path is overloaded.
const RANDOM_SHARE_MAX: f64 = 0.2;
/// Largest loss compensated by a higher rate, 15 %: a bound on the damage of a wrong estimate.
const COMPENSATED_SHARE_MAX: f64 = 0.15;
/// Excess loss with a standing queue that counts as congestion, 0.3 %: a drop-tail queue that
/// CUBIC overfills takes as little (`coexistence`).
const QUEUED_EXCESS_SHARE: f64 = 0.003;
/// The same without a standing queue, 10 %: policers and shallow buffers drop without one.
const UNQUEUED_EXCESS_SHARE: f64 = 0.1;
/// Standard deviations of a Poisson count that losses must exceed besides: one round in 700 does by
/// chance.
const DEVIATIONS: f64 = 3.0;
/// Variance of that count, in packets, beside the expected one: where no loss is expected, a single
/// one is no excess.
const VARIANCE_PACKETS_MIN: f64 = 1.0;

/// Estimate of the random loss, and test for congestion.
#[derive(Clone, Debug, Default)]
pub struct LossFilter {
    random: f64,
    is_seeded: bool,
    acked: u64,
    lost: u64,
    /// Packets acknowledged and lost of the rounds that are yet too few to tell losses by.
    few: (u64, u64),
}

impl LossFilter {
    /// `round` with as many rounds before it as losses without a queue can be told by: those of one
    /// short round may be a burst. `None` if there are too few packets yet.
    pub fn gather(&mut self, round: &Round) -> Option<Round> {
        let (acked, lost) = (self.few.0 + round.acked, self.few.1 + round.lost);
        self.few = (acked, lost);
        (acked + lost >= SAMPLE_PACKETS).then(|| {
            self.few = (0, 0);
            Round { acked, lost, ..*round }
        })
    }

    /// Forgets the rounds that are yet too few: a reaction answers their losses.
    pub fn forget_few(&mut self) {
        self.few = (0, 0);
    }

    /// Learns from a round without a queue.
    pub fn learn(&mut self, round: &Round) {
        self.acked += round.acked;
        self.lost += round.lost;
        if self.acked + self.lost < SAMPLE_PACKETS {
            return;
        }
        let share = self.lost as f64 / (self.acked + self.lost) as f64;
        let gain = if self.is_seeded { RANDOM_GAIN } else { 1.0 };
        self.random = (self.random + gain * (share - self.random)).min(RANDOM_SHARE_MAX);
        self.is_seeded = true;
        (self.acked, self.lost) = (0, 0);
    }

    /// Whether a round lost significantly more than the random loss. Before that is known, no round
    /// did.
    pub fn is_congestion(&self, round: &Round, with_queue: bool) -> bool {
        let packets = (round.acked + round.lost) as f64;
        if !self.is_seeded || packets == 0.0 {
            return false;
        }
        let expected = self.random * packets;
        let lost = round.lost as f64;
        let excess = if with_queue { QUEUED_EXCESS_SHARE } else { UNQUEUED_EXCESS_SHARE };
        lost > expected + excess * packets
            && lost > expected + DEVIATIONS * (expected + VARIANCE_PACKETS_MIN).sqrt()
    }

    /// Factor by which to exceed the delivery rate to compensate random loss.
    pub fn inflation(&self) -> f64 {
        1.0 / (1.0 - self.random.min(COMPENSATED_SHARE_MAX))
    }

    /// Sets what is lost whatever the rate, as a fraction of packets.
    pub fn set_random(&mut self, share: f64) {
        (self.random, self.is_seeded) = (share.min(RANDOM_SHARE_MAX), true);
        (self.acked, self.lost) = (0, 0);
    }

    /// Random loss as a fraction of packets.
    pub fn random(&self) -> f64 {
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(acked: u64, lost: u64) -> Round {
        Round { floor_rtt_ns: 0, acked, lost, lasted_ns: 1, ..Round::EMPTY }
    }

    #[test]
    fn random_loss_is_learnt_and_made_up_for() {
        let mut filter = LossFilter::default();
        filter.learn(&round(99, 1));
        assert_eq!(filter.random(), 0.0);
        filter.learn(&round(99, 1));
        assert_eq!(filter.random(), 0.01);
        filter.learn(&round(980, 20));
        assert!((filter.random() - 0.012).abs() < 1e-9);
        (0..100).for_each(|_| filter.learn(&round(500, 500)));
        assert_eq!(filter.random(), RANDOM_SHARE_MAX);
        assert!((filter.inflation() - 1.0 / 0.85).abs() < 1e-9);
    }

    #[test]
    fn only_excess_beyond_chance_is_congestion() {
        let mut filter = LossFilter::default();
        assert!(!filter.is_congestion(&round(500, 500), true));
        filter.learn(&round(990, 10));
        assert!(!filter.is_congestion(&round(981, 19), true));
        assert!(filter.is_congestion(&round(975, 25), true));
        assert!(!filter.is_congestion(&round(975, 25), false));
        assert!(filter.is_congestion(&round(850, 150), false));
    }

    #[test]
    fn short_rounds_are_gathered_until_they_can_tell() {
        let mut filter = LossFilter::default();
        assert_eq!(filter.gather(&round(90, 5)), None);
        assert_eq!(filter.gather(&round(99, 5)), None);
        let third = round(1, 0);
        assert_eq!(filter.gather(&third), Some(Round { acked: 190, lost: 10, ..third }));
        assert_eq!(filter.gather(&third), None, "they count once");
        filter.forget_few();
        assert_eq!(filter.gather(&round(199, 0)), None, "a reaction has answered those before");
    }

    #[test]
    fn a_tenth_without_a_queue_and_three_deviations_are_no_excess() {
        let mut filter = LossFilter::default();
        filter.set_random(0.0);
        assert!(!filter.is_congestion(&round(900, 100), false));
        assert!(filter.is_congestion(&round(899, 101), false));
        // Three of a hundred, where none is expected.
        assert!(!filter.is_congestion(&round(97, 3), true));
        assert!(filter.is_congestion(&round(96, 4), true));
    }
}
