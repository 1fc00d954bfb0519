//! Transmission: work requests and responses to segments.
//!
//! Order at each message boundary: a Terminate, and nothing after it; the protocol's own messages;
//! then responses and requests alternately, so that neither starves the other.

use std::sync::MutexGuard;

use weft_verbs::mr::RegionReader;
use weft_verbs::qp::send_queue::SendQueue;
use weft_verbs::{Access, Qp, QpState, RegionFault, SendFlags, SendOp, WcStatus};
use weft_wire::ddp::{TAGGED_LEN, UNTAGGED_LEN};
use weft_wire::ids::{Msn, STag};
use weft_wire::llp::{Gather, SegmentId, SegmentRun, UlpduSource};
use weft_wire::rdmap::ReadRequest;

use crate::atomic;
use crate::capability::PeerExtensions;
use crate::fault::StreamFault;
use crate::gather::expected;
use crate::inbound::Inbound;
use crate::outbound::{Expected, Outbound};
use crate::state::{DiscoveryEvent, FirstMessage, Life, LifeEvent, Turn};
use crate::stream::{Current, LlpKind, RdmapStream, RnrWait};

/// Bits of [`SegmentId::wqe`] for the sequence number of a message.
pub(crate) const SEQ_MASK: u32 = (1 << 29) - 1;

/// Most requests per confirmation: one Read in 16 requests costs little, and bounds the delay of
/// completions.
const CONFIRM_AFTER: u32 = 16;

/// Kinds of messages, in the upper three bits of [`SegmentId::wqe`].
const REQUEST: u32 = 0;
const IMMEDIATE: u32 = 1;
const RESPONSE: u32 = 2;
const OWN: u32 = 3;

/// The protocol's own messages, by the lower bits of [`SegmentId::wqe`].
pub(crate) const OWN_TERMINATE: u32 = 0;
pub(crate) const OWN_HELLO: u32 = 1;
pub(crate) const OWN_PLACED: u32 = 2;
const OWN_READ: u32 = 3;

fn name(kind: u32, seq: u32) -> u32 {
    kind << 29 | seq & SEQ_MASK
}

/// Full sequence number whose lower bits are `seq`, at or after `tail`.
fn widen(seq: u32, tail: u32) -> u32 {
    tail.wrapping_add(seq.wrapping_sub(tail) & SEQ_MASK)
}

/// The request that the segment `id` is of, in a queue whose oldest request is `tail`; none if it
/// is of a response or of the protocol's own messages.
pub fn request_of(id: &SegmentId, tail: u32) -> Option<u32> {
    matches!(id.wqe >> 29, REQUEST | IMMEDIATE).then(|| widen(id.wqe & SEQ_MASK, tail))
}

/// The sending side of a stream: hands segments of a queue pair to the lower layer.
///
/// It locks the send queue and the region table for as long as it lives, which should be one batch.
pub struct TxPort<'a> {
    pub(crate) stream: &'a mut RdmapStream,
    pub(crate) qp: &'a Qp,
    pub(crate) sq: MutexGuard<'a, SendQueue>,
    pub(crate) regions: Option<&'a RegionReader<'a>>,
}

impl<'a> TxPort<'a> {
    /// The sending side of `stream`. Without `regions` it only handles acknowledgements.
    pub fn new(
        stream: &'a mut RdmapStream,
        qp: &'a Qp,
        sq: MutexGuard<'a, SendQueue>,
        regions: Option<&'a RegionReader<'a>>,
    ) -> Self {
        Self { stream, qp, sq, regions }
    }

    /// Fault of a request or response that turned out to be impossible.
    pub fn into_fault(self) -> Option<StreamFault> {
        let fault = self.stream.fault.take().or_else(|| self.stream.gone.take());
        fault.or_else(|| self.stream.doomed_fault(&self.sq))
    }

    /// The payload of segment `id`, which was just gathered, is lent to another process.
    pub fn note_lent(&self, id: &SegmentId) {
        if let (Some(regions), Some(lender)) = (self.regions, self.qp.lender())
            && id.wqe >> 29 == REQUEST
        {
            let seq = widen(id.wqe & SEQ_MASK, self.sq.tail());
            regions.note_lender(self.sq.get(seq).sges(), lender);
        }
    }

