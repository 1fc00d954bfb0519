//! Trials (phase Trial): whether losses without a queue depend on the rate. Random loss does not;
//! what a policer takes, or a buffer too short to delay anything, ends below the path's rate. So
//! once losses are worth making up for, a short run of packets is sent at nine tenths of the rate,
//! or of what arrived, if that is less. If few of them are lost, losses are congestion from then on
//! ([`RateTrial::depends`]), until reductions do not end them.
//!
//! An unclear result is confirmed by a second trial, below what arrived of the first.
//!
//! Losses are counted as events: a burst is one, however many packets it takes, so that the chance
//! that none falls into a trial is known.

use super::model::Round;
use super::{Weave, WeavePhase};
use crate::cc::controller::{Acked, Lost};
use crate::cc::rate::{SECOND_NS, bits_per_second, octets_in, time_for_ns};

/// Pacing gain of a trial, without what makes up for losses (`matrix`, policers of 20 Mbit/s: .12
/// to .17 dropped without trials, .01 to .03 with them).
const TRIAL_GAIN: f64 = 0.9;
/// Least random loss that is tried, 1.5 %: less does no harm if it is not random.
pub(super) const TRIED_LOSS_SHARE: f64 = 0.015;
/// Events expected in a trial, and known of before. If losses are random, three or less happen by
/// chance once in 57 trials, as the expectation is from no more than twelve.
const TRIAL_EVENTS: f64 = 12.0;
/// Part of them above which they are as frequent as expected: losses do not depend on the rate, or
/// not all of them.
const EVENTS_PART: f64 = 4.0;
/// The same of packets.
const LOSS_PART: f64 = 3.0;
/// Part of the loss of before from which on a first trial is clear: losses are random
/// (`coexistence`: among ten BBRv1 at 0.1 BDP weave had .79 of the link where no first trial was
/// confirmed).
const RANDOM_FACTOR: f64 = 0.75;
/// Part of the expected events without which a trial says nothing: it was cut short.
const EVENTS_SHARE_MIN: f64 = 0.7;
/// Longest trial, 2 s, or two round trips: events that are rarer are not those of a policer. Counts
/// of before are halved each time as long has passed.
const LONGEST_NS: u64 = 2 * SECOND_NS;
const LONGEST_RTTS: u64 = 2;
/// Part of a round trip that a trial lasts at least: a bucket fills.
const LEAST_RTT_PART: u64 = 4;
/// Time until the next trial, 10 s, twice as long after each: trials cost 0.5 % of the rate at most
/// where loss is random (`loss`, `matrix`).
const WAIT_NS: u64 = 10 * SECOND_NS;
const WAIT_FACTOR: u64 = 2;
/// The most of it, 160 s.
const WAIT_MAX_NS: u64 = 160 * SECOND_NS;
/// Time until a trial is thought of again that could not be made or said nothing, 250 ms.
const AGAIN_NS: u64 = SECOND_NS / 4;
/// Times the loss of the last trial, and the share of packets beyond, from which there is another
/// one at once: what is lost is something else.
const MORE_FACTOR: f64 = 1.5;
const MORE_SHARE: f64 = 0.01;
/// Part of a round trip after a trial from which on all its packets have been told of: those that
/// overtook each other are lost, or are not, a little later.
const MARGIN_RTT_PART: u64 = 16;
/// Losses sent within 4 ms, or the time of 16 packets, are one event.
const EVENT_NS: u64 = 4_000_000;
/// The same in packets.
const EVENT_PACKETS: u64 = 16;
/// Least part of the rate at which a second trial is paced: what arrived of the first may be old.
const CONFIRM_PART: u64 = 2;
/// Times the longest trial after which one is given up: it may be paced at less than half the rate.
const MOST_TIMES: u64 = 3;
/// Reductions in a row that do not end losses, after which they are random after all.
const CUTS_MAX: u32 = 4;
/// Largest reduction at a time, to four fifths.
const CUT_FACTOR_MIN: f64 = 0.8;
/// Part of a rate without losses beyond random ones, below which reductions have ended none: they
/// are random after all (`8ms 100mbit forward:loss=2% burst=8`: one of 24 seeds had 66 Mbit/s
/// without it, and has 87).
const FALL_FACTOR: f64 = 0.7;

/// Packets acknowledged or lost, and the losses among them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LossCount {
    packets: u64,
    lost: u64,
    events: u64,
}

impl LossCount {
    fn share(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }

    /// Events for each packet.
    fn density(&self) -> f64 {
        self.events as f64 / self.packets.max(1) as f64
    }

