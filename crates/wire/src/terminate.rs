//! The Terminate message: why a stream ends (RFC 5040, section 4.8).
//!
//! [`Terminate::encode`] writes the payload that follows the DDP header; [`Terminate::parse`]
//! reads one, also in the form of Linux siw on little-endian hosts, which swaps the nibbles of the
//! first octet and numbers the header bits from the other end.

use crate::ddp;
use crate::rdmap::READ_REQUEST_LEN;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// The cause of a Terminate: layer, error type and error code in one.
        ///
        /// Covers RFC 5040 figure 9, RFC 5041 section 7.2, RFC 5044 section 8 and RFC 6581
        /// section 8.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum TerminateCode {
            $($(#[$doc])* $name,)*
            /// A triple that no RFC defines: layer, type (a nibble each) and code (an octet).
            Unknown(u16),
        }

        impl TerminateCode {
            /// Every defined code, in the order of their words.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Layer, type and code as the first 16 bits of the Terminate Control field.
            pub const fn to_word(self) -> u16 {
                match self {
                    $(Self::$name => $word,)*
                    Self::Unknown(word) => word,
                }
            }

            /// The reverse of [`TerminateCode::to_word`].
            pub const fn from_word(word: u16) -> Self {
                match word {
                    $($word => Self::$name,)*
                    // Local catastrophic errors have no code; any value is acceptable.
                    0x0000..=0x00ff => Self::RdmapCatastrophic,
                    _ => Self::Unknown(word),
                }
            }
        }
    };
}

codes! {
    /// RDMAP: local catastrophic error.
    RdmapCatastrophic = 0x0000,
    /// RDMAP remote protection: the STag names nothing.
    RdmapInvalidStag = 0x0100,
    /// RDMAP remote protection: outside of the buffer.
    RdmapBounds = 0x0101,
    /// RDMAP remote protection: the buffer does not grant the access.
    RdmapAccess = 0x0102,
    /// RDMAP remote protection: the STag belongs to other streams.
    RdmapNotAssociated = 0x0103,
    /// RDMAP remote protection: offset and length exceed 64 bits.
    RdmapToWrap = 0x0104,
    /// RDMAP remote protection: the STag must not be invalidated by this stream.
    RdmapCannotInvalidate = 0x0109,
    /// RDMAP remote protection: something else.
    RdmapProtection = 0x01ff,
    /// RDMAP remote operation: another version of RDMAP.
    RdmapVersion = 0x0205,
    /// RDMAP remote operation: an unknown opcode, or one that is out of place.
    RdmapUnexpectedOpcode = 0x0206,
    /// RDMAP remote operation: catastrophic for this stream; an unaligned atomic.
    RdmapStreamCatastrophic = 0x0207,
    /// RDMAP remote operation: catastrophic for all streams.
    RdmapGlobalCatastrophic = 0x0208,
    /// RDMAP remote operation: the STag cannot be invalidated.
    RdmapInvalidateFailed = 0x0209,
    /// RDMAP remote operation: something else.
    RdmapOperation = 0x02ff,
    /// DDP: local catastrophic error.
    DdpCatastrophic = 0x1000,
    /// DDP tagged buffer: the STag names nothing.
    TaggedInvalidStag = 0x1100,
    /// DDP tagged buffer: outside of the buffer.
    TaggedBounds = 0x1101,
    /// DDP tagged buffer: the STag belongs to other streams.
    TaggedNotAssociated = 0x1102,
    /// DDP tagged buffer: offset and length exceed 64 bits.
    TaggedToWrap = 0x1103,
    /// DDP tagged buffer: another version of DDP.
    TaggedVersion = 0x1104,
    /// DDP untagged buffer: no such queue.
    UntaggedInvalidQn = 0x1201,
    /// DDP untagged buffer: no buffer is posted for the message.
    UntaggedNoBuffer = 0x1202,
    /// DDP untagged buffer: the message number is out of range.
    UntaggedInvalidMsn = 0x1203,
    /// DDP untagged buffer: the message offset is out of place.
    UntaggedInvalidMo = 0x1204,
    /// DDP untagged buffer: the message is longer than the buffer.
    UntaggedTooLong = 0x1205,
    /// DDP untagged buffer: another version of DDP.
    UntaggedVersion = 0x1206,
    /// MPA: TCP connection closed, lost or reset.
    LlpClosed = 0x2001,
    /// MPA: CRC mismatch.
    LlpCrc = 0x2002,
    /// MPA: marker and length disagree; also a frame too short for any segment.
    LlpFraming = 0x2003,
    /// MPA: invalid Request or Reply frame.
    LlpInvalidFrame = 0x2004,
    /// MPA: local catastrophic error (RFC 6581).
    LlpCatastrophic = 0x2005,
    /// MPA: not enough inbound read depth (RFC 6581).
    LlpInsufficientIrd = 0x2006,
    /// MPA: no matching ready-to-receive indication (RFC 6581).
    LlpNoRtr = 0x2007,
}

