//! `weave`: rate control for long paths with random loss. `docs/shuttle.md`, "Weave", describes
//! states, signals and gains; `docs/simulator.md` has its results.
//!
//! Files: `arrival` reads the receiver's clock; `model` estimates rate, round trip and rounds;
//! `loss` separates random loss from congestion, `trial` tells whether it depends on the rate, and
//! `rivals` whether those who share the path answer it; `guard` holds what is sent to what is
//! delivered; `start`, `probe` and `share` decide about the phases Ramp and Drain, Up and Down, and
//! Cruise; `leap` tells a path that became longer, and `wander` what of a delay is no queue where
//! delays vary; `answer` reacts to congestion; `outputs` computes pacing rate and window.
//!
//! Invariant: pacing is the control, and outside Ramp the bytes in flight are bounded by a multiple
//! of the bandwidth-delay product.

mod answer;
mod arrival;
mod guard;
mod leap;
mod loss;
mod model;
mod outputs;
mod probe;
mod rivals;
mod share;
mod start;
mod trial;
mod wander;

use super::controller::{Acked, Controller, Ecn, Lost, Params, Saved, Sent, Spurious};
use super::rate::{SECOND_NS, octets_in};
use answer::{Cut, Gap};
use guard::{GuardVerdict, GuardView, RateGuard};
use leap::RttLeap;
use loss::LossFilter;
use model::{Model, Round};
use probe::RateProbe;
use rivals::RivalFilter;
use share::PathStep;
use start::Train;
use trial::{RateTrial, TRIED_LOSS_SHARE};

/// Packets of the first flight: one call with segmentation offload.
const INITIAL_PACKETS: u64 = 64;
/// Least window in packets, as in BBR.
const MIN_PACKETS: u64 = 4;
/// Round trip assumed before one is known, in nanoseconds: the first flight is spread over it.
const UNKNOWN_RTT_NS: u64 = 30_000_000;
/// Longest stay in `Down` in rounds: a queue of one probe is gone after two.
const DOWN_ROUNDS: u32 = 3;
/// Part of a standing queue below which that of a probe is gone, and `Down` ends.
const DOWN_QUEUE_PART: u64 = 8;
/// Time between probes, 2 s to 3 s: a probe costs a few milliseconds of queue for everyone.
const PROBE_NS: u64 = 2 * SECOND_NS;
/// Random part of that time, so that flows do not probe in step.
const PROBE_SPREAD_NS: u64 = SECOND_NS;
/// Round trips after `Refresh` in which what is delivered still reflects it (`matrix`, jitter of
/// 30 ms in order).
const REFRESHED_RTTS: u64 = 3;
/// Time for which `Refresh` keeps the path empty, 100 ms, or a round trip if that is longer.
const REFRESH_NS: u64 = 100_000_000;

/// Fills the generator's state where the seed is small or 0, in which it would stay: the golden
/// ratio in 64 bits.
const SEED_MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Acknowledgements of which the shortest round trip shows a queue.
const RECENT_ACKS: usize = 32;
/// Longest gaps between arrivals in which they must have come: one packet may have waited for its
/// bunch (`real-paths`, `bunch` of 6 to 15 ms).
const RECENT_GAPS: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum WeavePhase {
    /// Start-up: the window grows fourfold each round. `train` measures the delivery rate,
    /// `full_bps` and `full_rounds` tell when it no longer grows.
    Ramp { train: Train, full_bps: u64, full_rounds: u32 },
    /// After start-up: the measured rate until the queue is gone; rounds so far.
    Drain { rounds: u32 },
    /// Steady state: the rate of the path, until a probe is due; rounds so far, of which the first
    /// still reflects the phase before.
    Cruise { probe_at_ns: u64, rounds: u32 },
    /// Probing for more: a bounded excess in flight.
    Up(RateProbe),
    /// Nine tenths of the rate, or of what arrived, to see whether losses depend on it.
    Trial,
    /// Draining the queue of a probe; rounds so far.
    Down { rounds: u32 },
    /// Half a bandwidth-delay product in flight, to measure the smallest round trip again; its end,
    /// once few bytes are in flight, and the smallest sample so far.
    Refresh { end_ns: Option<u64>, floor_ns: u64 },
}

