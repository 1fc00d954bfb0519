//! Packet protection: integrity and origin of each packet.
//!
//! With a cipher, everything after the header is encrypted and authenticated. Without one, data
//! packets end with a CRC32C (or nothing) and control packets with a SipHash tag; both are keyed
//! with the connection's secret, so that only a host that saw the handshake can forge them (S-80,
//! S-81).

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use weft_wire::crc::Crc32c;
use weft_wire::llp::{Gather, MemoryPiece, Piece, RegisteredMemory};
use weft_wire::shuttle::hello::protection;
use weft_wire::shuttle::{CTRL_LEN, CtrlHeader, DATA_LEN, DataHeader, PathId};

use crate::noise::Secrets;
use crate::seal::{self, Sealed};

/// Length of a CRC32C in bytes.
const CRC_LEN: usize = 4;
/// Length of a SipHash tag in bytes.
const TAG_LEN: usize = 8;
/// Payload pieces of at least this many bytes are sent from application memory; copying shorter
/// ones costs less than another entry in the system call.
const COPY_BELOW: u32 = 1024;

/// Packet protection of both directions of a connection.
pub(crate) struct Guard {
    crc: bool,
    /// Nonces of both ends, the initiator's first.
    secret: [u64; 2],
    /// CRC state after the prefix (S-80), for packets sent and received.
    begun: [Crc32c; 2],
    initiator: bool,
    sealed: Option<Sealed>,
}

impl Guard {
    /// Creates the protection `chosen`, one bit of [`protection`]; with `secrets` if it is a
    /// cipher.
    pub(crate) fn new(
        chosen: u8,
        secret: [u64; 2],
        initiator: bool,
        secrets: Option<&Secrets>,
        packets_per_key: u64,
    ) -> Self {
        let sealed =
            secrets.map(|secrets| Sealed::new(chosen, secrets, initiator, packets_per_key));
        let begun = [initiator, !initiator].map(|by| begin_crc(secret, by));
        Self { crc: chosen == protection::CRC32C, secret, begun, initiator, sealed }
    }

    /// Key phase for the header of the next packet.
    pub(crate) fn next_phase(&mut self) -> u8 {
        self.sealed.as_mut().map_or(0, Sealed::next_phase)
    }

    /// Notes that the peer acknowledged packet `pn` of `path`.
    pub(crate) fn handle_acked(&mut self, path: PathId, pn: u64) {
        if let Some(sealed) = &mut self.sealed {
            sealed.handle_acked(path.0, pn);
        }
    }

    /// Overhead of a data packet in bytes.
    pub(crate) fn data_overhead(&self) -> u16 {
        let trailer = match (&self.sealed, self.crc) {
            (Some(_), _) => seal::TAG_LEN,
            (None, true) => CRC_LEN,
            (None, false) => 0,
        };
        (DATA_LEN + trailer) as u16
    }

    /// Overhead of a control packet in bytes.
    pub(crate) fn ctrl_overhead(&self) -> usize {
        CTRL_LEN + if self.sealed.is_some() { seal::TAG_LEN } else { TAG_LEN }
    }

    /// Appends a data packet with the full packet number `pn`, and `body` between header and
    /// trailer; a copy of it under a checksum if the memory of it `may_change`.
    pub(crate) fn put_data(
        &mut self,
        pn: u64,
        header: &DataHeader,
        (body, may_change): (&Gather, bool),
        memory: &impl RegisteredMemory,
        out: &mut Gather,
    ) {
        if let Some(sealed) = &mut self.sealed {
            out.push_with(|slab| {
                let start = slab.len();
                slab.extend(header.to_bytes());
                copy_body(body, memory, slab);
                sealed.seal(header.ctrl.path.0, pn, slab, start, DATA_LEN);
            });
            return;
        }
        let mut packet = CrcWriter {
            crc: self.crc.then_some(self.begun[0]),
            staged_from: out.slab().len(),
            out,
            memory,
        };
        packet.out.push_bytes(&header.to_bytes());
        let copies = may_change && self.crc;
        for piece in body.pieces() {
            match *piece {
                Piece::Slab { start, len } => packet.out.push_bytes(body.staged(start, len)),
                Piece::Memory(piece) if copies || piece.len < COPY_BELOW => {
                    packet.out.push_copy(packet.memory, piece);
                }
                Piece::Memory(piece) => packet.put_memory(piece),
            }
        }
        packet.finish();
    }

