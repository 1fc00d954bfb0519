//! The packets of the handshake (`docs/shuttle.md`, "Handshake"): a fixed header, parameters, zero
//! padding, CRC32C.

mod addresses;

use core::net::SocketAddr;

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use addresses::AddressWire;
pub use addresses::{AddressList, MAX_ADDRESSES};

use super::varint::Reader;
use super::{ConnectionId, ShuttleError, VERSION};
use crate::crc::Crc32c;

/// Octets of the fixed header.
pub const HELLO_LEN: usize = 28;
/// A Request is padded to this, so that an answer is never much longer than what caused it.
pub const REQUEST_MIN: usize = 1200;
/// A Probe is padded to this, so that its answer has room for a cookie and is no longer.
pub const PROBE_MIN: usize = 64;
/// Octets of private data that a handshake packet carries at most.
pub const MAX_PRIVATE_DATA: usize = 512;
/// Octets of a cookie at most.
pub const MAX_COOKIE: usize = 32;
/// Octets of a key agreement message at most.
pub const MAX_KEY_MESSAGE: usize = 1024;

const CRC_LEN: usize = 4;
const PARAMETER_HEAD: usize = 3;
const MODULES: u8 = 1;
const LIMITS: u8 = 2;
const PRIVATE_DATA: u8 = 3;
const COOKIE: u8 = 4;
const KEY_MESSAGE: u8 = 5;
const REASON: u8 = 6;
/// Parameters from here on may be ignored by who does not know them.
const OPTIONAL: u8 = 0x80;
const STAMP: u8 = OPTIONAL;
const ADDRESSES: u8 = OPTIONAL + 1;
const WITHDRAWAL: u8 = OPTIONAL + 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HelloWire {
    kind: u8,
    version: u8,
    to: U32,
    from: U32,
    nonce: U64,
    echo: U64,
    len: U16,
}
const _: () = assert!(size_of::<HelloWire>() == HELLO_LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LimitsWire {
    datagram: U16,
    streams: U16,
    ord: U16,
    ird: U16,
    idle_ms: U32,
    rate_kbps: U64,
}
const LIMITS_LEN: usize = size_of::<LimitsWire>();
const _: () = assert!(LIMITS_LEN == 20);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StampWire {
    unix_ms: U64,
    to: AddressWire,
}

/// The kinds of handshake packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HelloKind {
    /// Asks for a connection.
    Request = 1,
    /// Grants it.
    Reply = 2,
    /// Refuses it; or withdraws the Request, if it comes from who has asked.
    Reject = 3,
    /// Asks for the Request once more, with a cookie.
    Retry = 4,
    /// Asks whether anybody takes Requests, and says so.
    Probe = 7,
}

impl HelloKind {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Request, Self::Reply, Self::Reject, Self::Retry, Self::Probe]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// Sets of modules as bits: what a Request can do, what a Reply chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// Bits of [`crate::shuttle::hello::protection`].
    pub protection: u8,
    /// Bits of [`crate::shuttle::hello::placement`].
    pub placement: u8,
    /// Bits of [`crate::shuttle::hello::recovery`].
    pub recovery: u8,
}

/// What protects packets.
pub mod protection {
    /// Nothing but UDP's checksum; control packets have their tag all the same.
    pub const NONE: u8 = 1;
    /// CRC32C over data packets.
    pub const CRC32C: u8 = 2;
    /// AES-128-GCM.
    pub const AES128GCM: u8 = 4;
    /// ChaCha20-Poly1305.
    pub const CHACHA20POLY1305: u8 = 8;
}

/// When a segment may be placed.
pub mod placement {
    /// In the order of their numbers only.
    pub const STRICT: u8 = 1;
    /// At once, but the last segment of a tagged message after everything before it.
    pub const TAIL: u8 = 2;
    /// At once.
    pub const LOOSE: u8 = 4;
}

/// What is done about lost segments.
pub mod recovery {
    /// They are sent again until they arrive.
    pub const FULL: u8 = 1;
    /// So they are; and the last ones before a sender falls silent are sent twice at once.
    pub const TAIL_DUP: u8 = 2;
    /// Nothing; the receiver is told which do not come.
    pub const OFF: u8 = 4;
}