impl TerminateCode {
    const fn is_defined(self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

/// When a Terminate arrives; decides the few codes that mean two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminatePhase {
    /// As the first message after the start frames: it may carry an error of RFC 6581.
    Setup,
    /// After other messages.
    Operation,
}

/// A Terminate message without its four octets of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("terminate message is cut short")]
pub struct ShortTerminate;

/// A copy of the DDP header of the segment that caused a Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderCopy {
    octets: [u8; ddp::UNTAGGED_LEN],
    len: u8,
}

impl HeaderCopy {
    /// Copies the header at the start of `ulpdu`; `None` if it is not there in full.
    pub fn of(ulpdu: &[u8]) -> Option<Self> {
        let header = ulpdu.get(..ddp::header_len(*ulpdu.first()?))?;
        let mut octets = [0; ddp::UNTAGGED_LEN];
        octets[..header.len()].copy_from_slice(header);
        Some(Self { octets, len: header.len() as u8 })
    }

    /// The header, 14 or 18 octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

/// The payload of a Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The cause.
    pub code: TerminateCode,
    /// Octets of the offending DDP segment. Peers differ in what they count, so it is of no use
    /// beyond diagnostics.
    pub segment_len: Option<u16>,
    /// DDP header of the offending segment; `None` if it cannot be told from others.
    pub ddp: Option<HeaderCopy>,
    /// Read Request header, if that was refused.
    pub rdmap: Option<[u8; READ_REQUEST_LEN]>,
}

const CONTROL_LEN: usize = 4;

/// Which bits of the third octet announce the parts.
struct HeaderBits {
    segment_len: u8,
    ddp: u8,
    rdmap: u8,
}

const RFC_BITS: HeaderBits = HeaderBits { segment_len: 0x80, ddp: 0x40, rdmap: 0x20 };
const SIW_BITS: HeaderBits = HeaderBits { segment_len: 0x01, ddp: 0x02, rdmap: 0x04 };

impl HeaderBits {
    fn any_in(&self, octet: u8) -> bool {
        octet & (self.segment_len | self.ddp | self.rdmap) != 0
    }
}

impl Terminate {
    /// The most octets that [`Terminate::encode`] appends.
    pub const MAX_LEN: usize = CONTROL_LEN + 2 + ddp::UNTAGGED_LEN + READ_REQUEST_LEN;

    /// A Terminate without copies of headers.
    pub const fn bare(code: TerminateCode) -> Self {
        Self { code, segment_len: None, ddp: None, rdmap: None }
    }

