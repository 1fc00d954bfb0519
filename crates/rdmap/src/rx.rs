//! Reception: segments to memory and completions.
//!
//! Every check comes before the first byte is placed. The first segment that fails one ends the
//! stream: it and all later ones leave no trace but the fault (RFC 5041, section 7.1).
//!
//! The last segment of a message comes after everything before it, whatever the lower layer, so a
//! message is delivered when that is placed. Over MPA all segments come in order and each must
//! continue where the one before it ended; over Shuttle the others come in any order, once each.
//!
//! A segment that comes early and cannot be placed is held until all before it are placed: only
//! then is its fault certain.

use weft_verbs::mr::{Invalidate, SegmentPayload};
use weft_verbs::qp::recv_queue::RecvWqe;
use weft_verbs::qp::{WITH_IMM, WITH_INV};
use weft_verbs::{Access, Qp, QpType, WcOpcode, WcStatus};
use weft_wire::ddp::{DdpHeader, TaggedHeader, UntaggedHeader};
use weft_wire::ids::{Msn, QN_SEND, QN_SHARED};
use weft_wire::llp::{Placed, UlpduSink};
use weft_wire::rdmap::{AtomicRequest, ImmediateData, Opcode, ReadRequest};
use weft_wire::terminate::{Terminate, TerminateCode, TerminatePhase};

use crate::capability::{self, PeerExtensions};
use crate::coverage::Coverage;
use crate::early::GAPS_MAX;
use crate::fault::{StreamFault, invalidate_code, quotes_request, read_code, tagged_code};
use crate::inbound::Inbound;
use crate::state::{DiscoveryEvent, FirstMessage};
use crate::stream::{LlpKind, RdmapStream, Receiving, Role};

/// Most messages that may be in reassembly at a time: each takes a posted receive, so this only
/// bounds invalid numbers.
const MESSAGES_AHEAD_MAX: u32 = 1 << 16;
/// The same where the receives are also those of other peers: what comes further ahead is held.
const SHARED_AHEAD_MAX: u32 = 32;

/// The receiving side of a stream: takes segments for a queue pair from the lower layer.
pub struct RxPort<'a> {
    pub(crate) stream: &'a mut RdmapStream,
    pub(crate) qp: &'a Qp,
    hold_unmatched: bool,
    /// The same, for the messages that follow the first one placed by this port.
    hold_later: bool,
    /// UC: drop the message if no receive is posted.
    drop_unmatched: bool,
    held: bool,
    written: bool,
    /// Request whose response cannot be placed: its memory is not writable or unmapped.
    pub(crate) unplaceable: Option<u32>,
}

impl<'a> RxPort<'a> {
    /// The receiving side of `stream`. A message without a posted receive is a fault of the peer;
    /// with `hold_unmatched` the lower layer holds it.
    pub fn new(stream: &'a mut RdmapStream, qp: &'a Qp, hold_unmatched: bool) -> Self {
        Self {
            stream,
            qp,
            hold_unmatched,
            hold_later: hold_unmatched,
            drop_unmatched: false,
            held: false,
            written: false,
            unplaceable: None,
        }
    }

    /// The same, but once something was placed, what is behind it is held if `hold_later` says so:
    /// the time of one message is not that of the next.
    #[must_use]
    pub fn then_holding(self, hold_later: bool) -> Self {
        Self { hold_later, ..self }
    }

    /// Whether a message was held for want of a receive.
    pub fn held(&self) -> bool {
        self.held
    }

    /// Whether a Write of at least one byte was completed.
    pub fn written(&self) -> bool {
        self.written
    }

    /// [`UlpduSink::place`] for a segment whose DDP header and `payload` lie apart. The header is
    /// this side's own copy; whoever has sent the payload may still write there. One that was lent
    /// and is lost leaves the segment [`Placed::Held`].
    ///
    /// # Errors
    /// As of [`UlpduSink::place`].
    pub fn place_apart(
        &mut self,
        seq: u64,
        header: &[u8],
        payload: SegmentPayload<'_>,
    ) -> Result<Placed, StreamFault> {
        self.take(seq, header, Some(payload))
    }

