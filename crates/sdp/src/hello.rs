//! Connection setup: Hello and HelloAck, private data of the layer that connects the queue pair
//! (SD-1). They consume no receive.

use weft_wire::sdp::{self, Base, Flags, HelloAck, SdpHello, SdpMessage};

use crate::config::{BUFFER_OCTETS_MIN, SdpConfig, SdpStyle};
use crate::connection::SdpConnection;
use crate::credits::RESERVE;
use crate::error::{SdpFault, Violation};
use crate::layout::Layout;
use crate::verbs::{SdpWork, Verbs};

/// Version 2.2, as OFED has it; its headers are those of 1.1 (SD-3).
const VERSION: u8 = 0x22;
/// Capability bit of the enhanced style (SD-4).
const HOLDS: u8 = 0x08;
/// Most advertisements of memory at a time.
const MAX_ADVERTS: u8 = 1;

/// Socket addresses of a connection, as in the Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// IP version: 4 or 6.
    pub ip_version: u8,
    /// Port of the socket that connects.
    pub port: u16,
    /// Address of the connecting socket; IPv4 in the last four bytes.
    pub from: [u8; 16],
    /// Address that it connects to, in the same form.
    pub to: [u8; 16],
}

/// A connection in setup by this side.
#[derive(Debug)]
pub struct Opening {
    config: SdpConfig,
    names: Names,
}

impl Opening {
    /// Posts the receives on a queue pair that is not connected yet.
    ///
    /// # Errors
    /// The queue pair does not take them.
    pub fn new(config: &SdpConfig, names: Names, verbs: &mut impl Verbs) -> Result<Self, SdpFault> {
        let config = config.sound();
        post_receives(&config, verbs)?;
        Ok(Self { config, names })
    }

    /// The Hello: private data of the request to connect.
    pub fn hello(&self) -> Vec<u8> {
        let names = &self.names;
        let hello = SdpHello {
            version: VERSION,
            ip_version_and_capabilities: names.ip_version << 4 | capabilities(&self.config),
            max_adverts: MAX_ADVERTS,
            desired_remote_size: self.config.buffer_octets,
            local_size: self.config.buffer_octets,
            local_port: names.port,
            src_ip: names.from,
            dst_ip: names.to,
            ext_max_adverts: 0,
        };
        encode(&self.config, SdpMessage::Hello(hello))
    }

    /// The connection, once `answer` has come as private data of the reply.
    ///
    /// # Errors
    /// `answer` is no HelloAck that can be worked with.
    pub fn finish(self, answer: &[u8]) -> Result<SdpConnection, SdpFault> {
        let (base, message) = parse(answer)?;
        let SdpMessage::HelloAck(ack) = message else {
            return Err(Violation::Unexpected("the answer is no HelloAck").into());
        };
        check(&base, ack.version, ack.max_adverts, ack.actual_size)?;
        let enhanced = self.config.wants_enhanced() && ack.ip_version_and_capabilities & HOLDS != 0;
        let style = if enhanced { SdpStyle::Enhanced } else { SdpStyle::Basic };
        Ok(SdpConnection::new(&self.config, style, ack.actual_size, base.bufs))
    }
}

/// A Hello of a peer.
#[derive(Clone, Copy, Debug)]
pub struct HelloRequest {
    base: Base,
    hello: SdpHello,
}

impl HelloRequest {
    /// Reads the private data of a request to connect.
    ///
    /// # Errors
    /// It is no Hello that can be worked with.
    pub fn parse(private_data: &[u8]) -> Result<Self, SdpFault> {
        let (base, message) = parse(private_data)?;
        let SdpMessage::Hello(hello) = message else {
            return Err(Violation::Unexpected("the request is no Hello").into());
        };
        check(&base, hello.version, u16::from(hello.max_adverts), hello.local_size)?;
        Ok(Self { base, hello })
    }

    /// Addresses told by the peer.
    pub fn names(&self) -> Names {
        Names {
            ip_version: self.hello.ip_version_and_capabilities >> 4,
            port: self.hello.local_port,
            from: self.hello.src_ip,
            to: self.hello.dst_ip,
        }
    }

    /// Posts the receives on a queue pair that is not connected yet; gives the connection, and the
    /// HelloAck: private data of the reply.
    ///
    /// # Errors
    /// The queue pair does not take the receives.
    pub fn accept(
        self,
        config: &SdpConfig,
        verbs: &mut impl Verbs,
    ) -> Result<(SdpConnection, Vec<u8>), SdpFault> {
        let config = config.sound();
        post_receives(&config, verbs)?;
        let theirs = self.hello.ip_version_and_capabilities;
        let enhanced = config.wants_enhanced() && theirs & HOLDS != 0;
        let ack = HelloAck {
            version: VERSION,
            ip_version_and_capabilities: theirs & 0xf0 | if enhanced { HOLDS } else { 0 },
            max_adverts: u16::from(MAX_ADVERTS),
            actual_size: config.buffer_octets,
        };
        let style = if enhanced { SdpStyle::Enhanced } else { SdpStyle::Basic };
        let connection = SdpConnection::new(&config, style, self.hello.local_size, self.base.bufs);
        Ok((connection, encode(&config, SdpMessage::HelloAck(ack))))
    }
}

