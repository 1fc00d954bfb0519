//! The only message of a connection whose terms cannot be met (RFC 6581, sections 9.1 and 9.2): a
//! Terminate that says why, after which the stream is closed.

use weft_rnic::mpa::{Agreed, MpaError, MpaRole, MpaStream};
use weft_rnic::wire::crc::Crc32c;
use weft_rnic::wire::ddp::UntaggedHeader;
use weft_rnic::wire::ids::{Msn, QN_TERMINATE};
use weft_rnic::wire::llp::{Gather, MemoryPiece, RegisteredMemory, SegmentId, UlpduSource};
use weft_rnic::wire::rdmap::Opcode;
use weft_rnic::wire::terminate::Terminate;

/// The bytes to send, framed as `agreed`.
pub(crate) fn terminate(agreed: &Agreed, error: MpaError) -> Vec<u8> {
    let mut message = LastWord { ulpdu: ulpdu(error), said: false };
    let mut gather = Gather::new();
    let mut stream = MpaStream::new(MpaRole::Initiator, agreed);
    stream.poll_transmit(&mut message, &NoMemory, &mut gather, 1);
    gather.slab().to_vec()
}

fn ulpdu(error: MpaError) -> Vec<u8> {
    let header = UntaggedHeader {
        last: true,
        control: Opcode::Terminate.control(),
        ulp: 0,
        qn: QN_TERMINATE,
        msn: Msn(1),
        mo: 0,
    };
    let mut ulpdu = header.to_bytes().to_vec();
    Terminate::bare(error.terminate_code()).encode(&mut ulpdu);
    ulpdu
}

/// A source of one segment.
struct LastWord {
    ulpdu: Vec<u8>,
    said: bool,
}

impl UlpduSource for LastWord {
    fn next(&mut self, _mulpdu: u16) -> Option<SegmentId> {
        let first = !std::mem::replace(&mut self.said, true);
        first.then_some(SegmentId { wqe: 0, offset: 0, len: 0 })
    }

    fn gather(&self, _id: &SegmentId, out: &mut Gather) {
        out.push_bytes(&self.ulpdu);
    }

    fn acked(&mut self, _id: SegmentId) {}
}

/// The message names no memory.
struct NoMemory;

impl RegisteredMemory for NoMemory {
    fn crc32c(&self, crc: Crc32c, _piece: MemoryPiece) -> Crc32c {
        crc
    }

    fn copy_to(&self, _piece: MemoryPiece, _out: &mut Vec<u8>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_frame_with_the_code_of_the_error() {
        let agreed = Agreed { crc: true, ..Agreed::default() };
        for (error, code) in [(MpaError::InsufficientIrd, 6), (MpaError::NoRtr, 7)] {
            let frame = terminate(&agreed, error);
            assert_eq!(frame.len(), 2 + 18 + 4 + 4);
            assert_eq!(frame[..4], [0, 22, 0x41, 0x47]);
            assert_eq!(frame[20..24], [0x20, code, 0, 0]);
        }
    }

    #[test]
    fn begins_with_a_marker_where_the_peer_wants_them() {
        let agreed = Agreed { crc: true, markers_out: true, ..Agreed::default() };
        let frame = terminate(&agreed, MpaError::NoRtr);
        assert_eq!(frame[..8], [0, 0, 0, 0, 0, 22, 0x41, 0x47]);
    }
}
