//! Shuttle's packets as those of RoCE v2 (InfiniBand architecture, volume 1, sections 9.2 to 9.4
//! and annex A17), which analysers know.
//!
//! A segment of DDP is one packet. Its packet sequence number is the low 24 bits of its DSN, which
//! is the same each time it is sent. A frontier is an acknowledgement of all segments before it, a
//! credit an RNR NAK, a Terminate a NAK. What DDP does not say is made up: the length in the RETH
//! of a first packet is that packet's own, and the MSN of an AETH is 0.

use std::collections::VecDeque;

use weft_wire::datagram::DatagramHeader;
use weft_wire::ddp::{DdpHeader, TaggedHeader, UntaggedHeader};
use weft_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, ImmediateData, Opcode, RdmapControl, ReadRequest,
};
use weft_wire::shuttle::{ConnectionId, widen};
use weft_wire::tap::TapDirection;
use weft_wire::terminate::{Terminate, TerminateCode, TerminatePhase};

use crate::ip::{PacketPath, UDP_CHECKSUM_AT, UDP_LEN, udp_packet};

/// The destination port of RoCE v2.
pub(crate) const ROCE_PORT: u16 = 4791;

const BTH_LEN: usize = 12;
const PKEY: [u8; 2] = [0xff, 0xff];
const SOLICITED: u8 = 0x80;
const PAD_SHIFT: u32 = 4;

/// Opcodes of reliable connections; those of unreliable ones are [`UNRELIABLE`] more.
mod opcode {
    pub const SEND: [u8; 4] = [0x00, 0x01, 0x02, 0x04];
    pub const SEND_LAST_IMMEDIATE: u8 = 0x03;
    pub const SEND_ONLY_IMMEDIATE: u8 = 0x05;
    pub const SEND_LAST_INVALIDATE: u8 = 0x16;
    pub const SEND_ONLY_INVALIDATE: u8 = 0x17;
    pub const WRITE: [u8; 4] = [0x06, 0x07, 0x08, 0x0a];
    pub const WRITE_ONLY_IMMEDIATE: u8 = 0x0b;
    pub const READ_REQUEST: u8 = 0x0c;
    pub const READ_RESPONSE: [u8; 4] = [0x0d, 0x0e, 0x0f, 0x10];
    pub const ACKNOWLEDGE: u8 = 0x11;
    pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub const COMPARE_SWAP: u8 = 0x13;
    pub const FETCH_ADD: u8 = 0x14;
}

/// What opcodes of unreliable connections have more than those of reliable ones.
const UNRELIABLE: u8 = 0x20;

/// An AETH syndrome: an acknowledgement without a credit count.
const ACK: u8 = 0x1f;
/// One that says that no receive is posted, with the code of a timer.
const RNR_NAK: u8 = 0x20;
/// One that says what is wrong, with a code.
const NAK: u8 = 0x60;
const NAK_INVALID_REQUEST: u8 = 1;
const NAK_REMOTE_ACCESS: u8 = 2;
const NAK_REMOTE_OPERATION: u8 = 3;

/// Segments whose place in their message is remembered.
const REMEMBERED: usize = 1 << 16;

/// Where a packet is in its message; the index of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagePart {
    First,
    Middle,
    Last,
    Only,
}