    #[inline]
    fn next_of_current(&mut self, mulpdu: u32) -> Option<SegmentId> {
        match self.stream.current {
            Current::Nothing => None,
            Current::Request { seq, offset } => self.request_segment(seq, offset, mulpdu),
            Current::Immediate { seq } => {
                self.sq.segment_out(seq, true);
                self.request_out(seq);
                self.stream.current = Current::Nothing;
                Some(SegmentId { wqe: name(IMMEDIATE, seq), offset: 0, len: 8 })
            }
            Current::Response { id, offset } => self.response_segment(id, offset, mulpdu),
        }
    }

    fn own_message(&mut self) -> Option<SegmentId> {
        let own = &mut self.stream.own;
        let segment = |seq, len| Some(SegmentId { wqe: name(OWN, seq), offset: 0, len });
        if own.terminate.is_some() {
            return segment(OWN_TERMINATE, 0);
        }
        match own.first_message.take() {
            Some(FirstMessage::Hello) => return segment(OWN_HELLO, 0),
            Some(FirstMessage::Read) => return self.own_read(None),
            None => {}
        }
        if self.stream.wants_to_probe() {
            self.stream.discovery = self.stream.discovery.after(DiscoveryEvent::ProbeSent);
            return self.own_read(None);
        }
        if let Some((last, count)) = self.stream.unconfirmed
            && (count >= CONFIRM_AFTER || !self.will_send())
            && self.stream.outbound.has_room()
        {
            self.stream.unconfirmed = None;
            return self.own_read(Some(last));
        }
        if self.stream.config.confirm
            && self.will_send()
            && let Some(count) = self.stream.progress.tell()
        {
            return Some(SegmentId { wqe: name(OWN, OWN_PLACED), offset: count, len: 0 });
        }
        None
    }

    /// Whether a request may follow.
    fn will_send(&self) -> bool {
        let is_held = self.qp.state() == QpState::Sqd || self.stream.doomed.is_some();
        self.sq.has_pending() && !is_held
    }

    /// Notes that request `seq` was sent entirely: it awaits confirmation, if that was agreed.
    fn request_out(&mut self, seq: u32) {
        if self.confirms() {
            let count = self.stream.unconfirmed.map_or(0, |(_, count)| count);
            self.stream.unconfirmed = Some((seq, count + 1));
            self.stream.progress.note_out(seq);
            self.sq.await_confirmation(seq);
        }
    }

    /// Whether requests complete on the peer's confirmation.
    fn confirms(&self) -> bool {
        let config = &self.stream.config;
        config.confirm && config.ord > 0
    }

    fn own_read(&mut self, confirms: Option<u32>) -> Option<SegmentId> {
        let expected = Expected::Read { stag: STag(1), to: 0, size: 0, done: 0 };
        self.stream.outbound.push(Outbound { seq: None, confirms, expected });
        Some(SegmentId { wqe: name(OWN, OWN_READ), offset: 0, len: 0 })
    }

    /// Chooses the next message; `false` if none may be sent.
    fn begin(&mut self) -> bool {
        let response = self.stream.inbound.pending();
        let request_first = self.stream.turn == Turn::Request || response.is_none();
        if request_first && self.begin_request() {
            self.stream.turn = Turn::Response;
            return true;
        }
        if self.stream.fault.is_some() {
            return false;
        }
        if let Some(id) = response {
            self.stream.turn = Turn::Request;
            return self.begin_response(id);
        }
        false
    }

    fn begin_request(&mut self) -> bool {
        let Some((seq, wqe)) = self.sq.peek() else { return false };
        if self.qp.state() == QpState::Sqd || self.stream.doomed.is_some() {
            return false;
        }
        let idle = self.stream.outbound.is_empty();
        if wqe.flags.contains(SendFlags::FENCE) && !idle {
            return false;
        }
        let op = wqe.op;
        if self.stream.rnr.is_some() && op.takes_receive() {
            return false;
        }
        let immediate = matches!(op, SendOp::WriteImm { .. } | SendOp::SendImm { .. });
        let extended = op.is_atomic() || immediate;
        if extended && !self.may_extend(seq) {
            return false;
        }
        let unknown = matches!(op, SendOp::AtomicWrite { .. });
        if unknown && self.stream.config.lower == LlpKind::Mpa {
            return self.give_up(seq, WcStatus::LocQpOpErr);
        }
        if op.awaits_response() && !self.stream.outbound.has_room() {
            return self.refuse_if_never(seq);
        }
        if op.is_local() {
            self.stream.local = Some(seq);
            return false;
        }
        if !self.sources_are_good(seq) {
            return self.give_up(seq, WcStatus::LocProtErr);
        }
        self.number(seq, op);
        self.stream.current = Current::Request { seq, offset: 0 };
        true
    }

