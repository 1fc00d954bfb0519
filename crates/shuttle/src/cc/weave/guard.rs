//! Guard against overload: what is sent must arrive. A round that sent a quarter more than the next
//! delivered, or a tenth more than makes up for random loss, sends too fast whatever else is
//! believed: the rate becomes what was delivered, and a probe that sent beyond a rate that arrives
//! ends. If reductions change nothing, it is others that send too much.
//!
//! Invariant: a flow that is alone does not send more than 1.25 times what arrives for more than
//! two rounds in a row outside Ramp.

use super::model::Round;
use crate::cc::rate::{SECOND_NS, bits_per_second};

/// Times what the next round delivers that a round may send: the path is full beyond (`matrix`;
/// `lossy-wifi`).
pub(super) const OVERLOAD_FACTOR: f64 = 1.25;
/// Times what makes up for random loss that may be sent, where that is more than a quarter
/// (`matrix`: with 1.25 in place of it weave sent 1.47 times a policer's rate).
const OVER_LOSS_FACTOR: f64 = 1.1;
/// Reductions for overload in a row after which it is not of this flow's making: the rate is half
/// of what it was by then.
const CUTS_MAX: u32 = 3;
/// Round trips that a round lasts if the path stood still (`lossy-wifi`: a pause of 30 ms was cut
/// to a third of the rate before).
const STALL_RTTS: u64 = 2;
/// How long nothing is done against overload then, 10 s: others may be gone, as long as the
/// smallest round trip is believed.
const IDLE_NS: u64 = 10 * SECOND_NS;
/// Part of two rounds by which late acknowledgements may have made them longer, at most: with all
/// of it the guard would see no overload.
const LATE_PART: u64 = 2;

/// State of the guard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RateGuard {
    /// The last rounds, the newest last; those that say nothing are empty.
    rounds: [RoundVolume; 3],
    /// Reductions for overload in a row, and the rate before the first, in bits per second.
    cuts: u32,
    before_bps: u64,
    /// Until then reductions are vain, in nanoseconds.
    idle_until_ns: u64,
}

/// What a round sent and delivered, and how long it lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RoundVolume {
    sent_octets: u64,
    delivered_octets: u64,
    lasted_ns: u64,
}

/// What a round has to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GuardVerdict {
    /// What was sent arrives.
    Fine,
    /// It does not: this is what was delivered, in bits per second.
    Reduce(u64),
    /// It does not, but the rate does: what was sent beyond the rate was too much.
    Excess,
    /// Reductions changed nothing; the rate before the first, in bits per second.
    Vain(u64),
}

/// What the model knows of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardView {
    pub(super) bw_bps: u64,
    pub(super) smoothed_rtt_ns: u64,
    /// By how much acknowledgements may be late, in nanoseconds.
    pub(super) late_ns: u64,
    /// By how much more is sent to make up for random loss.
    pub(super) inflation: f64,
}

impl RateGuard {
    /// Forgets the last rounds: they were not sent at the rate.
    pub(super) fn forget(&mut self) {
        self.rounds = [RoundVolume::default(); 3];
    }

    /// Takes a round outside Ramp.
    pub(super) fn judge(&mut self, now_ns: u64, round: &Round, view: &GuardView) -> GuardVerdict {
        self.note(round, view);
        let [first, second, last] = self.rounds;
        if [first, second, last].iter().any(|volume| volume.lasted_ns == 0) {
            return GuardVerdict::Fine;
        }
        // What two rounds sent arrives in the two that begin a round later.
        let sent_octets = first.sent_octets + second.sent_octets;
        let sent_bps = bits_per_second(sent_octets, first.lasted_ns + second.lasted_ns);
        let delivered_octets = second.delivered_octets + last.delivered_octets;
        let delivered_ns = second.lasted_ns + last.lasted_ns;
        let delivered_bps = bits_per_second(delivered_octets, delivered_ns);
        // Acknowledgements that are late at the end of the two make them too long.
        let sure_ns = delivered_ns - view.late_ns.min(delivered_ns / LATE_PART);
        let over = OVERLOAD_FACTOR.max(OVER_LOSS_FACTOR * view.inflation);
        let most_bps = over * bits_per_second(delivered_octets, sure_ns) as f64;
        if sent_bps as f64 <= most_bps {
            self.cuts = 0;
            return GuardVerdict::Fine;
        }
        if delivered_bps >= view.bw_bps {
            return GuardVerdict::Excess;
        }
        if now_ns < self.idle_until_ns {
            return GuardVerdict::Fine;
        }
        if self.cuts == 0 {
            self.before_bps = view.bw_bps;
        }
        // The next round still shows what was sent before.
        self.forget();
        self.cuts += 1;
        if self.cuts > CUTS_MAX {
            (self.cuts, self.idle_until_ns) = (0, now_ns + IDLE_NS);
            return GuardVerdict::Vain(self.before_bps);
        }
        GuardVerdict::Reduce(delivered_bps)
    }