/// The weave controller.
#[derive(Clone, Debug)]
pub struct Weave {
    params: Params,
    model: Model,
    loss: LossFilter,
    phase: WeavePhase,
    /// Window of Ramp in bytes; other phases derive it from the model.
    window: u64,
    /// Factor by which a flight of Ramp lasts longer than four acknowledgement intervals.
    stretch: u64,
    guard: RateGuard,
    leap: RttLeap,
    /// Smallest round trip of the path after a leap that the last round confirmed, in nanoseconds.
    leapt_ns: Option<u64>,
    trial: RateTrial,
    /// Latest round trip, without what its acknowledgement waited.
    latest_rtt_ns: u64,
    smoothed_rtt_ns: u64,
    /// When the last acknowledgements came, and their round trips: one that is long may be of a
    /// packet that waited for its bunch.
    recent_ns: [(u64, u64); RECENT_ACKS],
    /// Consecutive rounds with, and without, a standing queue.
    queued_rounds: u32,
    queued_ns: u64,
    calm_rounds: u32,
    /// Consecutive rate reductions that should have drained the queue.
    yields: u32,
    /// The last standing delay that was taken for the path's.
    lengthened: Option<PathStep>,
    /// The rate was reduced for a standing queue, and no probe has followed.
    has_shared: bool,
    competes: bool,
    rivals: RivalFilter,
    /// Rate before the first of these reductions, in bits per second.
    before_yield_bps: Option<u64>,
    /// Smallest and largest of the rounds' least round trips since the first reduction.
    standing_ns: Option<(u64, u64)>,
    cut: Option<Cut>,
    /// Losses of packets sent before this have been reacted to.
    answered_ns: u64,
    /// A reaction took place, and no probe has followed.
    is_cut: bool,
    /// When an application has filled the path in Ramp, in nanoseconds.
    filled_ns: u64,
    /// A flight without losses has ended Ramp, and neither a reduction nor a probe has followed.
    is_new: bool,
    /// The last probe has raised the rate by much: there may be more.
    has_gained: bool,
    is_out: bool,
    /// Sending time of the newest packet that has arrived.
    arrived_sent_ns: u64,
    gap: Option<Gap>,
    /// Round trip of the saved path properties that the first flight is based on.
    saved_rtt_ns: Option<u64>,
    /// End of the last Refresh, in nanoseconds.
    refreshed_ns: u64,
    random: u64,
}

impl Weave {
    /// A controller in Ramp.
    pub fn new(params: &Params) -> Self {
        let datagram = u64::from(params.datagram_octets);
        let wished = params.initial_rate_bps.map(|bps| octets_in(bps, UNKNOWN_RTT_NS));
        Self {
            model: Model::new(),
            loss: LossFilter::default(),
            phase: RAMP,
            window: wished.unwrap_or(0).max(INITIAL_PACKETS * datagram),
            stretch: 1,
            guard: RateGuard::default(),
            leap: RttLeap::default(),
            leapt_ns: None,
            trial: RateTrial::default(),
            latest_rtt_ns: 0,
            recent_ns: [(0, 0); RECENT_ACKS],
            smoothed_rtt_ns: 0,
            queued_rounds: 0,
            queued_ns: 0,
            calm_rounds: 0,
            yields: 0,
            lengthened: None,
            has_shared: false,
            competes: false,
            rivals: RivalFilter::default(),
            before_yield_bps: None,
            standing_ns: None,
            cut: None,
            answered_ns: 0,
            is_cut: false,
            filled_ns: 0,
            is_new: false,
            has_gained: false,
            is_out: false,
            arrived_sent_ns: 0,
            gap: None,
            saved_rtt_ns: None,
            refreshed_ns: 0,
            random: params.seed ^ SEED_MIX,
            params: params.clone(),
        }
    }

    fn queue_ns(&self) -> u64 {
        self.model.queue_ns(self.params.datagram_octets)
    }

    fn min_rtt_ns(&self) -> u64 {
        self.model.min_rtt_ns().or(self.saved_rtt_ns).unwrap_or(UNKNOWN_RTT_NS)
    }