impl MessagePart {
    fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The segments of one direction.
#[derive(Default)]
struct SegmentTrack {
    /// One more than the largest DSN seen.
    next: u64,
    /// Whether each from `base` on is the last of its message, of those that were seen.
    lasts: VecDeque<Option<bool>>,
    base: u64,
    /// How far the peer was told that they are placed.
    frontier: u64,
}

impl SegmentTrack {
    /// Notes a segment; whether it begins a message, and whether it was seen before.
    fn note(&mut self, dsn: u64, is_last: bool) -> (bool, bool) {
        let begins = match dsn.checked_sub(1) {
            None => true,
            Some(before) => self.is_last(before).unwrap_or(false),
        };
        let again = self.is_last(dsn).is_some() || dsn < self.base;
        self.next = self.next.max(dsn + 1);
        if dsn >= self.base + 2 * REMEMBERED as u64 {
            (self.base, self.lasts) = (dsn, VecDeque::new());
        }
        if let Some(at) = dsn.checked_sub(self.base) {
            let at = at as usize;
            if at >= self.lasts.len() {
                self.lasts.resize(at + 1, None);
            }
            self.lasts[at] = Some(is_last);
            let surplus = self.lasts.len().saturating_sub(REMEMBERED);
            self.lasts.drain(..surplus);
            self.base += surplus as u64;
        }
        (begins, again)
    }

    fn is_last(&self, dsn: u64) -> Option<bool> {
        let at = dsn.checked_sub(self.base)?;
        self.lasts.get(at as usize).copied().flatten()
    }

    /// Notes that all before `frontier` is placed; whether that is news.
    fn note_frontier(&mut self, frontier: u64) -> bool {
        let is_new = frontier > self.frontier;
        self.frontier = self.frontier.max(frontier);
        is_new
    }
}

/// A packet of RoCE v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RocePacket {
    pub bytes: Vec<u8>,
    /// It was seen before, in the same direction.
    pub again: bool,
}

/// The number of the peer's queue pair.
#[derive(Clone, Copy, Debug)]
enum PeerNumber {
    Known(u32),
    StandIn(u32),
}

/// A connection's queue pairs, and what was sent between them.
pub(crate) struct RoceView {
    /// Number of this end's queue pair.
    own: u32,
    /// That of the peer's, or what stands for it.
    peer: PeerNumber,
    is_reliable: bool,
    sent: SegmentTrack,
    received: SegmentTrack,
}

impl RoceView {
    pub fn new(own: u32, is_reliable: bool) -> Self {
        let (sent, received) = Default::default();
        Self { own, peer: PeerNumber::StandIn(0), is_reliable, sent, received }
    }

    /// Says the number of the peer's queue pair.
    pub fn set_peer(&mut self, number: u32) {
        self.peer = PeerNumber::Known(number);
    }

    /// Notes the connection id of a packet, whose receiver has chosen it: its upper bits stand for
    /// the number of the peer's queue pair while that is not known.
    pub fn note_id(&mut self, direction: TapDirection, id: ConnectionId) {
        if direction == TapDirection::Sent && matches!(self.peer, PeerNumber::StandIn(_)) {
            self.peer = PeerNumber::StandIn(id.0 >> 8);
        }
    }

    fn track(&mut self, direction: TapDirection) -> &mut SegmentTrack {
        match direction {
            TapDirection::Sent => &mut self.sent,
            TapDirection::Received => &mut self.received,
        }
    }

    /// A segment whose number has these low bits. None if it is no segment of RDMAP.
    pub fn segment(
        &mut self,
        (direction, path): (TapDirection, PacketPath),
        dsn: u32,
        ulpdu: &[u8],
    ) -> Option<RocePacket> {
        let (header, payload) = DdpHeader::parse(ulpdu).ok()?;
        let opcode = RdmapControl::parse(header.control()).opcode.ok()?;
        let track = self.track(direction);
        let dsn = widen(dsn, track.next);
        let (begins, again) = track.note(dsn, header.last());
        let packet = match &header {
            DdpHeader::Tagged(tagged) => {
                tagged_packet(opcode, tagged, MessagePart::of(begins, header.last()), payload)
            }
            DdpHeader::Untagged(untagged) => untagged_packet(opcode, untagged, payload)?,
        };
        Some(RocePacket { bytes: self.finish((direction, path), dsn, packet), again })
    }

