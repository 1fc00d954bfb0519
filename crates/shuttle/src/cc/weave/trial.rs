//! Trials (phase Trial): whether losses without a queue depend on the rate. Random loss does not;
//! what a policer takes, or a buffer too short to delay anything, ends below the path's rate. So
//! once losses are worth making up for, a short run of packets is sent at nine tenths of the rate,
//! or of what arrived, if that is less. If few of them are lost, losses are congestion from then on
//! ([`RateTrial::depends`]), until reductions do not end them.
//!
//! Losses are counted as events: a burst is one, however many packets it takes, so that the chance
//! that none falls into a trial is known.

use super::model::Round;
use super::{Weave, WeavePhase};
use crate::cc::controller::{Acked, Lost};
use crate::cc::rate::{SECOND_NS, octets_in, time_for_ns};

/// Pacing gain of a trial, without what makes up for losses (`matrix`, policers of 20 Mbit/s: .12
/// to .17 dropped without trials, .01 to .03 with them).
const TRIAL_GAIN: f64 = 0.9;
/// Least random loss that is tried, 1.5 %: less does no harm if it is not random.
pub(super) const TRIED_LOSS_SHARE: f64 = 0.015;
/// Events expected in a trial. Of as many, three or less happen by chance once in 400 trials.
const TRIAL_EVENTS: f64 = 12.0;
/// Part of them that is enough to be at the expected rate: losses do not depend on the rate.
const EVENTS_PART: f64 = 4.0;
/// The same of packets.
const LOSS_PART: f64 = 3.0;
/// Part of the expected events without which a trial says nothing: it was cut short.
const EVENTS_SHARE_MIN: f64 = 0.7;
/// Longest trial, 2 s, or two round trips: events that are rarer are not those of a policer.
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
/// Packets of a sample of the density of events.
const SAMPLE_PACKETS: u64 = 400;
/// Gain of its average.
const DENSITY_GAIN: f64 = 0.25;
/// Reductions in a row that do not end losses, after which they are random after all.
const CUTS_MAX: u32 = 4;
/// Largest reduction at a time, to four fifths.
const CUT_FACTOR_MIN: f64 = 0.8;

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
    acked: u64,
    lost: u64,
    events: u64,
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
    /// Events for each packet, and the sample since the last average.
    density: f64,
    packets: u64,
    events: u64,
    /// Sending time of the first loss of the newest event.
    event_sent_ns: u64,
    due_ns: u64,
    wait_ns: u64,
    /// Random loss at the last trial; 0 before the first, and after one that is to be repeated.
    tried_loss: f64,
    running: Option<RunningTrial>,
    /// Losses without a queue depend on the rate.
    pub(super) depends: bool,
    /// Reductions since losses last ceased, and the rate before the first, in bits per second.
    cuts: u32,
    before_bps: u64,
}

impl RateTrial {
    /// Counts packets sent.
    pub(super) fn send(&mut self, packets: u32) {
        if let Some(running) = self.running.as_mut().filter(|running| running.ended_ns.is_none()) {
            running.sent += u64::from(packets);
        }
    }

    /// Counts lost packets, of which those sent within `merged_ns` are one event.
    fn lose(&mut self, lost: &Lost, merged_ns: u64) {
        let is_event = lost.sent_ns > self.event_sent_ns + merged_ns;
        if is_event {
            self.event_sent_ns = lost.sent_ns;
        }
        let packets = u64::from(lost.packets);
        match self.running.as_mut().filter(|running| running.covers(lost.sent_ns)) {
            Some(running) => {
                running.lost += packets;
                running.events += u64::from(is_event);
            }
            None => {
                self.packets += packets;
                self.events += u64::from(is_event);
            }
        }
    }

