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

use crate::flow::{Body, Flow, Outgoing, Standing, Tally, Way};
use receiver::Receiver;
use sender::Sender;

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
    /// Octets that the controller counts in a packet.
    pub datagram_octets: u32,
    /// Octets of headers that the link sees beside those.
    pub overhead_octets: u32,
    /// Octets of an acknowledgement as an IP packet.
    pub ack_octets: u32,
    /// When the receiver acknowledges.
    pub acks: Acks,
    /// When the flow begins.
    pub start_ns: u64,
    /// When it stops sending, whatever is left.
    pub stop_ns: u64,
    /// Packets to deliver.
    pub size_packets: u64,
}

/// Packets that arrived one after the other, `count` of them from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    count: u64,
}

/// A sender, a receiver, and what the receiver has seen.
pub struct ReferenceFlow {
    sender: Sender,
    receiver: Receiver,
    shape: Shape,
    /// Runs that have arrived and that the sender has not learnt of.
    log: VecDeque<Run>,
    /// How many runs the sender has learnt of.
    learnt: u64,
}

impl ReferenceFlow {
    /// A flow that has sent nothing yet.
    pub fn new(shape: Shape, controller: Box<dyn Controller>) -> Self {
        Self {
            sender: Sender::new(shape, controller),
            receiver: Receiver::new(shape.acks),
            shape,
            log: VecDeque::new(),
            learnt: 0,
        }
    }

    fn learn(&mut self, now_ns: u64, runs: u64, delay_ns: u64) {
        let news = runs.saturating_sub(self.learnt) as usize;
        self.learnt = self.learnt.max(runs);
        self.sender.handle_ack(now_ns, self.log.drain(..news), delay_ns);
    }
}

impl Flow for ReferenceFlow {
    fn handle(&mut self, now_ns: u64, _: Way, body: Body, _: bool) {
        match body {
            Body::Data(number) => {
                let interval_ns = self.sender.ack_interval_ns();
                self.receiver.handle_data(now_ns, number, interval_ns, &mut self.log);
            }
            Body::Ack { runs, delay_ns } => self.learn(now_ns, runs, delay_ns),
            Body::Datagram(_) => {}
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Outgoing> {
        if let Some(body) = self.receiver.poll_ack(now_ns) {
            return Some(Outgoing { way: Way::Back, octets: self.shape.ack_octets, body });
        }
        let number = self.sender.poll_packet(now_ns)?;
        let octets = self.shape.datagram_octets + self.shape.overhead_octets;
        Some(Outgoing { way: Way::Forward, octets, body: Body::Data(number) })
    }

    fn next_due_ns(&self) -> u64 {
        self.sender.next_due_ns().min(self.receiver.next_due_ns())
    }

    fn tally(&self) -> Tally {
        let packet = u64::from(self.shape.datagram_octets + self.shape.overhead_octets);
        let (arrived, acks) = self.receiver.counts();
        let mut tally = self.sender.tally();
        tally.arrived = arrived.saturating_sub(self.sender.twice());
        tally.arrived_octets = tally.arrived * packet;
        tally.acks = acks;
        tally.ack_octets = acks * u64::from(self.shape.ack_octets);
        tally
    }

    fn standing(&self) -> Standing {
        self.sender.standing()
    }
}
