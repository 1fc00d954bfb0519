//! The sending end: when packets leave, which are lost, and what the controller hears of it.

use weft_shuttle::cc::{
    Acked, Controller, Ecn, Lost, RateSample, Rtt, Sent, Spurious, octets_in, time_for_ns,
};

use super::scoreboard::{PacketBurst, Scoreboard};
use super::{AckNotes, PacketRun, Shape};
use crate::agenda::NEVER_NS;
use crate::flow::{FlowTally, Standing};

/// How much may leave at once: this long at the pacing rate, within the other limits.
const QUANTUM_NS: u64 = 250_000;
const QUANTUM_OCTETS: u64 = 65_536;
const QUANTUM_PACKETS: u64 = 64;
/// Below this rate bursts are short, because slow links have shallow buffers.
const SLOW_BPS: u64 = 500_000_000;
const SLOW_PACKETS: u64 = 4;
/// Round trip that is assumed before one is measured.
const UNKNOWN_RTT_NS: u64 = 250_000_000;
const MS_NS: u64 = 1_000_000;
/// A loss older than this many round trips that arrives after all is a duplicate.
const MEMORY_RTTS: u64 = 4;
const PROBES: u64 = 2;
/// So many probe timeouts in a row are an outage.
const OUTAGE_TIMEOUTS: u32 = 3;
/// While it lasts, a probe a round trip, or in this part of it if that is longer.
const OUTAGE_PART: u64 = 32;

/// Sends as the controller allows.
pub struct ReferenceSender {
    shape: Shape,
    controller: Box<dyn Controller>,
    board: Scoreboard,
    next_number: u64,
    /// What is left of the burst that leaves now.
    burst_left: u32,
    /// When pacing lets the next burst go.
    paced_ns: u64,
    in_flight: u64,
    to_resend: u64,
    first_sends: u64,
    probes: u64,
    timeouts: u32,
    /// What the rates of bursts to come are measured from (delivery rate estimation).
    delivered_octets: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    largest_acked: Option<u64>,
    reorder_ns: u64,
    rtt: Option<Rtt>,
    loss_due_ns: u64,
    probe_due_ns: u64,
    twice: u64,
    marked: u64,
    tally: FlowTally,
}

/// What one acknowledgement adds up to.
#[derive(Default)]
struct AckTotals {
    acked: u64,
    spurious: u64,
    spurious_sent_ns: u64,
    lost: u64,
    newest: Option<PacketBurst>,
    /// The largest number that was acknowledged for the first time.
    largest: Option<u64>,
}

impl ReferenceSender {
    pub fn new(shape: Shape, controller: Box<dyn Controller>) -> Self {
        Self {
            shape,
            controller,
            board: Scoreboard::default(),
            next_number: 0,
            burst_left: 0,
            paced_ns: shape.start_ns,
            in_flight: 0,
            to_resend: 0,
            first_sends: 0,
            probes: 0,
            timeouts: 0,
            delivered_octets: 0,
            delivered_ns: 0,
            first_sent_ns: 0,
            largest_acked: None,
            reorder_ns: MS_NS / 2,
            rtt: None,
            loss_due_ns: NEVER_NS,
            probe_due_ns: NEVER_NS,
            twice: 0,
            marked: 0,
            tally: FlowTally::default(),
        }
    }

    /// How long the receiver of timed acknowledgements waits.
    pub fn ack_interval_ns(&self) -> u64 {
        MS_NS.max(self.rtt.map_or(0, |rtt| rtt.min_ns / 64))
    }

    /// The number of the next packet that leaves now.
    pub fn poll_packet(&mut self, now_ns: u64) -> Option<u64> {
        if self.burst_left == 0 {
            if now_ns >= self.loss_due_ns {
                self.find_losses(now_ns);
            }
            if now_ns >= self.probe_due_ns {
                self.probe(now_ns);
            }
            self.burst_left = self.begin_burst(now_ns)?;
        }
        self.burst_left -= 1;
        self.next_number += 1;
        Some(self.next_number - 1)
    }

