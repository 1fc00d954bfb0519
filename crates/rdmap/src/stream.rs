//! Protocol state of one connected queue pair.
//!
//! A request that binds or invalidates a key ends the batch: what was posted later leaves in
//! another one, so that no peer learns of a key before it is valid or after it is not.

use std::cell::Cell;
use std::collections::VecDeque;

use weft_verbs::qp::recv_queue::RecvWqe;
use weft_verbs::qp::send_queue::SendQueue;
use weft_verbs::{Qp, QpType, WcStatus};
use weft_wire::ids::Msn;
use weft_wire::llp::Placed;
use weft_wire::terminate::{Terminate, TerminateCode};

use crate::capability::PeerExtensions;
use crate::coverage::Coverage;
use crate::early::EarlyWrites;
use crate::fault::StreamFault;
use crate::inbound::InboundQueue;
use crate::outbound::OutboundQueue;
use crate::progress::PlacementProgress;
use crate::state::{Discovery, DiscoveryEvent, FirstMessage, Life, LifeEvent, Turn};

/// Role in connection setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This side sent the Request.
    Initiator,
    /// The peer sent the Request.
    Responder,
}

/// RTR message: the first message of an initiator in a peer-to-peer connection (RFC 6581, section
/// 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtrMessage {
    /// A zero-length RDMA Write.
    Write,
    /// A zero-length RDMA Read.
    Read,
}

/// Lower layer protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlpKind {
    /// MPA: in order, to any peer of the iWARP suite.
    Mpa,
    /// Shuttle: segments in any order, except that the last of a message follows everything before
    /// it; to a Weft peer. The reason of Shuttle's Close replaces the Terminate.
    Shuttle,
}

/// Parameters agreed in connection setup.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Lower layer protocol.
    pub lower: LlpKind,
    /// Role in connection setup.
    pub role: Role,
    /// RTR message of the initiator, if one was agreed.
    pub rtr: Option<RtrMessage>,
    /// IRD: requests of the peer served at a time.
    pub ird: u16,
    /// ORD: requests of this side kept outstanding.
    pub ord: u16,
    /// A Send or Write completes when the peer has placed it, not when the lower layer has accepted
    /// it. A zero-length Read after it confirms, or the peer before its next message.
    pub confirm: bool,
    /// Random bits that the peer does not know, where segments come in any order.
    pub seed: u64,
}

/// Counters of one stream since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Segments handed to the lower layer.
    pub segments_out: u64,
    /// Payload bytes handed to the lower layer.
    pub octets_out: u64,
    /// Segments of responses to Reads and Atomics among them.
    pub responses_out: u64,
    /// Segments taken from the lower layer.
    pub segments_in: u64,
    /// Payload bytes placed.
    pub octets_in: u64,
}

/// Reassembly of a message into a receive.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// The receive; without one the message is dropped.
    pub wqe: Option<RecvWqe>,
    pub room: u64,
    pub coverage: Coverage,
}

/// A message of this side that waits for a receive of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrWait {
    /// Sequence number of the request.
    pub seq: u32,
    /// RNR timer of the peer, in microseconds.
    pub wait_us: u32,
}

/// Messages of the protocol itself that are yet to be sent.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// First message, before any request.
    pub first_message: Option<FirstMessage>,
    /// Last message of the stream.
    pub terminate: Option<Terminate>,
}

impl Own {
    fn is_empty(&self) -> bool {
        self.first_message.is_none() && self.terminate.is_none()
    }
}

/// Message in transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Current {
    /// None: at a message boundary.
    Nothing,
    /// A work request, from this byte on.
    Request { seq: u32, offset: u32 },
    /// The immediate data that follows a Write.
    Immediate { seq: u32 },
    /// The response to an inbound request, from this byte on.
    Response { id: u32, offset: u32 },
}

/// Protocol state of one connected queue pair.
#[derive(Debug)]
pub struct RdmapStream {
    pub(crate) config: StreamConfig,
    pub(crate) discovery: Discovery,
    pub(crate) life: Life,
    pub(crate) turn: Turn,
    pub(crate) own: Own,
    pub(crate) current: Current,
    /// The response in transmission, where responses leave apart from all else.
    pub(crate) parked: Current,
    pub(crate) inbound: InboundQueue,
    pub(crate) outbound: OutboundQueue,
    pub(crate) msn_send: Msn,
    pub(crate) msn_read: Msn,
    pub(crate) msn_atomic_response: Msn,
    pub(crate) expect_send: Msn,
    pub(crate) expect_read: Msn,
    pub(crate) expect_atomic_response: Msn,
    /// Frontier of the lower layer: every segment before this is placed.
    pub(crate) frontier: u64,
    /// Ranges written out of order.
    pub(crate) early: EarlyWrites,
    /// Messages in reassembly, from `expect_send` on.
    pub(crate) receiving: VecDeque<Receiving>,
    /// Receiver not ready at the peer: no message that takes a receive is sent.
    pub(crate) rnr: Option<RnrWait>,
    /// Bytes of the Write in progress, and of the last complete one.
    pub(crate) write_octets: (u32, Option<u32>),
    /// Terminate code for the peer, if it is to be told.
    pub(crate) reason: Option<TerminateCode>,
    /// Fault found by the sending side; taken by [`crate::TxPort::into_fault`] or
    /// [`RdmapStream::take_fault`].
    pub(crate) fault: Option<StreamFault>,
    /// Request that cannot be sent, and why. It fails once all before it are complete: else they
    /// would be flushed, although the peer has them.
    pub(crate) doomed: Option<(u32, WcStatus)>,
    /// Fault of a request of the peer. It counts once the Reads and Atomics before it are answered:
    /// else they would be flushed, although the peer posted them before.
    pub(crate) refused: Option<StreamFault>,
    /// The lower layer acknowledges to the peer what was placed.
    is_acknowledged: bool,
    /// Fault of memory that was unmapped before a retransmission.
    pub(crate) gone: Cell<Option<StreamFault>>,
    /// Send whose receive is known to be there, although it was said to wait for one.
    pub(crate) served: Option<u32>,
    /// Last request to be confirmed by the peer, and count of them.
    pub(crate) unconfirmed: Option<(u32, u32)>,
    pub(crate) progress: PlacementProgress,
    /// Local request that comes next: executed while the regions are not locked for reading.
    pub(crate) local: Option<u32>,
    pub(crate) stats: StreamStats,
}