    /// Fails a request that needs a response if ORD is zero.
    fn refuse_if_never(&mut self, seq: u32) -> bool {
        if self.stream.config.ord == 0 {
            return self.give_up(seq, WcStatus::LocQpOpErr);
        }
        false
    }

    fn give_up(&mut self, seq: u32, status: WcStatus) -> bool {
        self.stream.doom(self.qp, seq, status);
        false
    }

    /// Whether the peer supports RFC 7306; starts to find out if that is unknown.
    fn may_extend(&mut self, seq: u32) -> bool {
        match self.stream.peer() {
            PeerExtensions::Extended => true,
            PeerExtensions::Plain => self.give_up(seq, WcStatus::LocQpOpErr),
            PeerExtensions::Unknown => {
                self.stream.discovery = self.stream.discovery.after(DiscoveryEvent::Needed);
                false
            }
        }
    }

    fn sources_are_good(&self, seq: u32) -> bool {
        let Some(regions) = self.regions else { return false };
        let wqe = self.sq.get(seq);
        let right = if wqe.op.awaits_response() { Access::LOCAL_WRITE } else { Access::empty() };
        wqe.inline().is_some() || regions.check(self.qp.pd(), wqe.sges(), right).is_ok()
    }

    /// Numbers the message of `seq` in its queue, and expects its response.
    fn number(&mut self, seq: u32, op: SendOp) {
        let stream = &mut *self.stream;
        let msn = match op {
            SendOp::Send
            | SendOp::SendInv { .. }
            | SendOp::SendImm { .. }
            | SendOp::WriteImm { .. } => &mut stream.msn_send,
            SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } => {
                &mut stream.msn_read
            }
            SendOp::Write { .. }
            | SendOp::AtomicWrite { .. }
            | SendOp::LocalInv { .. }
            | SendOp::BindMw(_) => return,
        };
        let number = *msn;
        *msn = number.next();
        self.sq.number(seq, number.0);
        if op.awaits_response() {
            let expected = expected(self.sq.get(seq), number.0);
            stream.outbound.push(Outbound { seq: Some(seq), confirms: None, expected });
        }
    }

    #[inline]
    fn request_segment(&mut self, seq: u32, offset: u32, mulpdu: u32) -> Option<SegmentId> {
        let wqe = self.sq.get(seq);
        let (op, total) = (wqe.op, wqe.len);
        if op.awaits_response() {
            self.sq.segment_out(seq, true);
            self.stream.current = Current::Nothing;
            return Some(SegmentId { wqe: name(REQUEST, seq), offset: 0, len: 0 });
        }
        let tagged = op.is_write();
        let room = mulpdu - if tagged { TAGGED_LEN } else { UNTAGGED_LEN } as u32;
        let len = (total - offset).min(room);
        if offset > 0 && !self.sources_are_good(seq) {
            self.stream.current = Current::Nothing;
            match self.stream.config.lower {
                // No other message may follow one that is cut off.
                LlpKind::Mpa => {
                    let status = WcStatus::LocProtErr;
                    self.stream.fault = Some(StreamFault::Request { seq, status });
                }
                LlpKind::Shuttle => drop(self.give_up(seq, WcStatus::LocProtErr)),
            }
            return None;
        }
        let last = offset + len == total;
        let with_immediate = matches!(op, SendOp::WriteImm { .. });
        self.sq.segment_out(seq, last && !with_immediate);
        self.stream.current = match (last, with_immediate) {
            (false, _) => Current::Request { seq, offset: offset + len },
            (true, true) => Current::Immediate { seq },
            (true, false) => Current::Nothing,
        };
        if last && with_immediate && self.confirms() {
            // The Immediate Data that follows is a message of its own.
            self.stream.progress.note_out(seq.wrapping_sub(1));
        }
        if last && !with_immediate {
            self.request_out(seq);
        }
        Some(SegmentId { wqe: name(REQUEST, seq), offset, len })
    }

    fn begin_response(&mut self, id: u32) -> bool {
        let Some(request) = self.stream.inbound.get(id).copied() else { return false };
        if let Inbound::Atomic { request, .. } = request {
            let Some(regions) = self.regions else { return false };
            let operate = |old| atomic::apply(&request, old);
            match regions.atomic(request.stag.0, self.qp.accessor(), request.to, operate) {
                Ok(old) => {
                    let msn = self.stream.msn_atomic_response;
                    self.stream.msn_atomic_response = msn.next();
                    self.stream.inbound.set_result(id, old, msn.0);
                }
                Err(gone) => {
                    self.stream.fault = Some(StreamFault::SourceGone(gone));
                    return false;
                }
            }
        }
        self.stream.current = Current::Response { id, offset: 0 };
        true
    }

    fn response_segment(&mut self, id: u32, offset: u32, mulpdu: u32) -> Option<SegmentId> {
        let Some(Inbound::Read(request)) = self.stream.inbound.get(id).copied() else {
            self.stream.stats.responses_out += 1;
            self.stream.inbound.segment_out(id, true);
            self.stream.current = Current::Nothing;
            return Some(SegmentId { wqe: name(RESPONSE, id), offset: 0, len: 0 });
        };
        let room = mulpdu - TAGGED_LEN as u32;
        let len = (request.size - offset).min(room);
        if let Err(gone) = self.check_source(&request, offset, len) {
            self.stream.fault = Some(StreamFault::SourceGone(gone));
            return None;
        }
        let last = offset + len == request.size;
        self.stream.stats.responses_out += 1;
        self.stream.inbound.segment_out(id, last);
        self.stream.current =
            if last { Current::Nothing } else { Current::Response { id, offset: offset + len } };
        Some(SegmentId { wqe: name(RESPONSE, id), offset, len })
    }

    fn check_source(
        &self,
        request: &ReadRequest,
        offset: u32,
        len: u32,
    ) -> Result<(), RegionFault> {
        let Some(regions) = self.regions.filter(|_| len > 0) else { return Ok(()) };
        let to = request.src_to + u64::from(offset);
        let who = self.qp.accessor();
        regions.check_region(request.src_stag.0, who, to, len, Access::REMOTE_READ)
    }
}