    /// Decides how many packets leave now, and notes them.
    fn begin_burst(&mut self, now_ns: u64) -> Option<u32> {
        let waiting = self.waiting(now_ns);
        let room = self.room();
        let mut packets = waiting.min(room);
        if self.probes > 0 {
            packets = self.unsent().min(self.probes);
            self.probes = 0;
        } else if now_ns < self.paced_ns || self.is_out() {
            return None;
        }
        packets = packets.min(self.quantum_packets());
        if packets == 0 {
            return None;
        }
        self.pace(now_ns, packets);
        self.record(now_ns, packets, waiting < room);
        Some(packets as u32)
    }

    fn record(&mut self, now_ns: u64, packets: u64, app_limited: bool) {
        if self.in_flight == 0 {
            (self.first_sent_ns, self.delivered_ns) = (now_ns, now_ns);
        }
        let resent = packets.min(self.to_resend);
        self.to_resend -= resent;
        self.first_sends += packets - resent;
        self.tally.resent += resent;
        self.tally.sent += packets;
        self.in_flight += packets;
        let mut burst = PacketBurst::new(self.next_number, packets as u32, now_ns);
        burst.delivered_octets = self.delivered_octets;
        burst.delivered_ns = self.delivered_ns;
        burst.first_sent_ns = self.first_sent_ns;
        burst.app_limited = app_limited;
        self.board.push(burst);
        self.controller.on_sent(&Sent {
            now_ns,
            packets: packets as u32,
            octets: self.octets(packets),
            in_flight_octets: self.octets(self.in_flight),
            app_limited,
        });
        self.arm_probe(now_ns);
    }

    fn pace(&mut self, now_ns: u64, packets: u64) {
        let rate_bps = self.controller.pacing_rate_bps();
        if rate_bps < u64::MAX {
            let time_ns = time_for_ns(self.octets(packets), rate_bps.max(1));
            self.paced_ns = self.paced_ns.max(now_ns) + time_ns;
        }
    }

    /// Packets that wait to be sent.
    fn waiting(&self, now_ns: u64) -> u64 {
        if self.shape.sends_from_ns(now_ns) > now_ns {
            return 0;
        }
        self.unsent()
    }

    /// Packets that are left to be sent.
    fn unsent(&self) -> u64 {
        self.to_resend + (self.shape.size_packets() - self.first_sends)
    }

    /// Packets that the window has room for.
    fn room(&self) -> u64 {
        let window = self.controller.window_octets() / u64::from(self.shape.datagram_octets);
        window.saturating_sub(self.in_flight)
    }

    fn quantum_packets(&self) -> u64 {
        let rate_bps = self.controller.pacing_rate_bps();
        let datagram = u64::from(self.shape.datagram_octets);
        let most = match rate_bps {
            ..SLOW_BPS => SLOW_PACKETS,
            _ => QUANTUM_PACKETS.min(QUANTUM_OCTETS / datagram),
        };
        (octets_in(rate_bps, QUANTUM_NS) / datagram).clamp(2, most.max(2))
    }

    /// Takes an acknowledgement that tells of `runs`.
    pub fn handle_ack(
        &mut self,
        now_ns: u64,
        runs: impl Iterator<Item = PacketRun>,
        notes: AckNotes,
    ) {
        let mut totals = AckTotals::default();
        for run in runs {
            self.take_run(run, &mut totals);
        }
        let octets = self.octets(totals.acked + totals.spurious);
        if octets == 0 {
            return;
        }
        self.delivered_octets += octets;
        self.delivered_ns = now_ns;
        self.timeouts = 0;
        let rtt = self.measure_rtt(now_ns, notes.delay_ns, &totals);
        self.tell_spurious(now_ns, &totals);
        totals.lost = self.find_losses(now_ns);
        self.tell_marks(now_ns, notes.marked, &totals);
        self.tell_acked(now_ns, rtt, notes.arrived_ns, &totals);
        let memory_ns = MEMORY_RTTS * self.rtt.map_or(UNKNOWN_RTT_NS, |rtt| rtt.smoothed_ns);
        self.board.forget(now_ns.saturating_sub(memory_ns));
        self.arm_probe(now_ns);
        self.finish(now_ns);
    }