    /// The acknowledgement of all segments before the one whose number has these low bits; none if
    /// it says nothing new.
    pub fn acknowledgement(
        &mut self,
        (direction, path): (TapDirection, PacketPath),
        frontier: impl FnOnce(u64) -> u64,
    ) -> Option<Vec<u8>> {
        let other = self.track(opposite(direction));
        let frontier = frontier(other.frontier);
        if !other.note_frontier(frontier) || !self.is_reliable {
            return None;
        }
        Some(self.finish((direction, path), frontier - 1, answer(ACK)))
    }

    /// An RNR NAK for the first segment that is not placed, with this wait.
    pub fn not_ready(
        &mut self,
        (direction, path): (TapDirection, PacketPath),
        wait_us: u32,
    ) -> Vec<u8> {
        let psn = self.track(opposite(direction)).frontier;
        self.finish((direction, path), psn, answer(RNR_NAK | rnr_code(wait_us)))
    }

    fn finish(
        &self,
        (direction, path): (TapDirection, PacketPath),
        psn: u64,
        packet: RocePayload,
    ) -> Vec<u8> {
        let to = match direction {
            TapDirection::Sent => match self.peer {
                PeerNumber::Known(number) | PeerNumber::StandIn(number) => number,
            },
            TapDirection::Received => self.own,
        };
        let shift = if self.is_reliable { 0 } else { UNRELIABLE };
        packet.encode(path, (to, psn), shift)
    }
}

fn opposite(direction: TapDirection) -> TapDirection {
    match direction {
        TapDirection::Sent => TapDirection::Received,
        TapDirection::Received => TapDirection::Sent,
    }
}

/// What follows IP and UDP.
struct RocePayload {
    opcode: u8,
    solicited: bool,
    /// Extended headers.
    extended: Vec<u8>,
    payload: Vec<u8>,
}

impl RocePayload {
    fn new(opcode: u8, extended: Vec<u8>, payload: &[u8]) -> Self {
        Self { opcode, solicited: false, extended, payload: payload.to_vec() }
    }

    fn encode(&self, path: PacketPath, (to, psn): (u32, u64), shift: u8) -> Vec<u8> {
        let pad = self.payload.len().next_multiple_of(4) - self.payload.len();
        let mut bytes = Vec::with_capacity(BTH_LEN + self.extended.len() + self.payload.len() + 8);
        let flags = if self.solicited { SOLICITED } else { 0 };
        bytes.extend([self.opcode + shift, flags | (pad as u8) << PAD_SHIFT]);
        bytes.extend(PKEY);
        bytes.extend((to & 0xff_ffff).to_be_bytes());
        bytes.extend((psn as u32 & 0xff_ffff).to_be_bytes());
        bytes.extend(&self.extended);
        bytes.extend(&self.payload);
        bytes.resize(bytes.len() + pad, 0);
        wrap(path, bytes)
    }
}

fn tagged_packet(
    opcode: Opcode,
    header: &TaggedHeader,
    place: MessagePart,
    payload: &[u8],
) -> RocePayload {
    if opcode == Opcode::ReadResponse {
        let extended = if place == MessagePart::Middle { Vec::new() } else { aeth(ACK).to_vec() };
        return RocePayload::new(opcode::READ_RESPONSE[place as usize], extended, payload);
    }
    let extended = match place.begins() {
        true => reth(header.to, header.stag.0, payload.len() as u32),
        false => Vec::new(),
    };
    RocePayload::new(opcode::WRITE[place as usize], extended, payload)
}