/// Reasons of a Reject that are Shuttle's own; smaller ones are the application's.
pub mod reason {
    /// The key agreement message cannot be read: the ends have different keys.
    pub const STRANGER: u16 = 0xff00;
    /// No protection, placement or recovery is common to both ends.
    pub const NOTHING_IN_COMMON: u16 = 0xff01;
    /// Clear text with other hosts is not allowed there.
    pub const CLEAR_TEXT: u16 = 0xff02;
    /// Another version of Shuttle is spoken there.
    pub const VERSION: u16 = 0xff03;
    /// Who has asked for the connection has given it up.
    pub const WITHDRAWN: u16 = 0xff04;
}

/// What the sender of a handshake packet can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloLimits {
    /// Octets of the largest datagram.
    pub datagram_octets: u16,
    /// Streams.
    pub streams: u16,
    /// Reads and Atomics that it will have outstanding.
    pub ord: u16,
    /// Reads and Atomics of the peer that it will serve at a time.
    pub ird: u16,
    /// Silence after which it gives the connection up.
    pub idle_ms: u32,
    /// Rate that it can receive at; `u64::MAX` if it knows no limit.
    pub rate_kbps: u64,
}

/// When a Request was made, and to which address it was sent (S-24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloStamp {
    /// Milliseconds since 1970 by the sender's clock.
    pub unix_ms: u64,
    /// Destination as the sender knows it; IPv4 addresses are never mapped ones.
    pub to: SocketAddr,
}

/// A handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Which.
    pub kind: HelloKind,
    /// The receiver's connection id; zero in a Request, a Probe, and what withdraws a Request.
    pub to: ConnectionId,
    /// The sender's; where its packets are to go. Zero if there is none.
    pub from: ConnectionId,
    /// Drawn by the sender for this attempt.
    pub nonce: u64,
    /// The nonce of the packet that this one answers; zero in a Request.
    pub echo: u64,
    /// What it can do, or has chosen.
    pub modules: Modules,
    /// What it can take. Missing in Reject, Retry and Probe.
    pub limits: Option<HelloLimits>,
    /// The application's own.
    pub private_data: &'a [u8],
    /// Proof that the sender receives what goes to its address.
    pub cookie: &'a [u8],
    /// A message of the key agreement.
    pub key_message: &'a [u8],
    /// Why a Reject.
    pub reason: u16,
    /// Of a Request inside a key agreement message.
    pub stamp: Option<HelloStamp>,
    /// Where its sender is besides; none if it wants no further paths (S-75).
    pub addresses: Option<AddressList<'a>>,
    /// Of a Request: what withdraws it, if it can be withdrawn. Of a Reject: that, said (S-25).
    pub withdrawal: Option<u64>,
}

impl<'a> Hello<'a> {
    /// A packet without parameters.
    pub fn new(kind: HelloKind) -> Self {
        Self {
            kind,
            to: ConnectionId(0),
            from: ConnectionId(0),
            nonce: 0,
            echo: 0,
            modules: Modules::default(),
            limits: None,
            private_data: &[],
            cookie: &[],
            key_message: &[],
            reason: 0,
            stamp: None,
            addresses: None,
            withdrawal: None,
        }
    }

    /// Asks whether anybody takes Requests where it goes, on behalf of a Request that is to have
    /// the id `from` and `nonce`, which is not zero.
    pub fn probe(from: ConnectionId, nonce: u64) -> Self {
        Self { from, nonce, ..Self::new(HelloKind::Probe) }
    }

    /// What is to be said to this Probe by who takes Requests; `None` if it is none, or an answer
    /// itself.
    pub fn probed(&self) -> Option<Self> {
        let asks = self.kind == HelloKind::Probe && self.echo == 0 && self.nonce != 0;
        asks.then(|| Self { echo: self.nonce, ..Self::new(HelloKind::Probe) })
    }

    /// Withdraws this Request; `None` if it is none, or cannot be withdrawn.
    pub fn withdrawn(&self) -> Option<Self> {
        let withdrawal = self.withdrawal.filter(|_| self.kind == HelloKind::Request);
        withdrawal.map(|_| Self {
            from: self.from,
            nonce: self.nonce,
            reason: reason::WITHDRAWN,
            withdrawal,
            ..Self::new(HelloKind::Reject)
        })
    }