    /// Appends a control packet with the full packet number `pn`.
    pub(crate) fn put_ctrl(
        &mut self,
        pn: u64,
        header: &CtrlHeader,
        frames: &[u8],
        out: &mut Gather,
    ) {
        out.push_with(|slab| {
            let start = slab.len();
            slab.extend(header.to_bytes());
            slab.extend(frames);
            if let Some(sealed) = &mut self.sealed {
                sealed.seal(header.path.0, pn, slab, start, CTRL_LEN);
                return;
            }
            let tag = self.tag(self.initiator, &slab[start..]);
            slab.extend(tag);
        });
    }

    /// What lies between header and trailer of a data packet, if it verifies.
    pub(crate) fn open_data<'a>(
        &mut self,
        pn: u64,
        header: &CtrlHeader,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        if let Some(sealed) = &mut self.sealed {
            return sealed.open(header.phase, header.path.0, pn, datagram, DATA_LEN);
        }
        if !self.crc {
            return datagram.get(DATA_LEN..);
        }
        let (covered, crc) = datagram.split_last_chunk::<CRC_LEN>()?;
        let whole = self.begun[1].update(covered).to_wire() == *crc;
        if whole { covered.get(DATA_LEN..) } else { None }
    }

    /// Frames of a control packet, if it verifies.
    pub(crate) fn open_ctrl<'a>(
        &mut self,
        pn: u64,
        header: &CtrlHeader,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        if let Some(sealed) = &mut self.sealed {
            return sealed.open(header.phase, header.path.0, pn, datagram, CTRL_LEN);
        }
        let (covered, tag) = datagram.split_last_chunk::<TAG_LEN>()?;
        let ours = self.tag(!self.initiator, covered) == *tag;
        if ours { covered.get(CTRL_LEN..) } else { None }
    }

    /// A token that only this end can compute; equal for equal `what`.
    pub(crate) fn token(&self, seed: u64, what: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(seed, self.secret[0] ^ self.secret[1]);
        hasher.write_u64(what);
        hasher.finish()
    }

    fn tag(&self, by_initiator: bool, covered: &[u8]) -> [u8; TAG_LEN] {
        let mut hasher = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
        hasher.write(&[u8::from(by_initiator)]);
        hasher.write(covered);
        hasher.finish().to_be_bytes()
    }
}

fn begin_crc(secret: [u64; 2], by_initiator: bool) -> Crc32c {
    let mut prefix = [0; 17];
    prefix[0] = u8::from(by_initiator);
    prefix[1..9].copy_from_slice(&secret[0].to_be_bytes());
    prefix[9..].copy_from_slice(&secret[1].to_be_bytes());
    Crc32c::new().update(&prefix)
}

/// Appends the contents of `body`.
pub(crate) fn copy_body(body: &Gather, memory: &impl RegisteredMemory, out: &mut Vec<u8>) {
    for piece in body.pieces() {
        match *piece {
            Piece::Slab { start, len } => out.extend_from_slice(body.staged(start, len)),
            Piece::Memory(piece) => memory.copy_to(piece, out),
        }
    }
}

/// Writer of a data packet with a CRC.
struct CrcWriter<'a, M> {
    out: &'a mut Gather,
    memory: &'a M,
    /// CRC of everything before `staged_from`; `None` if there is none.
    crc: Option<Crc32c>,
    /// Start of the bytes in the slab that the CRC does not cover yet.
    staged_from: usize,
}