    /// What is lost whatever the rate: a standard deviation of the events more than was lost. What
    /// is lost beyond it is taken for a policer's.
    fn floor(&self) -> f64 {
        let deviation = if self.events > 0 { 1.0 / (self.events as f64).sqrt() } else { 0.0 };
        self.share() * (1.0 + deviation)
    }

    fn half(&self) -> Self {
        Self { packets: self.packets / 2, lost: self.lost / 2, events: self.events / 2 }
    }
}

/// A trial under way, or whose packets are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RunningTrial {
    began_ns: u64,
    /// What was delivered before, in bits per second: a policer's bucket lets the rate be taken for
    /// more (of 6,000 random paths 161 were unsafe without, 131 with it).
    delivered_bps: u64,
    /// When the last of its packets was sent.
    ended_ns: Option<u64>,
    /// Packets to send, and sent.
    need: u64,
    sent: u64,
    /// Packets of the trial that were acknowledged or lost so far, and those before it.
    told: LossCount,
    usual: LossCount,
    /// When the probe is due that the trial put off.
    probe_at_ns: u64,
}

impl RunningTrial {
    fn covers(&self, sent_ns: u64) -> bool {
        sent_ns >= self.began_ns && self.ended_ns.is_none_or(|ended_ns| sent_ns <= ended_ns)
    }
}

/// What is known of how losses depend on the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RateTrial {
    /// Packets acknowledged or lost since the last trial, outside start-up, most of them of late.
    usual: LossCount,
    /// When that is halved, in nanoseconds.
    halve_at_ns: u64,
    /// Sending time of the first loss of the newest event.
    event_sent_ns: u64,
    due_ns: u64,
    /// Time between the last trial with a result and the next; 0 before the first of a connection.
    wait_ns: u64,
    /// Loss at the last trial; 0 before the first, and after one that is to be repeated.
    tried_loss: f64,
    running: Option<RunningTrial>,
    /// What arrived of the last trial, in bits per second, if its result is to be confirmed.
    arrived_bps: Option<u64>,
    /// Losses without a queue depend on the rate.
    pub(super) depends: bool,
    /// Reductions since losses last ceased, and the rate before the first, in bits per second.
    cuts: u32,
    before_bps: u64,
    /// Highest rate of Cruise without losses beyond random ones since they depend on it, in bits
    /// per second.
    calm_bps: u64,
}

impl RateTrial {
    /// Counts packets sent.
    pub(super) fn send(&mut self, packets: u32) {
        if let Some(running) = self.running.as_mut().filter(|running| running.ended_ns.is_none()) {
            running.sent += u64::from(packets);
        }
    }

    /// The count that a packet belongs to, if to any.
    fn count(&mut self, sent_ns: u64, is_usual: bool) -> Option<&mut LossCount> {
        match self.running.as_mut().filter(|running| running.covers(sent_ns)) {
            Some(running) => Some(&mut running.told),
            None => is_usual.then_some(&mut self.usual),
        }
    }

    /// Counts lost packets, of which those sent within `merged_ns` are one event.
    fn lose(&mut self, lost: &Lost, merged_ns: u64, is_usual: bool) {
        let is_event = lost.sent_ns > self.event_sent_ns + merged_ns;
        if is_event {
            self.event_sent_ns = lost.sent_ns;
        }
        let packets = u64::from(lost.packets);
        if let Some(count) = self.count(lost.sent_ns, is_usual) {
            count.packets += packets;
            count.lost += packets;
            count.events += u64::from(is_event);
        }
    }

    /// Counts acknowledged packets; what was counted before counts half each `half_ns`.
    fn acknowledge(&mut self, acked: &Acked, half_ns: u64, is_usual: bool) {
        let late_ns = acked.now_ns.saturating_sub(self.halve_at_ns);
        if acked.now_ns >= self.halve_at_ns {
            self.halve_at_ns = acked.now_ns + half_ns;
            self.usual = if late_ns < half_ns { self.usual.half() } else { LossCount::default() };
        }
        if let Some(count) = self.count(acked.sent_ns, is_usual) {
            count.packets += u64::from(acked.packets);
        }
    }

    /// The last trial said nothing: another one is to be made.
    fn repeat_soon(&mut self, now_ns: u64) {
        (self.tried_loss, self.due_ns) = (0.0, now_ns + AGAIN_NS);
    }

    /// What was lost of late was lost to an outage, and says nothing of the rate.
    pub(super) fn forget(&mut self, now_ns: u64) {
        self.usual = LossCount::default();
        if self.running.take().is_some() {
            self.repeat_soon(now_ns);
        }
    }

    /// After a trial that found losses to be random.
    #[cfg(test)]
    pub(super) fn found_random() -> Self {
        Self { tried_loss: 0.03, ..Self::default() }
    }