    /// Reads the header of a packet of another version, which all versions have in common, and
    /// gives that version; `None` for any other datagram.
    pub fn parse_foreign(datagram: &[u8]) -> Option<(u8, Hello<'static>)> {
        let (covered, crc) = datagram.split_last_chunk::<CRC_LEN>()?;
        let (wire, _) = HelloWire::ref_from_prefix(covered).ok()?;
        let kind = HelloKind::from_number(wire.kind >> 5)?;
        if wire.version == VERSION || Crc32c::of(covered) != *crc {
            return None;
        }
        let (from, nonce, echo) =
            (ConnectionId(wire.from.get()), wire.nonce.get(), wire.echo.get());
        Some((wire.version, Hello { from, nonce, echo, ..Hello::new(kind) }))
    }

    /// Reads the whole datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ShuttleError> {
        let short = ShuttleError::Short;
        let (covered, crc) = datagram.split_last_chunk::<CRC_LEN>().ok_or(short)?;
        let (wire, rest) = HelloWire::ref_from_prefix(covered).map_err(|_| short)?;
        let number = wire.kind >> 5;
        let kind = HelloKind::from_number(number).ok_or(ShuttleError::Kind(number))?;
        if wire.version != VERSION {
            return Err(ShuttleError::Version(wire.version));
        }
        if Crc32c::of(covered) != *crc {
            return Err(ShuttleError::Crc);
        }
        let mut hello = Self {
            to: ConnectionId(wire.to.get()),
            from: ConnectionId(wire.from.get()),
            nonce: wire.nonce.get(),
            echo: wire.echo.get(),
            ..Self::new(kind)
        };
        let mut parameters = Reader(rest.get(..usize::from(wire.len.get())).ok_or(short)?);
        while !parameters.is_empty() {
            let number = parameters.octet()?;
            let len = u16::from_be_bytes(parameters.array()?);
            hello.take(number, parameters.bytes(usize::from(len))?)?;
        }
        Ok(hello)
    }

    fn take(&mut self, number: u8, value: &'a [u8]) -> Result<(), ShuttleError> {
        match number {
            MODULES => {
                let [protection, placement, recovery] =
                    value.try_into().map_err(|_| ShuttleError::Value("modules"))?;
                self.modules = Modules { protection, placement, recovery };
            }
            LIMITS => {
                let wire =
                    LimitsWire::ref_from_bytes(value).map_err(|_| ShuttleError::Value("limits"))?;
                self.limits = Some(HelloLimits {
                    datagram_octets: wire.datagram.get(),
                    streams: wire.streams.get(),
                    ord: wire.ord.get(),
                    ird: wire.ird.get(),
                    idle_ms: wire.idle_ms.get(),
                    rate_kbps: wire.rate_kbps.get(),
                });
            }
            PRIVATE_DATA => self.private_data = at_most(value, MAX_PRIVATE_DATA, "private data")?,
            COOKIE => self.cookie = at_most(value, MAX_COOKIE, "cookie")?,
            KEY_MESSAGE => self.key_message = at_most(value, MAX_KEY_MESSAGE, "key message")?,
            REASON => {
                let octets = value.try_into().map_err(|_| ShuttleError::Value("reason"))?;
                self.reason = u16::from_be_bytes(octets);
            }
            STAMP => {
                let wire =
                    StampWire::ref_from_bytes(value).map_err(|_| ShuttleError::Value("stamp"))?;
                self.stamp = Some(HelloStamp { unix_ms: wire.unix_ms.get(), to: wire.to.get() });
            }
            ADDRESSES => self.addresses = Some(AddressList::parse(value)?),
            WITHDRAWAL => {
                let octets = value.try_into().map_err(|_| ShuttleError::Value("withdrawal"))?;
                self.withdrawal = Some(u64::from_be_bytes(octets));
            }
            _ if number >= OPTIONAL => {}
            _ => return Err(ShuttleError::Parameter(number)),
        }
        Ok(())
    }

    /// The packet as it travels; a Request is padded to [`REQUEST_MIN`], a Probe to [`PROBE_MIN`].
    /// No parameter is longer than its maximum.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSION)
    }

    /// The packet as it travels to a peer of another version, which reads its header and the
    /// parameters that have been there from the first version on.
    pub fn encode_as(&self, version: u8) -> Vec<u8> {
        let least = match self.kind {
            HelloKind::Request => REQUEST_MIN,
            HelloKind::Probe if self.echo == 0 => PROBE_MIN,
            _ => 0,
        };
        self.encode_to(least, version)
    }

    /// The packet as it stands inside a key agreement message: without padding.
    pub fn encode_inner(&self) -> Vec<u8> {
        self.encode_to(0, VERSION)
    }

    fn encode_to(&self, least: usize, version: u8) -> Vec<u8> {
        let mut out = vec![0; HELLO_LEN];
        self.put_parameters(&mut out);
        let wire = HelloWire {
            kind: (self.kind as u8) << 5,
            version,
            to: self.to.0.into(),
            from: self.from.0.into(),
            nonce: self.nonce.into(),
            echo: self.echo.into(),
            len: ((out.len() - HELLO_LEN) as u16).into(),
        };
        out[..HELLO_LEN].copy_from_slice(wire.as_bytes());
        out.resize(out.len().max(least.saturating_sub(CRC_LEN)), 0);
        let crc = Crc32c::of(&out);
        out.extend(crc);
        out
    }

    fn put_parameters(&self, out: &mut Vec<u8>) {
        let Modules { protection, placement, recovery } = self.modules;
        if self.modules != Modules::default() {
            put(MODULES, &[protection, placement, recovery], out);
        }
        if let Some(limits) = self.limits {
            let wire = LimitsWire {
                datagram: limits.datagram_octets.into(),
                streams: limits.streams.into(),
                ord: limits.ord.into(),
                ird: limits.ird.into(),
                idle_ms: limits.idle_ms.into(),
                rate_kbps: limits.rate_kbps.into(),
            };
            put(LIMITS, wire.as_bytes(), out);
        }
        let optional = [
            (PRIVATE_DATA, self.private_data, MAX_PRIVATE_DATA),
            (COOKIE, self.cookie, MAX_COOKIE),
            (KEY_MESSAGE, self.key_message, MAX_KEY_MESSAGE),
        ];
        for (number, value, max) in optional {
            debug_assert!(value.len() <= max, "parameter {number} of {} octets", value.len());
            if !value.is_empty() {
                put(number, value, out);
            }
        }
        if self.reason != 0 {
            put(REASON, &self.reason.to_be_bytes(), out);
        }
        if let Some(HelloStamp { unix_ms, to }) = self.stamp {
            let wire = StampWire { unix_ms: unix_ms.into(), to: AddressWire::new(to) };
            put(STAMP, wire.as_bytes(), out);
        }
        if let Some(AddressList(octets)) = self.addresses {
            put(ADDRESSES, octets, out);
        }
        if let Some(withdrawal) = self.withdrawal {
            put(WITHDRAWAL, &withdrawal.to_be_bytes(), out);
        }
    }
}

