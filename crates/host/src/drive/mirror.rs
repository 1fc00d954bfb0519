//! A queue pair that is its own peer, in the hands of whoever posts to it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_reactor::Source;
use weft_rnic::LoopbackQp;
use weft_rnic::wire::capability::Capabilities;
use weft_verbs::{Qp, Wake};

use crate::device_kind::Personality;
use crate::drive::{Drive, Notices, Turn};
use crate::tally::Work;

/// A [`LoopbackQp`] without a socket: what is posted is done at once, and nothing ever arrives.
pub(crate) struct MirrorDrive {
    personality: Personality,
    qp: Arc<Qp>,
    mirror: LoopbackQp,
    /// Is woken when a receive is posted that a message waits for.
    waker: Weak<dyn Wake>,
    turn: Turn,
}

impl MirrorDrive {
    /// Joins a queue pair of such a device to itself.
    pub fn new(personality: Personality, qp: Arc<Qp>, ird: u16, waker: Weak<dyn Wake>) -> Self {
        let mirror = LoopbackQp::new(Arc::clone(&qp), ird);
        Self { personality, qp, mirror, waker, turn: Turn::default() }
    }
}

impl Drive for MirrorDrive {
    fn register(&mut self, _: Arc<dyn Source>) {}

    fn capabilities(&self) -> Option<Capabilities> {
        Some(self.mirror.capabilities())
    }

    fn work_done(&self) -> (Personality, Work) {
        let (stats, operations) = (self.mirror.stats(), self.qp.sq().succeeded());
        let (octets_out, octets_in) = (stats.octets_out, stats.octets_in);
        (self.personality, Work { contexts: 0, connections: 2, operations, octets_out, octets_in })
    }

    fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// There is no wire.
    fn spoil(&mut self, _: u32) {}

    fn lose_peer(&mut self) {
        self.mirror.close();
    }

    fn set_requester(&mut self, ord: u16, _: weft_rnic::RetryLimits) {
        self.mirror.set_ord(ord);
    }

    fn turn(&mut self) -> &mut Turn {
        &mut self.turn
    }

    fn is_over(&self) -> bool {
        self.mirror.is_dead()
    }

    fn look(&self) -> u8 {
        0
    }

    fn has_arrivals(&self) -> bool {
        false
    }

    fn work(&mut self, _: u8, _: Instant) {
        self.mirror.poll_transmit();
        while self.mirror.is_held() && self.qp.await_recv(Weak::clone(&self.waker)) {
            self.mirror.poll_transmit();
        }
    }

    fn finds_nothing(&mut self, _: Instant) -> bool {
        true
    }

    fn disconnect(&mut self) {
        self.mirror.poll_transmit();
        self.mirror.close();
    }

    fn abandon(&mut self) {
        self.mirror.close();
    }

    fn conclude(&mut self, _: Instant, _: &Weak<dyn Source>) -> Notices {
        self.turn.blocked = false;
        Notices::default()
    }

    fn flush_at_exit(&mut self, _: Instant) {}
}