fn untagged_packet(opcode: Opcode, header: &UntaggedHeader, payload: &[u8]) -> Option<RocePayload> {
    let place = MessagePart::of(header.mo == 0, header.last);
    let mut packet = match opcode {
        Opcode::ReadRequest => {
            let read = ReadRequest::parse(payload).ok()?;
            let extended = reth(read.src_to, read.src_stag.0, read.size);
            RocePayload::new(opcode::READ_REQUEST, extended, &[])
        }
        Opcode::AtomicRequest => atomic_packet(&AtomicRequest::parse(payload).ok()?)?,
        Opcode::AtomicResponse => {
            let response = AtomicResponse::parse(payload).ok()?;
            let mut extended = aeth(ACK).to_vec();
            extended.extend(response.value.to_be_bytes());
            RocePayload::new(opcode::ATOMIC_ACKNOWLEDGE, extended, &[])
        }
        Opcode::Immediate | Opcode::ImmediateSolicited => {
            let ImmediateData(data) = ImmediateData::parse(payload).ok()?;
            let mut extended = reth(0, 0, 0);
            extended.extend(&data[..4]);
            RocePayload::new(opcode::WRITE_ONLY_IMMEDIATE, extended, &[])
        }
        Opcode::Terminate => {
            let terminate = Terminate::parse(payload, TerminatePhase::Operation).ok()?;
            answer(NAK | nak_code(terminate.code))
        }
        _ => send_packet(opcode, header.ulp, place, payload),
    };
    packet.solicited = opcode.is_solicited() && header.last;
    Some(packet)
}

/// A Send: the four octets of its DDP header travel with its last segment.
fn send_packet(opcode: Opcode, ulp: u32, place: MessagePart, payload: &[u8]) -> RocePayload {
    let with = |last: u8, only: u8| if place == MessagePart::Only { only } else { last };
    let (number, extended) = match place.ends() {
        true if opcode.brings_immediate() => {
            let number = with(opcode::SEND_LAST_IMMEDIATE, opcode::SEND_ONLY_IMMEDIATE);
            (number, ulp.to_be_bytes().to_vec())
        }
        true if opcode.invalidates() => {
            let number = with(opcode::SEND_LAST_INVALIDATE, opcode::SEND_ONLY_INVALIDATE);
            (number, ulp.to_be_bytes().to_vec())
        }
        _ => (opcode::SEND[place as usize], Vec::new()),
    };
    RocePayload::new(number, extended, payload)
}

fn atomic_packet(atomic: &AtomicRequest) -> Option<RocePayload> {
    let number = match atomic.op.ok()? {
        AtomicOp::FetchAdd => opcode::FETCH_ADD,
        AtomicOp::CompareSwap => opcode::COMPARE_SWAP,
    };
    let mut extended = atomic.to.to_be_bytes().to_vec();
    extended.extend(atomic.stag.0.to_be_bytes());
    extended.extend(atomic.data.to_be_bytes());
    extended.extend(atomic.compare.to_be_bytes());
    Some(RocePayload::new(number, extended, &[]))
}

fn answer(syndrome: u8) -> RocePayload {
    RocePayload::new(opcode::ACKNOWLEDGE, aeth(syndrome).to_vec(), &[])
}

fn aeth(syndrome: u8) -> [u8; 4] {
    [syndrome, 0, 0, 0]
}

fn reth(to: u64, key: u32, length: u32) -> Vec<u8> {
    let mut header = to.to_be_bytes().to_vec();
    header.extend(key.to_be_bytes());
    header.extend(length.to_be_bytes());
    header
}

fn nak_code(code: TerminateCode) -> u8 {
    use TerminateCode::*;
    match code {
        RdmapInvalidStag
        | RdmapBounds
        | RdmapAccess
        | RdmapNotAssociated
        | RdmapToWrap
        | RdmapCannotInvalidate
        | RdmapProtection
        | TaggedInvalidStag
        | TaggedBounds
        | TaggedNotAssociated
        | TaggedToWrap => NAK_REMOTE_ACCESS,
        UntaggedTooLong
        | UntaggedInvalidQn
        | UntaggedInvalidMsn
        | UntaggedInvalidMo
        | RdmapUnexpectedOpcode => NAK_INVALID_REQUEST,
        _ => NAK_REMOTE_OPERATION,
    }
}