fn capabilities(config: &SdpConfig) -> u8 {
    if config.wants_enhanced() { HOLDS } else { 0 }
}

fn post_receives(config: &SdpConfig, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
    let layout = Layout::new(config);
    for slot in 0..layout.buffers {
        verbs.post_recv(SdpWork::Recv(slot), layout.recv(slot), layout.octets)?;
    }
    Ok(())
}

fn encode(config: &SdpConfig, message: SdpMessage) -> Vec<u8> {
    let base = Base { flags: Flags::default(), bufs: config.buffers, seq: 0, ack: 0 };
    let mut bytes = Vec::new();
    sdp::encode(&base, &message, 0, &mut bytes);
    bytes
}

/// Reads a message that a connection manager may have padded (SD-2).
fn parse(private_data: &[u8]) -> Result<(Base, SdpMessage), Violation> {
    let len =
        private_data.get(4..8).and_then(|field| field.try_into().ok()).map(u32::from_be_bytes);
    let len = usize::try_from(len.unwrap_or(0)).unwrap_or(usize::MAX);
    let whole = private_data.get(..len).ok_or(sdp::SdpError::Length)?;
    let (base, message, _) = sdp::parse(whole)?;
    Ok((base, message))
}

fn check(base: &Base, version: u8, adverts: u16, octets: u32) -> Result<(), Violation> {
    let sound = [
        (matches!(version >> 4, 1 | 2), "the version"),
        (base.seq == 0 && base.ack == 0, "a number"),
        (adverts > 0, "the count of advertisements"),
        (octets >= BUFFER_OCTETS_MIN, "the size of buffers"),
        (u32::from(base.bufs) > RESERVE, "the count of buffers"),
    ];
    match sound.into_iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(Violation::Hello(what)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Choice;
    use crate::verbs::tests::Receives;

    const NAMES: Names = Names {
        ip_version: 4,
        port: 7174,
        from: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1],
        to: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
    };

    fn styles(near: SdpConfig, far: SdpConfig) -> (SdpStyle, SdpStyle) {
        let mut posted = Receives::default();
        let opening = Opening::new(&near, NAMES, &mut posted).unwrap();
        let request = HelloRequest::parse(&opening.hello()).unwrap();
        assert_eq!(request.names(), NAMES);
        let (accepted, mut answer) = request.accept(&far, &mut posted).unwrap();
        assert_eq!(posted.0, near.buffers + far.buffers);
        answer.extend([0; 100]);
        (opening.finish(&answer).unwrap().style(), accepted.style())
    }

    #[test]
    fn the_hello_is_the_one_of_the_vectors() {
        let opening = Opening::new(&SdpConfig::default(), NAMES, &mut Receives::default()).unwrap();
        let vector = "000000400000005c00000000000000002240000100008000000080001c060000\
                      0000000000000000000000000a0000010000000000000000000000000a000002";
        let hello: String = opening.hello().iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(hello, format!("{vector}{}", "0".repeat(56)));
    }

    #[test]
    fn credits_are_given_up_by_both_or_none() {
        let holds = SdpConfig { holds: true, ..SdpConfig::default() };
        let basic = SdpConfig { style: Choice::Only(SdpStyle::Basic), ..holds };
        let forced = SdpConfig { style: Choice::Only(SdpStyle::Enhanced), ..holds };
        assert_eq!(styles(holds, forced), (SdpStyle::Enhanced, SdpStyle::Enhanced));
        for (near, far) in [(holds, basic), (basic, holds), (holds, SdpConfig::default())] {
            assert_eq!(styles(near, far), (SdpStyle::Basic, SdpStyle::Basic));
        }
    }

    #[test]
    fn a_hello_that_cannot_be_worked_with_is_refused() {
        let opening = Opening::new(&SdpConfig::default(), NAMES, &mut Receives::default()).unwrap();
        let hello = opening.hello();
        for (at, octet) in [(3, 3), (11, 1), (16, 0x32), (19, 0), (7, 0x5d), (0, 1), (26, 0)] {
            let mut bad = hello.clone();
            bad[at] = octet;
            assert!(matches!(HelloRequest::parse(&bad), Err(SdpFault::Peer(_))), "{at}");
        }
        for len in 0..hello.len() {
            assert!(HelloRequest::parse(&hello[..len]).is_err());
        }
        assert!(opening.finish(&hello).is_err());
    }
}
