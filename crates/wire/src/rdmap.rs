//! RDMAP: the control octet and the headers that follow the DDP header (RFC 5040, section 4;
//! RFC 7306, sections 5 and 6).

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{QN_ATOMIC_RESPONSE, QN_READ_REQUEST, QN_SEND, QN_TERMINATE, STag};

/// The version of RDMAP that is spoken here.
pub const VERSION: u8 = 1;
/// Octets of a Read Request header.
pub const READ_REQUEST_LEN: usize = 28;
/// Octets of an Atomic Request header.
pub const ATOMIC_REQUEST_LEN: usize = 52;
/// Octets of an Atomic Response header.
pub const ATOMIC_RESPONSE_LEN: usize = 12;
/// Octets of Immediate Data.
pub const IMMEDIATE_LEN: usize = 8;

/// The kind of a message (RFC 5040, figure 4; RFC 7306, figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Data for a buffer of the peer.
    Write = 0,
    /// Asks for the content of a buffer of the peer.
    ReadRequest = 1,
    /// Answers a Read Request.
    ReadResponse = 2,
    /// Data for the next posted receive.
    Send = 3,
    /// Send that also invalidates an STag of the receiver.
    SendInvalidate = 4,
    /// Send with solicited event.
    SendSolicited = 5,
    /// Send with solicited event that also invalidates.
    SendSolicitedInvalidate = 6,
    /// Says why the stream ends.
    Terminate = 7,
    /// Eight octets for the completion of the next posted receive.
    Immediate = 8,
    /// Immediate Data with solicited event.
    ImmediateSolicited = 9,
    /// Asks for an atomic operation on eight octets of the peer.
    AtomicRequest = 10,
    /// Answers an Atomic Request.
    AtomicResponse = 11,
    /// Send with four octets for its completion in the DDP header. Over Shuttle only: RFC 5040
    /// reserves the number.
    SendImmediate = 14,
    /// The same with solicited event.
    SendSolicitedImmediate = 15,
}

impl Opcode {
    /// Every opcode; those below 12 stand at their number.
    pub const ALL: [Self; 14] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
        Self::SendImmediate,
        Self::SendSolicitedImmediate,
    ];

    /// The control octet that announces this message.
    pub const fn control(self) -> u8 {
        VERSION << 6 | self as u8
    }

    /// The queue that the message uses; `None` for the tagged ones.
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(QN_READ_REQUEST),
            Self::Terminate => Some(QN_TERMINATE),
            Self::AtomicResponse => Some(QN_ATOMIC_RESPONSE),
            _ => Some(QN_SEND),
        }
    }

    /// Whether the message travels in tagged segments.
    pub const fn is_tagged(self) -> bool {
        self.queue().is_none()
    }

    /// Whether the receiver is to raise a solicited event.
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited
                | Self::SendSolicitedInvalidate
                | Self::ImmediateSolicited
                | Self::SendSolicitedImmediate
        )
    }

    /// Whether the message invalidates the STag in its DDP header.
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// Whether the DDP header of the Send brings immediate data.
    pub const fn brings_immediate(self) -> bool {
        matches!(self, Self::SendImmediate | Self::SendSolicitedImmediate)
    }
}

/// The RDMAP control octet, RFC 5040, section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmapControl {
    /// The sender's version of RDMAP.
    pub version: u8,
    /// The kind of message, or the number that stands for none.
    pub opcode: Result<Opcode, u8>,
}

impl RdmapControl {
    /// Reads the octet; the reserved bits are ignored.
    pub fn parse(octet: u8) -> Self {
        let number = octet & 0x0f;
        let opcode = match usize::from(number) {
            at @ ..12 => Ok(Opcode::ALL[at]),
            14 => Ok(Opcode::SendImmediate),
            15 => Ok(Opcode::SendSolicitedImmediate),
            _ => Err(number),
        };
        Self { version: octet >> 6, opcode }
    }
}

