//! Headers of the Sockets Direct Protocol: the base header of every message and the extended
//! header that some kinds have after it. Layouts as OFED and its relatives put them on the wire.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Octets of the base header.
pub const BASE_LEN: usize = 16;
/// Octets of a Hello, base header included.
pub const HELLO_LEN: usize = BASE_LEN + size_of::<SdpHelloWire>();
/// Octets of a HelloAck that mean something, base header included. Peers pad to what their
/// connection manager carries.
pub const HELLO_ACK_LEN: usize = BASE_LEN + size_of::<HelloAckWire>();

/// Octets of the longest headers that a message has once the connection is open.
pub const HEAD_LEN_MAX: usize = BASE_LEN + size_of::<AdvertWire>() + size_of::<U32>();

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageId {
    /// Opens a connection.
    Hello = 0x00,
    /// Accepts it.
    HelloAck = 0x01,
    /// No more data in this direction.
    DisConn = 0x02,
    /// Resets the connection.
    AbortConn = 0x03,
    /// The sink wants data by Sends instead of reading it.
    SendSm = 0x04,
    /// Octets written into the oldest advertised sink.
    RdmaWrCompl = 0x05,
    /// Octets read from the oldest advertised source.
    RdmaRdCompl = 0x06,
    /// Another mode for one half of the connection.
    ModeChange = 0x07,
    /// Takes an advertised source back.
    SrcAvailCancel = 0x08,
    /// Takes an advertised sink back.
    SinkAvailCancel = 0x09,
    /// Confirms that.
    SinkCancelAck = 0x0a,
    /// Asks for larger receive buffers.
    ChRcvBuf = 0x0b,
    /// Tells the size they have now.
    ChRcvBufAck = 0x0c,
    /// Suspends the connection to hand its socket over.
    SuspComm = 0x0d,
    /// Confirms that.
    SuspCommAck = 0x0e,
    /// Advertises memory to write to.
    SinkAvail = 0xfd,
    /// Advertises memory to read from.
    SrcAvail = 0xfe,
    /// Data; empty, it only updates credits.
    Data = 0xff,
}

impl MessageId {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::Hello,
        Self::HelloAck,
        Self::DisConn,
        Self::AbortConn,
        Self::SendSm,
        Self::RdmaWrCompl,
        Self::RdmaRdCompl,
        Self::ModeChange,
        Self::SrcAvailCancel,
        Self::SinkAvailCancel,
        Self::SinkCancelAck,
        Self::ChRcvBuf,
        Self::ChRcvBufAck,
        Self::SuspComm,
        Self::SuspCommAck,
        Self::SinkAvail,
        Self::SrcAvail,
        Self::Data,
    ];

    /// The kind with this number.
    pub fn from_octet(octet: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|id| *id as u8 == octet)
    }
}

/// Why octets are no SDP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// The message ends inside a header, or is not as long as it says.
    #[error("SDP message is not as long as it declares")]
    Length,
    /// An unknown kind.
    #[error("SDP message of unknown kind {0:#04x}")]
    Kind(u8),
    /// An unknown mode.
    #[error("SDP mode {0}")]
    Mode(u8),
}

/// Flags of the base header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The last octet of payload is urgent.
    pub const OOB_PRESENT: Self = Self(0x01);
    /// Urgent data is on its way.
    pub const OOB_PENDING: Self = Self(0x02);
    /// The sink asks for pipelined mode.
    pub const REQUEST_PIPELINED: Self = Self(0x04);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BaseWire {
    id: u8,
    flags: u8,
    bufs: U16,
    len: U32,
    seq: U32,
    ack: U32,
}
const _: () = assert!(size_of::<BaseWire>() == BASE_LEN);

/// The base header without its kind and length, which follow from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Flags.
    pub flags: Flags,
    /// Receive buffers that the sender has posted now.
    pub bufs: u16,
    /// Number of this message; 0 for Hello and HelloAck.
    pub seq: u32,
    /// Number of the last message received.
    pub ack: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SdpHelloWire {
    version: u8,
    ip_version_and_capabilities: u8,
    reserved: u8,
    max_adverts: u8,
    desired_remote_size: U32,
    local_size: U32,
    local_port: U16,
    reserved2: U16,
    src_ip: [u8; 16],
    dst_ip: [u8; 16],
    reserved3: U16,
    ext_max_adverts: U16,
    reserved4: [u8; 24],
}
const _: () = assert!(size_of::<SdpHelloWire>() == 76);