    fn take(
        &mut self,
        seq: u64,
        ulpdu: &[u8],
        apart: Option<SegmentPayload<'_>>,
    ) -> Result<Placed, StreamFault> {
        if self.stream.is_dead() {
            return Ok(Placed::Dropped);
        }
        if self.stream.is_refusing() && is_request(ulpdu) {
            return Ok(self.stream.refused_segment());
        }
        let early = self.any_order() && seq > self.stream.frontier;
        self.drop_unmatched = self.qp.kind() == QpType::Uc && !early;
        match self.segment(seq, ulpdu, apart) {
            // A fault out of order may be none in order.
            Err(_) if early => Ok(Placed::Held),
            Err(_) if apart.is_some_and(SegmentPayload::is_lost) => Ok(Placed::Held),
            Err(fault) if self.hold_unmatched && fault.lacks_receive() => {
                self.held = true;
                Ok(Placed::Held)
            }
            Err(fault)
                if !self.stream.inbound.is_empty()
                    && fault.is_of_application()
                    && is_request(ulpdu) =>
            {
                self.stream.refused = Some(fault);
                Ok(self.stream.refused_segment())
            }
            outcome => {
                self.stream.stats.segments_in += 1;
                self.hold_unmatched = self.hold_later;
                outcome
            }
        }
    }

    fn segment(
        &mut self,
        seq: u64,
        ulpdu: &[u8],
        apart: Option<SegmentPayload<'_>>,
    ) -> Result<Placed, StreamFault> {
        let (header, behind) =
            DdpHeader::parse(ulpdu).map_err(|error| StreamFault::ddp(error, ulpdu))?;
        let payload = apart.unwrap_or(SegmentPayload::Here(behind));
        // What lies apart may be memory that the peer still changes: nobody parses it.
        let control = if apart.is_some() { &[] } else { behind };
        let opcode = header.opcode().map_err(|code| StreamFault::peer(code, ulpdu, false))?;
        let first = !self.stream.heard();
        if first {
            self.recognise(&header, payload.is_empty());
        }
        let placed = self.place(seq, ulpdu, (header, opcode, payload, control), first)?;
        if self.stream.config.confirm && placed != Placed::Held {
            self.count(&header, opcode, payload.is_empty());
        }
        Ok(placed)
    }