    /// Excess of a round trip over the smallest and how far that wanders, in nanoseconds.
    fn above_min_ns(&self, rtt_ns: u64) -> u64 {
        rtt_ns.saturating_sub(self.min_rtt_ns() + self.model.wander_ns())
    }

    /// Least excess over the smallest of the last quarter of a round, in nanoseconds.
    fn recent_above_ns(&self) -> u64 {
        let (now_ns, latest_ns) = self.recent_ns[RECENT_ACKS - 1];
        let rtt_ns = self.min_rtt_ns();
        let gaps_ns = (RECENT_GAPS * self.model.gap_ns()).min(rtt_ns);
        let from_ns = now_ns.saturating_sub(gaps_ns);
        let recent = self.recent_ns.into_iter().filter(|(at_ns, _)| *at_ns > from_ns);
        self.above_min_ns(recent.map(|(_, rtt_ns)| rtt_ns).min().unwrap_or(latest_ns))
    }

    /// Whether delays that vary are the path's own: what a policer takes makes arrivals erratic as
    /// well, so not where so much is lost that it is tried whether the rate is why.
    fn may_wander(&self) -> bool {
        !self.trial.depends && self.loss.random() < TRIED_LOSS_SHARE
    }

    /// Whether delays vary that are the path's own.
    fn delays_vary(&self) -> bool {
        self.may_wander() && self.model.varies(self.params.datagram_octets)
    }

    /// Bandwidth-delay product in bytes, inflated by random loss.
    fn bdp(&self) -> u64 {
        (self.model.bdp_octets() as f64 * self.loss.inflation()) as u64
    }

    /// Phase transitions checked on every ACK.
    fn on_ack(&mut self, acked: &Acked) {
        let now_ns = acked.now_ns;
        let queue_ns = self.queue_ns();
        let is_limited = acked.rate.is_some_and(|sample| sample.app_limited);
        let above_ns = self.above_min_ns(self.latest_rtt_ns);
        if !is_limited && self.begin_trial(now_ns) {
            return;
        }
        match self.phase {
            WeavePhase::Ramp { .. } => self.on_ramp_ack(acked),
            WeavePhase::Trial => self.end_trial(now_ns),
            WeavePhase::Down { .. }
                if acked.in_flight_octets <= self.bdp()
                    || above_ns < queue_ns / DOWN_QUEUE_PART =>
            {
                self.cruise(now_ns);
            }
            WeavePhase::Cruise { .. } if self.model.min_rtt_is_old(now_ns) => {
                self.phase = WeavePhase::Refresh { end_ns: None, floor_ns: u64::MAX };
            }
            // An application-limited probe would measure nothing.
            WeavePhase::Cruise { probe_at_ns, .. } if now_ns >= probe_at_ns && !is_limited => {
                self.probe();
            }
            WeavePhase::Up(probe)
                if !self.competes
                    && self.recent_above_ns() > queue_ns + self.probe_spread_ns()
                    && self.may_queue(&probe) =>
            {
                self.end_probe(now_ns);
            }
            WeavePhase::Refresh { end_ns, floor_ns } => self.refresh(acked, end_ns, floor_ns),
            _ => {}
        }
    }

    fn cruise(&mut self, now_ns: u64) {
        let wait_ns = PROBE_NS + self.draw(PROBE_SPREAD_NS);
        self.phase = WeavePhase::Cruise { probe_at_ns: now_ns + wait_ns, rounds: 0 };
    }

    fn refresh(&mut self, acked: &Acked, end_ns: Option<u64>, floor_ns: u64) {
        let now_ns = acked.now_ns;
        let few = acked.in_flight_octets <= self.window_octets();
        let end_ns = match end_ns {
            None if few => Some(now_ns + REFRESH_NS.max(self.smoothed_rtt_ns)),
            other => other,
        };
        let floor_ns = acked.rtt.map_or(floor_ns, |_| floor_ns.min(self.latest_rtt_ns));
        self.phase = WeavePhase::Refresh { end_ns, floor_ns };
        if end_ns.is_some_and(|end_ns| now_ns >= end_ns) {
            // Acknowledgements of packets that are not timed tell no round trip: then another
            // Refresh follows.
            if floor_ns < u64::MAX {
                // A queue that is gone with half of what this flow has in flight was its own.
                self.competes &= self.above_min_ns(floor_ns) > self.queue_ns();
                self.model.forget_min_rtt(now_ns, floor_ns);
            }
            self.guard.forget();
            self.refreshed_ns = now_ns;
            self.cruise(now_ns);
        }
    }

