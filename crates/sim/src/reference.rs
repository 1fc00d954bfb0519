//! Reference flows: an idealised transport around any rate controller.
//!
//! What is ideal: acknowledgements carry all that the receiver knows (no limit of SACK blocks),
//! data has no identity (a packet is resent, never a certain one), the handshake has happened, and
//! the receiver keeps up. What is modelled: packets and acknowledgements travel over real links,
//! losses are found by time as RACK finds them (RFC 8985, without its reordering by count), pacing
//! sends bursts, and silence brings probes. There is no retransmission timeout that collapses the
//! window.
//!
//! Invariant: a packet is in flight, acknowledged or lost, and moves from lost to acknowledged only
//! when its loss turns out to be none.

mod receiver;
mod scoreboard;
mod sender;

use std::collections::VecDeque;

use weft_shuttle::cc::Controller;

use crate::agenda::NEVER_NS;
use crate::flow::{FlowDirection, FlowPacket, FlowTally, PacketBody, SimFlow, Standing};
use receiver::Receiver;
use sender::ReferenceSender;

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Each packet, as the formulas for TCP assume.
    Each,
    /// After the longer of a millisecond and a 64th of the round trip, as Shuttle does.
    Timed,
}

/// What a reference flow is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes that the controller counts in a packet.
    pub datagram_octets: u32,
    /// Bytes of headers that the link sees beside those.
    pub overhead_octets: u32,
    /// Bytes of the application in a packet.
    pub payload_octets: u32,
    /// Bytes of an acknowledgement as an IP packet.
    pub ack_octets: u32,
    /// When the receiver acknowledges.
    pub acks: Acks,
    /// When the flow begins.
    pub start_ns: u64,
    /// When it stops sending, whatever is left.
    pub stop_ns: u64,
    /// Bytes of the application to deliver; none for as many as can be.
    pub size_octets: Option<u64>,
    /// If set, it sends for the first time only of every second, in nanoseconds.
    pub pulse: Option<(u64, u64)>,
    /// Whether the network may mark its packets (RFC 3168).
    pub ecn: bool,
}

impl Shape {
    /// Packets to deliver.
    pub fn size_packets(&self) -> u64 {
        let packets = |octets: u64| octets.div_ceil(u64::from(self.payload_octets)).max(1);
        self.size_octets.map_or(u64::MAX / 2, packets)
    }

    /// When it may send at `now_ns` or later for the first time; never once it has stopped.
    pub fn sends_from_ns(&self, now_ns: u64) -> u64 {
        let mut from_ns = now_ns.max(self.start_ns);
        if let Some((on_ns, every_ns)) = self.pulse {
            let since_ns = (from_ns - self.start_ns) % every_ns;
            from_ns += if since_ns < on_ns { 0 } else { every_ns - since_ns };
        }
        if from_ns < self.stop_ns { from_ns } else { NEVER_NS }
    }
}

/// Packets that arrived one after the other, `count` of them from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketRun {
    first: u64,
    count: u64,
}

/// What an acknowledgement tells beside the packets that it covers.
#[derive(Clone, Copy, Debug)]
struct AckNotes {
    /// From the arrival of the newest packet to the acknowledgement, in nanoseconds.
    delay_ns: u64,
    /// When that packet arrived.
    arrived_ns: u64,
    /// Packets marked since the beginning.
    marked: u64,
}

/// A sender, a receiver, and what the receiver has seen.
pub struct ReferenceFlow {
    sender: ReferenceSender,
    receiver: Receiver,
    shape: Shape,
    /// Runs that have arrived and that the sender has not learnt of.
    log: VecDeque<PacketRun>,
    /// How many runs the sender has learnt of.
    learnt: u64,
}

impl ReferenceFlow {
    /// A flow that has sent nothing yet.
    pub fn new(shape: Shape, controller: Box<dyn Controller>) -> Self {
        Self {
            sender: ReferenceSender::new(shape, controller),
            receiver: Receiver::new(shape.acks),
            shape,
            log: VecDeque::new(),
            learnt: 0,
        }
    }

    fn learn(&mut self, now_ns: u64, runs: u64, notes: AckNotes) {
        let news = runs.saturating_sub(self.learnt) as usize;
        self.learnt = self.learnt.max(runs);
        self.sender.handle_ack(now_ns, self.log.drain(..news), notes);
    }
}

impl SimFlow for ReferenceFlow {
    fn handle(&mut self, now_ns: u64, _: FlowDirection, _: u8, body: PacketBody, marked: bool) {
        match body {
            PacketBody::Data(number) => {
                let interval_ns = self.sender.ack_interval_ns();
                self.receiver.handle_data(now_ns, number, marked, interval_ns, &mut self.log);
            }
            PacketBody::Ack { runs, delay_ns, arrived_ns, marked } => {
                self.learn(now_ns, runs, AckNotes { delay_ns, arrived_ns, marked });
            }
            PacketBody::Datagram(_) => {}
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<FlowPacket> {
        if let Some(body) = self.receiver.poll_ack(now_ns) {
            let octets = self.shape.ack_octets;
            return Some(FlowPacket {
                way: FlowDirection::Back,
                lane: 0,
                octets,
                markable: false,
                body,
            });
        }
        let number = self.sender.poll_packet(now_ns)?;
        let octets = self.shape.datagram_octets + self.shape.overhead_octets;
        let (way, markable) = (FlowDirection::Forward, self.shape.ecn);
        Some(FlowPacket { way, lane: 0, octets, markable, body: PacketBody::Data(number) })
    }

    fn next_due_ns(&self) -> u64 {
        self.sender.next_due_ns().min(self.receiver.next_due_ns())
    }

    fn tally(&self) -> FlowTally {
        let packet = u64::from(self.shape.datagram_octets + self.shape.overhead_octets);
        let (arrived, acks) = self.receiver.counts();
        let mut tally = self.sender.tally();
        tally.arrived = arrived.saturating_sub(self.sender.twice());
        tally.arrived_octets = tally.arrived * packet;
        tally.payload_octets = tally.arrived * u64::from(self.shape.payload_octets);
        tally.acks = acks;
        tally.ack_octets = acks * u64::from(self.shape.ack_octets);
        tally
    }

    fn standing(&self) -> Standing {
        self.sender.standing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulses_come_and_go() {
        let shape = Shape {
            datagram_octets: 1472,
            overhead_octets: 28,
            payload_octets: 1440,
            ack_octets: 80,
            acks: Acks::Timed,
            start_ns: 100,
            stop_ns: 1000,
            size_octets: Some(1441),
            pulse: Some((20, 50)),
            ecn: false,
        };
        let from = [0, 100, 119, 120, 149, 150, 999, 1000].map(|now| shape.sends_from_ns(now));
        assert_eq!(from, [100, 100, 119, 150, 150, 150, NEVER_NS, NEVER_NS]);
        assert_eq!(shape.size_packets(), 2);
    }
}