/// The code of the shortest wait that is no shorter (InfiniBand architecture, volume 1, table 45).
fn rnr_code(wait_us: u32) -> u8 {
    const WAITS_US: [u32; 31] = [
        10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120,
        7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122_880, 163_840, 245_760, 327_680,
        491_520,
    ];
    // Code 0 is the longest of all.
    WAITS_US.iter().position(|wait| *wait >= wait_us).map_or(0, |at| at as u8 + 1)
}

/// A datagram with the headers that it has anyway; none if those are cut short.
pub(crate) fn datagram(path: PacketPath, bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, payload) = DatagramHeader::parse(bytes)?;
    let pad = payload.len().next_multiple_of(4) - payload.len();
    let mut bytes = bytes.to_vec();
    bytes[1] |= (pad as u8) << PAD_SHIFT;
    bytes.resize(bytes.len() + pad, 0);
    Some(wrap(path, bytes))
}

/// The packet around a transport's headers and payload, with its invariant CRC.
fn wrap(path: PacketPath, mut transport: Vec<u8>) -> Vec<u8> {
    let mut path = path;
    path.to.set_port(ROCE_PORT);
    transport.extend([0; 4]);
    let (mut packet, udp_at) = udp_packet(path, &transport);
    // It has no checksum, as adapters send it: the CRC says more.
    packet[udp_at + UDP_CHECKSUM_AT..udp_at + UDP_LEN].fill(0);
    let crc_at = packet.len() - 4;
    let crc = invariant_crc(&packet[..crc_at], udp_at).to_le_bytes();
    packet[crc_at..].copy_from_slice(&crc);
    packet
}

