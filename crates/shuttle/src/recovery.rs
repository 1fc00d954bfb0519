//! Loss recovery of a path: acknowledgements, losses, spurious losses, probe timeouts.
//!
//! Invariant: a packet is in flight from its sending until it is acknowledged or declared lost,
//! whichever comes first, and the fate of a segment is reported once for each packet that carried
//! it. Cost grows with flights and runs of losses, not packets.

use std::collections::VecDeque;

use weft_wire::shuttle::frame::Ack;

use crate::cc::Rtt;
use crate::flight::{Cargo, Flight, Segments};
use crate::mtu_suspect::PacketFates;
use crate::path_budget::{AckReport, PathBudget};
use crate::ranges::RangeSet;
use crate::reorder::Reordering;
use crate::rtt::{HOST_NS_MAX, RttEstimate, ack_interval_ns};

/// Packet number window: from the oldest unsettled packet to the newest. The receiver keeps one bit
/// for each, 1 MiB (S-44).
pub(crate) const PN_WINDOW: u64 = 1 << 23;
/// Unanswered probe timeouts after which the path is down (S-55).
const OUTAGE_PROBES: u32 = 3;
/// Probe packets per timeout: one alone may be lost.
const PROBES: u8 = 2;
/// Longest probe interval while the path is down, 1 s; the shortest is a round trip.
const OUTAGE_INTERVAL_NS: u64 = 1_000_000_000;
/// The same while nobody waits for the path: nothing is in flight, and nothing is to be sent. 10 s,
/// as often as a connection in use sends a Ping.
const OUTAGE_IDLE_INTERVAL_NS: u64 = 10_000_000_000;
/// Probes without segments that may yet be acknowledged while the path is down. Of a path whose
/// round trip has grown, the acknowledgement comes when several more have left.
const OUTAGE_PROBES_KEPT: usize = 16;
/// Probe interval while the path is down, as a fraction of the downtime: 1/32.
const OUTAGE_PART: u64 = 32;
/// Least allowance for jitter in the probe timeout, 1 ms (kGranularity of RFC 9002).
const JITTER_NS: u64 = 1_000_000;

/// Result of an acknowledgement or timer, for the streams and the path.
#[derive(Debug, Default)]
pub(crate) struct AckOutcome {
    /// Segments that the peer received.
    pub(crate) received: Vec<Segments>,
    /// Segments whose packets were lost.
    pub(crate) lost: Vec<Segments>,
    /// Fates of data packets, with their size in bytes.
    pub(crate) fates: Vec<(u16, PacketFates)>,
    /// MTU probes: size in bytes, and whether they arrived.
    pub(crate) probes: Vec<(u16, bool)>,
    /// The last Rate, or Interval, frame was lost.
    pub(crate) rate_lost: bool,
    pub(crate) interval_lost: bool,
    /// A probe timeout has passed: packets in flight are also sent on other paths (S-74).
    pub(crate) silent: bool,
}

impl AckOutcome {
    fn note_fates(&mut self, flight: &Flight, arrived: u32, lost: u32) {
        if let Cargo::Segments { .. } = flight.cargo {
            self.fates.push((flight.packet_octets(), PacketFates { arrived, lost }));
        }
    }
}

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryStats {
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Bytes declared lost.
    pub lost_octets: u64,
    /// Packets declared lost that arrived after all.
    pub spurious_packets: u64,
    /// Probe timeouts fired.
    pub probe_timeouts: u64,
    /// Outages: times that the path was down.
    pub outages: u64,
    /// Packets dropped by the peer's host, as the peer reports: not lost by the path.
    pub dropped_by_peer: u64,
}

/// Sender state of a path.
#[derive(Debug)]
pub(crate) struct Recovery {
    flights: VecDeque<Flight>,
    acked: RangeSet,
    /// Every packet before this number is acknowledged or lost.
    scan_pn: u64,
    next_pn: u64,
    in_flight_octets: u64,
    /// Number and sending time of the newest acknowledged packet.
    newest: Option<(u64, u64)>,
    rtt: RttEstimate,
    reordering: Reordering,
    last_sent_ns: u64,
    /// Start of the probe timeout: the newest packet sent before the last acknowledgement.
    silent_since_ns: u64,
    /// Packets before this number measure no round trip: the process was stopped while they were in
    /// flight.
    timed_from_pn: u64,
    /// What became of packets before this number says nothing of the sizes that the route carries.
    mtu_from_pn: u64,
    /// Segments of packets before this number were given to other paths.
    given_back_pn: u64,
    /// The number after the last packet that the peer acknowledges.
    asked_to_pn: u64,
    loss_at_ns: Option<u64>,
    probe_timeouts: u32,
    probes: u8,
    /// Somebody waits for the path, although nothing may be in flight.
    awaited: bool,
    marked: u64,
    /// How much later the peer's clock was when the newest acknowledged packet arrived than this
    /// one when it was sent, in microseconds, plus a constant.
    one_way_us: Option<i64>,
    /// Interval of acknowledgements that the peer was asked for; 0 for its usual one.
    pub(crate) asked_interval_ns: u64,
    pub(crate) stats: RecoveryStats,
}

