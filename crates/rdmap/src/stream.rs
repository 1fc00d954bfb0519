//! The protocol state of one connected queue pair.

use std::cell::Cell;
use std::collections::VecDeque;

use weft_verbs::Qp;
use weft_verbs::qp::recv_queue::RecvWqe;
use weft_wire::ids::Msn;
use weft_wire::llp::SegmentId;
use weft_wire::terminate::{Terminate, TerminateCode};

use crate::capability::Peer;
use crate::early::EarlyWrites;
use crate::fault::Fault;
use crate::inbound::InboundQueue;
use crate::outbound::OutboundQueue;
use crate::progress::Progress;
use crate::state::{Discovery, DiscoveryEvent, FirstMessage, Life, LifeEvent, Turn};

/// Who asked for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This side.
    Initiator,
    /// The peer.
    Responder,
}

/// The message with which an initiator opens a peer-to-peer connection (RFC 6581, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A zero-length Write.
    Write,
    /// A zero-length Read.
    Read,
}

/// What carries the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    /// MPA: in order, to any peer of the iWARP suite.
    Mpa,
    /// Shuttle: in any order but for the last segment of each message, which comes after
    /// everything before it; to a Weft peer. The reason that Shuttle gives for a close takes the
    /// place of the Terminate.
    Shuttle,
}

/// What the set-up of the connection agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What carries the segments.
    pub lower: Lower,
    /// Who asked for the connection.
    pub role: Role,
    /// How the initiator says that it is ready, if it has to.
    pub rtr: Option<Rtr>,
    /// Requests of the peer served at once.
    pub ird: u16,
    /// Requests of this side kept outstanding.
    pub ord: u16,
    /// A Send or Write completes when the peer has placed it, not when the lower layer has it. A
    /// Read of nothing that follows tells, or the peer before its next message.
    pub confirm: bool,
}

/// Counters of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments handed to the lower layer.
    pub segments_out: u64,
    /// Payload octets handed to the lower layer.
    pub octets_out: u64,
    /// Segments taken from the lower layer.
    pub segments_in: u64,
    /// Payload octets placed.
    pub octets_in: u64,
}

/// A receive that a message is being placed into.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// Without one the message is dropped.
    pub wqe: Option<RecvWqe>,
    pub room: u64,
    pub placed: u32,
}

/// A message of this side that found no receive at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrWait {
    /// The request.
    pub seq: u32,
    /// How long it should wait at a time, in microseconds.
    pub wait_us: u32,
}

/// Messages that the protocol sends on its own account.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// The first message.
    pub first_message: Option<FirstMessage>,
    /// The last message.
    pub terminate: Option<Terminate>,
}

/// What goes out next is part of this message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Current {
    /// Nothing has begun.
    Nothing,
    /// A work request, from this octet on.
    Request { seq: u32, offset: u32 },
    /// The immediate data that follows a Write.
    Immediate { seq: u32 },
    /// The response to an inbound request, from this octet on.
    Response { id: u32, offset: u32 },
}

/// The protocol state of one connected queue pair.
#[derive(Debug)]
pub struct Stream {
    pub(crate) config: Config,
    pub(crate) discovery: Discovery,
    pub(crate) life: Life,
    pub(crate) turn: Turn,
    pub(crate) own: Own,
    pub(crate) current: Current,
    pub(crate) inbound: InboundQueue,
    pub(crate) outbound: OutboundQueue,
    pub(crate) msn_send: Msn,
    pub(crate) msn_read: Msn,
    pub(crate) msn_atomic_response: Msn,
    pub(crate) expect_send: Msn,
    pub(crate) expect_read: Msn,
    pub(crate) expect_atomic_response: Msn,
    /// The lower layer has placed every segment before this.
    pub(crate) frontier: u64,
    /// Where Writes were placed before their turn.
    pub(crate) early: EarlyWrites,
    /// Receives that messages are being placed into, from `expect_send` on.
    pub(crate) receiving: VecDeque<Receiving>,
    /// Waits for the peer to post a receive; until then no other message leaves that needs one.
    pub(crate) rnr: Option<RnrWait>,
    /// Octets of the Write being placed, and of the one that just ended.
    pub(crate) write_octets: (u32, Option<u32>),
    /// Why it ends, if the peer is to know.
    pub(crate) reason: Option<TerminateCode>,
    /// What the sending side found to be impossible; taken by [`crate::TxPort::into_fault`] or
    /// [`Stream::take_fault`].
    pub(crate) fault: Option<Fault>,
    /// Memory of a request or response is gone, which only showed when it was to be sent again.
    pub(crate) gone: Cell<Option<Fault>>,
    /// The last request that the peer is to confirm, and how many there are.
    pub(crate) unconfirmed: Option<(u32, u32)>,
    pub(crate) progress: Progress,
    /// The next request, if the queue pair does it by itself: to be done while the regions are not
    /// held for reading.
    pub(crate) local: Option<u32>,
    pub(crate) stats: Stats,
}