    /// A round had no losses beyond random ones, at this rate in bits per second; 0 if it was not
    /// sent at the rate.
    pub(super) fn calm(&mut self, bw_bps: u64) {
        (self.cuts, self.calm_bps) = (0, self.calm_bps.max(bw_bps));
    }
}

impl Weave {
    /// Whether packets acknowledged or lost now are not those of start-up.
    fn is_usual(&self) -> bool {
        !matches!(self.phase, WeavePhase::Ramp { .. } | WeavePhase::Drain { .. })
    }

    pub(super) fn lose_in_trial(&mut self, lost: &Lost) {
        let octets = EVENT_PACKETS * u64::from(self.params.datagram_octets);
        let merged_ns = EVENT_NS.max(time_for_ns(octets, self.model.bw_bps()));
        let is_usual = self.is_usual();
        self.trial.lose(lost, merged_ns, is_usual);
    }

    /// Counts an acknowledgement; a trial all of whose packets have been told of is judged.
    pub(super) fn ack_in_trial(&mut self, acked: &Acked) {
        let (half_ns, is_usual) = (self.longest_trial_ns(), self.is_usual());
        self.trial.acknowledge(acked, half_ns, is_usual);
        let margin_ns = self.smoothed_rtt_ns / MARGIN_RTT_PART;
        let is_over = |running: &RunningTrial| {
            running.ended_ns.is_some_and(|ended_ns| acked.sent_ns > ended_ns + margin_ns)
        };
        if let Some(running) = self.trial.running.take_if(|running| is_over(running)) {
            self.judge(acked.now_ns, &running);
        }
    }

    /// Begins a trial if one is due; true if it did.
    pub(super) fn begin_trial(&mut self, now_ns: u64) -> bool {
        let trial = &mut self.trial;
        if self.phase != WeavePhase::Trial
            && trial.running.take_if(|running| running.ended_ns.is_none()).is_some()
        {
            // A queue, the guard, or a mark ended it early.
            trial.repeat_soon(now_ns);
        }
        let WeavePhase::Cruise { probe_at_ns, rounds } = self.phase else { return false };
        if now_ns.saturating_sub(trial.due_ns) > WAIT_NS {
            trial.arrived_bps = None;
        }
        let usual = trial.usual;
        let grew =
            trial.tried_loss > 0.0 && usual.share() > MORE_FACTOR * trial.tried_loss + MORE_SHARE;
        let is_due = now_ns >= trial.due_ns || grew;
        let may = rounds > 0 && !self.competes && trial.running.is_none();
        // Losses of probes are among the usual ones and not among the random: both must be high.
        let is_worth = self.loss.random().min(usual.share()) >= TRIED_LOSS_SHARE;
        if !is_worth || !is_due || !may || (usual.events as f64) < TRIAL_EVENTS {
            return false;
        }
        let Some(need) = self.trial_packets() else {
            self.trial.due_ns = now_ns + AGAIN_NS;
            return false;
        };
        let datagram = u64::from(self.params.datagram_octets);
        let least_octets = octets_in(self.model.bw_bps(), self.smoothed_rtt_ns / LEAST_RTT_PART);
        self.trial.tried_loss = usual.share();
        self.trial.usual = LossCount::default();
        self.trial.running = Some(RunningTrial {
            began_ns: now_ns,
            delivered_bps: self.delivered_bps(),
            need: need.max(least_octets / datagram),
            usual,
            probe_at_ns,
            ..RunningTrial::default()
        });
        self.phase = WeavePhase::Trial;
        true
    }

    /// What was delivered of late, or, if less, arrived of the trial before, in bits per second.
    fn delivered_bps(&self) -> u64 {
        let least_bps = self.model.bw_bps() / CONFIRM_PART;
        let arrived_bps = self.trial.arrived_bps.map_or(u64::MAX, |bps| bps.max(least_bps));
        self.guard.last_bps().unwrap_or(u64::MAX).min(arrived_bps)
    }

    fn longest_trial_ns(&self) -> u64 {
        LONGEST_NS.max(LONGEST_RTTS * self.smoothed_rtt_ns)
    }

    /// Packets of a trial; `None` if events are too rare for one.
    fn trial_packets(&self) -> Option<u64> {
        let need = (TRIAL_EVENTS / self.trial.usual.density()) as u64;
        let octets = need.saturating_mul(u64::from(self.params.datagram_octets));
        (time_for_ns(octets, self.model.bw_bps()) <= self.longest_trial_ns()).then_some(need)
    }

