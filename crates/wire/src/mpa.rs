//! The start frames of MPA (RFC 5044, section 7.1.1) and the connection block that RFC 6581 puts
//! at the head of their private data.
//!
//! A reader takes [`HEADER_LEN`] octets, asks [`frame_len`] how long the frame is, takes the rest
//! and parses; so it never takes octets that belong to the first FPDU.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Octets of a start frame before its private data.
pub const HEADER_LEN: usize = 20;
/// The most private data a frame may carry, the block of RFC 6581 included.
pub const MAX_PRIVATE_DATA: usize = 512;
/// Octets of the block of RFC 6581.
pub const ENHANCED_LEN: usize = 4;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Which of the two start frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartKind {
    /// Initiator to responder.
    Request,
    /// Responder to initiator.
    Reply,
}

impl StartKind {
    /// The 16 octets that begin the frame.
    pub const fn key(self) -> &'static [u8; 16] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// RFC 5044, section 7.1.1, figure 8.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StartWire {
    key: [u8; 16],
    flags: u8,
    revision: u8,
    private_data_len: U16,
}
const _: () = assert!(size_of::<StartWire>() == HEADER_LEN);

/// Why octets are not the expected start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Not the key of the expected frame; the other frame's key means that both ends took the
    /// same role.
    #[error("not the expected start frame")]
    Key,
    /// More private data than MPA allows.
    #[error("start frame declares {0} octets of private data")]
    TooMuchPrivateData(usize),
    /// The frame is not as long as it says.
    #[error("start frame has {0} octets, which is not what it declares")]
    Length(usize),
    /// RFC 6581 is announced and its block does not fit.
    #[error("start frame announces a connection block that it has no room for")]
    NoBlock,
}

/// Whole length of the frame that starts with `header`.
///
/// Linux siw stores the length of private data in eight bits: with 252 to 255 octets from the
/// application and the block before them it declares 0 to 3, and sends everything. Those shapes
/// get their true length, 256 more: a Request with nothing but S set, revision 2 and fewer than
/// four octets declared, and a Reply that accepts, with S set, revision 2 and none declared,
/// because siw accepts with 252 octets at most. (It rejects with a block announced and nothing
/// behind it for other reasons, too.) A peer that really meant it has a malformed frame in any
/// case, and waits until the reader's timer closes.
pub fn frame_len(header: &[u8; HEADER_LEN], kind: StartKind) -> Result<usize, StartError> {
    let wire: &StartWire = zerocopy::transmute_ref!(header);
    if wire.key != *kind.key() {
        return Err(StartError::Key);
    }
    let declared = usize::from(wire.private_data_len.get());
    if declared > MAX_PRIVATE_DATA {
        return Err(StartError::TooMuchPrivateData(declared));
    }
    let wrapped = wire.revision == 2
        && match kind {
            StartKind::Request => wire.flags == ENHANCED && declared < ENHANCED_LEN,
            StartKind::Reply => wire.flags & (ENHANCED | REJECT) == ENHANCED && declared == 0,
        };
    Ok(HEADER_LEN + declared + if wrapped { 256 } else { 0 })
}

/// A start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartFrame<'a> {
    /// Request or Reply.
    pub kind: StartKind,
    /// M: the receiver of this frame must put markers into what it sends.
    pub markers: bool,
    /// C: the sender of this frame wants CRCs, in both directions.
    pub crc: bool,
    /// R: the connection is refused. Meaningless in a Request.
    pub reject: bool,
    /// S: private data begins with the block of RFC 6581.
    pub enhanced: bool,
    /// Revision of MPA.
    pub revision: u8,
    /// Private data with the block, if there is one.
    pub private_data: &'a [u8],
}

impl<'a> StartFrame<'a> {
    /// Reads `bytes`, which must be exactly one frame. Reserved flags are ignored.
    pub fn parse(bytes: &'a [u8], kind: StartKind) -> Result<Self, StartError> {
        let (header, private_data) =
            bytes.split_first_chunk().ok_or(StartError::Length(bytes.len()))?;
        if frame_len(header, kind)? != bytes.len() {
            return Err(StartError::Length(bytes.len()));
        }
        let wire: &StartWire = zerocopy::transmute_ref!(header);
        Ok(Self {
            kind,
            markers: wire.flags & MARKERS != 0,
            crc: wire.flags & CRC != 0,
            reject: kind == StartKind::Reply && wire.flags & REJECT != 0,
            enhanced: wire.flags & ENHANCED != 0,
            revision: wire.revision,
            private_data,
        })
    }

    /// Appends the frame to `out`. Its private data is of [`MAX_PRIVATE_DATA`] bytes at most.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.private_data.len() <= MAX_PRIVATE_DATA);
        let mut flags = 0;
        flags |= if self.markers { MARKERS } else { 0 };
        flags |= if self.crc { CRC } else { 0 };
        flags |= if self.reject { REJECT } else { 0 };
        flags |= if self.enhanced { ENHANCED } else { 0 };
        let wire = StartWire {
            key: *self.kind.key(),
            flags,
            revision: self.revision,
            private_data_len: (self.private_data.len() as u16).into(),
        };
        out.extend_from_slice(wire.as_bytes());
        out.extend_from_slice(self.private_data);
    }
}