    /// Counts acknowledged packets.
    fn acknowledge(&mut self, acked: &Acked) {
        let packets = u64::from(acked.packets);
        match self.running.as_mut().filter(|running| running.covers(acked.sent_ns)) {
            Some(running) => running.acked += packets,
            None => self.packets += packets,
        }
        if self.packets >= SAMPLE_PACKETS && self.running.is_none() {
            let density = self.events as f64 / self.packets as f64;
            let gain = if self.density == 0.0 { 1.0 } else { DENSITY_GAIN };
            self.density += gain * (density - self.density);
            (self.packets, self.events) = (0, 0);
        }
    }

    /// The last trial said nothing: another one is to be made.
    fn repeat_soon(&mut self, now_ns: u64) {
        (self.tried_loss, self.due_ns) = (0.0, now_ns + AGAIN_NS);
    }

    /// After a trial that found losses to be random.
    #[cfg(test)]
    pub(super) fn found_random() -> Self {
        Self { tried_loss: 0.03, ..Self::default() }
    }

    /// Losses have ceased.
    pub(super) fn calm(&mut self) {
        self.cuts = 0;
    }
}

impl Weave {
    pub(super) fn lose_in_trial(&mut self, lost: &Lost) {
        let octets = EVENT_PACKETS * u64::from(self.params.datagram_octets);
        self.trial.lose(lost, EVENT_NS.max(time_for_ns(octets, self.model.bw_bps())));
    }

    /// Counts an acknowledgement; a trial all of whose packets have been told of is judged.
    pub(super) fn ack_in_trial(&mut self, acked: &Acked) {
        self.trial.acknowledge(acked);
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
        let (loss, bw_bps) = (self.loss.random(), self.model.bw_bps());
        let trial = &mut self.trial;
        if self.phase != WeavePhase::Trial
            && trial.running.take_if(|running| running.ended_ns.is_none()).is_some()
        {
            // A reaction ended it early.
            trial.repeat_soon(now_ns);
        }
        let WeavePhase::Cruise { probe_at_ns, rounds } = self.phase else { return false };
        let grew = trial.tried_loss > 0.0 && loss > MORE_FACTOR * trial.tried_loss + MORE_SHARE;
        let is_due = now_ns >= trial.due_ns || grew;
        let may = rounds > 0 && !self.competes && trial.running.is_none() && trial.density > 0.0;
        if loss < TRIED_LOSS_SHARE || !is_due || !may {
            return false;
        }
        let Some(need) = self.trial_packets() else {
            self.trial.due_ns = now_ns + AGAIN_NS;
            return false;
        };
        let datagram = u64::from(self.params.datagram_octets);
        let least = octets_in(bw_bps, self.smoothed_rtt_ns / LEAST_RTT_PART) / datagram;
        self.trial.tried_loss = loss;
        self.trial.running = Some(RunningTrial {
            began_ns: now_ns,
            delivered_bps: self.guard.last_bps().unwrap_or(u64::MAX),
            need: need.max(least),
            probe_at_ns,
            ..RunningTrial::default()
        });
        self.phase = WeavePhase::Trial;
        true
    }

    /// Packets of a trial; `None` if events are too rare for one.
    fn trial_packets(&self) -> Option<u64> {
        let need = (TRIAL_EVENTS / self.trial.density) as u64;
        let octets = need.saturating_mul(u64::from(self.params.datagram_octets));
        let longest_ns = LONGEST_NS.max(LONGEST_RTTS * self.smoothed_rtt_ns);
        (time_for_ns(octets, self.model.bw_bps()) <= longest_ns).then_some(need)
    }

    /// Whether losses without a queue may depend on the rate: no trial has found them to be random,
    /// and they are not too rare for one.
    pub(super) fn losses_may_depend(&self) -> bool {
        let RateTrial { depends, tried_loss, density, .. } = self.trial;
        let is_open = density == 0.0 || self.trial_packets().is_some();
        depends || (tried_loss == 0.0 && is_open)
    }

    /// Pacing rate of a trial in bits per second: below what arrived, whatever the rate says.
    pub(super) fn trial_bps(&self) -> f64 {
        let delivered_bps = self.trial.running.map_or(u64::MAX, |running| running.delivered_bps);
        TRIAL_GAIN * self.model.bw_bps().min(delivered_bps) as f64
    }