/// What the opening side tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpHello {
    /// Major and minor version, a nibble each.
    pub version: u8,
    /// IP version (high nibble) and capabilities (low nibble).
    pub ip_version_and_capabilities: u8,
    /// Advertisements that may be outstanding.
    pub max_adverts: u8,
    /// Size wished for the peer's receive buffers, octets.
    pub desired_remote_size: u32,
    /// Size of the own receive buffers, octets.
    pub local_size: u32,
    /// Port of the own socket.
    pub local_port: u16,
    /// Own address, IPv4 in the last four octets.
    pub src_ip: [u8; 16],
    /// The peer's address, likewise.
    pub dst_ip: [u8; 16],
    /// Advertisements that may be outstanding, if the capability says so.
    pub ext_max_adverts: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HelloAckWire {
    version: u8,
    ip_version_and_capabilities: u8,
    max_adverts: U16,
    actual_size: U32,
}

/// What the accepting side answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// Major and minor version, a nibble each.
    pub version: u8,
    /// IP version (high nibble) and capabilities (low nibble).
    pub ip_version_and_capabilities: u8,
    /// Advertisements that may be outstanding.
    pub max_adverts: u16,
    /// Size of the own receive buffers, octets.
    pub actual_size: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AdvertWire {
    size: U32,
    rkey: U32,
    addr: U64,
}

/// Memory that is advertised to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// Octets.
    pub size: u32,
    /// Key for remote access.
    pub rkey: u32,
    /// Address of the first octet.
    pub addr: u64,
}

/// How data travels in one half of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// In Data messages only.
    Buffered = 0,
    /// Also by one advertised source at a time.
    Combined = 1,
    /// Also by several advertised sources and sinks.
    Pipelined = 2,
}

/// A message by its kind, with its extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SdpMessage {
    /// See [`MessageId::Hello`].
    Hello(SdpHello),
    /// See [`MessageId::HelloAck`].
    HelloAck(HelloAck),
    /// See [`MessageId::RdmaWrCompl`]: octets.
    RdmaWrCompl(u32),
    /// See [`MessageId::RdmaRdCompl`]: octets.
    RdmaRdCompl(u32),
    /// See [`MessageId::ModeChange`].
    ModeChange {
        /// The receiver's send half rather than its receive half.
        send_half: bool,
        /// The new mode.
        mode: Mode,
    },
    /// See [`MessageId::ChRcvBuf`]: octets.
    ChRcvBuf(u32),
    /// See [`MessageId::ChRcvBufAck`]: octets.
    ChRcvBufAck(u32),
    /// See [`MessageId::SuspComm`]: service to resume at.
    SuspComm(u64),
    /// See [`MessageId::SinkAvail`].
    SinkAvail {
        /// The memory.
        advert: Advert,
        /// Data messages that the sink knows the source did not discard.
        non_discards: u32,
    },
    /// See [`MessageId::SrcAvail`]; payload may follow.
    SrcAvail(Advert),
    /// A kind without extended header.
    Plain(MessageId),
}

impl SdpMessage {
    /// The kind.
    pub fn id(&self) -> MessageId {
        match self {
            Self::Hello(_) => MessageId::Hello,
            Self::HelloAck(_) => MessageId::HelloAck,
            Self::RdmaWrCompl(_) => MessageId::RdmaWrCompl,
            Self::RdmaRdCompl(_) => MessageId::RdmaRdCompl,
            Self::ModeChange { .. } => MessageId::ModeChange,
            Self::ChRcvBuf(_) => MessageId::ChRcvBuf,
            Self::ChRcvBufAck(_) => MessageId::ChRcvBufAck,
            Self::SuspComm(_) => MessageId::SuspComm,
            Self::SinkAvail { .. } => MessageId::SinkAvail,
            Self::SrcAvail(_) => MessageId::SrcAvail,
            Self::Plain(id) => *id,
        }
    }

