//! A peer that is connected and makes its segments by hand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use weft_host::mpa::{Agreed, MpaRole};
use weft_host::{HostCq, Pd};
use weft_rnic::wire::crc::Crc32c;
use weft_rnic::wire::ddp::{DdpHeader, TaggedHeader, UntaggedHeader};
use weft_rnic::wire::ids::{Msn, STag};
use weft_rnic::wire::rdmap::{Opcode, ReadRequest};
use weft_rnic::wire::terminate::{Terminate, TerminateCode, TerminatePhase};
use weft_verbs::QpCap;

use crate::side::{DEADLINE, Side, reliable, sockets};

/// Reads of the peer that are served at a time.
pub const IRD: u16 = 4;
/// Reads that the peer serves at a time.
pub const ORD: u16 = 4;

/// The far end of a stream.
pub struct Peer {
    stream: TcpStream,
    reads: u32,
}

impl Peer {
    /// The peer of `side`'s queue pair.
    pub fn of(side: &Side) -> Self {
        let (near, far) = sockets();
        let agreed = Agreed { crc: true, ird: IRD, ord: ORD, ..Agreed::default() };
        side.attach(far, MpaRole::Responder, &agreed);
        near.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { stream: near, reads: 0 }
    }

    /// Sends a segment.
    pub fn say(&mut self, ulpdu: &[u8]) {
        let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
        frame.extend_from_slice(ulpdu);
        frame.resize(frame.len().next_multiple_of(4), 0);
        frame.extend(Crc32c::of(&frame));
        self.stream.write_all(&frame).unwrap();
    }

    /// The next segment.
    pub fn hear(&mut self) -> Vec<u8> {
        let mut len = [0; 2];
        self.stream.read_exact(&mut len).unwrap();
        let len = usize::from(u16::from_be_bytes(len));
        let mut rest = vec![0; (2 + len).next_multiple_of(4) - 2 + 4];
        self.stream.read_exact(&mut rest).unwrap();
        rest.truncate(len);
        rest
    }

    /// The segment was refused: a Terminate with `code` comes back, and the end.
    pub fn expect_refusal(mut self, code: TerminateCode) {
        let terminate = loop {
            let ulpdu = self.hear();
            let (header, payload) = DdpHeader::parse(&ulpdu).unwrap();
            if header.opcode() == Ok(Opcode::Terminate) {
                break Terminate::parse(payload, TerminatePhase::Operation).unwrap();
            }
        };
        assert_eq!(terminate.code, code);
        assert_eq!(self.stream.read(&mut [0]).unwrap(), 0, "the stream ends");
    }

    /// What it sent before has been taken, and the stream lives: a Read of nothing is answered.
    pub fn expect_service(&mut self) {
        self.read(0, 0, 0);
        let answer = self.hear();
        let (header, payload) = DdpHeader::parse(&answer).unwrap();
        assert_eq!((header.opcode(), payload), (Ok(Opcode::ReadResponse), &[][..]));
    }

    /// Asks for `size` bytes from `from` on.
    pub fn read(&mut self, stag: u32, from: u64, size: u32) {
        self.reads += 1;
        let (src_stag, src_to) = (STag(stag), from);
        let request = ReadRequest { sink_stag: STag(1), sink_to: 0, size, src_stag, src_to };
        self.say(&untagged(Opcode::ReadRequest, self.reads, 0, &request.to_bytes()));
    }

    /// Writes `bytes` to `to`.
    pub fn write(&mut self, stag: u32, to: u64, bytes: &[u8]) {
        self.say(&tagged(Opcode::Write, stag, to, bytes));
    }
}

/// What a segment is of.
pub fn opcode(ulpdu: &[u8]) -> Opcode {
    DdpHeader::parse(ulpdu).unwrap().0.opcode().unwrap()
}

/// A tagged segment that ends its message.
pub fn tagged(opcode: Opcode, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let header = TaggedHeader { last: true, control: opcode.control(), stag: STag(stag), to };
    [&header.to_bytes(), payload].concat()
}

/// An untagged segment that ends message `msn` and names `ulp` where the opcode has a use for it.
pub fn untagged(opcode: Opcode, msn: u32, ulp: u32, payload: &[u8]) -> Vec<u8> {
    let (control, qn) = (opcode.control(), opcode.queue().unwrap());
    let header = UntaggedHeader { last: true, control, ulp, qn, msn: Msn(msn), mo: 0 };
    [&header.to_bytes(), payload].concat()
}

/// Another queue pair of the same device, in `pd` and completing in `cq`.
pub fn another(side: &Side, pd: &Arc<Pd>, cq: &Arc<HostCq>) -> Side {
    let cap = QpCap {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let qp = side.context.create_qp(reliable(pd, cq, cap)).unwrap();
    let (context, pd, cq) = (Arc::clone(&side.context), Arc::clone(pd), Arc::clone(cq));
    Side { context, pd, cq, qp, reports: Arc::default() }
}