impl RdmapStream {
    /// A stream at the end of connection setup.
    pub fn new(config: StreamConfig) -> Self {
        let initiator = config.role == Role::Initiator;
        let first_message = config.rtr.map(|rtr| match rtr {
            RtrMessage::Write => FirstMessage::Hello,
            RtrMessage::Read => FirstMessage::Read,
        });
        Self {
            config,
            discovery: Discovery::new(config.lower),
            life: Life::Open,
            turn: Turn::Response,
            own: Own { first_message: first_message.filter(|_| initiator), terminate: None },
            current: Current::Nothing,
            parked: Current::Nothing,
            inbound: InboundQueue::new(config.ird),
            outbound: OutboundQueue::new(config.ord),
            msn_send: Msn::FIRST,
            msn_read: Msn::FIRST,
            msn_atomic_response: Msn::FIRST,
            expect_send: Msn::FIRST,
            expect_read: Msn::FIRST,
            expect_atomic_response: Msn::FIRST,
            frontier: 0,
            early: EarlyWrites::default(),
            receiving: VecDeque::new(),
            rnr: None,
            write_octets: (0, None),
            reason: None,
            fault: None,
            doomed: None,
            refused: None,
            is_acknowledged: config.lower == LlpKind::Shuttle,
            gone: Cell::new(None),
            served: None,
            unconfirmed: None,
            progress: PlacementProgress::default(),
            local: None,
            stats: StreamStats::default(),
        }
    }

    /// Whether a segment has arrived over MPA; `true` from the start over Shuttle.
    pub fn heard(&self) -> bool {
        self.discovery.is_heard()
    }

    /// Whether a segment has been handed to the lower layer.
    pub fn spoken(&self) -> bool {
        self.stats.segments_out > 0
    }

    /// Extensions that the peer supports, as far as known.
    pub fn peer(&self) -> PeerExtensions {
        self.discovery.peer()
    }

    /// Knows the peer for Weft, before anything is sent: it has all extensions, and needs no
    /// message to confirm what it has placed. Gives whether requests were to be confirmed.
    pub fn know_peer(&mut self) -> bool {
        self.discovery = Discovery::new(LlpKind::Shuttle);
        self.is_acknowledged = true;
        std::mem::replace(&mut self.config.confirm, false)
    }

    /// Changes ORD, the limit of outstanding requests.
    pub fn set_ord(&mut self, ord: u16) {
        self.config.ord = ord;
        self.outbound.set_ord(ord);
    }

    /// Treats a silent peer as one without RFC 7306, unless it confirms requests and so is Weft: it
    /// may be stopped.
    pub fn assume_plain(&mut self) {
        self.discovery = self.discovery.after(match self.config.confirm {
            true => DiscoveryEvent::WeftTimedOut,
            false => DiscoveryEvent::TimedOut,
        });
    }

    /// Whether the stream has failed: nothing more is placed, and only a Terminate goes out.
    pub fn is_dead(&self) -> bool {
        self.life != Life::Open
    }

    /// Whether it has failed and its Terminate, if any, was sent.
    pub fn is_finished(&self) -> bool {
        self.life == Life::Ended
    }

    /// Terminate code for the peer, if it is to be told why the stream ended.
    pub fn reason(&self) -> Option<TerminateCode> {
        self.reason
    }

    /// Message of this side that waits for a receive of the peer, if any.
    pub fn rnr(&self) -> Option<RnrWait> {
        self.rnr
    }

    /// Number of the peer's last message that had a receive.
    pub fn credit(&self) -> Msn {
        Msn(self.expect_send.0.wrapping_sub(1))
    }

    /// The counters so far.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Schedules a message without effect: Linux siw can miss the arrival of the first message, and
    /// sees it when a second one arrives.
    pub fn nudge(&mut self) {
        self.own.first_message.get_or_insert(FirstMessage::Hello);
    }