    /// Returns to the rate once all packets of a trial are sent.
    pub(super) fn end_trial(&mut self, now_ns: u64) {
        let Some(running) = self.trial.running.as_mut() else { return self.cruise(now_ns) };
        if running.sent >= running.need {
            running.ended_ns = Some(now_ns);
            self.phase = WeavePhase::Cruise { probe_at_ns: running.probe_at_ns, rounds: 0 };
        }
    }

    fn judge(&mut self, now_ns: u64, running: &RunningTrial) {
        let loss = self.loss.random();
        let trial = &mut self.trial;
        let packets = running.acked + running.lost;
        let expected = packets as f64 * trial.density;
        let share = running.lost as f64 / packets.max(1) as f64;
        let is_sure = expected >= EVENTS_SHARE_MIN * TRIAL_EVENTS;
        let has_few_losses = is_sure && share <= loss / LOSS_PART;
        if has_few_losses && running.events as f64 > expected / EVENTS_PART {
            // Much less is lost, in as many events: it was hardly sent below a policer's rate.
            return trial.repeat_soon(now_ns);
        }
        trial.wait_ns = (WAIT_FACTOR * trial.wait_ns).clamp(WAIT_NS, WAIT_MAX_NS);
        trial.due_ns = now_ns + trial.wait_ns;
        if has_few_losses {
            (trial.depends, trial.cuts) = (true, 0);
            self.loss.set_random(share);
        }
    }

    /// Reacts to losses that depend on the rate: it becomes what was delivered. True if it did;
    /// losses that several of these do not end are random after all.
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
        let least_bps = (CUT_FACTOR_MIN * bw_bps as f64) as u64;
        let delivered_bps = self.guard.delivered_bps(round).clamp(least_bps, bw_bps);
        self.answered_ns = now_ns;
        // What was delivered is the rate of the path: there is no more to be had soon.
        self.is_cut = false;
        self.model.set_bw(delivered_bps, now_ns + self.smoothed_rtt_ns);
        self.cruise(now_ns);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(sent_ns: u64, packets: u32) -> Lost {
        let octets = u64::from(packets) * 1250;
        let (now_ns, prior_delivered_octets, in_flight_octets) = (sent_ns, 0, 0);
        Lost { now_ns, sent_ns, packets, octets, prior_delivered_octets, in_flight_octets }
    }

    #[test]
    fn a_burst_is_one_event() {
        let mut trial = RateTrial::default();
        for sent_ns in [10, 11, 12, 30, 31] {
            trial.lose(&lost(sent_ns * 1_000_000, 5), EVENT_NS);
        }
        assert_eq!((trial.packets, trial.events), (25, 2));
    }

    #[test]
    fn what_a_trial_sends_is_counted_apart() {
        let running = RunningTrial { began_ns: 100, ended_ns: Some(200), ..Default::default() };
        let mut trial = RateTrial { running: Some(running), ..Default::default() };
        [99, 100, 200, 201].into_iter().for_each(|sent_ns| trial.lose(&lost(sent_ns, 1), 0));
        assert_eq!((trial.packets, trial.running.unwrap().lost), (2, 2));
        assert_eq!((trial.events, trial.running.unwrap().events), (2, 2));
    }

    fn acked(sent_ns: u64, packets: u32) -> Acked {
        Acked {
            now_ns: sent_ns + RTT_NS,
            packets,
            octets: u64::from(packets) * 1250,
            sent_ns,
            ..Acked::default()
        }
    }

    const RTT_NS: u64 = 16_000_000;
    const BW_BPS: u64 = 100_000_000;

    /// Cruising at 100 Mbit/s with 3 % of random loss, one event in a hundred packets.
    fn cruising() -> Weave {
        let params = crate::cc::Params { datagram_octets: 1250, ..Default::default() };
        let mut weave = Weave::new(&params);
        weave.model.set_bw(BW_BPS, 0);
        weave.smoothed_rtt_ns = RTT_NS;
        weave.loss.set_random(0.03);
        weave.trial.density = 0.01;
        weave.phase = WeavePhase::Cruise { probe_at_ns: 7, rounds: 1 };
        weave
    }

