//! Which packets are lost.

use serde::Serialize;

use super::random::Random;
use super::schedule::Stepped;
use weft_units::Share;

/// A model of loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Nothing is lost.
    None,
    /// Each packet for itself.
    Independent(Share),
    /// Gilbert and Elliott: a link that is now good, now bad; decided anew with each packet.
    Gilbert {
        /// From good to bad.
        to_bad: Share,
        /// From bad to good.
        to_good: Share,
        /// What is lost while it is bad.
        bad: Share,
        /// What is lost while it is good.
        good: Share,
    },
}

impl Loss {
    /// Losses in bursts of `mean_packets` (at least 1), `share` of all packets: Gilbert's model,
    /// in which everything is lost while the link is bad. The share counts where both cannot be.
    pub fn bursts(share: Share, mean_packets: f64) -> Self {
        let lost = share.probability();
        let mut to_good = 1.0 / mean_packets.max(1.0);
        let mut to_bad = to_good * lost / (1.0 - lost).max(f64::MIN_POSITIVE);
        if to_bad > 1.0 {
            // So much loss needs longer bursts.
            (to_bad, to_good) = (1.0, (1.0 - lost) / lost);
        }
        Self::Gilbert {
            to_bad: Share::new(to_bad),
            to_good: Share::new(to_good),
            bad: Share::new(1.0),
            good: Share::NONE,
        }
    }
}

/// The model at work.
#[derive(Debug)]
pub struct LossState {
    model: Stepped<Loss>,
    random: Random,
    is_bad: bool,
}

impl LossState {
    pub fn new(model: Stepped<Loss>, random: Random) -> Self {
        Self { model, random, is_bad: false }
    }

    /// Whether the packet that leaves the bottleneck at `now_ns` is lost.
    pub fn loses(&mut self, now_ns: u64) -> bool {
        match self.model.at(now_ns) {
            Loss::None => false,
            Loss::Independent(share) => self.random.happens(share),
            Loss::Gilbert { to_bad, to_good, bad, good } => {
                let turns = if self.is_bad { to_good } else { to_bad };
                self.is_bad ^= self.random.happens(turns);
                self.random.happens(if self.is_bad { bad } else { good })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: usize = 1_000_000;

    fn losses(model: Loss) -> Vec<bool> {
        let mut state = LossState::new(Stepped::constant(model), Random::new(7, "loss"));
        (0..PACKETS).map(|_| state.loses(0)).collect()
    }

    /// The share of `true`, and how long a run of them is on average.
    fn share_and_run(losses: &[bool]) -> (f64, f64) {
        let lost = losses.iter().filter(|lost| **lost).count() as f64;
        let runs = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        (lost / losses.len() as f64, lost / runs)
    }

    #[test]
    fn independent_loss_is_binomial() {
        for p in [0.0001, 0.001, 0.01, 0.1] {
            let (share, _) = share_and_run(&losses(Loss::Independent(Share::new(p))));
            let sigma = (p * (1.0 - p) / PACKETS as f64).sqrt();
            assert!((share - p).abs() < 4.0 * sigma, "{p}: {share}");
        }
    }

    #[test]
    fn bursts_have_their_share_and_length() {
        let (share, run) = share_and_run(&losses(Loss::bursts(Share::new(0.01), 8.0)));
        assert!((share - 0.01).abs() < 0.001, "{share}");
        assert!((run - 8.0).abs() < 0.5, "{run}");
    }

    #[test]
    fn the_share_of_bursts_holds_even_if_their_length_cannot() {
        for (share, mean) in [(0.9, 2.0), (0.6, 1.0), (0.5, 1.0)] {
            let (found, _) = share_and_run(&losses(Loss::bursts(Share::new(share), mean)));
            assert!((found - share).abs() < 0.005, "{share}: {found}");
        }
        assert!(losses(Loss::bursts(Share::new(1.0), 8.0)).iter().all(|lost| *lost));
    }

    #[test]
    fn all_and_nothing_are_exact() {
        assert!(losses(Loss::Independent(Share::new(1.0))).iter().all(|lost| *lost));
        assert!(!losses(Loss::Independent(Share::NONE)).contains(&true));
        assert!(!losses(Loss::bursts(Share::NONE, 5.0)).contains(&true));
    }
}