    /// Whether a zero-length Read is due that finds out whether the peer supports RFC 7306.
    pub(crate) fn wants_to_probe(&self) -> bool {
        self.discovery == Discovery::ProbeDue && self.outbound.has_room()
    }

    /// Whether it has nothing to send, unless a request is posted that it may begin; for a lower
    /// layer that carries responses apart from all else.
    pub fn is_quiet(&self) -> bool {
        !self.has_own_work() && !self.has_responses() && self.local.is_none()
    }

    /// Whether a response waits to be sent, or is in the middle of it.
    pub fn has_responses(&self) -> bool {
        self.parked != Current::Nothing || self.inbound.pending().is_some()
    }

    /// Whether a request is half sent, or a message of the protocol itself is to be sent.
    pub(crate) fn has_own_work(&self) -> bool {
        self.current != Current::Nothing
            || !self.own.is_empty()
            || self.unconfirmed.is_some()
            || self.wants_to_probe()
    }

    /// Whether memory of what was just gathered is not registered any more: what was made of it
    /// lacks bytes, and is not to leave. [`RdmapStream::take_fault`] says what follows.
    pub fn is_cut_off(&self) -> bool {
        self.gone.get().is_some()
    }

    /// What is missing of what was gathered need not be sent: it was gathered to be sent again.
    pub fn forget_cut_off(&mut self) {
        self.gone.set(None);
    }

    /// Takes the fault found by the sending side of `qp`, whose send queue must not be locked, or
    /// that of a refused request once its turn has come.
    pub fn take_fault(&mut self, qp: &Qp) -> Option<StreamFault> {
        let fault = self.fault.take().or_else(|| self.gone.take());
        let fault = fault.or_else(|| self.doomed.and_then(|_| self.doomed_fault(&qp.sq())));
        fault.or_else(|| self.refused.take_if(|_| self.inbound.is_empty()))
    }

    /// Whether a request of the peer is refused once those before it are answered.
    pub fn is_refusing(&self) -> bool {
        self.refused.is_some()
    }

    /// Takes the fault of that request. To be called where nobody acknowledges the answers any
    /// more, or they are known to have arrived.
    pub fn take_refused(&mut self) -> Option<StreamFault> {
        self.refused.take()
    }

    /// What becomes of a refused request, and of those behind it, until they are told to fail: what
    /// is acknowledged would be complete.
    pub(crate) fn refused_segment(&self) -> Placed {
        if self.is_acknowledged { Placed::Refused } else { Placed::Dropped }
    }

    /// Request `seq` cannot be sent. It fails once all before it are complete; on an unreliable
    /// queue pair at once, since of those nobody may ever hear.
    pub(crate) fn doom(&mut self, qp: &Qp, seq: u32, status: WcStatus) {
        match qp.kind() {
            QpType::Uc => self.fault = Some(StreamFault::Request { seq, status }),
            _ => self.doomed = Some((seq, status)),
        }
    }

    /// The fault of a request that cannot be sent, once all before it in `queue` are complete.
    pub(crate) fn doomed_fault(&mut self, queue: &SendQueue) -> Option<StreamFault> {
        let (seq, status) = self.doomed.take_if(|(seq, _)| queue.done_to() == *seq)?;
        Some(StreamFault::Request { seq, status })
    }

    /// Sets a fault found outside of the stream, for the next [`RdmapStream::take_fault`].
    pub fn set_fault(&mut self, fault: StreamFault) {
        self.fault.get_or_insert(fault);
    }

    /// A segment with a payload of `len` bytes goes to the lower layer.
    pub(crate) fn note_out(&mut self, len: u32) {
        self.stats.octets_out += u64::from(len);
        self.stats.segments_out += 1;
    }

    /// Executes a local request, which needs the regions unlocked; returns whether there was one.
    /// Requests posted after it may be sent now.
    pub fn settle(&mut self, qp: &Qp) -> bool {
        let Some(seq) = self.local.take() else { return false };
        if let Err(status) = qp.carry_out(seq) {
            self.doom(qp, seq, status);
        }
        true
    }

    /// Ends the stream with `fault`: the queue pair fails, and a Terminate is sent if the fault
    /// calls for one.
    pub fn fail(&mut self, qp: &Qp, fault: StreamFault) {
        if self.is_dead() {
            return;
        }
        let terminate = fault.terminate(self.config.lower);
        self.reason = terminate.map(|terminate| terminate.code);
        let terminate = terminate.filter(|_| self.config.lower == LlpKind::Mpa);
        self.life = self.life.after(match terminate {
            Some(_) => LifeEvent::FailedWithTerminate,
            None => LifeEvent::Failed,
        });
        self.own = Own { first_message: None, terminate };
        (self.current, self.parked) = (Current::Nothing, Current::Nothing);
        self.gone.set(None);
        self.refused = None;
        qp.failure().note(fault.reason());
        fault.report(self, qp);
        if qp.fail(self.receiving.drain(..).filter_map(|receiving| receiving.wqe))
            && let Some(kind) = fault.event(self.config.lower)
        {
            qp.raise(kind);
        }
    }
}