    fn parse(id: MessageId, bytes: &[u8]) -> Result<(Self, &[u8]), SdpError> {
        Ok(match id {
            MessageId::Hello => SdpHello::parse(bytes)?,
            MessageId::HelloAck => HelloAck::parse(bytes)?,
            MessageId::RdmaWrCompl => map(word(bytes)?, Self::RdmaWrCompl),
            MessageId::RdmaRdCompl => map(word(bytes)?, Self::RdmaRdCompl),
            MessageId::ChRcvBuf => map(word(bytes)?, Self::ChRcvBuf),
            MessageId::ChRcvBufAck => map(word(bytes)?, Self::ChRcvBufAck),
            MessageId::ModeChange => parse_mode_change(bytes)?,
            MessageId::SuspComm => {
                let (service, rest) = view::<U64>(bytes)?;
                (Self::SuspComm(service.get()), rest)
            }
            MessageId::SrcAvail => map(Advert::parse(bytes)?, Self::SrcAvail),
            MessageId::SinkAvail => {
                let (advert, rest) = Advert::parse(bytes)?;
                map(word(rest)?, |non_discards| Self::SinkAvail { advert, non_discards })
            }
            plain => (Self::Plain(plain), bytes),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => out.extend_from_slice(hello.to_wire().as_bytes()),
            Self::HelloAck(ack) => out.extend_from_slice(ack.to_wire().as_bytes()),
            Self::RdmaWrCompl(word)
            | Self::RdmaRdCompl(word)
            | Self::ChRcvBuf(word)
            | Self::ChRcvBufAck(word) => out.extend_from_slice(&word.to_be_bytes()),
            Self::ModeChange { send_half, mode } => {
                let half = if *send_half { 0x80 } else { 0 };
                out.extend_from_slice(&[half | (*mode as u8) << 4, 0, 0, 0]);
            }
            Self::SuspComm(service) => out.extend_from_slice(&service.to_be_bytes()),
            Self::SrcAvail(advert) => out.extend_from_slice(advert.to_wire().as_bytes()),
            Self::SinkAvail { advert, non_discards } => {
                out.extend_from_slice(advert.to_wire().as_bytes());
                out.extend_from_slice(&non_discards.to_be_bytes());
            }
            Self::Plain(_) => {}
        }
    }
}

/// Reads one message: base header, extended header, payload.
pub fn parse(bytes: &[u8]) -> Result<(Base, SdpMessage, &[u8]), SdpError> {
    let len = u32::try_from(bytes.len()).map_err(|_| SdpError::Length)?;
    parse_head(bytes, len)
}

/// Reads the headers of a message of `len` octets of which `bytes` are the first; gives what
/// follows them in `bytes`. [`HEAD_LEN_MAX`] octets are enough for all but Hello.
pub fn parse_head(bytes: &[u8], len: u32) -> Result<(Base, SdpMessage, &[u8]), SdpError> {
    let (wire, rest) = view::<BaseWire>(bytes)?;
    if wire.len.get() != len {
        return Err(SdpError::Length);
    }
    let id = MessageId::from_octet(wire.id).ok_or(SdpError::Kind(wire.id))?;
    let (message, payload) = SdpMessage::parse(id, rest)?;
    let base = Base {
        flags: Flags(wire.flags),
        bufs: wire.bufs.get(),
        seq: wire.seq.get(),
        ack: wire.ack.get(),
    };
    Ok((base, message, payload))
}

/// Appends the headers of a message to which `payload_len` octets of payload will be added.
pub fn encode(base: &Base, message: &SdpMessage, payload_len: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let wire = BaseWire {
        id: message.id() as u8,
        flags: base.flags.0,
        bufs: base.bufs.into(),
        len: 0.into(),
        seq: base.seq.into(),
        ack: base.ack.into(),
    };
    out.extend_from_slice(wire.as_bytes());
    message.encode(out);
    let len = (out.len() - start) as u32 + payload_len;
    out[start + 4..start + 8].copy_from_slice(&len.to_be_bytes());
}

impl SdpHello {
    fn parse(bytes: &[u8]) -> Result<(SdpMessage, &[u8]), SdpError> {
        let (wire, rest) = view::<SdpHelloWire>(bytes)?;
        let hello = Self {
            version: wire.version,
            ip_version_and_capabilities: wire.ip_version_and_capabilities,
            max_adverts: wire.max_adverts,
            desired_remote_size: wire.desired_remote_size.get(),
            local_size: wire.local_size.get(),
            local_port: wire.local_port.get(),
            src_ip: wire.src_ip,
            dst_ip: wire.dst_ip,
            ext_max_adverts: wire.ext_max_adverts.get(),
        };
        Ok((SdpMessage::Hello(hello), rest))
    }

    fn to_wire(self) -> SdpHelloWire {
        SdpHelloWire {
            version: self.version,
            ip_version_and_capabilities: self.ip_version_and_capabilities,
            reserved: 0,
            max_adverts: self.max_adverts,
            desired_remote_size: self.desired_remote_size.into(),
            local_size: self.local_size.into(),
            local_port: self.local_port.into(),
            reserved2: 0.into(),
            src_ip: self.src_ip,
            dst_ip: self.dst_ip,
            reserved3: 0.into(),
            ext_max_adverts: self.ext_max_adverts.into(),
            reserved4: [0; 24],
        }
    }
}

impl HelloAck {
    fn parse(bytes: &[u8]) -> Result<(SdpMessage, &[u8]), SdpError> {
        let (wire, rest) = view::<HelloAckWire>(bytes)?;
        let ack = Self {
            version: wire.version,
            ip_version_and_capabilities: wire.ip_version_and_capabilities,
            max_adverts: wire.max_adverts.get(),
            actual_size: wire.actual_size.get(),
        };
        Ok((SdpMessage::HelloAck(ack), rest))
    }

