//! Shuttle: packets that carry DDP segments over datagrams (`docs/shuttle.md`).
//!
//! [`Packet::parse`] tells what a datagram is; [`hello::Hello`] reads the handshake's packets,
//! [`segments::PackedSegments`] what a data packet carries and [`frame::Frames`] the frames of a
//! control packet. What is sealed is opened in between, by the crate `shuttle`.

pub mod frame;
pub mod greeting;
pub mod hello;
mod packet;
pub mod segments;
mod varint;

pub use packet::{CtrlHeader, DataHeader, Packet};

/// The version of Shuttle that is spoken here.
pub const VERSION: u8 = 3;
/// Octets of the header of a data packet.
pub const DATA_LEN: usize = 18;
/// Octets of the header of a control packet.
pub const CTRL_LEN: usize = 10;
/// Packet numbers have this many bits.
pub const PN_BITS: u32 = 48;

/// Why a datagram is not Shuttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShuttleError {
    /// It ends inside a header or a field.
    #[error("packet ends inside its header")]
    Short,
    /// Its first octet names no kind of packet.
    #[error("unknown kind of packet {0}")]
    Kind(u8),
    /// Another version of Shuttle.
    #[error("Shuttle version {0}")]
    Version(u8),
    /// A frame of a type that is not known.
    #[error("unknown frame type {0:#04x}")]
    Frame(u8),
    /// A parameter that must be understood and is not.
    #[error("unknown parameter {0}")]
    Parameter(u8),
    /// A field holds what it must not.
    #[error("invalid value of {0}")]
    Value(&'static str),
    /// The checksum over a handshake packet is wrong.
    #[error("handshake packet with a wrong CRC")]
    Crc,
}

/// A connection id: chosen by the receiver of the packets that carry it. The low octet names the
/// stream, so a packet finds its stream without a header field of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

impl ConnectionId {
    /// The id without its stream.
    pub fn base(self) -> Self {
        Self(self.0 & !0xff)
    }

    /// The id for packets of `stream`.
    pub fn with_stream(self, stream: StreamId) -> Self {
        Self(self.base().0 | u32::from(stream.0))
    }

    /// The stream that the id names.
    pub fn stream(self) -> StreamId {
        StreamId(self.0 as u8)
    }
}

/// A stream of a connection: one queue pair, both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u8);

/// A path of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u8);

/// The whole number of which `low` holds the low 32 bits and which is closest to `near`.
pub fn widen(low: u32, near: u64) -> u64 {
    let step = low.wrapping_sub(near as u32) as i32;
    near.checked_add_signed(i64::from(step)).unwrap_or(u64::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_finds_the_closest() {
        assert_eq!(widen(5, 3), 5);
        assert_eq!(widen(0xffff_fff0, 0x1_0000_0004), 0xffff_fff0);
        assert_eq!(widen(2, 0x0_ffff_fff0), 0x1_0000_0002);
        assert_eq!(widen(0xffff_ffff, 0), 0xffff_ffff);
    }

    #[test]
    fn a_connection_id_holds_its_stream() {
        let id = ConnectionId(0x1234_5600).with_stream(StreamId(7));
        assert_eq!((id.base(), id.stream()), (ConnectionId(0x1234_5600), StreamId(7)));
    }
}
