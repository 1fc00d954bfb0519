//! Contents of a segment: DDP and RDMAP headers, and pieces of payload.
//!
//! Everything derives from the work request or inbound request that a segment belongs to, so a
//! segment can be gathered any number of times.

use weft_verbs::qp::SendWqe;
use weft_verbs::{Access, SendFlags, SendOp, WcStatus};
use weft_wire::ddp::{TAGGED_LEN, TaggedHeader, UNTAGGED_LEN, UntaggedHeader};
use weft_wire::ids::{Msn, QN_ATOMIC_RESPONSE, QN_READ_REQUEST, QN_TERMINATE, STag};
use weft_wire::llp::{Gather, SegmentId};
use weft_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, ImmediateData, Opcode, ReadRequest,
};
use weft_wire::terminate::Terminate;

use crate::capability;
use crate::fault::StreamFault;
use crate::inbound::Inbound;
use crate::outbound::Expected;
use crate::sink;
use crate::stream::LlpKind;
use crate::tx::{OWN_HELLO, OWN_PLACED, OWN_TERMINATE, TxPort};

impl TxPort<'_> {
    pub(crate) fn gather_immediate(&self, seq: u32, out: &mut Gather) {
        let wqe = self.sq.get(seq);
        let SendOp::WriteImm { imm, .. } = wqe.op else { return };
        let opcode = if wqe.flags.contains(SendFlags::SOLICITED) {
            Opcode::ImmediateSolicited
        } else {
            Opcode::Immediate
        };
        out.push_bytes(&untagged(opcode, 0, wqe.queue, wqe.msn, 0, true));
        let data = ImmediateData::from_verbs(imm);
        let data = match self.stream.config.lower {
            LlpKind::Mpa => data,
            LlpKind::Shuttle => data.with_length(wqe.len),
        };
        out.push_bytes(&data.0);
    }

    #[inline]
    pub(crate) fn gather_request(&self, seq: u32, id: &SegmentId, out: &mut Gather) {
        let wqe = self.sq.get(seq);
        let last = id.offset + id.len == wqe.len;
        match wqe.op {
            SendOp::Write { to, stag }
            | SendOp::AtomicWrite { to, stag }
            | SendOp::WriteImm { to, stag, .. } => {
                let to = to.wrapping_add(u64::from(id.offset));
                out.push_bytes(&tagged(Opcode::Write, STag(stag), to, last));
                self.gather_payload(seq, id, out);
            }
            SendOp::Send | SendOp::SendInv { .. } | SendOp::SendImm { .. } => {
                let (opcode, ulp) = send_opcode(wqe);
                out.push_bytes(&untagged(opcode, ulp, wqe.queue, wqe.msn, id.offset, last));
                self.gather_payload(seq, id, out);
            }
            SendOp::Read { .. } => {
                let request = read_request(wqe);
                out.push_bytes(&untagged(
                    Opcode::ReadRequest,
                    0,
                    QN_READ_REQUEST,
                    wqe.msn,
                    0,
                    true,
                ));
                out.push_bytes(&request.to_bytes());
            }
            SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } => {
                let header = untagged(Opcode::AtomicRequest, 0, QN_READ_REQUEST, wqe.msn, 0, true);
                out.push_bytes(&header);
                out.push_bytes(&atomic_request(wqe).to_bytes());
            }
            SendOp::LocalInv { .. } | SendOp::BindMw(_) => {}
        }
    }

    fn gather_payload(&self, seq: u32, id: &SegmentId, out: &mut Gather) {
        let wqe = self.sq.get(seq);
        let offset = id.offset as usize;
        if let Some(inline) = wqe.inline() {
            out.push_bytes(&inline[offset..offset + id.len as usize]);
        } else if let Some(regions) = self.regions {
            let (offset, len) = (u64::from(id.offset), u64::from(id.len));
            // Checked when the segment was made, but it may be retransmitted much later.
            if regions.gather(self.qp.pd(), wqe.sges(), offset, len, out).is_err() {
                let fault = StreamFault::Request { seq, status: WcStatus::LocProtErr };
                self.stream.gone.set(Some(fault));
            }
        }
    }

    pub(crate) fn gather_response(&self, seq: u32, id: &SegmentId, out: &mut Gather) {
        match self.stream.inbound.get(seq) {
            Some(Inbound::Read(request)) => {
                let last = id.offset + id.len == request.size;
                let to = request.sink_to.wrapping_add(u64::from(id.offset));
                out.push_bytes(&tagged(Opcode::ReadResponse, request.sink_stag, to, last));
                let Some(regions) = self.regions.filter(|_| id.len > 0) else { return };
                let (key, who) = (request.src_stag.0, self.qp.accessor());
                let from = request.src_to + u64::from(id.offset);
                let len = id.len;
                let right = Access::REMOTE_READ;
                if let Err(fault) = regions.gather_region(key, who, from, len, right, out) {
                    self.stream.gone.set(Some(StreamFault::SourceGone(fault)));
                }
            }
            Some(Inbound::Atomic { request, old, msn }) => {
                let response = AtomicResponse { id: request.id, value: old.unwrap_or_default() };
                let opcode = Opcode::AtomicResponse;
                out.push_bytes(&untagged(opcode, 0, QN_ATOMIC_RESPONSE, *msn, 0, true));
                out.push_bytes(&response.to_bytes());
            }
            None => {}
        }
    }

    pub(crate) fn gather_own(&self, which: u32, id: &SegmentId, out: &mut Gather) {
        match which {
            OWN_TERMINATE => {
                out.push_bytes(&untagged(Opcode::Terminate, 0, QN_TERMINATE, 1, 0, true));
                let mut body = Vec::with_capacity(Terminate::MAX_LEN);
                if let Some(terminate) = &self.stream.own.terminate {
                    terminate.encode(&mut body);
                }
                out.push_bytes(&body);
            }
            OWN_HELLO => {
                let (stag, to) = capability::hello();
                out.push_bytes(&tagged(Opcode::Write, stag, to, true));
            }
            OWN_PLACED => {
                let (stag, to) = capability::placed(id.offset);
                out.push_bytes(&tagged(Opcode::Write, stag, to, true));
            }
            _ => {
                let header = untagged(Opcode::ReadRequest, 0, QN_READ_REQUEST, id.offset, 0, true);
                out.push_bytes(&header);
                let (sink_stag, src_stag) = (STag(1), STag(1));
                let request = ReadRequest { sink_stag, sink_to: 0, size: 0, src_stag, src_to: 0 };
                out.push_bytes(&request.to_bytes());
            }
        }
    }
}