    #[test]
    fn the_density_of_events_is_averaged_over_samples_of_400_packets() {
        let mut trial = RateTrial::default();
        let sample = |trial: &mut RateTrial, at: u64, events: u64| {
            (1..=events).for_each(|event| trial.lose(&lost(at + 10 * event, 1), 0));
            trial.acknowledge(&acked(0, 399 - events as u32));
            let before = trial.density;
            trial.acknowledge(&acked(0, 1));
            (before, trial.density)
        };
        assert_eq!(sample(&mut trial, 0, 4), (0.0, 0.01));
        assert_eq!(sample(&mut trial, 1000, 12), (0.01, 0.015), "a quarter of the difference");
    }

    #[test]
    fn losses_are_tried_from_1_5_percent_on_once_their_density_is_known() {
        let begins = |change: fn(&mut Weave)| {
            let mut weave = cruising();
            change(&mut weave);
            let begun = weave.begin_trial(SECOND_NS);
            assert_eq!(begun, weave.phase == WeavePhase::Trial);
            begun
        };
        assert!(begins(|_| ()));
        assert!(begins(|weave| weave.loss.set_random(0.015)));
        assert!(!begins(|weave| weave.loss.set_random(0.0149)));
        assert!(!begins(|weave| weave.trial.density = 0.0));
        assert!(!begins(|weave| weave.competes = true));
        assert!(!begins(|weave| weave.phase = WeavePhase::Cruise { probe_at_ns: 7, rounds: 0 }));
        assert!(!begins(|weave| weave.phase = WeavePhase::Drain { rounds: 3 }));
        assert!(!begins(|weave| {
            let (began_ns, ended_ns) = (1, Some(2));
            weave.trial.running = Some(RunningTrial { began_ns, ended_ns, ..Default::default() });
        }));
        assert!(begins(|weave| weave.trial.due_ns = SECOND_NS));
        assert!(!begins(|weave| weave.trial.due_ns = SECOND_NS + 1));
        // Losses that have grown by half and 1 % are tried at once.
        let later = |loss| {
            let mut weave = cruising();
            (weave.trial.due_ns, weave.trial.tried_loss) = (u64::MAX, 0.02);
            weave.loss.set_random(loss);
            weave.begin_trial(SECOND_NS)
        };
        assert!(!later(0.0399) && later(0.0401));
    }

    /// Twelve events are to be expected in it.
    #[test]
    fn a_trial_lasts_for_its_packets_and_then_the_probe_has_its_time() {
        let mut weave = cruising();
        weave.begin_trial(SECOND_NS);
        assert_eq!(weave.trial.tried_loss, 0.03);
        assert_eq!(weave.paced_bps(), BW_BPS / 10 * 9, "nothing makes up for losses");
        weave.trial.send(1199);
        weave.end_trial(SECOND_NS + 1);
        assert_eq!(weave.phase, WeavePhase::Trial);
        weave.trial.send(1);
        weave.end_trial(SECOND_NS + 2);
        assert_eq!(weave.phase, WeavePhase::Cruise { probe_at_ns: 7, rounds: 0 });
        assert_eq!(weave.trial.running.unwrap().ended_ns, Some(SECOND_NS + 2));
        weave.trial.send(5);
        assert_eq!(weave.trial.running.unwrap().sent, 1200);
        // A bucket fills within a quarter of a round trip: 40 packets at the rate.
        let mut dense = cruising();
        dense.trial.density = 1.0;
        dense.begin_trial(SECOND_NS);
        assert_eq!(dense.trial.running.unwrap().need, 40);
    }

