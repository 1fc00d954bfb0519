//! Faults that end a stream: the Terminate for the peer, the completion status and event for the
//! application.
//!
//! The only mapping of faults to Terminate codes, completion statuses and events.

use weft_verbs::qp::SendWqe;
use weft_verbs::{AsyncKind, Qp, QpFailure, RegionFault, SendOp, WcStatus};
use weft_wire::ddp::{DdpError, DdpHeader, TAGGED_LEN, UNTAGGED_LEN};
use weft_wire::rdmap::Opcode;
use weft_wire::rdmap::{READ_REQUEST_LEN, ReadRequest};
use weft_wire::terminate::{HeaderCopy, Terminate, TerminateCode};

use crate::stream::{LlpKind, RdmapStream, Receiving};

/// Cause of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// Protocol error of the peer; `terminate` quotes the headers of its segment.
    PeerMisbehaved {
        /// Terminate message for the peer.
        terminate: Terminate,
        /// Completion status of the receive being filled, if there is one.
        receive: Option<WcStatus>,
    },
    /// A work request of this side cannot be carried out.
    Request {
        /// Sequence number of the request.
        seq: u32,
        /// Completion status of the request.
        status: WcStatus,
    },
    /// A response is valid, but its sink may not be written or is unmapped.
    SinkGone {
        /// The Read or Atomic that was answered.
        seq: u32,
        /// The message for the peer, with the headers of its segment.
        terminate: Terminate,
    },
    /// Memory that the peer reads is no longer accessible.
    SourceGone(RegionFault),
    /// The peer sent a Terminate.
    Terminated(Terminate),
    /// Failure of the lower layer (RFC 5044, section 8).
    Lower(Option<TerminateCode>),
    /// The connection was closed.
    Closed,
    /// The peer is gone or cannot be reached.
    Unreachable,
    /// RNR timeout: the peer posted no receive for a message of this side in time.
    NoReceive {
        /// Sequence number of the request.
        seq: u32,
    },
}

impl StreamFault {
    /// The fault of a segment that the DDP layer cannot parse.
    pub(crate) fn ddp(error: DdpError, ulpdu: &[u8]) -> Self {
        Self::peer(error.terminate_code(), ulpdu, false)
    }

    /// Fault of segment `ulpdu`; `request` if it holds a Read Request to quote.
    pub(crate) fn peer(code: TerminateCode, ulpdu: &[u8], request: bool) -> Self {
        let terminate = about(code, ulpdu, request);
        Self::PeerMisbehaved { terminate, receive: None }
    }

    /// The same, for a fault that fails the receive being filled.
    pub(crate) fn receive(code: TerminateCode, ulpdu: &[u8], status: WcStatus) -> Self {
        let terminate = about(code, ulpdu, false);
        Self::PeerMisbehaved { terminate, receive: Some(status) }
    }

    /// Whether the only fault is a missing receive.
    pub(crate) fn lacks_receive(&self) -> bool {
        matches!(self, Self::PeerMisbehaved { terminate, .. }
            if terminate.code == TerminateCode::UntaggedNoBuffer)
    }

    /// Whether it is about what an application asked for: its keys, rights and lengths. A peer that
    /// breaks the protocol itself is not served any further.
    pub(crate) fn is_of_application(&self) -> bool {
        let Self::PeerMisbehaved { terminate, .. } = self else { return false };
        let code = terminate.code;
        status_for(code) == WcStatus::RemAccessErr
            || matches!(
                code,
                TerminateCode::UntaggedInvalidQn
                    | TerminateCode::UntaggedNoBuffer
                    | TerminateCode::UntaggedTooLong
                    | TerminateCode::RdmapStreamCatastrophic
                    | TerminateCode::RdmapCannotInvalidate
                    | TerminateCode::RdmapInvalidateFailed
            )
    }

    /// Terminate message for the peer; `None` if the peer has closed or ended the stream, or is not
    /// to hear: adapters tell nobody of a request that fails before it is sent.
    pub(crate) fn terminate(&self, lower: LlpKind) -> Option<Terminate> {
        match self {
            Self::Request { .. } | Self::SinkGone { .. } if lower == LlpKind::Shuttle => None,
            Self::PeerMisbehaved { terminate, .. } | Self::SinkGone { terminate, .. } => {
                Some(*terminate)
            }
            Self::Request { .. } => Some(Terminate::bare(TerminateCode::RdmapCatastrophic)),
            Self::SourceGone(fault) => Some(Terminate::bare(read_code(*fault))),
            Self::Lower(code) => code.map(Terminate::bare),
            Self::Terminated(_) | Self::Closed | Self::Unreachable | Self::NoReceive { .. } => None,
        }
    }