    fn take_run(&mut self, run: PacketRun, totals: &mut AckTotals) {
        let (in_flight, twice) = (&mut self.in_flight, &mut self.twice);
        let mut known = 0;
        self.board.acknowledge(run, |heard| {
            let fresh = u64::from(heard.acked + heard.spurious);
            known += fresh + u64::from(heard.twice);
            *in_flight -= u64::from(heard.acked);
            *twice += u64::from(heard.twice);
            totals.acked += u64::from(heard.acked);
            totals.spurious += u64::from(heard.spurious);
            if heard.spurious > 0 {
                totals.spurious_sent_ns = totals.spurious_sent_ns.max(heard.burst.sent_ns);
            }
            if fresh > 0 && totals.newest.is_none_or(|newest| newest.first <= heard.burst.first) {
                totals.newest = Some(heard.burst);
                totals.largest = totals.largest.max(Some(run.first + run.count - 1));
            }
        });
        // What is older than the memory was counted as lost and sent again.
        self.twice += run.count - known;
    }

    fn measure_rtt(&mut self, now_ns: u64, delay_ns: u64, totals: &AckTotals) -> Option<Rtt> {
        let largest = totals.largest.filter(|largest| Some(*largest) > self.largest_acked)?;
        self.largest_acked = Some(largest);
        let latest_ns = (now_ns - totals.newest?.sent_ns).saturating_sub(delay_ns);
        let rtt = match self.rtt {
            None => {
                Rtt { latest_ns, smoothed_ns: latest_ns, var_ns: latest_ns / 2, min_ns: latest_ns }
            }
            Some(old) => Rtt {
                latest_ns,
                smoothed_ns: (7 * old.smoothed_ns + latest_ns) / 8,
                var_ns: (3 * old.var_ns + old.smoothed_ns.abs_diff(latest_ns)) / 4,
                min_ns: old.min_ns.min(latest_ns),
            },
        };
        self.rtt = Some(rtt);
        Some(rtt)
    }

    fn tell_spurious(&mut self, now_ns: u64, totals: &AckTotals) {
        if totals.spurious == 0 {
            return;
        }
        // What is not resent yet need not be; the rest comes twice.
        let saved = self.to_resend.min(totals.spurious);
        self.to_resend -= saved;
        self.twice += totals.spurious - saved;
        self.tally.spurious += totals.spurious;
        let most_ns = self.rtt.map_or(UNKNOWN_RTT_NS, |rtt| rtt.min_ns);
        self.reorder_ns = (2 * self.reorder_ns).min(most_ns);
        self.controller.on_spurious(&Spurious {
            now_ns,
            sent_ns: totals.spurious_sent_ns,
            packets: totals.spurious as u32,
            octets: self.octets(totals.spurious),
            all: false,
        });
    }

    /// Declares lost what a later packet has overtaken for too long; returns how many.
    fn find_losses(&mut self, now_ns: u64) -> u64 {
        self.loss_due_ns = NEVER_NS;
        let (Some(largest), Some(rtt)) = (self.largest_acked, self.rtt) else { return 0 };
        let wait_ns = rtt.latest_ns + self.reorder_ns.max(rtt.min_ns / 64);
        let Some(sent_by_ns) = now_ns.checked_sub(wait_ns) else { return 0 };
        let datagram = u64::from(self.shape.datagram_octets);
        let (mut lost, in_flight, controller) = (0, &mut self.in_flight, &mut self.controller);
        let oldest = self.board.declare_lost(largest, sent_by_ns, |burst, packets| {
            lost += u64::from(packets);
            *in_flight -= u64::from(packets);
            controller.on_lost(&Lost {
                now_ns,
                sent_ns: burst.sent_ns,
                packets,
                octets: u64::from(packets) * datagram,
                prior_delivered_octets: burst.delivered_octets,
                in_flight_octets: *in_flight * datagram,
            });
        });
        self.loss_due_ns = oldest.map_or(NEVER_NS, |sent_ns| sent_ns + wait_ns);
        self.to_resend += lost;
        self.tally.lost += lost;
        lost
    }

    fn tell_marks(&mut self, now_ns: u64, marked: u64, totals: &AckTotals) {
        if let Some(newest) = totals.newest
            && marked > self.marked
        {
            let packets = marked - self.marked;
            self.controller.on_ecn(&Ecn { now_ns, packets, sent_ns: newest.sent_ns });
            self.marked = marked;
        }
    }