    #[test]
    fn a_trial_that_would_last_for_two_seconds_and_round_trips_is_put_off() {
        for (density, rtt_ns, begins) in [
            (0.00061, RTT_NS, true),
            (0.0006, RTT_NS, true),
            (0.00059, RTT_NS, false),
            (0.00031, 2 * SECOND_NS, true),
            (0.00029, 2 * SECOND_NS, false),
        ] {
            let mut weave = cruising();
            (weave.trial.density, weave.smoothed_rtt_ns) = (density, rtt_ns);
            assert_eq!(weave.begin_trial(SECOND_NS), begins, "{density}");
            assert_eq!(weave.trial.due_ns, if begins { 0 } else { SECOND_NS + AGAIN_NS });
        }
    }

    #[test]
    fn a_trial_that_something_else_ends_is_made_again() {
        let mut weave = cruising();
        weave.begin_trial(SECOND_NS);
        weave.phase = WeavePhase::Cruise { probe_at_ns: 7, rounds: 1 };
        assert!(!weave.begin_trial(2 * SECOND_NS));
        assert_eq!((weave.trial.running, weave.trial.tried_loss), (None, 0.0));
        assert!(!weave.begin_trial(2 * SECOND_NS + AGAIN_NS - 1));
        assert!(weave.begin_trial(2 * SECOND_NS + AGAIN_NS));
    }

    /// Whether losses depend on the rate after a trial of these packets, and what is random then.
    fn judged(arrived: u64, lost: u64, events: u64) -> Option<f64> {
        let mut weave = cruising();
        let running = RunningTrial { acked: arrived, lost, events, ..Default::default() };
        weave.judge(0, &running);
        weave.trial.depends.then(|| weave.loss.random())
    }

    #[test]
    fn few_events_and_few_losses_show_that_losses_depend_on_the_rate() {
        assert_eq!(judged(1200, 0, 0), Some(0.0));
        // A quarter of the twelve events that are expected, and a third of the loss.
        assert_eq!(judged(1194, 6, 3), Some(0.005));
        assert_eq!(judged(1194, 6, 4), None);
        assert!(judged(1189, 11, 1).is_some());
        assert_eq!(judged(1187, 13, 1), None);
        // Seven tenths of the events that are expected.
        assert!(judged(841, 0, 0).is_some());
        assert_eq!(judged(839, 0, 0), None);
    }

    #[test]
    fn few_losses_in_many_events_ask_for_another_trial_soon() {
        let due_ns = |arrived, lost, events| {
            let mut weave = cruising();
            weave.trial.tried_loss = 0.03;
            let running = RunningTrial { acked: arrived, lost, events, ..Default::default() };
            weave.judge(SECOND_NS, &running);
            (weave.trial.due_ns - SECOND_NS, weave.trial.tried_loss)
        };
        assert_eq!(due_ns(1194, 6, 4), (AGAIN_NS, 0.0));
        assert_eq!(due_ns(1194, 6, 3), (WAIT_NS, 0.03));
        assert_eq!(due_ns(1187, 13, 4), (WAIT_NS, 0.03), "losses are random");
        assert_eq!(due_ns(833, 6, 4), (WAIT_NS, 0.03), "it was cut short");
    }

    #[test]
    fn a_trial_is_paced_below_what_arrived_if_that_is_less_than_the_rate() {
        let paced_bps = |delivered_bps: u64| {
            let mut weave = cruising();
            let octets = octets_in(delivered_bps, RTT_NS);
            let round = Round { octets, lasted_ns: RTT_NS, ..Round::EMPTY };
            weave.heed_guard(0, &round);
            assert!(weave.begin_trial(SECOND_NS));
            weave.paced_bps()
        };
        assert_eq!(paced_bps(BW_BPS / 2), BW_BPS / 20 * 9);
        assert_eq!(paced_bps(2 * BW_BPS), BW_BPS / 10 * 9);
    }