impl TxPort<'_> {
    /// Whether [`TxPort::next_of_responses`] has a segment.
    pub fn has_responses(&self) -> bool {
        self.stream.has_responses() || self.stream.life == Life::Terminating
    }

    /// Whether [`TxPort::next_of_requests`] may have one.
    pub fn has_requests(&self) -> bool {
        !self.stream.is_dead() && (self.stream.has_own_work() || self.sq.has_pending())
    }

    /// The next new segment that is none of a response, for a lower layer that carries responses
    /// apart from all else ([`TxPort::next_of_responses`]). Its ULPDU fits `mulpdu` bytes.
    #[inline]
    pub fn next_of_requests(&mut self, mulpdu: u32) -> Option<SegmentId> {
        if self.stream.is_dead() {
            return None;
        }
        self.next_begun_by(mulpdu, Self::begin_request)
    }

    /// The next new segment of a response, or the Terminate, which follows the responses and waits
    /// for no request. Its ULPDU fits `mulpdu` bytes.
    pub fn next_of_responses(&mut self, mulpdu: u32) -> Option<SegmentId> {
        if self.stream.life == Life::Terminating {
            return self.next_own();
        }
        if !self.has_responses() || self.stream.fault.is_some() || self.stream.is_dead() {
            return None;
        }
        // The message that is on its way in the other flow stays where it is.
        self.swap_flows();
        if self.stream.current == Current::Nothing
            && let Some(id) = self.stream.inbound.pending()
        {
            self.begin_response(id);
        }
        let segment = self.next_of_current(mulpdu);
        self.swap_flows();
        segment.inspect(|id| self.stream.note_out(id.len))
    }

    fn next_own(&mut self) -> Option<SegmentId> {
        let id = self.own_message()?;
        let offset = self.number_own(id);
        self.stream.note_out(id.len);
        Some(SegmentId { offset, ..id })
    }

    fn swap_flows(&mut self) {
        std::mem::swap(&mut self.stream.current, &mut self.stream.parked);
    }

    #[inline]
    fn next_begun_by(&mut self, mulpdu: u32, begin: fn(&mut Self) -> bool) -> Option<SegmentId> {
        loop {
            if self.stream.fault.is_some() || self.stream.life == Life::Ended {
                return None;
            }
            if self.stream.current == Current::Nothing
                && let Some(id) = self.next_own()
            {
                return Some(id);
            }
            if self.stream.is_dead() {
                return None;
            }
            let was_doomed = self.stream.doomed.is_some();
            if self.stream.current == Current::Nothing && !begin(self) {
                // The requests before one that cannot be sent may be confirmed now.
                if self.stream.wants_to_probe() || !was_doomed && self.stream.doomed.is_some() {
                    continue;
                }
                return None;
            }
            if let Some(id) = self.next_of_current(mulpdu) {
                self.stream.note_out(id.len);
                return Some(id);
            }
        }
    }
}