fn at_most<'a>(value: &'a [u8], max: usize, what: &'static str) -> Result<&'a [u8], ShuttleError> {
    if value.len() > max { Err(ShuttleError::Value(what)) } else { Ok(value) }
}

fn put(number: u8, value: &[u8], out: &mut Vec<u8>) {
    out.reserve(PARAMETER_HEAD + value.len());
    out.push(number);
    out.extend((value.len() as u16).to_be_bytes());
    out.extend(value);
}

#[cfg(test)]
mod tests {
    use super::addresses::ADDRESS_LEN;
    use super::*;
    use crate::shuttle::Packet;

    fn request() -> Hello<'static> {
        Hello {
            from: ConnectionId(0x7700),
            nonce: 42,
            modules: Modules { protection: 3, placement: 2, recovery: 1 },
            limits: Some(HelloLimits {
                datagram_octets: 1472,
                streams: 25,
                ord: 16,
                ird: 8,
                idle_ms: 30_000,
                rate_kbps: u64::MAX,
            }),
            private_data: b"hello",
            ..Hello::new(HelloKind::Request)
        }
    }

    #[test]
    fn a_request_is_long_and_comes_back() {
        let octets = request().encode();
        assert_eq!(octets.len(), REQUEST_MIN);
        assert_eq!(Hello::parse(&octets), Ok(request()));
        let packet = Packet::Hello { kind: HelloKind::Request, to: ConnectionId(0) };
        assert_eq!(Packet::parse(&octets), Ok(packet));
    }

    #[test]
    fn a_stamp_comes_back() {
        for to in ["192.0.2.1:18515", "[2001:db8::1]:7"] {
            let stamp = HelloStamp { unix_ms: 1_795_640_000_123, to: to.parse().unwrap() };
            let stamped = Hello { stamp: Some(stamp), ..request() };
            assert_eq!(Hello::parse(&stamped.encode_inner()), Ok(stamped));
        }
    }

    /// S-75.
    #[test]
    fn addresses_come_back_and_more_than_may_be_do_not() {
        let all: Vec<SocketAddr> =
            (1..=9).map(|last| SocketAddr::from(([192, 0, 2, last], 18515))).collect();
        let mixed = [all[0], "[2001:db8::1]:7".parse().unwrap()];
        for addresses in [&[][..], &mixed] {
            let mut room = Vec::new();
            let list = AddressList::encode(addresses, &mut room);
            let named = Hello { addresses: Some(list), ..request() };
            let octets = named.encode_inner();
            let read = Hello::parse(&octets).unwrap();
            assert_eq!(read, named);
            assert_eq!(read.addresses.unwrap().iter().collect::<Vec<_>>(), addresses);
        }
        let mut room = Vec::new();
        assert_eq!(AddressList::encode(&all, &mut room).iter().count(), MAX_ADDRESSES);
        let too_many = vec![0; (MAX_ADDRESSES + 1) * ADDRESS_LEN];
        assert_eq!(AddressList::parse(&too_many), Err(ShuttleError::Value("addresses")));
        assert_eq!(AddressList::parse(&[0; 17]), Err(ShuttleError::Value("addresses")));
    }

    #[test]
    fn a_probe_is_answered_once_and_by_no_more_octets() {
        let probe = Hello::probe(ConnectionId(0x100), 7);
        let answer = probe.probed().unwrap();
        assert_eq!((answer.echo, answer.probed()), (7, None));
        let with_cookie = Hello { cookie: &[1; 16], ..answer };
        assert!(with_cookie.encode().len() <= probe.encode().len());
        assert_eq!(Hello::parse(&probe.encode()), Ok(probe));
        assert_eq!(request().probed(), None);
    }

    /// S-25.
    #[test]
    fn a_withdrawal_names_its_request_and_comes_back() {
        let asked = Hello { withdrawal: Some(0x0123_4567_89ab_cdef), ..request() };
        assert_eq!(Hello::parse(&asked.encode()), Ok(asked));
        let withdrawn = asked.withdrawn().unwrap();
        assert_eq!((withdrawn.kind, withdrawn.to), (HelloKind::Reject, ConnectionId(0)));
        assert_eq!((withdrawn.from, withdrawn.nonce), (asked.from, asked.nonce));
        assert_eq!(Hello::parse(&withdrawn.encode()), Ok(withdrawn));
        assert_eq!((request().withdrawn(), withdrawn.withdrawn()), (None, None));
    }

    #[test]
    fn the_header_of_another_version_is_read() {
        let octets = request().encode_as(1);
        assert_eq!(Hello::parse(&octets), Err(ShuttleError::Version(1)));
        let (version, hello) = Hello::parse_foreign(&octets).unwrap();
        assert_eq!((version, hello.kind), (1, HelloKind::Request));
        assert_eq!((hello.from, hello.nonce), (request().from, request().nonce));
        assert_eq!(Hello::parse_foreign(&request().encode()), None, "it is this version");
        assert_eq!(Hello::parse_foreign(&octets[..octets.len() - 1]), None);
    }

    #[test]
    fn a_flipped_bit_is_seen() {
        let mut octets = request().encode();
        octets[40] ^= 1;
        assert_eq!(Hello::parse(&octets), Err(ShuttleError::Crc));
    }

    /// A Reply with one hand-made parameter.
    fn with_parameter(number: u8) -> Result<ConnectionId, ShuttleError> {
        let mut octets = Hello::new(HelloKind::Reply).encode();
        octets.truncate(HELLO_LEN);
        octets[HELLO_LEN - 1] = 4;
        octets.extend([number, 0, 1, 9]);
        octets.extend(Crc32c::of(&octets));
        Hello::parse(&octets).map(|hello| hello.to)
    }

    /// S-16.
    #[test]
    fn only_optional_parameters_may_be_unknown() {
        assert_eq!(with_parameter(0x83), Ok(ConnectionId(0)));
        assert_eq!(with_parameter(STAMP), Err(ShuttleError::Value("stamp")));
        assert_eq!(with_parameter(WITHDRAWAL), Err(ShuttleError::Value("withdrawal")));
        assert_eq!(with_parameter(0x7f), Err(ShuttleError::Parameter(0x7f)));
        assert_eq!(with_parameter(MODULES), Err(ShuttleError::Value("modules")));
    }
}
