//! A queue pair that is its own peer, without a connection: its segments are placed as soon as they
//! are gathered.

use std::sync::Arc;

use weft_rdmap::{self as rdmap, RxPort, StreamFault, TxPort};
use weft_shuttle::ConnectionEnd;
use weft_verbs::{Qp, QpFailure};
use weft_wire::capability::{By, Capabilities, Component};
use weft_wire::llp::{Gather, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource};

use crate::event::ConnEvent;

/// Bytes of a segment.
const SEGMENT_OCTETS: u16 = 32_000;

/// A queue pair that is its own peer. Call [`LoopbackQp::poll_transmit`] after requests or receives
/// were posted.
pub struct LoopbackQp {
    qp: Arc<Qp>,
    rdmap: rdmap::RdmapStream,
    /// Requests of its own that it serves at once.
    ird: u16,
    /// Segments that have come back.
    placed: u64,
    /// The segment that is under way.
    segment: Option<SegmentId>,
    octets: Vec<u8>,
    /// A message waits for a receive.
    held: bool,
    /// That it has ended was told.
    told: bool,
}

impl LoopbackQp {
    /// The queue pair serves `ird` Reads and Atomics at once.
    pub fn new(qp: Arc<Qp>, ird: u16) -> Self {
        let role = rdmap::Role::Initiator;
        let (lower, rtr, ord, confirm) = (rdmap::LlpKind::Shuttle, None, ird, false);
        let config = rdmap::StreamConfig { lower, role, rtr, ird, ord, confirm, seed: 0 };
        let (rdmap, octets) = (rdmap::RdmapStream::new(config), Vec::new());
        Self { qp, rdmap, ird, placed: 0, segment: None, octets, held: false, told: false }
    }

    /// Says how many Reads and Atomics the application wants outstanding.
    pub fn set_ord(&mut self, ord: u16) {
        self.rdmap.set_ord(ord.min(self.ird));
    }

    /// Counters.
    pub fn stats(&self) -> rdmap::StreamStats {
        self.rdmap.stats()
    }

    /// Whether it has failed or was closed.
    pub fn is_dead(&self) -> bool {
        self.rdmap.is_dead()
    }

    /// The queue pair.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Who does what below the verbs.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::of_layer("the queue pair itself")
            .with(Component::Ordering, By::Layer("segments are placed as they are gathered"))
            .with(Component::FlowControl, By::Layer("messages wait for a receive"))
    }

    /// Whether a message waits for a receive.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Does all that is posted. A message without a receive stays, and what follows it.
    pub fn poll_transmit(&mut self) {
        self.held = false;
        while !self.rdmap.is_dead() && (self.segment.is_some() || self.take_segment()) {
            let mut port = RxPort::new(&mut self.rdmap, &self.qp, true);
            match port.place(self.placed, &self.octets) {
                Ok(Placed::Held) => {
                    self.held = true;
                    return;
                }
                // What precedes it is answered, or not placed either.
                Ok(Placed::Refused) => {
                    let fault = self.rdmap.take_refused();
                    fault.into_iter().for_each(|fault| self.fail(fault));
                }
                Ok(_) => self.acknowledge(),
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// That it has ended; told once.
    pub fn poll_event(&mut self) -> Option<ConnEvent> {
        let ended = self.is_dead() && !std::mem::replace(&mut self.told, true);
        ended.then(|| ConnEvent::Ended { end: ConnectionEnd::Local, private_data: Vec::new() })
    }

    /// Gathers the next segment; `false` if there is none.
    fn take_segment(&mut self) -> bool {
        loop {
            self.segment = self.gather();
            if let Some(fault) = self.rdmap.take_fault(&self.qp) {
                self.fail(fault);
                return false;
            }
            if self.segment.is_some() || !self.rdmap.settle(&self.qp) {
                return self.segment.is_some();
            }
        }
    }

    fn gather(&mut self) -> Option<SegmentId> {
        let regions = self.qp.regions().reader();
        let mut port = TxPort::new(&mut self.rdmap, &self.qp, self.qp.sq(), Some(&regions));
        let segment = port.next(SEGMENT_OCTETS)?;
        let mut pieces = Gather::new();
        port.gather(&segment, &mut pieces);
        self.octets.clear();
        for piece in pieces.pieces() {
            match *piece {
                Piece::Slab { start, len } => {
                    self.octets.extend_from_slice(pieces.staged(start, len));
                }
                Piece::Memory(memory) => regions.copy_to(memory, &mut self.octets),
            }
        }
        if regions.found_gone() {
            let fault = port.fault_of_gone();
            self.rdmap.set_fault(fault);
            return None;
        }
        Some(segment)
    }

    fn acknowledge(&mut self) {
        self.placed += 1;
        // Nothing is ever early, so nothing can be wrong with what is in order.
        let _ = RxPort::new(&mut self.rdmap, &self.qp, true).deliver(self.placed);
        if let Some(segment) = self.segment.take() {
            TxPort::new(&mut self.rdmap, &self.qp, self.qp.sq(), None).acked(segment);
        }
    }

    /// Ends it: what is posted is flushed.
    pub fn close(&mut self) {
        if !self.rdmap.is_dead() {
            self.qp.failure().note(QpFailure::Disconnected);
        }
        self.fail(StreamFault::Closed);
    }

    /// The request that broke a rule is one of its own, and ends as a peer's word would have it;
    /// the event is that of who refuses it.
    fn fail(&mut self, fault: StreamFault) {
        let fault = match fault {
            StreamFault::PeerMisbehaved { terminate, receive: None } => {
                let event = fault.event(rdmap::LlpKind::Shuttle);
                if let Some(event) = event.filter(|_| !self.rdmap.is_dead()) {
                    self.qp.raise(event);
                }
                StreamFault::Terminated(terminate)
            }
            fault => fault,
        };
        (self.segment, self.held) = (None, false);
        self.rdmap.fail(&self.qp, fault);
    }
}