    #[test]
    fn losses_may_depend_until_a_trial_finds_them_random_or_they_are_too_rare_for_one() {
        let may = |change: fn(&mut RateTrial)| {
            let mut weave = cruising();
            change(&mut weave.trial);
            weave.losses_may_depend()
        };
        assert!(may(|_| ()) && may(|trial| trial.density = 0.0));
        assert!(!may(|trial| trial.tried_loss = 0.03));
        assert!(!may(|trial| trial.density = 0.0005));
        assert!(may(|trial| (trial.depends, trial.tried_loss) = (true, 0.03)));
    }

    #[test]
    fn a_trial_is_judged_when_packets_sent_after_it_arrive_and_the_next_is_later_each_time() {
        let mut weave = cruising();
        let ended_ns = SECOND_NS + 100_000_000;
        let running =
            RunningTrial { began_ns: SECOND_NS, ended_ns: Some(ended_ns), ..Default::default() };
        for wait_s in [10, 20, 40, 80, 160, 160] {
            weave.trial.running = Some(running);
            weave.ack_in_trial(&acked(ended_ns, 900));
            weave.ack_in_trial(&acked(ended_ns + RTT_NS / 16, 1));
            assert_eq!(weave.trial.running.map(|running| running.acked), Some(900));
            weave.ack_in_trial(&acked(ended_ns + RTT_NS / 16 + 1, 1));
            assert_eq!(weave.trial.running, None);
            let now_ns = ended_ns + RTT_NS / 16 + 1 + RTT_NS;
            assert_eq!(weave.trial.due_ns, now_ns + wait_s * SECOND_NS);
        }
        assert!(weave.trial.depends, "nothing was lost");
    }

    #[test]
    fn the_rate_becomes_what_was_delivered_until_that_ends_no_losses() {
        let mut weave = cruising();
        weave.trial.depends = true;
        let mut bw_bps = BW_BPS;
        let round = |share: u64| Round {
            octets: octets_in(BW_BPS, RTT_NS) * share / 100,
            lasted_ns: RTT_NS,
            ..Round::EMPTY
        };
        for (share, percent) in [(90, 90), (10, 72), (100, 72), (70, 70)] {
            weave.is_cut = true;
            assert!(weave.fit_to_delivered(SECOND_NS, &round(share)));
            bw_bps = BW_BPS / 100 * percent;
            assert_eq!(weave.model.bw_bps(), bw_bps, "four fifths at least");
            assert_eq!((weave.answered_ns, weave.is_cut), (SECOND_NS, false));
            assert!(matches!(weave.phase, WeavePhase::Cruise { .. }));
        }
        let mut calm = weave.clone();
        assert!(!weave.fit_to_delivered(SECOND_NS, &round(50)), "they are random after all");
        assert_eq!((weave.model.bw_bps(), weave.trial.depends), (BW_BPS, false));
        calm.trial.calm();
        assert!(calm.fit_to_delivered(SECOND_NS, &round(69)), "losses had ceased");
        assert!(bw_bps > calm.model.bw_bps());
    }

    #[test]
    fn losses_within_4_ms_or_16_packets_are_one_event() {
        let events = |bw_bps, later_ns| {
            let mut weave = cruising();
            weave.model.set_bw(bw_bps, 0);
            weave.lose_in_trial(&lost(SECOND_NS, 1));
            weave.lose_in_trial(&lost(SECOND_NS + later_ns, 1));
            weave.trial.events
        };
        assert_eq!((events(BW_BPS, EVENT_NS), events(BW_BPS, EVENT_NS + 1)), (1, 2));
        // Sixteen packets of 10,000 bits.
        assert_eq!((events(1_000_000, 160_000_000), events(1_000_000, 160_000_001)), (1, 2));
    }

    #[test]
    fn what_was_sent_before_a_trial_is_no_part_of_it() {
        let mut weave = cruising();
        weave.begin_trial(SECOND_NS);
        weave.ack_in_trial(&acked(SECOND_NS - 1, 5));
        weave.ack_in_trial(&acked(SECOND_NS, 3));
        assert_eq!((weave.trial.packets, weave.trial.running.unwrap().acked), (5, 3));
    }
}