impl Recovery {
    pub(crate) fn new(initial_rtt_ns: u64) -> Self {
        Self {
            flights: VecDeque::new(),
            acked: RangeSet::default(),
            scan_pn: 0,
            next_pn: 0,
            in_flight_octets: 0,
            newest: None,
            rtt: RttEstimate::new(initial_rtt_ns),
            reordering: Reordering::default(),
            last_sent_ns: 0,
            silent_since_ns: 0,
            timed_from_pn: 0,
            mtu_from_pn: 0,
            given_back_pn: 0,
            asked_to_pn: 0,
            loss_at_ns: None,
            probe_timeouts: 0,
            probes: 0,
            awaited: false,
            marked: 0,
            one_way_us: None,
            asked_interval_ns: 0,
            stats: RecoveryStats::default(),
        }
    }

    pub(crate) fn rtt(&self) -> Rtt {
        self.rtt.get()
    }

    /// Whether a round trip was measured.
    pub(crate) fn has_rtt(&self) -> bool {
        self.rtt.is_sampled()
    }

    /// Takes the duration of the handshake as the first sample.
    pub(crate) fn handle_handshake_rtt(&mut self, elapsed_ns: u64) {
        self.rtt.sample(elapsed_ns, 0);
    }

    /// Number of the next packet.
    pub(crate) fn next_pn(&self) -> u64 {
        self.next_pn
    }

    /// Handles a stop of this process: packets in flight measure no round trip.
    pub(crate) fn handle_stop(&mut self) {
        self.timed_from_pn = self.next_pn;
    }

    /// The route is another: what is in flight measures nothing, and the next round trip is the
    /// first.
    pub(crate) fn handle_new_route(&mut self) {
        self.timed_from_pn = self.next_pn;
        self.rtt.begin_anew();
        self.reordering = Reordering::default();
    }

    /// What becomes of the packets in flight says nothing of the sizes that the route carries.
    pub(crate) fn forget_sizes(&mut self) {
        self.mtu_from_pn = self.next_pn;
    }

    /// Packets since the last one that the peer acknowledges.
    pub(crate) fn unasked(&self) -> u64 {
        self.next_pn - self.asked_to_pn
    }

    /// Oldest unsettled packet number; the next one if there is none.
    pub(crate) fn floor(&self) -> u64 {
        self.flights.front().map_or(self.next_pn, |flight| flight.first_pn)
    }