    /// Handles a round outside Ramp; true if it was overloaded, and the rate was reduced or a probe
    /// ended.
    fn heed_guard(&mut self, now_ns: u64, round: &Round) -> bool {
        let view = GuardView {
            bw_bps: self.model.bw_bps(),
            smoothed_rtt_ns: self.smoothed_rtt_ns,
            late_ns: self.model.late_ns().max(self.model.gap_ns()),
            inflation: self.loss.inflation(),
        };
        match self.guard.judge(now_ns, round, &view) {
            GuardVerdict::Fine => return false,
            GuardVerdict::Excess => {
                let is_probe = matches!(self.phase, WeavePhase::Up(_)) && !self.competes;
                if is_probe {
                    self.end_probe(now_ns);
                }
                return is_probe;
            }
            GuardVerdict::Vain(before_bps) => {
                self.model.set_bw(before_bps, now_ns);
                return false;
            }
            GuardVerdict::Reduce(delivered_bps) => {
                self.model.set_bw(delivered_bps, now_ns + self.smoothed_rtt_ns);
            }
        }
        self.answered_ns = now_ns;
        // What a policer lets through is its rate: a probe soon would find no more.
        (self.is_cut, self.is_new) = (!self.trial.depends, false);
        self.loss.forget_few();
        self.cruise(now_ns);
        true
    }

    fn on_round(&mut self, now_ns: u64, round: &Round) {
        let is_queued = self.above_min_ns(round.floor_rtt_ns) > self.queue_ns();
        let settled = !matches!(self.phase, WeavePhase::Refresh { .. });
        self.leapt_ns = self.take_leap(round);
        if settled && self.heed_guard(now_ns, round) {
            return;
        }
        let gathered = self.loss.gather(round);
        let seen = if is_queued { Some(*round) } else { gathered };
        if self.competes {
            self.rivals.handle(now_ns, round, self.above_min_ns(round.floor_rtt_ns));
            self.is_cut &= !self.rivals.defies();
        }
        let with_queue = is_queued || self.trial.depends;
        let is_congestion =
            settled && seen.is_some_and(|seen| self.loss.is_congestion(&seen, with_queue));
        let is_trial = self.phase == WeavePhase::Trial && !with_queue;
        if is_congestion && self.answer(now_ns, round, is_queued) {
            if is_trial {
                self.go_on_trying();
            }
            return;
        }
        if gathered.is_some() && !is_congestion {
            let is_rate = self.is_steady() && !round.app_limited;
            self.trial.calm(if is_rate { self.model.bw_bps() } else { 0 });
        }
        self.on_phase_round(now_ns, round, is_queued);
    }

    /// Smallest round trip of the path if a round confirms that it leapt. Probes and competitors
    /// make queues that leap as well (`matrix`, `20ms 100mbit queue=0.1bdp forward:loss=1%`).
    fn take_leap(&mut self, round: &Round) -> Option<u64> {
        if !matches!(self.phase, WeavePhase::Cruise { .. }) || self.competes {
            self.leap = RttLeap::default();
            return None;
        }
        let (min_ns, queue_ns) = (self.min_rtt_ns(), self.queue_ns());
        self.leap.take_round(round.floor_rtt_ns, min_ns, queue_ns)
    }

    /// Whether a round that ends now was sent at the rate.
    fn is_steady(&self) -> bool {
        matches!(self.phase, WeavePhase::Cruise { rounds: 1.., .. })
    }

