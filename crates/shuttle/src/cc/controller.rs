//! Interface of a rate controller: its events and its two outputs.
//!
//! Order of calls. [`Controller::on_sent`] for each burst as it leaves. When an acknowledgement
//! arrives: [`Controller::on_spurious`] if it shows earlier losses to be none, then
//! [`Controller::on_lost`] for each burst that lost packets, [`Controller::on_ecn`] if the network
//! marked some, and [`Controller::on_acked`] last and once, with the totals. Losses found by a
//! timer come without the rest. Afterwards the two outputs are read; they are cheap.

use super::rate::bits_per_second;

/// Parameters of any controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Datagram size of the path, in bytes of UDP payload.
    pub datagram_octets: u16,
    /// Initial rate in bits per second, if one is known.
    pub initial_rate_bps: Option<u64>,
    /// Least pacing rate in bits per second.
    pub min_rate_bps: u64,
    /// Largest pacing rate in bits per second: a limit of the application or of the network.
    pub max_rate_bps: u64,
    /// Seed of the controller's random numbers.
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

/// Round trip estimate of a path, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// Latest sample: newest packet of this acknowledgement, less the receiver's delay.
    pub latest_ns: u64,
    /// Smoothed round trip, gain 1/8 (RFC 6298).
    pub smoothed_ns: u64,
    /// Mean deviation, gain 1/4 (RFC 6298).
    pub var_ns: u64,
    /// Smallest of the connection on this path. A controller keeps its own if it wants a shorter
    /// memory.
    pub min_ns: u64,
}

/// A burst was sent: consecutive packets, handed to the network together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time of sending.
    pub now_ns: u64,
    /// Packets of the burst.
    pub packets: u32,
    /// Bytes of the burst.
    pub octets: u64,
    /// Bytes in flight, this burst included.
    pub in_flight_octets: u64,
    /// Application-limited: window and pacing would have allowed more.
    pub app_limited: bool,
}

/// Delivery rate between the sending of a packet and its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered in the interval.
    pub delivered_octets: u64,
    /// The longer of the sending and the acknowledgement interval, in nanoseconds.
    pub interval_ns: u64,
    /// [`Acked::delivered_octets`] when the packet was sent. A round ends when this reaches the
    /// count at the round's start.
    pub prior_delivered_octets: u64,
    /// Application-limited: the sample may be too low.
    pub app_limited: bool,
}

impl RateSample {
    /// The rate in bits per second.
    pub fn rate_bps(&self) -> u64 {
        bits_per_second(self.delivered_octets, self.interval_ns)
    }
}

/// Totals of one acknowledgement that covered at least one packet for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Time of arrival.
    pub now_ns: u64,
    /// Packets newly acknowledged.
    pub packets: u32,
    /// Bytes of those packets.
    pub octets: u64,
    /// Packets declared lost by it, as told by [`Controller::on_lost`].
    pub lost_packets: u32,
    /// Bytes of those packets.
    pub lost_octets: u64,
    /// Sending time of the newest packet newly acknowledged.
    pub sent_ns: u64,
    /// Set if that packet is the newest of all so far: only then is the sample valid.
    pub rtt: Option<Rtt>,
    /// One-way delay of that packet plus an unknown constant: only differences are meaningful.
    pub one_way_ns: i64,
    /// `None` if the interval is shorter than the smallest round trip.
    pub rate: Option<RateSample>,
    /// Bytes delivered since the path was opened.
    pub delivered_octets: u64,
    /// Bytes still in flight.
    pub in_flight_octets: u64,
}

/// Handles the loss of packets of one burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Time of the declaration.
    pub now_ns: u64,
    /// Sending time of the burst.
    pub sent_ns: u64,
    /// Packets lost.
    pub packets: u32,
    /// Bytes of those packets.
    pub octets: u64,
    /// Bytes delivered when the burst was sent, as in [`RateSample::prior_delivered_octets`].
    pub prior_delivered_octets: u64,
    /// Bytes in flight without them.
    pub in_flight_octets: u64,
}

/// Spurious losses: packets declared lost that arrived after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spurious {
    /// Time at which that was learnt.
    pub now_ns: u64,
    /// Sending time of the newest of the packets: a reaction to losses of that time was wrong.
    pub sent_ns: u64,
    /// Count of packets.
    pub packets: u32,
    /// Bytes of those packets.
    pub octets: u64,
    /// Every loss of about the last round trip was spurious: the reaction can be undone entirely.
    pub all: bool,
}

/// The network marked packets (RFC 3168, CE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecn {
    /// Time at which that was learnt.
    pub now_ns: u64,
    /// Packets marked since the last report.
    pub packets: u64,
    /// Sending time of the newest packet that the report covers.
    pub sent_ns: u64,
}

/// Path properties learnt by one connection, for a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Delivery rate in bits per second.
    pub rate_bps: u64,
    /// Smallest round trip in nanoseconds.
    pub min_rtt_ns: u64,
}

/// A rate controller: pacing rate and window of a path.
pub trait Controller: Send {
    /// Handles the sending of a burst.
    fn on_sent(&mut self, sent: &Sent);
    /// Handles an acknowledgement.
    fn on_acked(&mut self, acked: &Acked);
    /// Handles the loss of packets of one burst.
    fn on_lost(&mut self, lost: &Lost);
    /// Handles spurious losses.
    fn on_spurious(&mut self, spurious: &Spurious);
    /// Handles ECN marks.
    fn on_ecn(&mut self, ecn: &Ecn) {
        let _ = ecn;
    }
    /// Handles an outage: three probe timeouts without an answer. Until the next acknowledgement
    /// only probes are sent, whatever the outputs say.
    fn on_outage(&mut self, now_ns: u64) {
        let _ = now_ns;
    }
    /// Handles a new route, or a new path with `saved` properties of an earlier connection.
    fn on_path_changed(&mut self, now_ns: u64, saved: Option<Saved>) {
        let _ = (now_ns, saved);
    }
    /// Handles a change of the datagram size, in bytes.
    fn on_datagram_octets(&mut self, octets: u16) {
        let _ = octets;
    }
    /// Pacing rate in bits per second; `u64::MAX` for no pacing.
    fn pacing_rate_bps(&self) -> u64;
    /// Window in bytes; `u64::MAX` for no limit. A safety cap: pacing is the control. At least two
    /// datagrams.
    fn window_octets(&self) -> u64;
    /// Path properties to save for a later connection.
    fn saved(&self) -> Option<Saved> {
        None
    }
    /// Name of the module, as in `weft run --shuttle cc=NAME`.
    fn name(&self) -> &'static str;
}

/// Constructor of a controller.
pub type Make = fn(&Params) -> Box<dyn Controller>;