/// Expected response to a Read or an Atomic.
pub(crate) fn expected(wqe: &SendWqe, msn: u32) -> Expected {
    if wqe.op.is_atomic() {
        return Expected::Atomic { id: msn };
    }
    let request = read_request(wqe);
    Expected::Read { stag: request.sink_stag, to: request.sink_to, size: request.size, done: 0 }
}

fn read_request(wqe: &SendWqe) -> ReadRequest {
    let (sink_stag, sink_to) = sink::advertise(wqe);
    let (src_to, src_stag) = match wqe.op {
        SendOp::Read { to, stag } => (to, stag),
        _ => (0, 0),
    };
    ReadRequest { sink_stag, sink_to, size: wqe.len, src_stag: STag(src_stag), src_to }
}

fn atomic_request(wqe: &SendWqe) -> AtomicRequest {
    let base = AtomicRequest {
        op: Ok(AtomicOp::FetchAdd),
        id: wqe.msn,
        stag: STag(0),
        to: 0,
        data: 0,
        mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    };
    match wqe.op {
        SendOp::FetchAdd { to, stag, add } => {
            AtomicRequest { stag: STag(stag), to, data: add, ..base }
        }
        SendOp::CmpSwap { to, stag, compare, swap } => AtomicRequest {
            op: Ok(AtomicOp::CompareSwap),
            stag: STag(stag),
            to,
            data: swap,
            mask: u64::MAX,
            compare,
            ..base
        },
        _ => base,
    }
}

fn send_opcode(wqe: &SendWqe) -> (Opcode, u32) {
    let solicited = wqe.flags.contains(SendFlags::SOLICITED);
    match (wqe.op, solicited) {
        (SendOp::SendImm { imm }, false) => (Opcode::SendImmediate, u32::from_be(imm)),
        (SendOp::SendImm { imm }, true) => (Opcode::SendSolicitedImmediate, u32::from_be(imm)),
        (SendOp::SendInv { stag }, false) => (Opcode::SendInvalidate, stag),
        (SendOp::SendInv { stag }, true) => (Opcode::SendSolicitedInvalidate, stag),
        (_, false) => (Opcode::Send, 0),
        (_, true) => (Opcode::SendSolicited, 0),
    }
}

fn tagged(opcode: Opcode, stag: STag, to: u64, last: bool) -> [u8; TAGGED_LEN] {
    TaggedHeader { last, control: opcode.control(), stag, to }.to_bytes()
}

fn untagged(
    opcode: Opcode,
    ulp: u32,
    qn: u32,
    msn: u32,
    mo: u32,
    last: bool,
) -> [u8; UNTAGGED_LEN] {
    UntaggedHeader { last, control: opcode.control(), ulp, qn, msn: Msn(msn), mo }.to_bytes()
}
