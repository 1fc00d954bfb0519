//! DDP segment headers (RFC 5041, section 4) with the octets they reserve for RDMAP.
//!
//! [`DdpHeader::parse`] splits a ULPDU once; everything above works on the parsed value. A parsed
//! header has DDP version 1.

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{Msn, QN_ATOMIC_RESPONSE, QN_SEND, QN_SHARED, STag};
use crate::rdmap::{self, Opcode, RdmapControl};
use crate::terminate::TerminateCode;

/// Octets of a tagged header.
pub const TAGGED_LEN: usize = 14;
/// Octets of an untagged header.
pub const UNTAGGED_LEN: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

/// RFC 5041, section 4.2, figure 4.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TaggedWire {
    ddp: u8,
    ulp: u8,
    stag: U32,
    to: U64,
}
const _: () = assert!(size_of::<TaggedWire>() == TAGGED_LEN);

/// RFC 5041, section 4.3, figure 5; RDMAP splits RsvdULP into its control octet and an STag.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct UntaggedWire {
    ddp: u8,
    ulp: u8,
    ulp_stag: U32,
    qn: U32,
    msn: U32,
    mo: U32,
}
const _: () = assert!(size_of::<UntaggedWire>() == UNTAGGED_LEN);

/// Why a ULPDU has no usable DDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DdpError {
    /// The ULPDU ends inside its header.
    #[error("segment of {0} octets is shorter than its DDP header")]
    Short(usize),
    /// A tagged segment of another DDP version.
    #[error("tagged segment of DDP version {0}")]
    TaggedVersion(u8),
    /// An untagged segment of another DDP version.
    #[error("untagged segment of DDP version {0}")]
    UntaggedVersion(u8),
}

impl DdpError {
    /// The Terminate that answers it. No RFC names one for a short segment; a broken frame of the
    /// LLP is what other stacks report.
    pub fn terminate_code(self) -> TerminateCode {
        match self {
            Self::Short(_) => TerminateCode::LlpFraming,
            Self::TaggedVersion(_) => TerminateCode::TaggedVersion,
            Self::UntaggedVersion(_) => TerminateCode::UntaggedVersion,
        }
    }
}

/// The header of a segment that names its target buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedHeader {
    /// Last segment of its message.
    pub last: bool,
    /// The RDMAP control octet, see [`RdmapControl`].
    pub control: u8,
    /// The target buffer.
    pub stag: STag,
    /// Tagged offset of the first payload octet.
    pub to: u64,
}

impl TaggedHeader {
    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; TAGGED_LEN] {
        zerocopy::transmute!(TaggedWire {
            ddp: TAGGED | first_octet(self.last),
            ulp: self.control,
            stag: self.stag.0.into(),
            to: self.to.into(),
        })
    }
}

/// The header of a segment that goes to the next buffer of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntaggedHeader {
    /// Last segment of its message.
    pub last: bool,
    /// The RDMAP control octet, see [`RdmapControl`].
    pub control: u8,
    /// The STag to invalidate if the opcode says so; otherwise zero on send, ignored on receipt.
    pub ulp: u32,
    /// The queue.
    pub qn: u32,
    /// The message within its queue.
    pub msn: Msn,
    /// Octets of the message before this segment.
    pub mo: u32,
}

impl UntaggedHeader {
    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; UNTAGGED_LEN] {
        zerocopy::transmute!(UntaggedWire {
            ddp: first_octet(self.last),
            ulp: self.control,
            ulp_stag: self.ulp.into(),
            qn: self.qn.into(),
            msn: self.msn.0.into(),
            mo: self.mo.into(),
        })
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DdpHeader {
    /// Of an RDMA Write or a Read Response.
    Tagged(TaggedHeader),
    /// Of everything else.
    Untagged(UntaggedHeader),
}

impl DdpHeader {
    /// Splits `ulpdu` into its header and the rest.
    pub fn parse(ulpdu: &[u8]) -> Result<(Self, &[u8]), DdpError> {
        let short = DdpError::Short(ulpdu.len());
        let first = *ulpdu.first().ok_or(short)?;
        let (last, version) = (first & LAST != 0, first & VERSION_MASK);
        if is_tagged(first) {
            let (wire, rest) = TaggedWire::ref_from_prefix(ulpdu).map_err(|_| short)?;
            if version != VERSION {
                return Err(DdpError::TaggedVersion(version));
            }
            Ok((Self::Tagged(TaggedHeader::from_wire(wire, last)), rest))
        } else {
            let (wire, rest) = UntaggedWire::ref_from_prefix(ulpdu).map_err(|_| short)?;
            if version != VERSION {
                return Err(DdpError::UntaggedVersion(version));
            }
            Ok((Self::Untagged(UntaggedHeader::from_wire(wire, last)), rest))
        }
    }

    /// What kind of message this is, once version, opcode, T bit and queue agree with each other
    /// (RFC 5041, section 7.2; RFC 5040, sections 4.3 and 7.1). Whether there is a queue from
    /// [`QN_SHARED`] on is for the receiver to say.
    pub fn opcode(&self) -> Result<Opcode, TerminateCode> {
        if let Self::Untagged(header) = self
            && (QN_ATOMIC_RESPONSE + 1..QN_SHARED).contains(&header.qn)
        {
            return Err(TerminateCode::UntaggedInvalidQn);
        }
        let control = RdmapControl::parse(self.control());
        if control.version != rdmap::VERSION {
            return Err(TerminateCode::RdmapVersion);
        }
        let queue = match self {
            Self::Tagged(_) => None,
            Self::Untagged(header) if header.qn >= QN_SHARED => Some(QN_SEND),
            Self::Untagged(header) => Some(header.qn),
        };
        match control.opcode {
            Ok(opcode) if opcode.queue() == queue => Ok(opcode),
            _ => Err(TerminateCode::RdmapUnexpectedOpcode),
        }
    }

    /// Whether this is the last segment of its message.
    pub fn last(&self) -> bool {
        match self {
            Self::Tagged(header) => header.last,
            Self::Untagged(header) => header.last,
        }
    }

    /// The RDMAP control octet.
    pub fn control(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.control,
            Self::Untagged(header) => header.control,
        }
    }
}