    /// What the log says of it.
    pub(crate) fn reason(&self) -> QpFailure {
        match self {
            Self::PeerMisbehaved { terminate, .. } => {
                QpFailure::PeerMisbehaved(terminate.code.to_word())
            }
            Self::Request { status, .. } => QpFailure::Request(*status),
            Self::SinkGone { .. } => QpFailure::Request(WcStatus::LocProtErr),
            Self::SourceGone(_) => QpFailure::MemoryGone,
            Self::Terminated(terminate) => QpFailure::Refused(terminate.code.to_word()),
            Self::Lower(_) => QpFailure::Transport,
            Self::Closed => QpFailure::PeerClosed,
            Self::Unreachable => QpFailure::Unreachable,
            Self::NoReceive { .. } => QpFailure::NoReceive,
        }
    }

    /// Asynchronous event for the application. An RNIC is told of its peer's refusal by a message,
    /// other adapters by the completion of the request alone.
    pub fn event(&self, lower: LlpKind) -> Option<AsyncKind> {
        match self {
            Self::PeerMisbehaved { terminate, receive } => match (terminate.code, receive) {
                // Misaligned Atomic.
                (TerminateCode::RdmapStreamCatastrophic, None) => Some(AsyncKind::QpReqErr),
                (code, _) => Some(event_for(code)),
            },
            Self::SourceGone(_) => Some(AsyncKind::QpAccessErr),
            Self::Request { .. }
            | Self::SinkGone { .. }
            | Self::Closed
            | Self::Unreachable
            | Self::NoReceive { .. } => None,
            Self::Terminated(_) => (lower == LlpKind::Mpa).then_some(AsyncKind::QpFatal),
            Self::Lower(_) => Some(AsyncKind::QpFatal),
        }
    }

    /// Completes the requests that the fault is about; the rest is flushed after it.
    pub(crate) fn report(&self, stream: &mut RdmapStream, qp: &Qp) {
        match self {
            Self::Request { seq, status } => {
                qp.sq().fail(*seq, qp.num(), qp.send_cq(), *status, 0);
            }
            Self::SinkGone { seq, .. } => {
                qp.sq().fail(*seq, qp.num(), qp.send_cq(), WcStatus::LocProtErr, 0);
            }
            Self::NoReceive { seq } => {
                qp.sq().fail(*seq, qp.num(), qp.send_cq(), WcStatus::RnrRetryExcErr, 0);
            }
            Self::PeerMisbehaved { receive: Some(status), .. } => {
                if let Some(Receiving { wqe: Some(wqe), .. }) = stream.receiving.pop_front() {
                    qp.fail_recv(&wqe, *status);
                }
            }
            Self::Terminated(terminate) => blame(stream, qp, terminate),
            Self::Unreachable => {
                let mut sq = qp.sq();
                let tail = sq.tail();
                sq.fail(tail, qp.num(), qp.send_cq(), WcStatus::RetryExcErr, 0);
            }
            _ => {}
        }
    }
}

/// Fails the request that the peer's Terminate is about. If its headers identify it, earlier
/// requests are complete. Otherwise a refused Read is the oldest outstanding one, and anything else
/// the oldest incomplete request.
fn blame(stream: &mut RdmapStream, qp: &Qp, terminate: &Terminate) {
    let mut sq = qp.sq();
    let known = match (stream.config.lower, terminate.ddp, terminate.rdmap) {
        // The peer's close acknowledged everything before the refused segment.
        (LlpKind::Shuttle, ..) => sq.find(SendWqe::is_out),
        (LlpKind::Mpa, Some(quoted), _) => match DdpHeader::parse(quoted.as_bytes()) {
            // Not every RNIC counts the length as others do.
            Ok((header, _)) => sq
                .find(|wqe| is_of(wqe, &header, terminate.segment_len))
                .or_else(|| sq.find(|wqe| is_of(wqe, &header, None))),
            Err(_) => None,
        },
        (LlpKind::Mpa, None, Some(quoted)) => match ReadRequest::parse(&quoted) {
            Ok(request) => sq.find(|wqe| asks_for(wqe, &request)),
            Err(_) => None,
        },
        (LlpKind::Mpa, None, None) => None,
    };
    if let Some(seq) = known {
        sq.confirmed(seq.wrapping_sub(1));
    }
    let waiting = stream.outbound.front().and_then(|r| r.seq);
    let guess = waiting.or_else(|| (!sq.is_idle()).then(|| sq.tail()));
    let Some(seq) = known.or(guess) else { return };
    let status = match sq.get(seq).op {
        SendOp::FetchAdd { to, .. } | SendOp::CmpSwap { to, .. } if !to.is_multiple_of(8) => {
            WcStatus::RemInvReqErr
        }
        _ => status_for(terminate.code),
    };
    let code = u32::from(terminate.code.to_word());
    sq.fail(seq, qp.num(), qp.send_cq(), status, code);
}

/// Whether it is a Read of that memory.
fn asks_for(wqe: &SendWqe, request: &ReadRequest) -> bool {
    let memory = (request.src_to, request.src_stag.0);
    matches!(wqe.op, SendOp::Read { to, stag } if (to, stag) == memory)
}