    /// Appends the payload to `out`. The length field is present whenever a header is.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bits = 0;
        bits |= if self.segment_len.is_some() { RFC_BITS.segment_len } else { 0 };
        bits |= if self.ddp.is_some() { RFC_BITS.ddp } else { 0 };
        bits |= if self.rdmap.is_some() { RFC_BITS.rdmap } else { 0 };
        out.extend_from_slice(&self.code.to_word().to_be_bytes());
        out.extend_from_slice(&[bits, 0]);
        if bits != 0 {
            out.extend_from_slice(&self.segment_len.unwrap_or(0).to_be_bytes());
        }
        if let Some(header) = &self.ddp {
            out.extend_from_slice(header.as_bytes());
        }
        if let Some(header) = &self.rdmap {
            out.extend_from_slice(header);
        }
    }

    /// Reads the payload of a received Terminate. Only the control octets must be there: a header
    /// that is announced and missing reads as absent, because the stream ends in any case.
    pub fn parse(payload: &[u8], phase: TerminatePhase) -> Result<Self, ShortTerminate> {
        let (&[first, code, bits, _], rest) =
            payload.split_first_chunk::<CONTROL_LEN>().ok_or(ShortTerminate)?;
        let word = u16::from_be_bytes([first, code]);
        let layout = if SIW_BITS.any_in(bits) && !RFC_BITS.any_in(bits) {
            let found = headers(rest, bits, &SIW_BITS);
            Self {
                code: TerminateCode::from_word(swap_nibbles(word)),
                // The number of a Read Request is its size there.
                ddp: found.ddp.filter(|_| found.rdmap.is_none()),
                ..found
            }
        } else if RFC_BITS.any_in(bits) {
            Self { code: TerminateCode::from_word(word), ..headers(rest, bits, &RFC_BITS) }
        } else {
            Self::bare(bare_code(word, phase))
        };
        Ok(layout)
    }
}

/// Reads the parts that `bits` announces; the code is filled in by the caller.
fn headers(rest: &[u8], bits: u8, layout: &HeaderBits) -> Terminate {
    let mut found = Terminate::bare(TerminateCode::RdmapCatastrophic);
    let Some((segment_len, rest)) = rest.split_first_chunk::<2>() else { return found };
    if bits & layout.segment_len != 0 {
        found.segment_len = Some(u16::from_be_bytes(*segment_len));
    }
    if bits & layout.ddp != 0 {
        found.ddp = HeaderCopy::of(rest);
    }
    if bits & layout.rdmap != 0
        && let Some(header) = rest.get(found.ddp.map_or(0, |ddp| usize::from(ddp.len))..)
    {
        found.rdmap = header.first_chunk().copied();
    }
    found
}

/// The code of a Terminate without header bits, which do not tell the two forms apart: what the
/// RFCs define holds, and what only siw's order makes sense of is siw's. MPA's codes 5 to 7 belong
/// to connection set-up; later on the same octets are siw's RDMAP operation errors.
fn bare_code(word: u16, phase: TerminatePhase) -> TerminateCode {
    let rfc = TerminateCode::from_word(word);
    let siw = TerminateCode::from_word(swap_nibbles(word));
    let only_in_setup = matches!(
        rfc,
        TerminateCode::LlpCatastrophic
            | TerminateCode::LlpInsufficientIrd
            | TerminateCode::LlpNoRtr
    );
    let trust_rfc = rfc.is_defined() && !(only_in_setup && phase == TerminatePhase::Operation);
    if trust_rfc || !siw.is_defined() { rfc } else { siw }
}