/// The ULPDU ends inside the header of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message is shorter than its header")]
pub struct ShortMessage;

/// What a Read asks for, RFC 5040, section 4.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Buffer of the requester.
    pub sink_stag: STag,
    /// Where in it the response goes.
    pub sink_to: u64,
    /// Octets to read.
    pub size: u32,
    /// Buffer of the responder.
    pub src_stag: STag,
    /// Where in it reading starts.
    pub src_to: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReadRequestWire {
    sink_stag: U32,
    sink_to: U64,
    size: U32,
    src_stag: U32,
    src_to: U64,
}
const _: () = assert!(size_of::<ReadRequestWire>() == READ_REQUEST_LEN);

impl ReadRequest {
    /// Reads the header at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ShortMessage> {
        let (wire, _) = ReadRequestWire::ref_from_prefix(bytes).map_err(|_| ShortMessage)?;
        Ok(Self {
            sink_stag: STag(wire.sink_stag.get()),
            sink_to: wire.sink_to.get(),
            size: wire.size.get(),
            src_stag: STag(wire.src_stag.get()),
            src_to: wire.src_to.get(),
        })
    }

    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; READ_REQUEST_LEN] {
        zerocopy::transmute!(ReadRequestWire {
            sink_stag: self.sink_stag.0.into(),
            sink_to: self.sink_to.into(),
            size: self.size.into(),
            src_stag: self.src_stag.0.into(),
            src_to: self.src_to.into(),
        })
    }
}

/// An atomic operation, RFC 7306, figure 5. Number 1 is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicOp {
    /// Adds, field by field as the mask divides the word.
    FetchAdd = 0,
    /// Swaps the masked bits if the other masked bits are as compared.
    CompareSwap = 2,
}

/// What an Atomic asks for, RFC 7306, section 5.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The operation, or the number that stands for none.
    pub op: Result<AtomicOp, u8>,
    /// The requester's name for it, copied into the response.
    pub id: u32,
    /// Buffer of the responder.
    pub stag: STag,
    /// Offset of the eight octets.
    pub to: u64,
    /// What to add or to put in place.
    pub data: u64,
    /// FetchAdd: the most significant bit of each field. CompareSwap: the bits to replace.
    pub mask: u64,
    /// What to compare with; zero for FetchAdd.
    pub compare: u64,
    /// The bits to compare; all ones for FetchAdd.
    pub compare_mask: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AtomicRequestWire {
    op: U32,
    id: U32,
    stag: U32,
    to: U64,
    data: U64,
    mask: U64,
    compare: U64,
    compare_mask: U64,
}
const _: () = assert!(size_of::<AtomicRequestWire>() == ATOMIC_REQUEST_LEN);

impl AtomicRequest {
    /// Reads the header at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ShortMessage> {
        let (wire, _) = AtomicRequestWire::ref_from_prefix(bytes).map_err(|_| ShortMessage)?;
        let op = match wire.op.get() as u8 & 0x0f {
            0 => Ok(AtomicOp::FetchAdd),
            2 => Ok(AtomicOp::CompareSwap),
            number => Err(number),
        };
        Ok(Self {
            op,
            id: wire.id.get(),
            stag: STag(wire.stag.get()),
            to: wire.to.get(),
            data: wire.data.get(),
            mask: wire.mask.get(),
            compare: wire.compare.get(),
            compare_mask: wire.compare_mask.get(),
        })
    }

    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; ATOMIC_REQUEST_LEN] {
        let op = self.op.map_or_else(|number| number, |op| op as u8);
        zerocopy::transmute!(AtomicRequestWire {
            op: u32::from(op).into(),
            id: self.id.into(),
            stag: self.stag.0.into(),
            to: self.to.into(),
            data: self.data.into(),
            mask: self.mask.into(),
            compare: self.compare.into(),
            compare_mask: self.compare_mask.into(),
        })
    }
}