    fn note(&mut self, round: &Round, view: &GuardView) {
        self.rounds.rotate_left(1);
        // A round in which the path stood still says nothing of what it carries.
        let stood_still = round.lasted_ns > STALL_RTTS * view.smoothed_rtt_ns;
        self.rounds[2] = match round.app_limited || stood_still {
            true => RoundVolume::default(),
            false => RoundVolume {
                sent_octets: round.sent_octets,
                delivered_octets: round.octets,
                lasted_ns: round.lasted_ns,
            },
        };
    }

    /// What was delivered in the last two rounds, in bits per second, whichever is more; `None`
    /// if they say nothing.
    pub(super) fn last_bps(&self) -> Option<u64> {
        let told = self.rounds[1..].iter().filter(|volume| volume.lasted_ns > 0);
        told.map(|volume| bits_per_second(volume.delivered_octets, volume.lasted_ns)).max()
    }

    /// What was delivered in this round or the one before, in bits per second, whichever is more:
    /// one alone may have ended late.
    pub(super) fn delivered_bps(&self, round: &Round) -> u64 {
        let before = self.rounds[1];
        let before_bps = bits_per_second(before.delivered_octets, before.lasted_ns);
        bits_per_second(round.octets, round.lasted_ns).max(before_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: u64 = 10_000_000;
    /// What 100 Mbit/s are in a round trip, in bytes.
    const FULL: u64 = 125_000;
    const BW_BPS: u64 = 100_000_000;
    const VIEW: GuardView =
        GuardView { bw_bps: BW_BPS, smoothed_rtt_ns: RTT_NS, late_ns: 0, inflation: 1.0 };

    fn round(sent_octets: u64, octets: u64) -> Round {
        Round { sent_octets, octets, lasted_ns: RTT_NS, ..Round::EMPTY }
    }

    /// The verdict after three rounds alike.
    fn third(guard: &mut RateGuard, now_ns: u64, round: &Round, view: &GuardView) -> GuardVerdict {
        for _ in 0..2 {
            assert_eq!(guard.judge(now_ns, round, view), GuardVerdict::Fine, "too few rounds");
        }
        guard.judge(now_ns, round, view)
    }

    fn judged(round: &Round, view: &GuardView) -> GuardVerdict {
        third(&mut RateGuard::default(), 0, round, view)
    }

    #[test]
    fn a_quarter_more_than_arrives_is_the_most_that_may_be_sent() {
        let delivered = FULL * 4 / 5;
        assert_eq!(judged(&round(FULL, delivered), &VIEW), GuardVerdict::Fine);
        let reduced = GuardVerdict::Reduce(BW_BPS / 5 * 4);
        assert_eq!(judged(&round(FULL + 1250, delivered), &VIEW), reduced);
        // The rate arrives: what is sent beyond it is too much.
        let slower = GuardView { bw_bps: BW_BPS / 5 * 4, ..VIEW };
        assert_eq!(judged(&round(FULL + 1250, delivered), &slower), GuardVerdict::Excess);
    }

    #[test]
    fn where_random_loss_takes_more_a_tenth_beyond_it_may_be_sent() {
        let view = GuardView { inflation: 1.5, ..VIEW };
        let delivered = FULL / 2;
        assert_eq!(judged(&round(FULL * 16 / 20, delivered), &view), GuardVerdict::Fine);
        let reduced = GuardVerdict::Reduce(BW_BPS / 2);
        assert_eq!(judged(&round(FULL * 17 / 20, delivered), &view), reduced);
    }

    #[test]
    fn what_two_rounds_sent_arrives_in_the_two_that_begin_a_round_later() {
        let mut guard = RateGuard::default();
        for (sent, delivered) in [(FULL, 0), (FULL, FULL)] {
            assert_eq!(guard.judge(0, &round(sent, delivered), &VIEW), GuardVerdict::Fine);
        }
        assert_eq!(guard.judge(0, &round(9 * FULL, FULL), &VIEW), GuardVerdict::Fine);
        // 10 sent in two rounds, 1.5 delivered in those from the second on.
        let verdict = guard.judge(0, &round(0, FULL / 2), &VIEW);
        assert_eq!(verdict, GuardVerdict::Reduce(BW_BPS / 4 * 3));
    }

    #[test]
    fn late_acknowledgements_are_allowed_for_up_to_half_of_the_time() {
        let sent = round(FULL, FULL / 2);
        for (late_ns, fine) in
            [(RTT_NS / 2, false), (RTT_NS, true), (2 * RTT_NS, true), (u64::MAX, true)]
        {
            let verdict = judged(&sent, &GuardView { late_ns, ..VIEW });
            assert_eq!(verdict == GuardVerdict::Fine, fine, "{late_ns}");
        }
        let more = round(FULL * 13 / 10, FULL / 2);
        let verdict = judged(&more, &GuardView { late_ns: u64::MAX, ..VIEW });
        assert_eq!(verdict, GuardVerdict::Reduce(BW_BPS / 2), "no more than half");
    }

    #[test]
    fn rounds_that_say_nothing_of_the_path_are_left_out() {
        let over = round(2 * FULL, FULL / 2);
        let limited = Round { app_limited: true, ..over };
        let stalled = Round { lasted_ns: 2 * RTT_NS + 1, ..over };
        for nothing in [limited, stalled] {
            let mut guard = RateGuard::default();
            for _ in 0..2 {
                for round in [over, over, nothing] {
                    assert_eq!(guard.judge(0, &round, &VIEW), GuardVerdict::Fine);
                }
            }
        }
        let long = Round { lasted_ns: 2 * RTT_NS, ..round(4 * FULL, FULL) };
        assert_eq!(judged(&long, &VIEW), GuardVerdict::Reduce(BW_BPS / 2));
        let mut guard = RateGuard::default();
        for _ in 0..2 {
            assert_eq!(guard.judge(0, &over, &VIEW), GuardVerdict::Fine);
        }
        guard.forget();
        assert_eq!(guard.judge(0, &over, &VIEW), GuardVerdict::Fine);
    }

    /// Then it is others that send too much, for 10 s.
    #[test]
    fn reductions_that_change_nothing_are_taken_back_after_three() {
        let (mut guard, over) = (RateGuard::default(), round(2 * FULL, FULL / 2));
        let mut view = VIEW;
        for _ in 0..3 {
            let verdict = third(&mut guard, SECOND_NS, &over, &view);
            assert_eq!(verdict, GuardVerdict::Reduce(BW_BPS / 2));
            view.bw_bps -= BW_BPS / 10;
        }
        let vain = GuardVerdict::Vain(BW_BPS);
        assert_eq!(third(&mut guard, SECOND_NS, &over, &view), vain, "the rate before the first");
        let until_ns = SECOND_NS + 10 * SECOND_NS;
        for _ in 0..9 {
            assert_eq!(guard.judge(until_ns - 1, &over, &view), GuardVerdict::Fine);
        }
        assert_eq!(guard.judge(until_ns, &over, &view), GuardVerdict::Reduce(BW_BPS / 2));
    }

    #[test]
    fn a_round_that_is_fine_ends_the_row_of_reductions() {
        let (mut guard, over) = (RateGuard::default(), round(2 * FULL, FULL / 2));
        for _ in 0..9 {
            let verdict = third(&mut guard, 0, &over, &VIEW);
            assert_eq!(verdict, GuardVerdict::Reduce(BW_BPS / 2));
            third(&mut guard, 0, &round(FULL, FULL), &VIEW);
            guard.forget();
        }
    }

    #[test]
    fn rounds_that_say_nothing_do_not_tell_what_was_delivered() {
        let mut guard = RateGuard::default();
        assert_eq!(guard.last_bps(), None);
        for octets in [3 * FULL, FULL, FULL / 2] {
            guard.judge(0, &round(FULL / 2, octets), &VIEW);
        }
        assert_eq!(guard.last_bps(), Some(BW_BPS), "the more of the last two");
        let limited = Round { app_limited: true, ..round(FULL, FULL) };
        guard.judge(0, &limited, &VIEW);
        assert_eq!(guard.last_bps(), Some(BW_BPS / 2));
        guard.judge(0, &limited, &VIEW);
        assert_eq!(guard.last_bps(), None);
    }

    #[test]
    fn what_was_delivered_is_the_more_of_two_rounds() {
        let mut guard = RateGuard::default();
        guard.judge(0, &round(FULL, FULL), &VIEW);
        let last = round(FULL, FULL / 2);
        guard.judge(0, &last, &VIEW);
        assert_eq!(guard.delivered_bps(&last), BW_BPS);
        guard.judge(0, &last, &VIEW);
        assert_eq!(guard.delivered_bps(&last), BW_BPS / 2);
        assert_eq!(guard.delivered_bps(&round(FULL, 2 * FULL)), 2 * BW_BPS);
    }
}