impl<M: RegisteredMemory> CrcWriter<'_, M> {
    fn put_memory(&mut self, piece: MemoryPiece) {
        self.cover_staged();
        self.crc = self.crc.map(|crc| self.memory.crc32c(crc, piece));
        self.out.push_memory(piece);
    }

    fn cover_staged(&mut self) {
        if let Some(crc) = &mut self.crc {
            let slab = self.out.slab();
            *crc = crc.update(&slab[self.staged_from..]);
            self.staged_from = slab.len();
        }
    }

    fn finish(mut self) {
        self.cover_staged();
        if let Some(crc) = self.crc {
            self.out.push_bytes(&crc.to_wire());
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::shuttle::ConnectionId;

    use super::*;

    struct NoMemory;

    impl RegisteredMemory for NoMemory {
        fn crc32c(&self, _: Crc32c, _: MemoryPiece) -> Crc32c {
            unreachable!("nothing here is in memory")
        }

        fn copy_to(&self, _: MemoryPiece, _: &mut Vec<u8>) {
            unreachable!("nothing here is in memory")
        }
    }

    fn ctrl() -> CtrlHeader {
        CtrlHeader { cid: ConnectionId(0x100), path: PathId(0), pn: 1, phase: 0, ack_now: false }
    }

    fn guard(chosen: u8, other: u64, initiator: bool) -> Guard {
        let secrets = zeroize::Zeroizing::new([[other as u8; 32], [9; 32]]);
        let sealed = chosen >= protection::AES128GCM;
        Guard::new(chosen, [1, other], initiator, sealed.then_some(&secrets), 1 << 22)
    }

    #[test]
    fn only_the_peer_opens_what_was_protected() {
        for chosen in [1, 2, 4, 8] {
            let mut here = guard(chosen, 2, true);
            let mut there = guard(chosen, 2, false);
            let mut stranger = guard(chosen, 3, false);
            let mut segment = Gather::new();
            segment.push_bytes(b"a segment");
            let mut out = Gather::new();
            let header = DataHeader { ctrl: ctrl(), several: false, dsn: 9, frontier: 7 };
            here.put_data(1, &header, (&segment, false), &NoMemory, &mut out);
            assert_eq!(out.len(), 9 + usize::from(here.data_overhead()));
            let data = |guard: &mut Guard| {
                let mut octets = out.slab().to_vec();
                guard.open_data(1, &ctrl(), &mut octets).map(<[u8]>::to_vec)
            };
            assert_eq!(data(&mut there), Some(b"a segment".to_vec()));
            let open = chosen == protection::NONE;
            assert_eq!([data(&mut here).is_some(), data(&mut stranger).is_some()], [open; 2]);

            let mut out = Gather::new();
            here.put_ctrl(1, &ctrl(), b"frames", &mut out);
            assert_eq!(out.len(), 6 + here.ctrl_overhead());
            let frames = |guard: &mut Guard| {
                let mut octets = out.slab().to_vec();
                guard.open_ctrl(1, &ctrl(), &mut octets).map(<[u8]>::to_vec)
            };
            assert_eq!(frames(&mut there), Some(b"frames".to_vec()));
            assert_eq!((frames(&mut here), frames(&mut stranger)), (None, None));
        }
    }

    #[test]
    fn every_flipped_bit_shows() {
        for chosen in [1, 2, 4, 8] {
            let (mut here, mut there) = (guard(chosen, 2, true), guard(chosen, 2, false));
            let mut out = Gather::new();
            here.put_ctrl(1, &ctrl(), b"frames", &mut out);
            for bit in 0..out.len() * 8 {
                let mut octets = out.slab().to_vec();
                octets[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(there.open_ctrl(1, &ctrl(), &mut octets), None);
            }
            for len in 0..40 {
                let data = there.open_data(1, &ctrl(), &mut vec![0; len]).is_some();
                assert_eq!(data, chosen == protection::NONE && len >= DATA_LEN);
                assert_eq!(there.open_ctrl(1, &ctrl(), &mut vec![0; len]), None);
            }
        }
    }

    /// S-71: who does not know the handshake and this end's seed answers no Challenge.
    #[test]
    fn a_token_is_of_one_end_one_connection_and_one_purpose() {
        let here = guard(protection::CRC32C, 2, true);
        let token = here.token(5, 6);
        assert_eq!(here.token(5, 6), token);
        let elsewhere = guard(protection::CRC32C, 3, true).token(5, 6);
        for other in [here.token(4, 6), here.token(5, 7), elsewhere] {
            assert_ne!(other, token);
        }
    }
}
