//! A malicious peer with the right key: everything below RDMAP is correct, and the segments are
//! made by hand.

use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use weft_shuttle::{
    ConnectionEnd, Identity, Key, Route, ShuttleConfig, ShuttleConnection, ShuttleEvent, Transmit,
};
use weft_testkit::{LIMIT, now};
use weft_wire::crc::Crc32c;
use weft_wire::ddp::{DdpHeader, TaggedHeader, UntaggedHeader};
use weft_wire::ids::{Msn, STag};
use weft_wire::llp::{
    Gather, MemoryPiece, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource,
};
use weft_wire::rdmap::{Opcode, ReadRequest};
use weft_wire::shuttle::greeting::{CmTerms, Greeting, Purpose};
use weft_wire::shuttle::hello::protection;
use weft_wire::shuttle::{ConnectionId, StreamId};
use weft_wire::terminate::TerminateCode;

use crate::kit::{ATTACKER, KEY, Scene, VICTIM};

/// This bit of a reason says that the rest is the code of a Terminate.
const TERMINATED: u64 = 1 << 16;

/// One end of a connection under the key.
pub struct Peer {
    socket: UdpSocket,
    connection: ShuttleConnection,
    route: Route,
    segments: Segments,
    began: Instant,
    said: Option<Vec<u8>>,
    refusal: Option<Vec<u8>>,
    end: Option<ConnectionEnd>,
}

impl Peer {
    /// Asks the victim for a connection.
    pub fn ask(scene: &Scene, port: u16, purpose: Purpose, private_data: &[u8]) -> Self {
        let socket = scene.attack(|| {
            let socket = UdpSocket::bind((ATTACKER, 0)).unwrap();
            socket.connect((VICTIM, port)).unwrap();
            socket
        });
        let from = socket.local_addr().unwrap();
        let route = Route { local: from, remote: SocketAddrV4::new(VICTIM, port).into() };
        let greeting = Greeting {
            purpose,
            terms: CmTerms { rnr_retry_count: 7, ..CmTerms::default() },
            room_octets: 200_000,
            from: 0x42_4242,
            to: 0,
            private_data,
        };
        let config = ShuttleConfig {
            protection: protection::AES128GCM | protection::CHACHA20POLY1305,
            credentials: Key::parse(KEY).unwrap().credentials(),
            ..ShuttleConfig::default()
        };
        let connection =
            ShuttleConnection::connect(0, config, identity(from), route, &greeting.encode())
                .unwrap();
        Self {
            socket,
            connection,
            route,
            segments: Segments::default(),
            began: now(),
            said: None,
            refusal: None,
            end: None,
        }
    }

    /// A connection with the victim's listener, and what that said.
    pub fn connect(scene: &Scene, port: u16, private_data: &[u8]) -> (Self, Vec<u8>) {
        let mut this = Self::ask(scene, port, Purpose::Manager, private_data);
        this.until("answered", |this| this.said.is_some());
        let said = this.said.take().unwrap();
        let words = Greeting::parse(&said).unwrap().private_data.to_vec();
        (this, words)
    }

    /// The answer to who looks for a queue pair for datagrams, which is a refusal.
    pub fn until_refused(mut self) {
        self.until("refused", |this| this.refusal.is_some());
    }

    /// Sends a segment.
    pub fn say(&mut self, ulpdu: Vec<u8>) {
        self.segments.out.push(ulpdu);
    }

    /// The next segment that the victim sends.
    pub fn hear(&mut self) -> Vec<u8> {
        self.until("spoken", |this| !this.segments.heard.is_empty());
        self.segments.heard.remove(0)
    }

    /// Waits until the victim has taken everything.
    pub fn until_taken(&mut self) {
        self.until("taken all", |this| this.segments.acked == this.segments.out.len());
    }

    /// The victim ends the connection and says why.
    pub fn until_terminated(mut self) -> TerminateCode {
        self.until("ended", |this| this.end.is_some());
        match self.end {
            Some(ConnectionEnd::Peer(reason)) if reason & TERMINATED != 0 => {
                TerminateCode::from_word(reason as u16)
            }
            end => panic!("no Terminate, but {end:?}"),
        }
    }

    /// Ends the connection in good order.
    pub fn close(mut self) {
        let now_ns = self.now_ns();
        self.connection.close(now_ns, 0);
        self.until("let go", |this| this.end.is_some());
    }