    /// Phase transitions at the end of a round without congestion.
    fn on_phase_round(&mut self, now_ns: u64, round: &Round, is_queued: bool) {
        // Queues that probes and competitors make grow within a round.
        let is_steady = self.is_steady() && !self.competes;
        if is_steady {
            self.model.learn_spread(round);
        }
        if self.may_wander() {
            self.model.wander_round(round, is_steady, self.params.datagram_octets);
        } else {
            self.model.forget_wander();
        }
        match self.phase {
            WeavePhase::Up(probe) => self.on_probe_round(now_ns, round, probe),
            WeavePhase::Drain { rounds } => self.on_drain_round(now_ns, round, rounds + 1),
            WeavePhase::Down { rounds } if rounds + 1 >= DOWN_ROUNDS => self.cruise(now_ns),
            WeavePhase::Down { rounds } => self.phase = WeavePhase::Down { rounds: rounds + 1 },
            WeavePhase::Cruise { probe_at_ns, rounds } => {
                self.phase = WeavePhase::Cruise { probe_at_ns, rounds: rounds + 1 };
                // App-limited rounds say nothing about the queue.
                if rounds > 0 && !round.app_limited {
                    self.on_cruise_round(now_ns, round);
                }
            }
            _ => {}
        }
        if !is_queued
            && !self.trial.depends
            && matches!(
                self.phase,
                WeavePhase::Drain { .. } | WeavePhase::Cruise { .. } | WeavePhase::Down { .. }
            )
        {
            self.loss.learn(round);
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        // Marsaglia, "Xorshift RNGs", 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }
}

/// The first phase, with nothing learnt.
const RAMP: WeavePhase = WeavePhase::Ramp { train: Train::EMPTY, full_bps: 0, full_rounds: 0 };

impl Controller for Weave {
    fn on_sent(&mut self, sent: &Sent) {
        self.model.send(sent.octets);
        self.trial.send(sent.packets);
    }

    fn on_acked(&mut self, acked: &Acked) {
        let forward_rtt_ns = self.model.forward_rtt_ns(acked);
        if let Some((rtt, forward_ns)) = acked.rtt.zip(forward_rtt_ns) {
            (self.latest_rtt_ns, self.smoothed_rtt_ns) = (forward_ns, rtt.smoothed_ns);
            self.recent_ns.rotate_left(1);
            self.recent_ns[RECENT_ACKS - 1] = (acked.now_ns, forward_ns);
        }
        if std::mem::take(&mut self.is_out) {
            let (bw_bps, rtt_ns) = (self.model.bw_bps(), self.min_rtt_ns());
            self.model.set_bw(0, acked.now_ns);
            self.resume(bw_bps, rtt_ns);
            // The first flights are a fraction of what the rounds before sent.
            self.guard.forget();
        }
        self.pass_gap(acked);
        self.ack_in_trial(acked);
        let round = self.model.handle(acked, forward_rtt_ns, self.paced_bps());
        // The acknowledgement that ends a round of Ramp is the first of the next flight.
        let is_ramp = matches!(self.phase, WeavePhase::Ramp { .. });
        if is_ramp && let Some(round) = &round {
            self.on_ramp_round(acked.now_ns, round);
        }
        self.on_ack(acked);
        if !is_ramp && let Some(round) = &round {
            self.on_round(acked.now_ns, round);
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.model.lose(lost.packets, lost.sent_ns > self.answered_ns);
        self.lose_in_trial(lost);
        self.widen_gap(lost);
    }

    fn on_spurious(&mut self, spurious: &Spurious) {
        self.model.restore(spurious.packets);
        self.take_back(spurious);
    }

    fn on_ecn(&mut self, ecn: &Ecn) {
        self.on_mark(ecn);
    }

    fn on_outage(&mut self, now_ns: u64) {
        self.is_out = true;
        self.trial.forget(now_ns);
    }

    fn on_path_changed(&mut self, _: u64, saved: Option<Saved>) {
        *self = Self::new(&self.params);
        if let Some(saved) = saved {
            self.resume(saved.rate_bps, saved.min_rtt_ns);
        }
    }

    fn on_datagram_octets(&mut self, octets: u16) {
        self.params.datagram_octets = octets;
    }

    fn pacing_rate_bps(&self) -> u64 {
        self.paced_bps()
    }

    fn window_octets(&self) -> u64 {
        self.window_of_phase()
    }

    fn saved(&self) -> Option<Saved> {
        let min_rtt_ns = self.model.min_rtt_ns()?;
        let rate_bps = self.model.bw_bps();
        (rate_bps > 0).then_some(Saved { rate_bps, min_rtt_ns })
    }

    fn name(&self) -> &'static str {
        "weave"
    }
}

#[cfg(test)]
mod courses;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod tests;