impl UlpduSource for TxPort<'_> {
    fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
        self.next_begun_by(mulpdu.into(), Self::begin)
    }

    #[inline]
    fn gather(&self, id: &SegmentId, out: &mut Gather) {
        let seq = id.wqe & SEQ_MASK;
        match id.wqe >> 29 {
            REQUEST => self.gather_request(widen(seq, self.sq.tail()), id, out),
            IMMEDIATE => self.gather_immediate(widen(seq, self.sq.tail()), out),
            RESPONSE => self.gather_response(seq, id, out),
            _ => self.gather_own(seq, id, out),
        }
    }

    fn may_change(&self, id: SegmentId) -> bool {
        id.wqe >> 29 == RESPONSE
    }

    fn acked(&mut self, id: SegmentId) {
        self.acked_run(SegmentRun::new(id));
    }

    fn acked_run(&mut self, run: SegmentRun) {
        self.note_acked(run);
        self.complete_acked();
    }

    fn receiver_not_ready(&mut self, credit: Msn, wait_us: u32) {
        let waits = credit.next();
        // It comes again, or late: then the peer has received that message meanwhile.
        let known = self.stream.rnr.is_some_and(|rnr| {
            let known = || Msn(self.sq.get(rnr.seq).msn);
            !self.sq.is_placed(rnr.seq) && known().since(waits) <= u32::MAX / 2
        });
        if !known && !self.stream.is_dead() {
            let seq = self.sq.under_way(waits.0).filter(|seq| self.stream.served != Some(*seq));
            self.stream.rnr = seq.map(|seq| RnrWait { seq, wait_us });
        }
    }
}

impl TxPort<'_> {
    /// Notes that `run` is acknowledged; [`TxPort::complete_acked`] after the last of several.
    pub fn note_acked(&mut self, SegmentRun { first, count, .. }: SegmentRun) {
        let seq = first.wqe & SEQ_MASK;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match first.wqe >> 29 {
            REQUEST | IMMEDIATE => {
                let seq = widen(seq, self.sq.tail());
                self.sq.segments_acked(seq, count);
                self.note_served(seq, first.wqe >> 29 == REQUEST);
            }
            RESPONSE => self.stream.inbound.segments_acked(seq, count),
            _ => {}
        }
    }

    /// Segments of request `seq` are placed. A Send has a receive then, however long the rest of it
    /// takes; a Write takes one only with its immediate data.
    fn note_served(&mut self, seq: u32, is_payload: bool) {
        let Some(rnr) = self.stream.rnr else { return };
        if self.sq.is_placed(rnr.seq) {
            self.stream.rnr = None;
        } else if rnr.seq == seq && is_payload && !self.sq.get(seq).op.is_write() {
            self.stream.rnr = None;
            self.stream.served = Some(seq);
        }
    }

    /// Completes the requests that are acknowledged.
    pub fn complete_acked(&mut self) {
        self.sq.complete(self.qp.num(), self.qp.send_cq());
        self.qp.check_drained(&self.sq);
    }

    /// The offset field of an own message: the message number of an untagged one.
    fn number_own(&mut self, id: SegmentId) -> u32 {
        let stream = &mut *self.stream;
        let msn: &mut Msn = match id.wqe & SEQ_MASK {
            OWN_READ => &mut stream.msn_read,
            OWN_TERMINATE => {
                stream.life = stream.life.after(LifeEvent::TerminateSent);
                return id.offset;
            }
            _ => return id.offset,
        };
        let number = *msn;
        *msn = number.next();
        number.0
    }
}
