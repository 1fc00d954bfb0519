//! The first octets of a datagram (`docs/shuttle.md`, "Packets").

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::hello::{HELLO_LEN, HelloKind};
use super::{CTRL_LEN, ConnectionId, DATA_LEN, PathId, ShuttleError};

const KIND_SHIFT: u32 = 5;
const KIND_DATA: u8 = 5;
const KIND_CTRL: u8 = 6;
const PHASE_SHIFT: u32 = 3;
const ACK_NOW: u8 = 0x04;
const SEVERAL: u8 = 0x02;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CtrlWire {
    flags: u8,
    path: u8,
    cid: U32,
    pn: U32,
}
const _: () = assert!(size_of::<CtrlWire>() == CTRL_LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DataWire {
    ctrl: CtrlWire,
    dsn: U32,
    frontier: U32,
}
const _: () = assert!(size_of::<DataWire>() == DATA_LEN);

/// What data and control packets begin with; control packets have nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtrlHeader {
    /// The receiver's connection id; of a data packet with its stream.
    pub cid: ConnectionId,
    /// The path whose packet number this is.
    pub path: PathId,
    /// Low bits of the packet number: new for every packet of a path.
    pub pn: u32,
    /// Low two bits of the number of key updates.
    pub phase: u8,
    /// The sender waits for the acknowledgement.
    pub ack_now: bool,
}

impl CtrlHeader {
    /// The header of a control packet as it travels.
    pub fn to_bytes(&self) -> [u8; CTRL_LEN] {
        zerocopy::transmute!(self.wire(KIND_CTRL))
    }

    fn wire(&self, kind: u8) -> CtrlWire {
        let flags = kind << KIND_SHIFT | (self.phase & 3) << PHASE_SHIFT;
        CtrlWire {
            flags: flags | if self.ack_now { ACK_NOW } else { 0 },
            path: self.path.0,
            cid: self.cid.0.into(),
            pn: self.pn.into(),
        }
    }

    fn from_wire(wire: &CtrlWire) -> Self {
        Self {
            cid: ConnectionId(wire.cid.get()),
            path: PathId(wire.path),
            pn: wire.pn.get(),
            phase: wire.flags >> PHASE_SHIFT & 3,
            ack_now: wire.flags & ACK_NOW != 0,
        }
    }
}

/// The header of a packet that carries DDP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// What it has in common with a control packet.
    pub ctrl: CtrlHeader,
    /// The packet carries more than one segment, as [`super::segments`] says.
    pub several: bool,
    /// Low bits of the first segment's number: the same each time the segment is sent.
    pub dsn: u32,
    /// Low bits of how far the sender of the packet has placed what its peer sent on the stream.
    pub frontier: u32,
}

impl DataHeader {
    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; DATA_LEN] {
        let mut ctrl = self.ctrl.wire(KIND_DATA);
        ctrl.flags |= if self.several { SEVERAL } else { 0 };
        zerocopy::transmute!(DataWire {
            ctrl,
            dsn: self.dsn.into(),
            frontier: self.frontier.into(),
        })
    }
}

/// A datagram by its first octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Of the handshake; [`super::hello::Hello::parse`] reads the rest.
    Hello {
        /// Which.
        kind: HelloKind,
        /// The receiver's connection id, zero where there is none yet.
        to: ConnectionId,
    },
    /// Segments. The header is [`DATA_LEN`] octets.
    Data(DataHeader),
    /// Frames. The header is [`CTRL_LEN`] octets.
    Ctrl(CtrlHeader),
}

impl Packet {
    /// Tells what `datagram` is.
    pub fn parse(datagram: &[u8]) -> Result<Self, ShuttleError> {
        let short = ShuttleError::Short;
        let kind = *datagram.first().ok_or(short)? >> KIND_SHIFT;
        match kind {
            KIND_DATA => {
                let (wire, _) = DataWire::ref_from_prefix(datagram).map_err(|_| short)?;
                let ctrl = CtrlHeader::from_wire(&wire.ctrl);
                let several = wire.ctrl.flags & SEVERAL != 0;
                let (dsn, frontier) = (wire.dsn.get(), wire.frontier.get());
                Ok(Self::Data(DataHeader { ctrl, several, dsn, frontier }))
            }
            KIND_CTRL => {
                let (wire, _) = CtrlWire::ref_from_prefix(datagram).map_err(|_| short)?;
                Ok(Self::Ctrl(CtrlHeader::from_wire(wire)))
            }
            _ => {
                let kind = HelloKind::from_number(kind).ok_or(ShuttleError::Kind(kind))?;
                let head = datagram.get(..HELLO_LEN).ok_or(short)?;
                let to = head[2..].first_chunk().ok_or(short)?;
                Ok(Self::Hello { kind, to: ConnectionId(u32::from_be_bytes(*to)) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_octets() {
        let ctrl = CtrlHeader {
            cid: ConnectionId(0x0102_0304),
            path: PathId(9),
            pn: 0xa0b0_c0d0,
            phase: 2,
            ack_now: true,
        };
        assert_eq!(ctrl.to_bytes(), [0xd4, 9, 1, 2, 3, 4, 0xa0, 0xb0, 0xc0, 0xd0]);
        assert_eq!(Packet::parse(&ctrl.to_bytes()), Ok(Packet::Ctrl(ctrl)));
        let (dsn, frontier) = (0x1122_3344, 0x5566_7788);
        let data = DataHeader { ctrl, several: false, dsn, frontier };
        let octets = data.to_bytes();
        assert_eq!(octets[0], 0xb4);
        let several = DataHeader { several: true, ..data };
        assert_eq!(several.to_bytes()[0], 0xb6);
        assert_eq!(Packet::parse(&several.to_bytes()), Ok(Packet::Data(several)));
        assert_eq!(octets[10..], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(Packet::parse(&octets), Ok(Packet::Data(data)));
        assert_eq!(Packet::parse(&octets[..17]), Err(ShuttleError::Short));
    }

    #[test]
    fn kinds_that_are_not_used_are_refused() {
        assert_eq!(Packet::parse(&[]), Err(ShuttleError::Short));
        assert_eq!(Packet::parse(&[0; 64]), Err(ShuttleError::Kind(0)));
        assert_eq!(Packet::parse(&[0xff; 27]), Err(ShuttleError::Short));
    }
}
