//! The interface of a rate controller: what it is told, and its two outputs.
//!
//! Order of calls. [`Controller::on_sent`] for each burst as it leaves. When an acknowledgement
//! arrives: [`Controller::on_spurious`] if it shows earlier losses to be none, then
//! [`Controller::on_lost`] for each burst that lost packets, [`Controller::on_ecn`] if the network
//! marked some, and [`Controller::on_acked`] last and once, with the totals. Losses found by a
//! timer come without the rest. Afterwards the two outputs are read; they are cheap.

use super::rate::bits_per_second;

/// What every controller is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Octets of the largest datagram of the path.
    pub datagram_octets: u16,
    /// Rate to begin with, where one is known.
    pub initial_rate_bps: Option<u64>,
    /// Never ask for less.
    pub min_rate_bps: u64,
    /// Never ask for more: a limit of the application or one granted by the network.
    pub max_rate_bps: u64,
    /// Source of whatever is drawn at random.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            datagram_octets: 1200,
            initial_rate_bps: None,
            min_rate_bps: 100_000,
            max_rate_bps: u64::MAX,
            seed: 0,
        }
    }
}

/// What is known of the round trip of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// Of the newest packet that this acknowledgement covers, less the receiver's delay.
    pub latest_ns: u64,
    /// Smoothed, gain 1/8.
    pub smoothed_ns: u64,
    /// Mean deviation, gain 1/4.
    pub var_ns: u64,
    /// Smallest of the connection on this path. Controllers that want a window keep their own.
    pub min_ns: u64,
}

/// A burst left: consecutive packets, handed to the network together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub now_ns: u64,
    /// Packets in the burst.
    pub packets: u32,
    /// Octets in the burst.
    pub octets: u64,
    /// Octets in flight, this burst included.
    pub in_flight_octets: u64,
    /// Nothing more was waiting to be sent while window and pacing would have let it go.
    pub app_limited: bool,
}

/// How fast the path delivered between the sending of a packet and its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Octets delivered in the interval.
    pub delivered_octets: u64,
    /// The longer of the send and the acknowledgement interval.
    pub interval_ns: u64,
    /// [`Acked::delivered_octets`] as it stood when the packet left. A round has passed when this
    /// reaches the count that stood at the round's start.
    pub prior_delivered_octets: u64,
    /// The packet left while the application was the limit, so the sample may be too low.
    pub app_limited: bool,
}

impl RateSample {
    /// Bits per second.
    pub fn rate_bps(&self) -> u64 {
        bits_per_second(self.delivered_octets, self.interval_ns)
    }
}

/// Totals of one acknowledgement that covered at least one packet for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// When it arrived.
    pub now_ns: u64,
    /// Packets that it covers for the first time.
    pub packets: u32,
    /// Octets of those.
    pub octets: u64,
    /// Packets declared lost because of it; [`Controller::on_lost`] has told of them.
    pub lost_packets: u32,
    /// Octets of those.
    pub lost_octets: u64,
    /// When the newest packet that it covers for the first time was sent.
    pub sent_ns: u64,
    /// Set if that packet is the newest of all so far, which makes the sample a true one.
    pub rtt: Option<Rtt>,
    /// One-way delay of that packet plus a constant nobody knows: only differences mean anything.
    pub one_way_ns: i64,
    /// Missing when the interval is too short to say anything.
    pub rate: Option<RateSample>,
    /// Octets delivered since the path began.
    pub delivered_octets: u64,
    /// Octets still in flight.
    pub in_flight_octets: u64,
}

/// Packets of one burst were declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// When that was decided.
    pub now_ns: u64,
    /// When the burst was sent.
    pub sent_ns: u64,
    /// Packets lost.
    pub packets: u32,
    /// Octets of those.
    pub octets: u64,
    /// Octets delivered when the burst left, as in [`RateSample::prior_delivered_octets`].
    pub prior_delivered_octets: u64,
    /// Octets in flight without them.
    pub in_flight_octets: u64,
}

/// Packets that were declared lost have arrived after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spurious {
    /// When that was learnt.
    pub now_ns: u64,
    /// When the packets were sent. A reaction to losses among what was sent about then was wrong.
    pub sent_ns: u64,
    /// How many packets.
    pub packets: u32,
    /// Octets of those.
    pub octets: u64,
    /// Every loss declared in about the last round trip has turned out to be none: what was done
    /// about it can be taken back whole.
    pub all: bool,
}

/// The network marked packets (RFC 3168, CE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecn {
    /// When that was learnt.
    pub now_ns: u64,
    /// Packets marked since the last report.
    pub packets: u64,
    /// When the newest packet was sent that the report covers.
    pub sent_ns: u64,
}

/// What one connection learnt of a path and a later one may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Rate that the path delivered.
    pub rate_bps: u64,
    /// Smallest round trip.
    pub min_rtt_ns: u64,
}

/// Decides how fast a path is used.
pub trait Controller: Send {
    /// A burst left.
    fn on_sent(&mut self, sent: &Sent);
    /// An acknowledgement arrived.
    fn on_acked(&mut self, acked: &Acked);
    /// Packets of one burst were declared lost.
    fn on_lost(&mut self, lost: &Lost);
    /// Losses turned out to be none.
    fn on_spurious(&mut self, spurious: &Spurious);
    /// The network marked packets.
    fn on_ecn(&mut self, ecn: &Ecn) {
        let _ = ecn;
    }
    /// Nothing has come back for three probe timeouts: the path is down. Until the next
    /// acknowledgement only probes leave, whatever the outputs say.
    fn on_outage(&mut self, now_ns: u64) {
        let _ = now_ns;
    }
    /// The path is another one, or it is new and `saved` is what an earlier connection learnt.
    fn on_path_changed(&mut self, now_ns: u64, saved: Option<Saved>) {
        let _ = (now_ns, saved);
    }
    /// The largest datagram of the path has changed.
    fn on_datagram_octets(&mut self, octets: u16) {
        let _ = octets;
    }
    /// Bits per second at which bursts may leave; `u64::MAX` for no pacing.
    fn pacing_rate_bps(&self) -> u64;
    /// Octets that may be in flight; `u64::MAX` for no limit. It is a safety cap: pacing is the
    /// control. Never less than two datagrams.
    fn window_octets(&self) -> u64;
    /// What is worth keeping for a later connection on this path.
    fn saved(&self) -> Option<Saved> {
        None
    }
    /// The module's name as `weft run --shuttle cc=NAME` spells it.
    fn name(&self) -> &'static str;
}

/// Makes the controller of a path.
pub type Make = fn(&Params) -> Box<dyn Controller>;