/// Whether a segment with this header, and of so many bytes with it, may belong to this request.
fn is_of(wqe: &SendWqe, header: &DdpHeader, segment_len: Option<u16>) -> bool {
    match (header, wqe.op) {
        (
            DdpHeader::Tagged(header),
            SendOp::Write { to, stag } | SendOp::WriteImm { to, stag, .. },
        ) => {
            let offset = header.to.wrapping_sub(to);
            header.stag.0 == stag && may_hold(wqe.len, offset, header.last, segment_len)
        }
        (DdpHeader::Untagged(header), op) => {
            let queue = if op.awaits_response() { 1 } else { 0 };
            let numbered = op.awaits_response() || op.takes_receive();
            numbered && header.qn == queue && header.msn.0 == wqe.msn
        }
        _ => false,
    }
}

/// Whether a Write of `len` bytes may have a segment of `segment_len` bytes at `offset`: the last
/// one ends with the Write, and none but the first is empty. Linux `siw` counts the payload alone.
fn may_hold(len: u32, offset: u64, last: bool, segment_len: Option<u16>) -> bool {
    let len = u64::from(len);
    let Some(segment_len) = segment_len.map(u64::from) else {
        return offset < len || (offset, len) == (0, 0);
    };
    let counted = [segment_len.checked_sub(TAGGED_LEN as u64), Some(segment_len)];
    counted.into_iter().flatten().any(|payload| {
        let end = offset.saturating_add(payload);
        (offset == 0 || payload > 0) && if last { end == len } else { end < len }
    })
}

/// Completion status of a request that the peer refused.
fn status_for(code: TerminateCode) -> WcStatus {
    use TerminateCode as T;
    match code {
        T::RdmapInvalidStag
        | T::RdmapBounds
        | T::RdmapAccess
        | T::RdmapNotAssociated
        | T::RdmapToWrap
        | T::TaggedInvalidStag
        | T::TaggedBounds
        | T::TaggedNotAssociated
        | T::TaggedToWrap => WcStatus::RemAccessErr,
        T::UntaggedInvalidQn
        | T::UntaggedNoBuffer
        | T::UntaggedInvalidMsn
        | T::UntaggedInvalidMo
        | T::UntaggedTooLong
        | T::RdmapUnexpectedOpcode => WcStatus::RemInvReqErr,
        _ => WcStatus::RemOpErr,
    }
}

fn event_for(code: TerminateCode) -> AsyncKind {
    match status_for(code) {
        WcStatus::RemAccessErr => AsyncKind::QpAccessErr,
        WcStatus::RemInvReqErr => AsyncKind::QpReqErr,
        _ => AsyncKind::QpFatal,
    }
}

/// Terminate code for a refused tagged segment (RFC 5041, section 7.2). DDP has none for a missing
/// right.
pub(crate) fn tagged_code(fault: RegionFault) -> TerminateCode {
    match fault {
        RegionFault::InvalidStag => TerminateCode::TaggedInvalidStag,
        RegionFault::WrongPd => TerminateCode::TaggedNotAssociated,
        RegionFault::Wrap => TerminateCode::TaggedToWrap,
        RegionFault::Bounds => TerminateCode::TaggedBounds,
        RegionFault::Access => TerminateCode::RdmapAccess,
    }
}

/// Terminate code for a refused Read or Atomic (RFC 5040, section 4.8).
pub(crate) fn read_code(fault: RegionFault) -> TerminateCode {
    match fault {
        RegionFault::InvalidStag => TerminateCode::RdmapInvalidStag,
        RegionFault::WrongPd => TerminateCode::RdmapNotAssociated,
        RegionFault::Wrap => TerminateCode::RdmapToWrap,
        RegionFault::Bounds => TerminateCode::RdmapBounds,
        RegionFault::Access => TerminateCode::RdmapAccess,
    }
}

/// Terminate code for a key that a Send may not invalidate (RFC 5040, section 4.8).
pub(crate) fn invalidate_code(fault: RegionFault) -> TerminateCode {
    match fault {
        RegionFault::WrongPd | RegionFault::Access => TerminateCode::RdmapCannotInvalidate,
        _ => TerminateCode::RdmapInvalidateFailed,
    }
}

/// The Terminate for the segment `ulpdu`, with the headers that RFC 5040 section 4.8 (figure 10)
/// asks for: none for errors of the lower layer and of this side, the Read Request's own only
/// when it was refused.
fn about(code: TerminateCode, ulpdu: &[u8], request: bool) -> Terminate {
    let word = code.to_word();
    let (layer, etype) = (word >> 12, word >> 8 & 0xf);
    if layer == 2 || etype == 0 {
        return Terminate::bare(code);
    }
    let quoted = request && layer == 0 && etype == 1;
    let rdmap =
        quoted.then(|| ulpdu.get(UNTAGGED_LEN..)?.first_chunk::<READ_REQUEST_LEN>().copied());
    Terminate {
        code,
        segment_len: Some(ulpdu.len() as u16),
        ddp: HeaderCopy::of(ulpdu),
        rdmap: rdmap.flatten(),
    }
}

/// Whether a message of this kind quotes a Read Request header in a Terminate.
pub(crate) fn quotes_request(opcode: Opcode) -> bool {
    opcode == Opcode::ReadRequest
}