    fn place(
        &mut self,
        seq: u64,
        ulpdu: &[u8],
        (header, opcode, payload, control): (DdpHeader, Opcode, SegmentPayload<'_>, &[u8]),
        first: bool,
    ) -> Result<Placed, StreamFault> {
        let quote = quotes_request(opcode);
        let refuse = |code| StreamFault::peer(code, ulpdu, quote);
        if let DdpHeader::Untagged(header) = header
            && opcode.queue() == Some(QN_SEND)
            && !self.has_queue(header.qn)
        {
            return Err(refuse(TerminateCode::UntaggedInvalidQn));
        }
        match (header, opcode) {
            (DdpHeader::Tagged(h), Opcode::Write) => self.write(seq, &h, payload).map_err(refuse),
            (DdpHeader::Tagged(h), _) => {
                let placed = self.read_response(seq, &h, payload);
                placed.map_err(|code| self.refuse_answer(refuse(code)))
            }
            (DdpHeader::Untagged(h), Opcode::ReadRequest) => {
                self.read_request(&h, control).map_err(refuse)
            }
            (DdpHeader::Untagged(h), Opcode::AtomicRequest) => {
                self.atomic_request(&h, control).map_err(refuse)
            }
            (DdpHeader::Untagged(h), Opcode::AtomicResponse) => {
                let placed = self.atomic_response(&h, control);
                placed.map_err(|code| self.refuse_answer(refuse(code)))
            }
            (DdpHeader::Untagged(_), Opcode::Terminate) => Err(terminated(control, first)),
            (DdpHeader::Untagged(h), Opcode::Immediate | Opcode::ImmediateSolicited) => {
                self.immediate(&h, opcode, control).map_err(refuse)
            }
            // RFC 7306 has no Send with immediate data: only Weft may send one.
            (DdpHeader::Untagged(_), _)
                if opcode.brings_immediate() && self.stream.peer() != PeerExtensions::Extended =>
            {
                Err(refuse(TerminateCode::RdmapUnexpectedOpcode))
            }
            (DdpHeader::Untagged(h), _) => self.send(&h, opcode, payload, ulpdu),
        }
    }

    /// Counts the messages of the peer, and handles its confirmations: requests complete before the
    /// peer's next message is placed.
    fn count(&mut self, header: &DdpHeader, opcode: Opcode, is_empty: bool) {
        let progress = &mut self.stream.progress;
        match header {
            DdpHeader::Tagged(h) if is_empty && capability::is_own(h.stag) => {
                let told = capability::placed_count(h.stag, h.to);
                if let Some(last) = told.and_then(|count| progress.handle_told(count)) {
                    self.confirmed(last);
                }
            }
            DdpHeader::Tagged(h) if h.last && opcode == Opcode::Write => progress.note_placed(),
            DdpHeader::Untagged(h) if h.last && opcode.queue() == Some(QN_SEND) => {
                progress.note_placed();
            }
            _ => {}
        }
    }

    pub(crate) fn confirmed(&mut self, last: u32) {
        let mut sq = self.qp.sq();
        sq.confirmed(last);
        sq.complete(self.qp.num(), self.qp.send_cq());
        self.qp.check_drained(&sq);
    }

    /// Whether queue `qn` exists for this type of queue pair.
    fn has_queue(&self, qn: u32) -> bool {
        match self.qp.kind() {
            QpType::XrcSend => false,
            QpType::XrcRecv => qn >= QN_SHARED,
            _ => qn == QN_SEND,
        }
    }

    /// Whether segments other than the last of a message may arrive out of order.
    pub(crate) fn any_order(&self) -> bool {
        self.stream.config.lower == LlpKind::Shuttle
    }

    /// Learns from the first segment whether the peer supports RFC 7306.
    fn recognise(&mut self, header: &DdpHeader, is_empty: bool) {
        let hello = matches!(header, DdpHeader::Tagged(h)
            if is_empty && capability::is_hello(h.stag, h.to));
        let event = if hello { DiscoveryEvent::HeardHello } else { DiscoveryEvent::HeardOther };
        self.stream.discovery = self.stream.discovery.after(event);
        if hello && self.stream.config.role == Role::Responder {
            self.stream.own.first_message = Some(FirstMessage::Hello);
        }
    }

    fn write(
        &mut self,
        seq: u64,
        header: &TaggedHeader,
        payload: SegmentPayload<'_>,
    ) -> Result<Placed, TerminateCode> {
        if !payload.is_empty() {
            self.qp.permit(Access::REMOTE_WRITE).map_err(tagged_code)?;
            self.place_tagged(seq, header.stag.0, header.to, payload, Access::REMOTE_WRITE)?;
            self.stream.stats.octets_in += payload.len() as u64;
        }
        let octets = self.stream.write_octets.0.wrapping_add(payload.len() as u32);
        self.stream.write_octets = if header.last { (0, Some(octets)) } else { (octets, None) };
        self.written |= header.last && octets > 0;
        Ok(Placed::Memory)
    }

    /// Places a tagged segment, except for bytes that a later segment has written. One that comes
    /// early and finds no room in the log of what is early is refused, and thereby held.
    pub(crate) fn place_tagged(
        &mut self,
        seq: u64,
        key: u32,
        start: u64,
        payload: SegmentPayload<'_>,
        right: Access,
    ) -> Result<(), TerminateCode> {
        let (regions, who) = (self.qp.regions(), self.qp.accessor());
        let write = || regions.write(key, who, start, payload, right).map_err(tagged_code);
        if !self.any_order() {
            return write().map(drop);
        }
        let early = &mut self.stream.early;
        let is_early = seq > self.stream.frontier;
        if is_early && early.is_full() {
            return Err(TerminateCode::RdmapStreamCatastrophic);
        }
        let len = payload.len() as u64;
        if !early.concerns(seq) {
            let addr = write()?;
            if is_early {
                early.note(seq, addr, addr + len);
            }
            return Ok(());
        }
        let addr = regions.check(key, who, start, len, right).map_err(tagged_code)?;
        let limit = if is_early { GAPS_MAX + 1 } else { usize::MAX };
        let gaps: Vec<_> = early.gaps(seq, addr, addr + len).take(limit).collect();
        if gaps.len() == limit {
            return Err(TerminateCode::RdmapStreamCatastrophic);
        }
        let parts = gaps.iter().map(|(from, to)| (from - addr) as usize..(to - addr) as usize);
        regions.write_parts(key, who, start, (payload, parts), right).map_err(tagged_code)?;
        if is_early {
            gaps.iter().for_each(|&(from, to)| early.note(seq, from, to));
        }
        Ok(())
    }

    fn read_request(
        &mut self,
        header: &UntaggedHeader,
        payload: &[u8],
    ) -> Result<Placed, TerminateCode> {
        self.take_read_number(header)?;
        let request = ReadRequest::parse(payload).map_err(|_| TerminateCode::LlpFraming)?;
        if request.size > 0 {
            let (len, right) = (u64::from(request.size), Access::REMOTE_READ);
            self.qp.permit(right).map_err(read_code)?;
            self.qp
                .regions()
                .check(request.src_stag.0, self.qp.accessor(), request.src_to, len, right)
                .map_err(read_code)?;
        }
        self.queue(Inbound::Read(request))
    }

    fn atomic_request(
        &mut self,
        header: &UntaggedHeader,
        payload: &[u8],
    ) -> Result<Placed, TerminateCode> {
        self.take_read_number(header)?;
        let request = AtomicRequest::parse(payload).map_err(|_| TerminateCode::LlpFraming)?;
        if request.op.is_err() {
            return Err(TerminateCode::RdmapUnexpectedOpcode);
        }
        if !request.to.is_multiple_of(8) {
            return Err(TerminateCode::RdmapStreamCatastrophic);
        }
        self.qp.permit(Access::REMOTE_ATOMIC).map_err(read_code)?;
        self.qp
            .regions()
            .check(request.stag.0, self.qp.accessor(), request.to, 8, Access::REMOTE_ATOMIC)
            .map_err(read_code)?;
        self.queue(Inbound::Atomic { request, old: None, msn: 0 })
    }

    fn take_read_number(&mut self, header: &UntaggedHeader) -> Result<(), TerminateCode> {
        single(header)?;
        take_number(&mut self.stream.expect_read, header)
    }

    fn queue(&mut self, request: Inbound) -> Result<Placed, TerminateCode> {
        if self.stream.inbound.push(request) {
            Ok(Placed::Control)
        } else {
            Err(TerminateCode::UntaggedInvalidMsn)
        }
    }

    fn immediate(
        &mut self,
        header: &UntaggedHeader,
        opcode: Opcode,
        payload: &[u8],
    ) -> Result<Placed, TerminateCode> {
        single(header)?;
        let any_order = self.any_order();
        let data = ImmediateData::parse(payload).map_err(|_| TerminateCode::LlpFraming)?;
        let receiving = self.receiving(header)?;
        if receiving.coverage != Coverage::default() {
            return Err(TerminateCode::UntaggedInvalidMo);
        }
        let Some(Receiving { wqe, .. }) = self.stream.receiving.pop_front() else {
            return Err(TerminateCode::UntaggedNoBuffer);
        };
        self.stream.expect_send = header.msn.next();
        let written = self.stream.write_octets.1.take();
        let written = if any_order { Some(data.length()) } else { written };
        let Some(wqe) = wqe else { return Ok(Placed::Control) };
        self.qp.complete_recv(&wqe, opcode.is_solicited(), |wc| {
            wc.opcode = WcOpcode::RecvRdmaWithImm as u32;
            wc.byte_len = written.unwrap_or(0);
            wc.imm_data = data.to_verbs();
            wc.wc_flags = WITH_IMM;
        });
        Ok(Placed::Control)
    }

    fn send(
        &mut self,
        header: &UntaggedHeader,
        opcode: Opcode,
        payload: SegmentPayload<'_>,
        ulpdu: &[u8],
    ) -> Result<Placed, StreamFault> {
        self.stream.write_octets.1 = None;
        let (qp, any_order, key) = (self.qp, self.any_order(), self.stream.config.seed);
        let receiving = self.receiving(header).map_err(|c| StreamFault::peer(c, ulpdu, false))?;
        let end = u64::from(header.mo) + payload.len() as u64;
        if !any_order && header.mo != receiving.coverage.prefix() {
            return Err(StreamFault::peer(TerminateCode::UntaggedInvalidMo, ulpdu, false));
        }
        if end > receiving.room.min(u64::from(u32::MAX)) {
            return Err(StreamFault::receive(
                TerminateCode::UntaggedTooLong,
                ulpdu,
                WcStatus::LocLenErr,
            ));
        }
        let sges = receiving.wqe.as_ref().map_or(&[][..], RecvWqe::sges);
        let pd = receiving.wqe.as_ref().map_or(0, |wqe| qp.recv_pd(wqe));
        let dropped = receiving.wqe.is_none();
        if !dropped && qp.regions().scatter(pd, sges, u64::from(header.mo), payload).is_err() {
            let code = TerminateCode::RdmapStreamCatastrophic;
            return Err(StreamFault::receive(code, ulpdu, WcStatus::LocProtErr));
        }
        let mut coverage = receiving.coverage;
        coverage.add(key, header.mo, end as u32);
        if header.last && !coverage.is_whole(key, end as u32) {
            return Err(StreamFault::peer(TerminateCode::UntaggedInvalidMo, ulpdu, false));
        }
        receiving.coverage = coverage;
        self.stream.stats.octets_in += payload.len() as u64;
        if header.last {
            self.deliver(header, opcode, (end as u32, ulpdu))?;
        }
        Ok(Placed::Memory)
    }

    /// The receive that this segment goes to; the first segment of a message takes it from the
    /// queue, after those of earlier messages.
    fn receiving(&mut self, header: &UntaggedHeader) -> Result<&mut Receiving, TerminateCode> {
        let ahead = header.msn.since(self.stream.expect_send);
        let ahead_max = match self.qp.shares_receives() {
            _ if !self.any_order() || header.last => 0,
            true => SHARED_AHEAD_MAX,
            false => MESSAGES_AHEAD_MAX,
        };
        if ahead > ahead_max {
            return Err(TerminateCode::UntaggedInvalidMsn);
        }
        let ahead = ahead as usize;
        if self.stream.receiving.len() <= ahead && header.mo != 0 && !self.any_order() {
            return Err(TerminateCode::UntaggedInvalidMo);
        }
        if self.stream.receiving.len() < ahead && header.qn != QN_SEND {
            // Receives are taken in the order of messages, and the queues of earlier messages are
            // not known yet.
            return Err(TerminateCode::UntaggedInvalidMsn);
        }
        while self.stream.receiving.len() <= ahead {
            let wqe = self.take_recv(header.qn)?;
            if wqe.is_none() && !self.drop_unmatched {
                return Err(TerminateCode::UntaggedNoBuffer);
            }
            let coverage = Coverage::default();
            let room = wqe.as_ref().map_or(u64::MAX, RecvWqe::room);
            self.stream.receiving.push_back(Receiving { wqe, room, coverage });
        }
        Ok(&mut self.stream.receiving[ahead])
    }

    fn take_recv(&self, qn: u32) -> Result<Option<RecvWqe>, TerminateCode> {
        if qn == QN_SEND {
            return Ok(self.qp.take_recv());
        }
        let number = qn & !QN_SHARED;
        self.qp.take_recv_of(number).map_err(|_| TerminateCode::UntaggedInvalidQn)
    }

    fn deliver(
        &mut self,
        header: &UntaggedHeader,
        opcode: Opcode,
        (octets, ulpdu): (u32, &[u8]),
    ) -> Result<(), StreamFault> {
        if opcode.invalidates() {
            self.qp
                .invalidate(header.ulp, Invalidate::Remote)
                .map_err(|fault| StreamFault::peer(invalidate_code(fault), ulpdu, false))?;
        }
        self.stream.expect_send = self.stream.expect_send.next();
        let Some(Receiving { wqe: Some(wqe), .. }) = self.stream.receiving.pop_front() else {
            return Ok(());
        };
        self.qp.complete_recv(&wqe, opcode.is_solicited(), |wc| {
            wc.byte_len = octets;
            if opcode.invalidates() {
                wc.imm_data = header.ulp;
                wc.wc_flags = WITH_INV;
            } else if opcode.brings_immediate() {
                wc.imm_data = header.ulp.to_be();
                wc.wc_flags = WITH_IMM;
            }
        });
        Ok(())
    }
}

impl UlpduSink for RxPort<'_> {
    type Fault = StreamFault;

    fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, StreamFault> {
        self.take(seq, ulpdu, None)
    }

    fn deliver(&mut self, frontier: u64) -> Result<(), StreamFault> {
        self.stream.frontier = frontier;
        self.stream.early.pass(frontier);
        Ok(())
    }
}

/// Whether the segment is of a request, and not of a response or Terminate.
fn is_request(ulpdu: &[u8]) -> bool {
    let opcode = DdpHeader::parse(ulpdu).ok().and_then(|(header, _)| header.opcode().ok());
    !matches!(opcode, Some(Opcode::ReadResponse | Opcode::AtomicResponse | Opcode::Terminate))
}

/// Checks that a message is a single segment.
pub(crate) fn single(header: &UntaggedHeader) -> Result<(), TerminateCode> {
    if header.mo != 0 || !header.last {
        return Err(TerminateCode::UntaggedInvalidMo);
    }
    Ok(())
}

pub(crate) fn take_number(
    expected: &mut Msn,
    header: &UntaggedHeader,
) -> Result<(), TerminateCode> {
    if header.msn != *expected {
        return Err(TerminateCode::UntaggedInvalidMsn);
    }
    *expected = expected.next();
    Ok(())
}

fn terminated(payload: &[u8], first: bool) -> StreamFault {
    let phase = if first { TerminatePhase::Setup } else { TerminatePhase::Operation };
    let told = Terminate::parse(payload, phase);
    StreamFault::Terminated(told.unwrap_or(Terminate::bare(TerminateCode::RdmapOperation)))
}