    fn tell_acked(&mut self, now_ns: u64, rtt: Option<Rtt>, arrived_ns: u64, totals: &AckTotals) {
        let Some(newest) = totals.newest else { return };
        let packets = totals.acked + totals.spurious;
        self.controller.on_acked(&Acked {
            now_ns,
            packets: packets as u32,
            octets: self.octets(packets),
            lost_packets: totals.lost as u32,
            lost_octets: self.octets(totals.lost),
            sent_ns: newest.sent_ns,
            rtt,
            one_way_ns: arrived_ns as i64 - newest.sent_ns as i64,
            rate: rtt.and_then(|rtt| self.rate_sample(now_ns, &newest, rtt)),
            delivered_octets: self.delivered_octets,
            in_flight_octets: self.octets(self.in_flight),
        });
        self.first_sent_ns = self.first_sent_ns.max(newest.sent_ns);
    }

    /// How fast the path delivered while `burst` was under way
    /// (draft-ietf-ccwg-bbr, section 4.1, delivery rate samples).
    fn rate_sample(&self, now_ns: u64, burst: &PacketBurst, rtt: Rtt) -> Option<RateSample> {
        let send_ns = burst.sent_ns - burst.first_sent_ns;
        let ack_ns = now_ns - burst.delivered_ns;
        let interval_ns = send_ns.max(ack_ns);
        (interval_ns >= rtt.min_ns).then_some(RateSample {
            delivered_octets: self.delivered_octets - burst.delivered_octets,
            interval_ns,
            prior_delivered_octets: burst.delivered_octets,
            app_limited: burst.app_limited,
        })
    }

    /// Silence: asks the path whether it is there.
    fn probe(&mut self, now_ns: u64) {
        self.timeouts += 1;
        if self.timeouts == OUTAGE_TIMEOUTS {
            self.controller.on_outage(now_ns);
        }
        self.probes = if self.is_out() { 1 } else { PROBES };
        // A probe carries the oldest data again, as if it were lost.
        if self.unsent() == 0 {
            self.to_resend += 1;
            self.twice += 1;
        }
        self.arm_probe(now_ns);
    }

    fn is_out(&self) -> bool {
        self.timeouts >= OUTAGE_TIMEOUTS
    }

    fn arm_probe(&mut self, now_ns: u64) {
        let (srtt_ns, var_ns) =
            self.rtt.map_or((UNKNOWN_RTT_NS, 0), |rtt| (rtt.smoothed_ns, rtt.var_ns));
        let patience_ns = if self.is_out() {
            srtt_ns.max((now_ns - self.delivered_ns) / OUTAGE_PART).min(1000 * MS_NS)
        } else {
            (srtt_ns + 4 * var_ns + self.ack_interval_ns() + MS_NS) << self.timeouts
        };
        let idle = self.in_flight == 0;
        self.probe_due_ns = if idle { NEVER_NS } else { now_ns + patience_ns };
    }

    fn finish(&mut self, now_ns: u64) {
        if self.unsent() == 0 && self.in_flight == 0 && self.tally.finished_ns.is_none() {
            self.tally.finished_ns = Some(now_ns);
        }
    }

    pub fn next_due_ns(&self) -> u64 {
        let blocked = self.unsent() == 0 || self.room() == 0 || self.is_out();
        let paced_ns = if blocked { NEVER_NS } else { self.shape.sends_from_ns(self.paced_ns) };
        paced_ns.min(self.loss_due_ns).min(self.probe_due_ns)
    }

    fn octets(&self, packets: u64) -> u64 {
        packets * u64::from(self.shape.datagram_octets)
    }

    /// Packets that arrived although their data had arrived, as far as is known.
    pub fn twice(&self) -> u64 {
        self.twice
    }

    pub fn tally(&self) -> FlowTally {
        self.tally
    }

    pub fn standing(&self) -> Standing {
        Standing {
            rtt_ns: self.rtt.map_or(0, |rtt| rtt.latest_ns),
            in_flight_octets: self.octets(self.in_flight),
            window_octets: self.controller.window_octets(),
            pacing_bps: self.controller.pacing_rate_bps(),
        }
    }
}