    pub(crate) fn in_flight_octets(&self) -> u64 {
        self.in_flight_octets
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn kept_octets(&self) -> usize {
        self.flights.capacity() * size_of::<Flight>() + self.acked.kept_octets()
    }

    /// Whether another burst of 64 fits into the packet number window.
    pub(crate) fn has_room(&self) -> bool {
        self.next_pn - self.floor() < PN_WINDOW - 64
    }

    /// Whether the path is down (S-55).
    pub(crate) fn is_outage(&self) -> bool {
        self.probe_timeouts >= OUTAGE_PROBES
    }

    /// Whether a packet is acknowledged that was sent at `at_ns` or later.
    pub(crate) fn has_acked_since(&self, at_ns: u64) -> bool {
        self.newest.is_some_and(|(_, sent_ns)| sent_ns >= at_ns)
    }

    /// Whether no probe timeout has fired since the last acknowledgement.
    pub(crate) fn is_well(&self) -> bool {
        self.probe_timeouts == 0
    }

    /// Probe packets to send now, regardless of window and pacing.
    pub(crate) fn probes(&self) -> u8 {
        self.probes
    }

    /// Segments of the oldest open packets, which probes carry.
    pub(crate) fn oldest_open(&self) -> Option<Segments> {
        let open = |flight: &Flight| {
            flight.segments(flight.open(flight.mask(flight.first_pn, flight.last_pn()))).next()
        };
        let start = self.index_of(self.scan_pn);
        self.flights.range(start..).find_map(open)
    }

    /// Adds the segments of all open packets to the losses, once. The packets stay open: no
    /// controller hears of it.
    pub(crate) fn give_back(&mut self, outcome: &mut AckOutcome) {
        let start = self.index_of(self.given_back_pn);
        self.given_back_pn = self.next_pn;
        for flight in self.flights.range(start..) {
            let open = flight.open(flight.mask(flight.first_pn, flight.last_pn()));
            outcome.lost.extend(flight.segments(open));
        }
    }

    /// Takes the number of a packet that elicits no acknowledgement.
    pub(crate) fn handle_sent_untimed(&mut self) {
        self.next_pn += 1;
    }

    /// Records a flight; its packets take the next numbers.
    pub(crate) fn handle_sent(&mut self, now_ns: u64, mut flight: Flight, budget: &mut PathBudget) {
        debug_assert_eq!(flight.first_pn, self.next_pn);
        if self.in_flight_octets == 0 {
            self.silent_since_ns = now_ns;
        }
        flight.sent_ns = now_ns;
        if self.is_outage() && flight.cargo == Cargo::Frames {
            self.give_up_old_probe(now_ns, budget);
        }
        budget.handle_sent(now_ns, &mut flight);
        let packets = flight.count();
        self.next_pn += u64::from(packets);
        self.asked_to_pn = self.next_pn;
        self.in_flight_octets += flight.octets();
        self.last_sent_ns = now_ns;
        self.probes = self.probes.saturating_sub(packets.min(255) as u8);
        self.flights.push_back(flight);
    }

    /// Forgets the oldest of many probes without segments, which no controller hears of: an outage
    /// may last, and each probe leaves a record. The first flight says since when the path is down.
    fn give_up_old_probe(&mut self, now_ns: u64, budget: &mut PathBudget) {
        let Some(at) = self.flights.len().checked_sub(OUTAGE_PROBES_KEPT).filter(|at| *at > 0)
        else {
            return;
        };
        let flight = &self.flights[at];
        let open = flight.open(flight.mask(flight.first_pn, flight.last_pn()));
        if flight.cargo == Cargo::Frames && flight.missing() == 0 && open != 0 {
            budget.handle_lost(now_ns, flight, open, false);
            budget.forget_missing(open.count_ones());
            self.in_flight_octets -= flight.octets_of(open);
            self.flights.remove(at);
        }
    }

    /// Processes an acknowledgement, of packets that were sent, that was queued for `waited_ns` on
    /// the reverse path. Returns whether it covered anything for the first time.
    pub(crate) fn handle_ack(
        &mut self,
        now_ns: u64,
        ack: &Ack<'_>,
        waited_ns: u64,
        budgets: &mut [PathBudget],
        outcome: &mut AckOutcome,
    ) -> bool {
        debug_assert!(ack.largest < self.next_pn);
        let mut newest = None;
        let floor = self.floor();
        if ack.floor > floor {
            self.cover(now_ns, floor, ack.floor - 1, budgets, &mut newest, outcome);
        }
        let mut at = None;
        for (first, last) in ack.ranges.iter().take_while(|run| run.1 >= floor) {
            let first = first.max(floor);
            // Most runs repeat earlier acknowledgements.
            if !self.acked.holds(first, last, &mut at) {
                self.cover(now_ns, first, last, budgets, &mut newest, outcome);
            }
        }
        let Some((newest_pn, sent_ns)) = newest else { return false };
        let is_newest = self.newest.is_none_or(|(pn, _)| newest_pn > pn);
        if is_newest {
            self.newest = Some((newest_pn, sent_ns));
        }
        let timed = is_newest && newest_pn == ack.largest && newest_pn >= self.timed_from_pn;
        if timed {
            self.rtt.sample(now_ns.saturating_sub(sent_ns), ack.delay_us.saturating_mul(1000));
        }
        (self.probe_timeouts, self.probes) = (0, 0);
        self.silent_since_ns = self.last_sent_ns;
        budgets.iter_mut().for_each(|budget| budget.report_spurious(now_ns));
        self.detect_losses(now_ns, budgets, outcome);
        self.stats.dropped_by_peer = self.stats.dropped_by_peer.max(ack.dropped);
        let marked = ack.marked.saturating_sub(self.marked);
        self.marked += marked;
        let mut rtt = self.rtt.get();
        rtt.latest_ns = rtt.latest_ns.saturating_sub(waited_ns).max(rtt.min_ns);
        let one_way_ns = self.one_way_us(ack.arrived_us, sent_ns) * 1000;
        let report = AckReport { now_ns, rtt, timed, one_way_ns, marked };
        budgets.iter_mut().for_each(|budget| budget.report(&report));
        self.forget(now_ns, budgets);
        true
    }

    /// How much later a packet that was sent at `sent_ns` arrived by the peer's clock, which counts
    /// 32 bits of microseconds from anywhere: it is followed across their end, 71 minutes apart.
    fn one_way_us(&mut self, arrived_us: u32, sent_ns: u64) -> i64 {
        let later_us = arrived_us.wrapping_sub((sent_ns / 1000) as u32);
        let before_us = self.one_way_us.unwrap_or(i64::from(later_us as i32));
        let now_us = before_us + i64::from(later_us.wrapping_sub(before_us as u32) as i32);
        *self.one_way_us.insert(now_us)
    }

    /// Marks packets `first..=last` as received; `newest` becomes the largest newly acknowledged
    /// one, with its sending time.
    fn cover(
        &mut self,
        now_ns: u64,
        first: u64,
        last: u64,
        budgets: &mut [PathBudget],
        newest: &mut Option<(u64, u64)>,
        outcome: &mut AckOutcome,
    ) {
        let Self { acked, flights, stats, in_flight_octets, reordering, mtu_from_pn, .. } = self;
        let newest_before = self.newest;
        let smoothed_ns = self.rtt.get().smoothed_ns;
        acked.insert(first, last, |first, last| {
            let start = flights.partition_point(|flight| flight.last_pn() < first);
            for flight in flights.range_mut(start..).take_while(|flight| flight.first_pn <= last) {
                let (new, spurious) = flight.mark_acked(flight.mask(first, last));
                if new == 0 {
                    continue;
                }
                budgets[usize::from(flight.budget)].handle_arrived(flight, new, spurious);
                *in_flight_octets -= flight.octets_of(new & !spurious);
                stats.spurious_packets += u64::from(spurious.count_ones());
                *newest = (*newest).max(Some((flight.newest_of(new), flight.sent_ns)));
                outcome.received.extend(flight.segments(new));
                if flight.cargo == Cargo::MtuProbe && flight.first_pn >= *mtu_from_pn {
                    outcome.probes.push((flight.octets() as u16, true));
                }
                if flight.first_pn >= *mtu_from_pn {
                    outcome.note_fates(flight, (new & !spurious).count_ones(), 0);
                }
                if let Some((pn, sent_ns)) = newest_before
                    && flight.first_pn < pn
                {
                    let late_ns = sent_ns.saturating_sub(flight.sent_ns);
                    reordering.handle_late(now_ns, late_ns, smoothed_ns);
                }
            }
        });
    }

    /// Declares packets lost that newer ones have overtaken by the reordering window (S-50).
    fn detect_losses(&mut self, now_ns: u64, budgets: &mut [PathBudget], outcome: &mut AckOutcome) {
        self.loss_at_ns = None;
        let Some((newest_pn, newest_sent_ns)) = self.newest else { return };
        let rtt = self.rtt.get();
        let window_ns = self.reordering.window_ns(now_ns, rtt.smoothed_ns, rtt.min_ns);
        let patience_ns = rtt.latest_ns.max(rtt.smoothed_ns) + window_ns + self.ack_interval_ns();
        let start = self.index_of(self.scan_pn);
        let mut scan_pn = None;
        for flight in self.flights.range_mut(start..) {
            let open = flight.open(flight.mask(0, newest_pn));
            let overtaken = newest_sent_ns >= flight.sent_ns + window_ns;
            if open != 0 && !overtaken && now_ns < flight.sent_ns + patience_ns {
                self.loss_at_ns = Some(flight.sent_ns + patience_ns);
                scan_pn.get_or_insert(flight.first_pn);
                break;
            }
            if open != 0 {
                flight.mark_lost(open, now_ns);
                let octets = flight.octets_of(open);
                let probes = flight.cargo == Cargo::MtuProbe;
                self.in_flight_octets -= octets;
                budgets[usize::from(flight.budget)].handle_lost(now_ns, flight, open, !probes);
                if probes {
                    if flight.first_pn >= self.mtu_from_pn {
                        outcome.probes.push((octets as u16, false));
                    }
                    continue;
                }
                self.stats.lost_packets += u64::from(open.count_ones());
                self.stats.lost_octets += octets;
                outcome.rate_lost |= flight.cargo == Cargo::Rate;
                outcome.interval_lost |= flight.cargo == Cargo::Interval;
                outcome.lost.extend(flight.segments(open));
                if flight.first_pn >= self.mtu_from_pn {
                    outcome.note_fates(flight, 0, open.count_ones());
                }
            }
            if !flight.is_resolved() {
                scan_pn.get_or_insert(flight.first_pn);
            }
            if flight.last_pn() >= newest_pn {
                break;
            }
        }
        self.scan_pn = scan_pn.unwrap_or(newest_pn + 1);
    }

    /// Drops settled flights. Lost packets are kept for one round trip, to recognise spurious
    /// losses (S-53).
    fn forget(&mut self, now_ns: u64, budgets: &mut [PathBudget]) {
        let keep_ns = self.rtt.get().smoothed_ns;
        while let Some(flight) = self.flights.front()
            && flight.is_resolved()
            && (flight.missing() == 0 || now_ns >= flight.lost_ns + keep_ns)
        {
            let missing = flight.missing().count_ones();
            budgets[usize::from(flight.budget)].forget_missing(missing);
            self.flights.pop_front();
        }
        let floor = self.floor();
        self.acked.remove_below(floor);
    }

    /// Whether somebody waits for the path, although nothing may be in flight.
    pub(crate) fn set_awaited(&mut self, awaited: bool) {
        self.awaited = awaited;
    }

    /// When [`Recovery::handle_timeout`] is due.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.loss_at_ns.or_else(|| self.probe_at_ns())
    }