impl Stream {
    /// The stream of a connection that was just agreed.
    pub fn new(config: Config) -> Self {
        let initiator = config.role == Role::Initiator;
        let first_message = config.rtr.map(|rtr| match rtr {
            Rtr::Write => FirstMessage::Hello,
            Rtr::Read => FirstMessage::Read,
        });
        Self {
            config,
            discovery: Discovery::new(config.lower),
            life: Life::Open,
            turn: Turn::Response,
            own: Own { first_message: first_message.filter(|_| initiator), terminate: None },
            current: Current::Nothing,
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
            gone: Cell::new(None),
            unconfirmed: None,
            progress: Progress::default(),
            local: None,
            stats: Stats::default(),
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

    /// What the peer has said of itself.
    pub fn peer(&self) -> Peer {
        self.discovery.peer()
    }

    /// Changes how many requests are kept outstanding.
    pub fn set_ord(&mut self, ord: u16) {
        self.config.ord = ord;
        self.outbound.set_ord(ord);
    }

    /// Takes a peer that has said nothing for one that does not speak RFC 7306.
    pub fn assume_plain(&mut self) {
        self.discovery = self.discovery.after(DiscoveryEvent::TimedOut);
    }

    /// Whether the stream has failed: nothing more is placed, and only a Terminate goes out.
    pub fn is_dead(&self) -> bool {
        self.life != Life::Open
    }

    /// Whether it has failed and said what it had to say about that.
    pub fn is_finished(&self) -> bool {
        self.life == Life::Ended
    }

    /// What the peer is to be told about the end of the stream, if anything.
    pub fn reason(&self) -> Option<TerminateCode> {
        self.reason
    }

    /// The message of this side that waits for a receive of the peer.
    pub fn rnr(&self) -> Option<RnrWait> {
        self.rnr
    }

    /// The last message of the peer that had a receive.
    pub fn credit(&self) -> Msn {
        Msn(self.expect_send.0.wrapping_sub(1))
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Sends a message without effect when there is a moment for it: Linux siw can miss that the
    /// first message is there, and sees it when a second one arrives.
    pub fn nudge(&mut self) {
        self.own.first_message.get_or_insert(FirstMessage::Hello);
    }

    /// Whether a Read of nothing is to find out now whether the peer speaks RFC 7306.
    pub(crate) fn wants_to_probe(&self) -> bool {
        self.discovery == Discovery::ProbeDue && self.outbound.has_room()
    }

    /// Why the stream must end, if the sending side found a request or response impossible.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take().or_else(|| self.gone.take())
    }

    /// Ends the stream for a reason that was found outside of it, at the next
    /// [`Stream::take_fault`].
    pub fn set_fault(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    pub(crate) fn note_out(&mut self, id: &SegmentId) {
        self.stats.octets_out += u64::from(id.len);
        self.stats.segments_out += 1;
    }

    /// Carries out what could not be done while the regions were held for reading; whether there
    /// was anything. What was posted after it has waited for it and may go out now.
    pub fn settle(&mut self, qp: &Qp) -> bool {
        let Some(seq) = self.local.take() else { return false };
        if let Err(status) = qp.carry_out(seq) {
            self.fault = Some(Fault::Request { seq, status });
        }
        true
    }

    /// Ends the stream because of `fault`: the queue pair fails with what the fault says, and a
    /// Terminate goes out if the fault calls for one.
    pub fn fail(&mut self, qp: &Qp, fault: Fault) {
        if self.is_dead() {
            return;
        }
        let terminate = fault.terminate();
        self.reason = terminate.map(|terminate| terminate.code);
        let terminate = terminate.filter(|_| self.config.lower == Lower::Mpa);
        self.life = self.life.after(match terminate {
            Some(_) => LifeEvent::FailedWithTerminate,
            None => LifeEvent::Failed,
        });
        self.own = Own { first_message: None, terminate };
        self.current = Current::Nothing;
        fault.report(self, qp);
        if qp.fail(self.receiving.drain(..).filter_map(|receiving| receiving.wqe))
            && let Some(kind) = fault.event()
        {
            qp.raise(kind);
        }
    }
}