/// What an Atomic found, RFC 7306, section 5.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The `id` of the request.
    pub id: u32,
    /// The value before the operation.
    pub value: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AtomicResponseWire {
    id: U32,
    value: U64,
}
const _: () = assert!(size_of::<AtomicResponseWire>() == ATOMIC_RESPONSE_LEN);

impl AtomicResponse {
    /// Reads the header at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ShortMessage> {
        let (wire, _) = AtomicResponseWire::ref_from_prefix(bytes).map_err(|_| ShortMessage)?;
        Ok(Self { id: wire.id.get(), value: wire.value.get() })
    }

    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; ATOMIC_RESPONSE_LEN] {
        zerocopy::transmute!(AtomicResponseWire { id: self.id.into(), value: self.value.into() })
    }
}

/// The payload of Immediate Data, RFC 7306, section 6.2.
///
/// The RFC does not say where the 32 bits of a verbs `imm_data` go; they are the first four
/// octets, in the byte order the application gave them, and the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmediateData(pub [u8; IMMEDIATE_LEN]);

impl ImmediateData {
    /// Carries a verbs `imm_data`, given as it stands in memory.
    pub fn from_verbs(imm: u32) -> Self {
        let [a, b, c, d] = imm.to_ne_bytes();
        Self([a, b, c, d, 0, 0, 0, 0])
    }

    /// The same with the octets of the Write that it follows, for a receiver that saw its
    /// segments in any order. Over Shuttle only.
    pub fn with_length(self, octets: u32) -> Self {
        let [a, b, c, d, ..] = self.0;
        let [e, f, g, h] = octets.to_be_bytes();
        Self([a, b, c, d, e, f, g, h])
    }

    /// The octets of the Write, where the sender tells them.
    pub fn length(self) -> u32 {
        let [.., e, f, g, h] = self.0;
        u32::from_be_bytes([e, f, g, h])
    }

    /// The verbs `imm_data`, as it is to stand in memory.
    pub fn to_verbs(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_ne_bytes([a, b, c, d])
    }

    /// Reads the data at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ShortMessage> {
        bytes.first_chunk().copied().map(Self).ok_or(ShortMessage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_octets_round_trip() {
        for opcode in Opcode::ALL {
            let control = RdmapControl::parse(opcode.control() | 0x30);
            assert_eq!(control, RdmapControl { version: VERSION, opcode: Ok(opcode) });
        }
        assert_eq!(RdmapControl::parse(0x8c), RdmapControl { version: 2, opcode: Err(12) });
    }

    #[test]
    fn headers_shorter_than_they_should_be() {
        let bytes = [0; ATOMIC_REQUEST_LEN];
        assert_eq!(ReadRequest::parse(&bytes[..READ_REQUEST_LEN - 1]), Err(ShortMessage));
        assert_eq!(AtomicRequest::parse(&bytes[..ATOMIC_REQUEST_LEN - 1]), Err(ShortMessage));
        assert_eq!(AtomicResponse::parse(&bytes[..ATOMIC_RESPONSE_LEN - 1]), Err(ShortMessage));
        assert_eq!(ImmediateData::parse(&bytes[..IMMEDIATE_LEN - 1]), Err(ShortMessage));
    }

    #[test]
    fn a_reserved_atomic_operation_is_kept_apart() {
        let mut bytes = [0; ATOMIC_REQUEST_LEN];
        bytes[3] = 0xf1;
        assert_eq!(AtomicRequest::parse(&bytes).map(|request| request.op), Ok(Err(1)));
    }

    #[test]
    fn immediate_data_of_verbs_keeps_its_octets() {
        let imm = u32::from_ne_bytes([0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(ImmediateData::from_verbs(imm).0, [0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0]);
        assert_eq!(ImmediateData::from_verbs(imm).to_verbs(), imm);
        let told = ImmediateData::from_verbs(imm).with_length(0x0102_0304);
        assert_eq!(told.0, [0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4]);
        assert_eq!((told.to_verbs(), told.length()), (imm, 0x0102_0304));
    }
}