    /// Probe timeout without back-off: the larger of round trip + variation + ack interval, and the
    /// time that acknowledgements have lately taken: a peer with many connections or a busy
    /// processor acknowledges late. At most [`HOST_NS_MAX`] above the first.
    pub(crate) fn probe_timeout_ns(&self) -> u64 {
        let Rtt { smoothed_ns, var_ns, .. } = self.rtt.get();
        let path_ns = smoothed_ns + (4 * var_ns).max(JITTER_NS) + self.ack_interval_ns();
        self.rtt.answer_ns(JITTER_NS).clamp(path_ns, path_ns + HOST_NS_MAX)
    }

    /// Interval of the peer's acknowledgements.
    fn ack_interval_ns(&self) -> u64 {
        ack_interval_ns(self.rtt.get().smoothed_ns).max(self.asked_interval_ns)
    }

    fn probe_at_ns(&self) -> Option<u64> {
        if self.in_flight_octets == 0 || self.probes > 0 {
            return None;
        }
        let smoothed_ns = self.rtt.get().smoothed_ns;
        let wait_ns = match self.is_outage() {
            true => {
                let first_ns = self.flights.front().map(|flight| flight.sent_ns);
                let arrived_ns = self.newest.map(|(_, sent_ns)| sent_ns).or(first_ns);
                let down_ns = self.silent_since_ns.saturating_sub(arrived_ns.unwrap_or(u64::MAX));
                let most_ns = match self.awaited || self.oldest_open().is_some() {
                    true => OUTAGE_INTERVAL_NS,
                    false => OUTAGE_IDLE_INTERVAL_NS,
                };
                (down_ns / OUTAGE_PART).max(smoothed_ns).clamp(JITTER_NS, most_ns)
            }
            false => self.probe_timeout_ns() << self.probe_timeouts,
        };
        Some(self.silent_since_ns + wait_ns)
    }

    /// Handles an expired timer: detects losses, or requests probes (S-54).
    pub(crate) fn handle_timeout(
        &mut self,
        now_ns: u64,
        budgets: &mut [PathBudget],
        outcome: &mut AckOutcome,
    ) {
        if self.loss_at_ns.is_some_and(|at| at <= now_ns) {
            self.detect_losses(now_ns, budgets, outcome);
            budgets.iter_mut().for_each(PathBudget::forget_losses);
            self.forget(now_ns, budgets);
        } else if self.loss_at_ns.is_none() && self.probe_at_ns().is_some_and(|at| at <= now_ns) {
            self.probe_timeouts += 1;
            self.silent_since_ns = now_ns;
            self.stats.probe_timeouts += 1;
            self.probes = if self.is_outage() { 1 } else { PROBES };
            outcome.silent = true;
            if self.probe_timeouts == OUTAGE_PROBES {
                self.stats.outages += 1;
                budgets.iter_mut().for_each(|budget| budget.controller.on_outage(now_ns));
            }
        }
    }

    fn index_of(&self, pn: u64) -> usize {
        self.flights.partition_point(|flight| flight.last_pn() < pn)
    }
}

#[cfg(test)]
mod tests;