    /// Whether losses without a queue may depend on the rate: no trial has found them to be random,
    /// and they are not too rare for one.
    pub(super) fn losses_may_depend(&self) -> bool {
        let RateTrial { depends, tried_loss, usual, .. } = self.trial;
        let is_open = usual.events == 0 || self.trial_packets().is_some();
        depends || (tried_loss == 0.0 && is_open)
    }

    /// Pacing rate of a trial in bits per second: below what arrived, whatever the rate says.
    pub(super) fn trial_bps(&self) -> f64 {
        let delivered_bps = self.trial.running.map_or(u64::MAX, |running| running.delivered_bps);
        TRIAL_GAIN * self.model.bw_bps().min(delivered_bps) as f64
    }

    /// Returns to the rate once all packets of a trial are sent.
    pub(super) fn end_trial(&mut self, now_ns: u64) {
        let longest_ns = self.longest_trial_ns();
        let Some(running) = self.trial.running.as_mut() else { return self.cruise(now_ns) };
        let lasted_ns = now_ns - running.began_ns;
        if lasted_ns > MOST_TIMES * longest_ns {
            // The application has too little to send.
            self.trial.running = None;
            self.trial.repeat_soon(now_ns);
            self.cruise(now_ns);
        } else if running.sent >= running.need {
            running.ended_ns = Some(now_ns);
            self.phase = WeavePhase::Cruise { probe_at_ns: running.probe_at_ns, rounds: 0 };
        }
    }

    /// Losses without a queue are what a trial tests: it goes on at the reduced rate.
    pub(super) fn go_on_trying(&mut self) {
        if let (Some(running), WeavePhase::Cruise { probe_at_ns, .. }) =
            (self.trial.running.as_mut(), self.phase)
        {
            running.probe_at_ns = probe_at_ns;
            self.phase = WeavePhase::Trial;
        }
    }

    fn judge(&mut self, now_ns: u64, running: &RunningTrial) {
        let RunningTrial { told, usual, .. } = *running;
        let trial = &mut self.trial;
        let expected = told.packets as f64 * usual.density();
        if expected < EVENTS_SHARE_MIN * TRIAL_EVENTS {
            return trial.repeat_soon(now_ns);
        }
        let has_few_losses = told.share() <= usual.share() / LOSS_PART;
        let is_clear = match has_few_losses {
            // Much less is lost, in as many events: it was hardly sent below a policer's rate, or
            // there is random loss besides.
            true => told.events as f64 <= expected / EVENTS_PART,
            false => trial.wait_ns > 0 || told.share() >= RANDOM_FACTOR * usual.share(),
        };
        if !is_clear && trial.arrived_bps.is_none() {
            let octets = (told.packets - told.lost) * u64::from(self.params.datagram_octets);
            let lasted_ns = running.ended_ns.unwrap_or(now_ns) - running.began_ns;
            trial.arrived_bps = Some(bits_per_second(octets, lasted_ns));
            return trial.repeat_soon(now_ns);
        }
        trial.arrived_bps = None;
        trial.wait_ns = (WAIT_FACTOR * trial.wait_ns).clamp(WAIT_NS, WAIT_MAX_NS);
        trial.due_ns = now_ns + trial.wait_ns;
        if has_few_losses {
            (trial.depends, trial.cuts, trial.calm_bps) = (true, 0, 0);
            self.loss.set_random(told.floor());
        }
    }

    /// Reacts to losses that depend on the rate: it becomes what was delivered. True if it did;
    /// losses that several of these do not end, or that go on far below a rate without, are random
    /// after all.
    pub(super) fn fit_to_delivered(&mut self, now_ns: u64, round: &Round) -> bool {
        let bw_bps = self.model.bw_bps();
        if self.trial.cuts == 0 {
            self.trial.before_bps = bw_bps;
        }
        self.trial.cuts += 1;
        if self.trial.cuts > CUTS_MAX {
            (self.trial.cuts, self.trial.depends) = (0, false);
            self.model.set_bw(self.trial.before_bps, now_ns);
            return false;
        }
        if (bw_bps as f64) < FALL_FACTOR * self.trial.calm_bps as f64 {
            (self.trial.cuts, self.trial.depends) = (0, false);
            self.trial.repeat_soon(now_ns);
            (self.is_cut, self.is_new) = (true, false);
            return false;
        }
        let least_bps = (CUT_FACTOR_MIN * bw_bps as f64) as u64;
        let delivered_bps = self.guard.delivered_bps(round).clamp(least_bps, bw_bps);
        self.answered_ns = now_ns;
        // What was delivered is the rate of the path: there is no more to be had soon.
        (self.is_cut, self.is_new) = (false, false);
        self.model.set_bw(delivered_bps, now_ns + self.smoothed_rtt_ns);
        self.cruise(now_ns);
        true
    }
}

#[cfg(test)]
mod tests;
