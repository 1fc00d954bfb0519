//! Any octets as each header: no panic, and what parses is encoded to octets that parse to the
//! same value.

use weft_wire::ddp::DdpHeader;
use weft_wire::mpa::{Enhanced, StartFrame, StartKind};
use weft_wire::rdmap::{AtomicRequest, AtomicResponse, ImmediateData, RdmapControl, ReadRequest};
use weft_wire::terminate::{Terminate, TerminateCode, TerminatePhase};
use weft_wire::{datagram, iwpm, sdp};

/// `data` as a start frame of either kind.
pub fn start_frame(data: &[u8]) {
    for kind in [StartKind::Request, StartKind::Reply] {
        let Ok(frame) = StartFrame::parse(data, kind) else { continue };
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        // Where siw's wrapped lengths are in play, the octets do not come back as they were.
        if !frame.enhanced || (4..256).contains(&frame.private_data.len()) {
            assert_eq!(StartFrame::parse(&bytes, kind), Ok(frame));
        }
        if let Ok((block, rest)) = Enhanced::split(frame.private_data) {
            assert_eq!(block.to_bytes(), frame.private_data[..4]);
            assert_eq!(rest.len() + 4, frame.private_data.len());
        }
    }
}

/// `data` as a ULPDU, and what follows its DDP header as every kind of message.
pub fn segment(data: &[u8]) {
    let Ok((header, rest)) = DdpHeader::parse(data) else { return };
    let bytes = match header {
        DdpHeader::Tagged(tagged) => tagged.to_bytes().to_vec(),
        DdpHeader::Untagged(untagged) => untagged.to_bytes().to_vec(),
    };
    assert_eq!(DdpHeader::parse(&bytes), Ok((header, &[][..])));
    assert_eq!(bytes.len() + rest.len(), data.len());
    if let Ok(opcode) = header.opcode() {
        assert_eq!(RdmapControl::parse(opcode.control()).opcode, Ok(opcode));
        assert_eq!(opcode.is_tagged(), matches!(header, DdpHeader::Tagged(_)));
    }
    if let Ok(request) = ReadRequest::parse(rest) {
        assert_eq!(request.to_bytes(), rest[..28]);
    }
    if let Ok(request) = AtomicRequest::parse(rest) {
        assert_eq!(AtomicRequest::parse(&request.to_bytes()), Ok(request));
    }
    if let Ok(response) = AtomicResponse::parse(rest) {
        assert_eq!(response.to_bytes(), rest[..12]);
    }
    if let Ok(immediate) = ImmediateData::parse(rest) {
        assert_eq!(ImmediateData::from_verbs(immediate.to_verbs()).0[..4], rest[..4]);
    }
}

/// `data` as the payload of a Terminate.
pub fn terminate(data: &[u8]) {
    for phase in [TerminatePhase::Setup, TerminatePhase::Operation] {
        let Ok(terminate) = Terminate::parse(data, phase) else { continue };
        assert_eq!(TerminateCode::from_word(terminate.code.to_word()), terminate.code);
        let mut bytes = Vec::new();
        terminate.encode(&mut bytes);
        assert!(bytes.len() <= Terminate::MAX_LEN);
        // Without header bits the order of the nibbles is a guess that need not survive.
        if terminate.segment_len.is_some() && terminate.ddp.is_some() {
            assert_eq!(Terminate::parse(&bytes, phase), Ok(terminate));
        }
    }
}

/// `data` as an SDP message.
pub fn sdp(data: &[u8]) {
    let Ok((base, message, payload)) = sdp::parse(data) else { return };
    let mut bytes = Vec::new();
    sdp::encode(&base, &message, payload.len() as u32, &mut bytes);
    bytes.extend_from_slice(payload);
    assert_eq!(bytes.len(), data.len());
    assert_eq!(sdp::parse(&bytes), Ok((base, message, payload)));
}

/// `data` as a message of the port mapper.
pub fn iwpm(data: &[u8]) {
    let Ok(message) = iwpm::IwpmMessage::parse(data) else { return };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(iwpm::IwpmMessage::parse(&bytes), Ok(message));
}

/// `data` as a datagram between queue pairs.
pub fn datagram(data: &[u8]) {
    if let Some(notice) = datagram::Notice::parse(data) {
        assert_eq!(notice.to_bytes(), data);
    }
    let Some((header, payload)) = datagram::DatagramHeader::parse(data) else { return };
    assert_eq!(header.len() + payload.len(), data.len());
    let again = [&header.to_bytes()[..header.len()], payload].concat();
    assert_eq!(datagram::DatagramHeader::parse(&again), Some((header, payload)));
}
