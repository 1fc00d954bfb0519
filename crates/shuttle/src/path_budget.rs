//! Sending budgets of a path: a rate controller, its pacing and its delivery counters.
//!
//! A path has a shared budget, and each stream with a controller of its own has one on each path
//! that it uses.
//!
//! Invariant: every flight is charged to one budget from its sending on; the bytes in flight of all
//! budgets add up to those of the path.

use crate::cc::{
    Acked, Controller, Ecn, Lost, RateSample, Rtt, Sent, Spurious, bits_per_second, time_for_ns,
};
use crate::flight::{Cargo, Flight, Snapshot};
use crate::pacer::Pacer;

/// Index of the shared budget.
pub(crate) const SHARED_BUDGET: u16 = 0;

/// Permission to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// This many packets, at least one.
    Packets(u64),
    /// Nothing before this time, in nanoseconds.
    At(u64),
    /// Nothing before an acknowledgement: the window is full.
    Full,
}

/// A controller with its pacing and counters.
pub(crate) struct PathBudget {
    pub(crate) controller: Box<dyn Controller>,
    pacer: Pacer,
    in_flight_octets: u64,
    delivered_octets: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    /// Samples are application-limited until this many bytes are delivered.
    app_limited_until: u64,
    /// Packets declared lost that may yet be acknowledged.
    missing: u64,
    tally: AckTally,
}

/// Totals of one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct AckTally {
    packets: u32,
    octets: u64,
    lost_packets: u32,
    lost_octets: u64,
    spurious_packets: u32,
    spurious_octets: u64,
    spurious_sent_ns: u64,
    /// Newest packet newly acknowledged: its number, sending time, and snapshot.
    newest: Option<(u64, u64, Snapshot)>,
}

/// Properties of an acknowledgement common to all budgets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckReport {
    pub(crate) now_ns: u64,
    /// Round trip estimate, and whether this acknowledgement updated it.
    pub(crate) rtt: Rtt,
    pub(crate) timed: bool,
    pub(crate) one_way_ns: i64,
    pub(crate) marked: u64,
}

impl PathBudget {
    pub(crate) fn new(controller: Box<dyn Controller>) -> Self {
        Self {
            controller,
            pacer: Pacer::default(),
            in_flight_octets: 0,
            delivered_octets: 0,
            delivered_ns: 0,
            first_sent_ns: 0,
            app_limited_until: 0,
            missing: 0,
            tally: AckTally::default(),
        }
    }

    /// Packets that window and pacing allow now.
    pub(crate) fn allowance(&mut self, now_ns: u64, datagram_octets: u16) -> Allowance {
        let datagram = u64::from(datagram_octets);
        let window = self.controller.window_octets().max(2 * datagram);
        let room = window.saturating_sub(self.in_flight_octets) / datagram;
        if room == 0 {
            return Allowance::Full;
        }
        let rate_bps = self.controller.pacing_rate_bps();
        match self.pacer.burst(now_ns, rate_bps, datagram_octets) {
            0 => {
                self.pacer.hold(true);
                Allowance::At(self.pacer.due_ns(rate_bps))
            }
            burst => Allowance::Packets(burst.min(room)),
        }
    }

    /// Notes that something other than pacing holds packets back.
    pub(crate) fn let_go(&mut self) {
        self.pacer.hold(false);
    }

    /// Earliest departure of the next packet, and the rate in bits per second after it.
    pub(crate) fn outlook(&self, now_ns: u64, smoothed_ns: u64) -> (u64, u64) {
        let window = self.controller.window_octets();
        let rate_bps = self.controller.pacing_rate_bps();
        let rate_bps = rate_bps.min(bits_per_second(window, smoothed_ns.max(1)));
        let over = self.in_flight_octets.saturating_sub(window);
        let due_ns = self.pacer.due_ns(rate_bps).max(now_ns);
        (due_ns.saturating_add(time_for_ns(over, rate_bps.max(1))), rate_bps)
    }

    /// Charges a flight that leaves, and stores a snapshot in it.
    pub(crate) fn handle_sent(&mut self, now_ns: u64, flight: &mut Flight) {
        let (packets, octets) = (flight.count(), flight.octets());
        // A path MTU probe is not paced: at the initial rate, 64 kB would delay other packets by 26
        // ms.
        if flight.cargo != Cargo::MtuProbe {
            self.pacer.handle_sent(now_ns, self.controller.pacing_rate_bps(), octets);
        }
        if self.in_flight_octets == 0 {
            (self.first_sent_ns, self.delivered_ns) = (now_ns, now_ns);
        }
        let app_limited = self.delivered_octets < self.app_limited_until;
        flight.snapshot = Snapshot {
            delivered_octets: self.delivered_octets,
            delivered_ns: self.delivered_ns,
            first_sent_ns: self.first_sent_ns,
            app_limited,
        };
        self.in_flight_octets += octets;
        let in_flight_octets = self.in_flight_octets;
        self.controller.on_sent(&Sent { now_ns, packets, octets, in_flight_octets, app_limited });
    }