/// The connection block, RFC 6581, section 9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// A: the initiator confirms with a ready-to-receive indication.
    pub peer_to_peer: bool,
    /// B: a zero-length Send may be that indication.
    pub rtr_send: bool,
    /// C: a zero-length Write may be.
    pub rtr_write: bool,
    /// D: a zero-length Read may be.
    pub rtr_read: bool,
    /// Inbound read depth, 14 bits.
    pub ird: u16,
    /// Outbound read depth, 14 bits.
    pub ord: u16,
}

impl Enhanced {
    /// The depth that stands for "not negotiated here".
    pub const UNSPECIFIED: u16 = 0x3fff;

    const HIGH: u16 = 0x8000;
    const LOW: u16 = 0x4000;

    /// Splits private data into the block and what belongs to the application.
    pub fn split(private_data: &[u8]) -> Result<(Self, &[u8]), StartError> {
        let (&[a, b, c, d], rest) =
            private_data.split_first_chunk::<ENHANCED_LEN>().ok_or(StartError::NoBlock)?;
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let block = Self {
            peer_to_peer: ird & Self::HIGH != 0,
            rtr_send: ird & Self::LOW != 0,
            rtr_write: ord & Self::HIGH != 0,
            rtr_read: ord & Self::LOW != 0,
            ird: ird & Self::UNSPECIFIED,
            ord: ord & Self::UNSPECIFIED,
        };
        Ok((block, rest))
    }

    /// The block as it travels; depths beyond 14 bits are cut to the unspecified one.
    pub fn to_bytes(&self) -> [u8; ENHANCED_LEN] {
        let word = |depth: u16, high: bool, low: bool| {
            depth.min(Self::UNSPECIFIED)
                | if high { Self::HIGH } else { 0 }
                | if low { Self::LOW } else { 0 }
        };
        let [a, b] = word(self.ird, self.peer_to_peer, self.rtr_send).to_be_bytes();
        let [c, d] = word(self.ord, self.rtr_write, self.rtr_read).to_be_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flags: u8, revision: u8, declared: u16, follows: usize) -> Vec<u8> {
        let mut bytes = StartKind::Request.key().to_vec();
        bytes.extend([flags, revision]);
        bytes.extend(declared.to_be_bytes());
        bytes.resize(HEADER_LEN + follows, 0x5a);
        bytes
    }

    #[test]
    fn a_length_that_siw_wrapped_is_restored() {
        for user in 252..=255_u16 {
            let bytes = frame(ENHANCED, 2, (user + 4) % 256, usize::from(user) + 4);
            let frame = StartFrame::parse(&bytes, StartKind::Request).unwrap();
            let (_, private_data) = Enhanced::split(frame.private_data).unwrap();
            assert_eq!(private_data.len(), usize::from(user));
        }
    }

    #[test]
    fn so_is_that_of_a_reply_that_accepts() {
        let reply = |flags, revision, declared, follows| {
            let mut bytes = frame(flags, revision, declared, follows);
            bytes[..16].copy_from_slice(StartKind::Reply.key());
            bytes
        };
        let bytes = reply(ENHANCED | CRC, 2, 0, 256);
        let frame = StartFrame::parse(&bytes, StartKind::Reply).unwrap();
        let (_, private_data) = Enhanced::split(frame.private_data).unwrap();
        assert_eq!(private_data.len(), 252);
        for bytes in [
            reply(ENHANCED | REJECT, 2, 0, 0),
            reply(ENHANCED, 2, 3, 3),
            reply(ENHANCED, 1, 0, 0),
            reply(CRC, 2, 0, 0),
        ] {
            assert!(StartFrame::parse(&bytes, StartKind::Reply).is_ok(), "{bytes:02x?}");
        }
    }

    #[test]
    fn only_the_exact_shape_is_restored() {
        let len = |bytes: &[u8]| frame_len(bytes.first_chunk().unwrap(), StartKind::Request);
        assert_eq!(len(&frame(ENHANCED | CRC, 2, 2, 2)), Ok(22));
        assert_eq!(len(&frame(ENHANCED, 1, 2, 2)), Ok(22));
        assert_eq!(len(&frame(0, 2, 2, 2)), Ok(22));
        assert_eq!(len(&frame(ENHANCED, 2, 4, 4)), Ok(24));
    }

    #[test]
    fn a_frame_must_be_as_long_as_it_says() {
        let bytes = frame(CRC, 1, 5, 5);
        for len in 0..bytes.len() {
            let cut = StartFrame::parse(&bytes[..len], StartKind::Request);
            assert_eq!(cut, Err(StartError::Length(len)));
        }
        assert!(StartFrame::parse(&bytes, StartKind::Request).is_ok());
        let long = frame(CRC, 1, 5, 6);
        assert_eq!(StartFrame::parse(&long, StartKind::Request), Err(StartError::Length(26)));
    }

    #[test]
    fn reject_means_nothing_in_a_request() {
        let bytes = frame(REJECT | 0x0f, 1, 0, 0);
        assert!(!StartFrame::parse(&bytes, StartKind::Request).unwrap().reject);
    }

    #[test]
    fn depths_have_fourteen_bits() {
        let block = Enhanced { ird: u16::MAX, ord: 1, rtr_read: true, ..Enhanced::default() };
        assert_eq!(block.to_bytes(), [0x3f, 0xff, 0x40, 0x01]);
    }
}
