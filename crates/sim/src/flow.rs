//! What a flow is to the simulation: two endpoints that exchange packets, and what they count.
//!
//! Order of calls: [`SimFlow::handle`] for a packet that has come; then [`SimFlow::poll_transmit`]
//! until it has no more; then [`SimFlow::next_due_ns`] says when to poll again without a packet.

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDirection {
    /// From the sender of the data.
    Forward,
    /// To the sender of the data.
    Back,
}

/// What a packet holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketBody {
    /// Data of a reference flow: the number of the packet, new for each transmission.
    Data(u64),
    /// An acknowledgement of a reference flow: how many runs of the receiver's log it covers, and
    /// how long ago the last packet of them had arrived.
    Ack {
        /// Runs covered since the beginning.
        runs: u64,
        /// Nanoseconds from the arrival of the newest packet to this acknowledgement.
        delay_ns: u64,
        /// When the newest packet arrived, by the receiver's clock.
        arrived_ns: u64,
        /// Packets that came with a mark of congestion, since the beginning.
        marked: u64,
    },
    /// A datagram of Shuttle.
    Datagram(Datagram),
}

/// A datagram as it is, but for its longest run of payload. That is zeros in every simulation, and
/// only its place is kept, so that the packets of a long path fit into memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    /// Everything else.
    pub octets: Vec<u8>,
    /// Where in `octets` the zeros belong.
    pub zeros_at: u16,
    /// How many they are.
    pub zeros: u16,
}

impl Datagram {
    /// Writes the whole datagram into `out`, which is emptied first.
    pub fn restore(&self, out: &mut Vec<u8>) {
        let (before, after) = self.octets.split_at(usize::from(self.zeros_at));
        out.clear();
        out.extend_from_slice(before);
        out.resize(before.len() + usize::from(self.zeros), 0);
        out.extend_from_slice(after);
    }
}

/// A packet that a flow wants sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPacket {
    /// Which way.
    pub way: FlowDirection,
    /// Over which of the flow's routes.
    pub lane: u8,
    /// Its size as an IP packet, in bytes.
    pub octets: u32,
    /// Whether the network may mark it instead of letting it wait (RFC 3168).
    pub markable: bool,
    /// What it holds.
    pub body: PacketBody,
}

/// What a flow has done since it began. Bytes are those of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTally {
    /// Packets of data sent, all transmissions.
    pub sent: u64,
    /// Of those, how many repeated data that had been sent before.
    pub resent: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets declared lost that arrived after all.
    pub spurious: u64,
    /// Datagrams that the application was given although it had been given them before.
    pub twice: u64,
    /// Datagrams that the application was given after later ones.
    pub late: u64,
    /// Packets of data that arrived and were not there yet.
    pub arrived: u64,
    /// Bytes of those.
    pub arrived_octets: u64,
    /// Bytes of the application in those.
    pub payload_octets: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Bytes of those.
    pub ack_octets: u64,
    /// When all the data was acknowledged.
    pub finished_ns: Option<u64>,
}

/// How a flow stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest round trip, in nanoseconds; 0 before there is one.
    pub rtt_ns: u64,
    /// Bytes in flight, those of datagrams.
    pub in_flight_octets: u64,
    /// What the controller allows to be in flight.
    pub window_octets: u64,
    /// What the controller lets go, in bits of datagrams per second.
    pub pacing_bps: u64,
}

/// Two endpoints and the data between them.
pub trait SimFlow: Send {
    /// Takes a packet at the end of its way.
    fn handle(&mut self, now_ns: u64, way: FlowDirection, lane: u8, body: PacketBody, marked: bool);
    /// The next packet to be sent now, if there is one.
    fn poll_transmit(&mut self, now_ns: u64) -> Option<FlowPacket>;
    /// When to poll again if nothing comes; [`crate::agenda::NEVER_NS`] for never.
    fn next_due_ns(&self) -> u64;
    /// What it has done.
    fn tally(&self) -> FlowTally;
    /// Bytes of the application that arrived on each stream, if it has several.
    fn streams(&self) -> Vec<u64> {
        Vec::new()
    }
    /// How it stands.
    fn standing(&self) -> Standing;
}