    /// Notes that nothing was left to send although window and pacing allowed it (S-62).
    pub(crate) fn handle_app_limited(&mut self) {
        self.app_limited_until = self.delivered_octets + self.in_flight_octets.max(1);
        self.let_go();
    }

    /// Records that the packets of `new` arrived, of which those of `spurious` had been declared
    /// lost.
    pub(crate) fn handle_arrived(&mut self, flight: &Flight, new: u64, spurious: u64) {
        let octets = flight.octets_of(new);
        self.in_flight_octets -= flight.octets_of(new & !spurious);
        self.delivered_octets += octets;
        let tally = &mut self.tally;
        tally.packets += new.count_ones();
        tally.octets += octets;
        if spurious != 0 {
            self.missing -= u64::from(spurious.count_ones());
            tally.spurious_packets += spurious.count_ones();
            tally.spurious_octets += flight.octets_of(spurious);
            tally.spurious_sent_ns = tally.spurious_sent_ns.max(flight.sent_ns);
        }
        let pn = flight.newest_of(new);
        if tally.newest.is_none_or(|(newest, _, _)| pn > newest) {
            tally.newest = Some((pn, flight.sent_ns, flight.snapshot));
        }
    }

    /// Reports spurious losses to the controller, before it hears of others.
    pub(crate) fn report_spurious(&mut self, now_ns: u64) {
        let AckTally { spurious_packets: packets, spurious_octets: octets, .. } = self.tally;
        if packets > 0 {
            let all = self.missing == 0;
            let sent_ns = self.tally.spurious_sent_ns;
            self.controller.on_spurious(&Spurious { now_ns, sent_ns, packets, octets, all });
        }
    }

    /// Records that the packets of `lost` were lost. The loss of an MTU probe does not count.
    pub(crate) fn handle_lost(&mut self, now_ns: u64, flight: &Flight, lost: u64, counts: bool) {
        let (packets, octets) = (lost.count_ones(), flight.octets_of(lost));
        self.in_flight_octets -= octets;
        self.missing += u64::from(packets);
        if counts {
            self.tally.lost_packets += packets;
            self.tally.lost_octets += octets;
            self.controller.on_lost(&Lost {
                now_ns,
                sent_ns: flight.sent_ns,
                packets,
                octets,
                prior_delivered_octets: flight.snapshot.delivered_octets,
                in_flight_octets: self.in_flight_octets,
            });
        }
    }

    /// Clears loss totals found by a timer: there is no acknowledgement to report them with.
    pub(crate) fn forget_losses(&mut self) {
        (self.tally.lost_packets, self.tally.lost_octets) = (0, 0);
    }

    /// Drops this many lost packets from those that may yet be acknowledged.
    pub(crate) fn forget_missing(&mut self, packets: u32) {
        self.missing -= u64::from(packets);
    }

    /// Reports the totals to the controller, if anything of its own was newly acknowledged.
    pub(crate) fn report(&mut self, report: &AckReport) {
        let tally = std::mem::take(&mut self.tally);
        let Some((_, sent_ns, snapshot)) = tally.newest else { return };
        let AckReport { now_ns, rtt, timed, one_way_ns, marked } = *report;
        if marked > 0 {
            self.controller.on_ecn(&Ecn { now_ns, packets: marked, sent_ns });
        }
        let rate = self.rate_sample(now_ns, sent_ns, snapshot, rtt.min_ns);
        self.controller.on_acked(&Acked {
            now_ns,
            packets: tally.packets,
            octets: tally.octets,
            lost_packets: tally.lost_packets,
            lost_octets: tally.lost_octets,
            sent_ns,
            rtt: timed.then_some(rtt),
            one_way_ns,
            rate,
            delivered_octets: self.delivered_octets,
            in_flight_octets: self.in_flight_octets,
        });
    }

    /// Delivery rate between the sending of the packet of `snapshot` and its acknowledgement. An
    /// interval shorter than the smallest round trip is an artefact of aggregated acknowledgements.
    /// Packets in flight when the application ran dry are application-limited, as are those sent
    /// after.
    fn rate_sample(
        &mut self,
        now_ns: u64,
        sent_ns: u64,
        snapshot: Snapshot,
        min_rtt_ns: u64,
    ) -> Option<RateSample> {
        self.first_sent_ns = sent_ns;
        self.delivered_ns = now_ns;
        let send_ns = sent_ns.saturating_sub(snapshot.first_sent_ns);
        let interval_ns = send_ns.max(now_ns.saturating_sub(snapshot.delivered_ns));
        (interval_ns >= min_rtt_ns).then_some(RateSample {
            delivered_octets: self.delivered_octets - snapshot.delivered_octets,
            interval_ns,
            prior_delivered_octets: snapshot.delivered_octets,
            app_limited: snapshot.app_limited || snapshot.delivered_octets < self.app_limited_until,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