/// Exchanges layer and error type.
fn swap_nibbles(word: u16) -> u16 {
    let [first, code] = word.to_be_bytes();
    u16::from_be_bytes([first.rotate_left(4), code])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> TerminateCode {
        Terminate::parse(bytes, TerminatePhase::Operation).unwrap().code
    }

    #[test]
    fn words_round_trip_and_are_distinct() {
        for (index, code) in TerminateCode::ALL.iter().enumerate() {
            assert_eq!(TerminateCode::from_word(code.to_word()), *code);
            assert!(TerminateCode::ALL[..index].iter().all(|c| c.to_word() < code.to_word()));
        }
        assert_eq!(TerminateCode::from_word(0x00ff), TerminateCode::RdmapCatastrophic);
        assert_eq!(TerminateCode::from_word(0x1300), TerminateCode::Unknown(0x1300));
    }

    #[test]
    fn control_words_seen_from_siw() {
        let seen = [
            ([0x02, 0x02, 0, 0], TerminateCode::LlpCrc),
            ([0x02, 0x03, 0, 0], TerminateCode::LlpFraming),
            ([0x11, 0x00, 3, 0], TerminateCode::TaggedInvalidStag),
            ([0x21, 0x01, 3, 0], TerminateCode::UntaggedInvalidQn),
            ([0x21, 0x02, 3, 0], TerminateCode::UntaggedNoBuffer),
            ([0x21, 0x03, 3, 0], TerminateCode::UntaggedInvalidMsn),
            ([0x21, 0x04, 3, 0], TerminateCode::UntaggedInvalidMo),
            ([0x21, 0x06, 0, 0], TerminateCode::UntaggedVersion),
            ([0x11, 0x04, 0, 0], TerminateCode::TaggedVersion),
            ([0x20, 0x06, 0, 0], TerminateCode::RdmapUnexpectedOpcode),
            ([0x20, 0x05, 0, 0], TerminateCode::RdmapVersion),
            ([0x10, 0x00, 7, 0], TerminateCode::RdmapInvalidStag),
            ([0x20, 0x09, 3, 0], TerminateCode::RdmapInvalidateFailed),
            ([0x01, 0x00, 3, 0], TerminateCode::DdpCatastrophic),
        ];
        for (octets, code) in seen {
            assert_eq!(parse(&octets), code, "{octets:02x?}");
        }
    }

    #[test]
    fn setup_errors_keep_their_meaning_during_setup() {
        let parse =
            |code| Terminate::parse(&[0x20, code, 0, 0], TerminatePhase::Setup).unwrap().code;
        assert_eq!(parse(5), TerminateCode::LlpCatastrophic);
        assert_eq!(parse(6), TerminateCode::LlpInsufficientIrd);
        assert_eq!(parse(7), TerminateCode::LlpNoRtr);
    }

    #[test]
    fn every_code_survives_with_and_without_headers() {
        let ulpdu: Vec<u8> = (0..40).collect();
        for &code in TerminateCode::ALL {
            let full = Terminate {
                code,
                segment_len: Some(40),
                ddp: HeaderCopy::of(&ulpdu),
                rdmap: Some([7; READ_REQUEST_LEN]),
            };
            for terminate in [full, Terminate { rdmap: None, ..full }, Terminate::bare(code)] {
                let mut bytes = Vec::new();
                terminate.encode(&mut bytes);
                assert!(bytes.len() <= Terminate::MAX_LEN);
                assert_eq!(Terminate::parse(&bytes, TerminatePhase::Setup), Ok(terminate));
            }
        }
    }

    #[test]
    fn siw_header_copies_are_read() {
        // A refused Read as siw reports it: length, untagged DDP header, Read Request header.
        let mut bytes = vec![0x10, 0x00, 0x07, 0x00, 0, 0, 0x41, 0x41];
        bytes.extend([0; 16]);
        bytes.extend([9; READ_REQUEST_LEN]);
        let terminate = Terminate::parse(&bytes, TerminatePhase::Operation).unwrap();
        assert_eq!(terminate.code, TerminateCode::RdmapInvalidStag);
        assert_eq!(terminate.ddp, None, "its number is the size of the Read");
        assert_eq!(terminate.rdmap, Some([9; READ_REQUEST_LEN]));
        // A refused Send has its own.
        bytes[2] = 0x03;
        let terminate = Terminate::parse(&bytes, TerminatePhase::Operation).unwrap();
        assert_eq!(terminate.ddp.unwrap().as_bytes(), &bytes[6..24]);
    }

    #[test]
    fn a_cut_terminate_loses_headers_but_not_its_code() {
        let full = Terminate {
            code: TerminateCode::TaggedBounds,
            segment_len: Some(54),
            ddp: HeaderCopy::of(&[0x81; 14]),
            rdmap: None,
        };
        let mut bytes = Vec::new();
        full.encode(&mut bytes);
        for len in 0..bytes.len() {
            let parsed = Terminate::parse(&bytes[..len], TerminatePhase::Operation);
            assert_eq!(parsed.map(|t| t.code).ok(), (len >= 4).then_some(full.code));
            assert!(parsed.is_err() || parsed.unwrap().ddp.is_none());
        }
    }
}