    fn to_wire(self) -> HelloAckWire {
        HelloAckWire {
            version: self.version,
            ip_version_and_capabilities: self.ip_version_and_capabilities,
            max_adverts: self.max_adverts.into(),
            actual_size: self.actual_size.into(),
        }
    }
}

impl Advert {
    fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), SdpError> {
        let (wire, rest) = view::<AdvertWire>(bytes)?;
        let advert = Self { size: wire.size.get(), rkey: wire.rkey.get(), addr: wire.addr.get() };
        Ok((advert, rest))
    }

    fn to_wire(self) -> AdvertWire {
        AdvertWire { size: self.size.into(), rkey: self.rkey.into(), addr: self.addr.into() }
    }
}

fn parse_mode_change(bytes: &[u8]) -> Result<(SdpMessage, &[u8]), SdpError> {
    let (&[octet, _, _, _], rest) = bytes.split_first_chunk().ok_or(SdpError::Length)?;
    let mode = match octet >> 4 & 7 {
        0 => Mode::Buffered,
        1 => Mode::Combined,
        2 => Mode::Pipelined,
        number => return Err(SdpError::Mode(number)),
    };
    Ok((SdpMessage::ModeChange { send_half: octet & 0x80 != 0, mode }, rest))
}

fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
) -> Result<(&T, &[u8]), SdpError> {
    T::ref_from_prefix(bytes).map_err(|_| SdpError::Length)
}

fn word(bytes: &[u8]) -> Result<(u32, &[u8]), SdpError> {
    view::<U32>(bytes).map(|(word, rest)| (word.get(), rest))
}

fn map<T, R>((value, rest): (T, R), make: impl FnOnce(T) -> SdpMessage) -> (SdpMessage, R) {
    (make(value), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Base = Base { flags: Flags(0), bufs: 60, seq: 9, ack: 3 };

    #[test]
    fn every_kind_round_trips() {
        let advert = Advert { size: 1, rkey: 2, addr: 3 };
        let mut messages = vec![
            SdpMessage::RdmaWrCompl(5),
            SdpMessage::RdmaRdCompl(6),
            SdpMessage::ModeChange { send_half: false, mode: Mode::Pipelined },
            SdpMessage::ChRcvBuf(7),
            SdpMessage::ChRcvBufAck(8),
            SdpMessage::SuspComm(9),
            SdpMessage::SinkAvail { advert, non_discards: 4 },
            SdpMessage::SrcAvail(advert),
        ];
        let plain = [0x02, 0x03, 0x04, 0x08, 0x09, 0x0a, 0x0e, 0xff];
        messages
            .extend(plain.map(|octet| SdpMessage::Plain(MessageId::from_octet(octet).unwrap())));
        for message in messages {
            let mut bytes = Vec::new();
            encode(&BASE, &message, 2, &mut bytes);
            bytes.extend(b"xy");
            assert_eq!(parse(&bytes), Ok((BASE, message, &b"xy"[..])));
        }
    }

    #[test]
    fn a_message_must_be_as_long_as_it_says() {
        let mut bytes = Vec::new();
        encode(&BASE, &SdpMessage::RdmaRdCompl(1), 0, &mut bytes);
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), Err(SdpError::Length));
        }
        bytes.truncate(BASE_LEN + 2);
        bytes[7] = bytes.len() as u8;
        assert_eq!(parse(&bytes), Err(SdpError::Length));
    }

    #[test]
    fn headers_are_read_without_the_payload() {
        let advert = Advert { size: 1, rkey: 2, addr: 3 };
        let message = SdpMessage::SinkAvail { advert, non_discards: 4 };
        let mut bytes = Vec::new();
        encode(&BASE, &message, 1000, &mut bytes);
        assert_eq!(bytes.len(), HEAD_LEN_MAX);
        assert_eq!(parse_head(&bytes, 1036), Ok((BASE, message, &[][..])));
        assert_eq!(parse_head(&bytes, 1035), Err(SdpError::Length));
        assert_eq!(parse_head(&bytes[..35], 1036), Err(SdpError::Length));
    }

    #[test]
    fn unknown_kinds_and_modes_are_named() {
        let mut bytes = Vec::new();
        encode(
            &BASE,
            &SdpMessage::ModeChange { send_half: true, mode: Mode::Buffered },
            0,
            &mut bytes,
        );
        bytes[BASE_LEN] = 0xf0;
        assert_eq!(parse(&bytes), Err(SdpError::Mode(7)));
        bytes[0] = 0x10;
        assert_eq!(parse(&bytes), Err(SdpError::Kind(0x10)));
    }
}