/// The CRC over all that no router changes, with ones in place of what it may (annex A17.3.3).
fn invariant_crc(packet: &[u8], udp_at: usize) -> u32 {
    let mut masked = packet.to_vec();
    match packet[0] >> 4 {
        4 => [1, 8, 10, 11].iter().for_each(|at| masked[*at] = 0xff),
        _ => {
            masked[0] |= 0x0f;
            [1, 2, 3, 7].iter().for_each(|at| masked[*at] = 0xff);
        }
    }
    masked[udp_at + UDP_CHECKSUM_AT..udp_at + UDP_LEN].fill(0xff);
    // The octet before the number of the destination's queue pair.
    masked[udp_at + UDP_LEN + 4] = 0xff;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0xff; 8]);
    hasher.update(&masked);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use weft_wire::ids::{Msn, QN_SEND, STag};

    use super::*;

    const PATH: fn() -> PacketPath = || PacketPath {
        from: "192.0.2.1:7000".parse().unwrap(),
        to: "192.0.2.2:8000".parse().unwrap(),
    };
    /// Where the opcode is: after IPv4 and UDP.
    const BTH: usize = 28;

    fn write(last: bool, to: u64) -> Vec<u8> {
        let header =
            TaggedHeader { last, control: Opcode::Write.control(), stag: STag(0x1700), to };
        [&header.to_bytes()[..], b"payload"].concat()
    }

    fn send(opcode: Opcode, last: bool, mo: u32, ulp: u32) -> Vec<u8> {
        let header = UntaggedHeader {
            last,
            control: opcode.control(),
            ulp,
            qn: QN_SEND,
            msn: Msn::FIRST,
            mo,
        };
        [&header.to_bytes()[..], b"12345678"].concat()
    }

    fn sent(view: &mut RoceView, dsn: u32, ulpdu: &[u8]) -> RocePacket {
        view.segment((TapDirection::Sent, PATH()), dsn, ulpdu).unwrap()
    }

    #[test]
    fn a_segment_says_its_place_in_its_message_also_when_it_is_sent_again() {
        let mut view = RoceView::new(0x11, true);
        view.set_peer(0x22);
        let message = [(0, false), (1, false), (2, true), (3, true)];
        let packets: Vec<RocePacket> = message
            .iter()
            .map(|(dsn, last)| sent(&mut view, *dsn, &write(*last, 0x1000 + u64::from(*dsn))))
            .collect();
        let opcodes: Vec<u8> = packets.iter().map(|packet| packet.bytes[BTH]).collect();
        assert_eq!(opcodes, opcode::WRITE);
        let first = &packets[0].bytes;
        assert_eq!(first[BTH + 4..BTH + 12], [0, 0, 0, 0x22, 0, 0, 0, 0], "number and sequence");
        assert_eq!(first[BTH + 1] >> PAD_SHIFT, 1, "seven bytes and one of padding");
        assert_eq!(first[BTH + 12..BTH + 20], 0x1000u64.to_be_bytes());
        assert_eq!(first[BTH + 20..BTH + 24], 0x1700u32.to_be_bytes());
        let again = sent(&mut view, 0, &write(false, 0x1000));
        assert_eq!((again.bytes == *first, again.again), (true, true));
        assert!(!packets[3].again);
    }

    #[test]
    fn what_came_out_of_order_is_no_first_before_what_precedes_it() {
        let mut view = RoceView::new(1, true);
        let mut receive = |dsn, last| {
            let at = (TapDirection::Received, PATH());
            view.segment(at, dsn, &write(last, 0)).unwrap().bytes[BTH]
        };
        assert_eq!(receive(5, false), opcode::WRITE[MessagePart::Middle as usize]);
        assert_eq!(receive(4, true), opcode::WRITE[MessagePart::Last as usize]);
        assert_eq!(receive(5, false), opcode::WRITE[MessagePart::First as usize]);
        assert_eq!(
            receive(4 + 3 * REMEMBERED as u32, true),
            opcode::WRITE[MessagePart::Last as usize]
        );
    }

    #[test]
    fn a_send_brings_its_four_octets_with_its_last_packet() {
        let mut view = RoceView::new(1, true);
        let first = sent(&mut view, 0, &send(Opcode::SendImmediate, false, 0, 7));
        assert_eq!(first.bytes[BTH], opcode::SEND[MessagePart::First as usize]);
        let last = sent(&mut view, 1, &send(Opcode::SendImmediate, true, 8, 7)).bytes;
        assert_eq!(last[BTH], opcode::SEND_LAST_IMMEDIATE);
        assert_eq!(last[BTH + 12..BTH + 16], [0, 0, 0, 7]);
        let only = sent(&mut view, 2, &send(Opcode::SendSolicitedInvalidate, true, 0, 9)).bytes;
        assert_eq!(only[BTH], opcode::SEND_ONLY_INVALIDATE);
        assert_eq!(only[BTH + 1] & SOLICITED, SOLICITED);
    }

    #[test]
    fn a_frontier_acknowledges_once_and_nothing_on_an_unreliable_connection() {
        let mut view = RoceView::new(1, true);
        let at = || (TapDirection::Received, PATH());
        let ack = view.acknowledgement(at(), |known| widen(10, known)).unwrap();
        assert_eq!(ack[BTH], opcode::ACKNOWLEDGE);
        assert_eq!(ack[BTH + 8..BTH + 13], [0, 0, 0, 9, ACK]);
        assert_eq!(view.acknowledgement(at(), |_| 10), None);
        let busy = view.not_ready(at(), 100);
        assert_eq!(busy[BTH + 8..BTH + 13], [0, 0, 0, 10, RNR_NAK | 7]);
        let mut view = RoceView::new(1, false);
        assert_eq!(view.acknowledgement(at(), |_| 10), None);
        assert_eq!(sent(&mut view, 0, &write(true, 0)).bytes[BTH], 0x2a);
    }

    #[test]
    fn waits_have_the_next_longer_code() {
        let codes = [(0, 1), (10, 1), (11, 2), (640, 12), (491_520, 31), (491_521, 0)];
        codes.into_iter().for_each(|(us, code)| assert_eq!(rnr_code(us), code, "{us}"));
    }
}