impl TaggedHeader {
    fn from_wire(wire: &TaggedWire, last: bool) -> Self {
        Self { last, control: wire.ulp, stag: STag(wire.stag.get()), to: wire.to.get() }
    }
}

impl UntaggedHeader {
    fn from_wire(wire: &UntaggedWire, last: bool) -> Self {
        Self {
            last,
            control: wire.ulp,
            ulp: wire.ulp_stag.get(),
            qn: wire.qn.get(),
            msn: Msn(wire.msn.get()),
            mo: wire.mo.get(),
        }
    }
}

/// Whether the header that starts with `first` is one of a tagged segment, whatever its version.
pub const fn is_tagged(first: u8) -> bool {
    first & TAGGED != 0
}

/// Octets of the header that starts with `first`, whatever its version.
pub const fn header_len(first: u8) -> usize {
    if is_tagged(first) { TAGGED_LEN } else { UNTAGGED_LEN }
}

fn first_octet(last: bool) -> u8 {
    VERSION | if last { LAST } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::QN_READ_REQUEST;

    fn untagged(opcode: Opcode, qn: u32) -> UntaggedHeader {
        UntaggedHeader { last: true, control: opcode.control(), ulp: 0, qn, msn: Msn::FIRST, mo: 0 }
    }

    #[test]
    fn every_cut_of_a_header_is_short() {
        let bytes = untagged(Opcode::Send, QN_SEND).to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(DdpHeader::parse(&bytes[..len]), Err(DdpError::Short(len)));
        }
        assert!(DdpHeader::parse(&bytes).is_ok());
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let header = untagged(Opcode::Send, QN_SEND);
        let mut bytes = header.to_bytes();
        bytes[0] |= 0x3c;
        assert_eq!(DdpHeader::parse(&bytes), Ok((DdpHeader::Untagged(header), &[][..])));
    }

    #[test]
    fn the_version_error_names_the_kind_of_segment() {
        let mut bytes = untagged(Opcode::Send, QN_SEND).to_bytes();
        bytes[0] = 0x42;
        assert_eq!(DdpHeader::parse(&bytes), Err(DdpError::UntaggedVersion(2)));
        bytes[0] = 0xc0;
        assert_eq!(DdpHeader::parse(&bytes), Err(DdpError::TaggedVersion(0)));
    }

    #[test]
    fn an_opcode_on_the_wrong_queue_is_unexpected() {
        let header = DdpHeader::Untagged(untagged(Opcode::Send, QN_READ_REQUEST));
        assert_eq!(header.opcode(), Err(TerminateCode::RdmapUnexpectedOpcode));
        let header = DdpHeader::Untagged(untagged(Opcode::Send, 4));
        assert_eq!(header.opcode(), Err(TerminateCode::UntaggedInvalidQn));
        let header = DdpHeader::Untagged(untagged(Opcode::ReadRequest, QN_SHARED | 9));
        assert_eq!(header.opcode(), Err(TerminateCode::RdmapUnexpectedOpcode));
        let header = DdpHeader::Untagged(untagged(Opcode::Immediate, QN_SHARED | 9));
        assert_eq!(header.opcode(), Ok(Opcode::Immediate));
        let header = DdpHeader::Untagged(untagged(Opcode::ReadRequest, QN_READ_REQUEST));
        assert_eq!(header.opcode(), Ok(Opcode::ReadRequest));
    }
}