    fn now_ns(&self) -> u64 {
        now().duration_since(self.began).as_nanos() as u64
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(now().duration_since(self.began) < LIMIT, "has not {what}: {:?}", self.end);
            self.transmit();
            self.receive();
            let now_ns = self.now_ns();
            if self.connection.poll_timeout().is_some_and(|at| at <= now_ns) {
                self.connection.handle_timeout(now_ns);
            }
            while let Some(event) = self.connection.poll_event() {
                match event {
                    ShuttleEvent::Established { private_data, .. } => {
                        self.said = Some(private_data)
                    }
                    ShuttleEvent::Rejected { private_data } => self.refusal = Some(private_data),
                    ShuttleEvent::PathValidated { .. } => {}
                    ShuttleEvent::Ended(end) => self.end = Some(end),
                }
            }
        }
        // What is owed to the victim leaves before this peer may be forgotten.
        self.transmit();
    }

    fn transmit(&mut self) {
        let mut out = Transmit::default();
        let now_ns = self.now_ns();
        while self.connection.poll_transmit(now_ns, &mut self.segments, &NoMemory, &mut out) {
            let all = flatten(&out.gather);
            let mut rest = &all[..];
            for len in &out.lengths {
                let (datagram, later) = rest.split_at(usize::from(*len));
                // What the system refuses is lost, and leaves again.
                let _ = self.socket.send(datagram);
                rest = later;
            }
        }
    }

    fn receive(&mut self) {
        let now_ns = self.now_ns();
        let due_ns = self.connection.poll_timeout().unwrap_or(u64::MAX);
        let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns).clamp(1000, 100_000_000));
        self.socket.set_read_timeout(Some(wait)).unwrap();
        let mut datagram = [0; 65_536];
        match self.socket.recv(&mut datagram) {
            Ok(len) => {
                let (now_ns, datagram) = (self.now_ns(), &mut datagram[..len]);
                let (connection, segments) = (&mut self.connection, &mut self.segments);
                connection.handle_datagram(now_ns, self.route, false, datagram, segments).unwrap();
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // Nobody listens any more; the connection finds out.
            Err(why) => assert_eq!(why.kind(), ErrorKind::ConnectionRefused),
        }
    }
}

/// Numbers that no two peers of a test share: their ports differ.
fn identity(from: SocketAddr) -> Identity {
    let (port, process) = (u32::from(from.port()), std::process::id());
    let nonce = u64::from(process) << 32 | u64::from(port) << 8 | 1;
    let mut entropy = [9; 32];
    entropy[..8].copy_from_slice(&nonce.to_be_bytes());
    Identity { cid: ConnectionId(port << 12), nonce, seed: nonce, entropy }
}

/// What goes back and forth on the only stream.
#[derive(Default)]
struct Segments {
    out: Vec<Vec<u8>>,
    next: usize,
    acked: usize,
    heard: Vec<Vec<u8>>,
}

impl UlpduSource for Segments {
    fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
        let segment = self.out.get(self.next)?;
        assert!(segment.len() <= usize::from(mulpdu));
        let id = SegmentId { wqe: self.next as u32, offset: 0, len: segment.len() as u32 };
        self.next += 1;
        Some(id)
    }

    fn gather(&self, id: &SegmentId, out: &mut Gather) {
        out.push_bytes(&self.out[id.wqe as usize]);
    }

    fn acked(&mut self, _: SegmentId) {
        self.acked += 1;
    }
}

impl UlpduSink for Segments {
    type Fault = std::convert::Infallible;

    fn place(&mut self, _: u64, ulpdu: &[u8]) -> Result<Placed, Self::Fault> {
        self.heard.push(ulpdu.to_vec());
        Ok(Placed::Control)
    }

    fn deliver(&mut self, _: u64) -> Result<(), Self::Fault> {
        Ok(())
    }
}

impl weft_shuttle::Ports for Segments {
    type Fault = std::convert::Infallible;
    type Source<'a> = &'a mut Self;
    type Sink<'a> = &'a mut Self;

    fn source(&mut self, _: StreamId) -> Option<&mut Self> {
        Some(self)
    }

    fn sink(&mut self, _: StreamId) -> Option<&mut Self> {
        Some(self)
    }
}

/// Segments by hand name no memory.
struct NoMemory;

impl RegisteredMemory for NoMemory {
    fn crc32c(&self, crc: Crc32c, _: MemoryPiece) -> Crc32c {
        crc
    }

    fn copy_to(&self, _: MemoryPiece, _: &mut Vec<u8>) {}
}

fn flatten(gather: &Gather) -> Vec<u8> {
    let staged = gather.pieces().iter().map(|piece| match *piece {
        Piece::Slab { start, len } => gather.staged(start, len),
        Piece::Memory(_) => &[],
    });
    staged.collect::<Vec<_>>().concat()
}

/// A tagged segment that ends its message.
pub fn tagged(opcode: Opcode, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let header = TaggedHeader { last: true, control: opcode.control(), stag: STag(stag), to };
    [&header.to_bytes(), payload].concat()
}

/// An untagged segment that ends message `msn` of queue `qn`.
pub fn untagged(opcode: Opcode, (qn, msn, mo): (u32, u32, u32), payload: &[u8]) -> Vec<u8> {
    let control = opcode.control();
    let header = UntaggedHeader { last: true, control, ulp: 0, qn, msn: Msn(msn), mo };
    [&header.to_bytes(), payload].concat()
}

/// A segment that asks for `size` bytes, as the Read Request `msn`.
pub fn read(msn: u32, stag: u32, from: u64, size: u32) -> Vec<u8> {
    let (src_stag, src_to) = (STag(stag), from);
    let request = ReadRequest { sink_stag: STag(1), sink_to: 0, size, src_stag, src_to };
    untagged(Opcode::ReadRequest, (1, msn, 0), &request.to_bytes())
}

/// The opcode and payload of a segment.
pub fn parse(ulpdu: &[u8]) -> (Opcode, &[u8]) {
    let (header, payload) = DdpHeader::parse(ulpdu).unwrap();
    (header.opcode().unwrap(), payload)
}
