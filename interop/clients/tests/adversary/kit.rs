//! Tools of attackers: raw sockets on a host of their own, records of packets, and packets made by
//! hand.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, UdpSocket};
use std::num::NonZero;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use degen::namespace::Namespace;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketType, ipproto, socket, sockopt};
use weft_testkit::{Ended, LIMIT, Lab, Namespaces, Program, Running, free_port};
use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{
    Hello, HelloKind, HelloLimits, Modules, placement, protection, recovery,
};

/// The key of those who may speak.
pub const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// The victim's address.
pub const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The attacker's address, which is that of rightful peers too.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Their addresses by IPv6, once they have some: one of the link, and one of the site.
pub const VICTIM_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)];
pub const ATTACKER_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)];

/// Two hosts with a cable between them.
pub struct Scene {
    pub networks: Namespaces,
    victim: Namespace,
    attacker: Namespace,
    /// The last to go: with it, it is another test's turn.
    pub lab: Lab,
}

impl Scene {
    /// One with `programs`; nothing, and a line on stderr, where this user cannot have that.
    pub fn with(programs: &[&str]) -> Option<Self> {
        let lab = Lab::of_root(&[&["ip", "ss"], programs].concat())?;
        let networks = Namespaces::new()?;
        let [victim, attacker] = networks.links().map(|link| Namespace::open(&link).unwrap());
        // A claim of another source address gets as far as the socket.
        let unfiltered = ["all", "cable"].map(|name| format!("net/ipv4/conf/{name}/rp_filter"));
        let unfiltered = unfiltered.each_ref().map(|name| (name.as_str(), "0".into()));
        victim.try_set(&unfiltered).unwrap();
        Some(Self { networks, victim, attacker, lab })
    }

    /// Does something on the attacker's host.
    pub fn attack<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.attacker.within(work).unwrap()
    }

    /// Does something on the victim's host.
    pub fn at_home<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.victim.within(work).unwrap()
    }

    /// Gives both hosts addresses by IPv6: the victim [`VICTIM_V6`], the attacker [`ATTACKER_V6`].
    pub fn add_ipv6(&self) {
        let both =
            [(self.networks.in_first(), VICTIM_V6), (self.networks.in_second(), ATTACKER_V6)];
        for (host, addresses) in both {
            for address in addresses {
                run(&format!("{host} ip address add {address}/64 dev cable nodad"));
            }
        }
    }

    /// Has what the attacker sends to multicast groups leave by the cable.
    pub fn route_groups(&self) {
        run(&format!("{} ip route add 239.0.0.0/8 dev cable", self.networks.in_second()));
    }

    /// Waits until what the attacker has sent before has come.
    pub fn until_arrived(&self) {
        let here = self.at_home(|| UdpSocket::bind((VICTIM, 0)).unwrap());
        here.set_read_timeout(Some(LIMIT)).unwrap();
        let there = self.attack(|| UdpSocket::bind((ATTACKER, 0)).unwrap());
        there.send_to(b"last", here.local_addr().unwrap()).unwrap();
        here.recv(&mut [0; 16]).unwrap();
    }

    /// A raw socket of the attacker, who writes IP headers himself.
    pub fn forger(&self) -> Forger {
        Forger(self.attack(|| {
            let raw = Some(Protocol::from_raw(NonZero::new(255).unwrap()));
            UdpSocket::from(socket(AddressFamily::INET, SocketType::RAW, raw).unwrap())
        }))
    }

    /// Begins to record what comes to the victim by UDP.
    pub fn record(&self) -> Recorder {
        let tap = self.victim.within(|| {
            let fd = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).unwrap();
            sockopt::set_socket_recv_buffer_size(&fd, 8 << 20).unwrap();
            UdpSocket::from(fd)
        });
        Recorder::new(tap.unwrap())
    }

    /// rping's server on the victim's host, once it listens on `port`.
    pub fn rping_server(&self, port: u16, set: impl Fn(Program) -> Program) -> Running {
        let program = self.lab.program("rping").args(&format!("-s -a {VICTIM} -p {port} -C 3"));
        let server = set(program).started_by(&self.networks.in_first()).start();
        server.until("listened", |_| self.networks.first_listens(port))
    }

    /// rping's client on the other host, run to its end.
    pub fn rping_client(&self, port: u16, set: impl Fn(Program) -> Program) -> Ended {
        let program = self.lab.program("rping").args(&format!("-c -a {VICTIM} -p {port} -C 3"));
        set(program).started_by(&self.networks.in_second()).run()
    }

    /// A server that takes one client is attacked: the one it takes is the rightful one that comes
    /// afterwards.
    pub fn rping_outlives(&self, set: impl Fn(Program) -> Program, attack: impl FnOnce(u16)) {
        let port = free_port();
        let server = self.rping_server(port, &set);
        attack(port);
        let client = self.rping_client(port, &set);
        served(&client, server);
    }

    /// The same of a server that may speak to its own host alone, where the rightful client is.
    pub fn rping_at_home_outlives(
        &self,
        set: impl Fn(Program) -> Program,
        attack: impl FnOnce(u16),
    ) {
        let port = free_port();
        let server = self.rping_server(port, &set);
        attack(port);
        let client = self.lab.program("rping").args(&format!("-c -a {VICTIM} -p {port} -C 3"));
        served(&set(client).started_by(&self.networks.in_first()).run(), server);
    }
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Both ended well.
pub fn served(client: &Ended, server: Running) {
    if !client.status.success() {
        panic!("{client}\n{}", server.end());
    }
    server.wait().success();
}

/// Whoever has the key.
pub fn keyed(program: Program) -> Program {
    program.env("WEFT_KEY", KEY)
}

/// Sends packets that say whatever they like.
pub struct Forger(UdpSocket);

impl Forger {
    /// Sends a UDP datagram as if from `from`.
    pub fn send_udp(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
        let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        let len = (payload.len() as u16 + 8).to_be_bytes();
        // No checksum, which IPv4 allows.
        let udp = [&ports[..], &len, &[0, 0], payload].concat();
        self.send_ip(17, *from.ip(), *to.ip(), &udp);
    }

    /// Sends the message that nobody is at the port where a datagram from `from` to `to` went, as
    /// if from `to`'s host.
    pub fn send_unreachable(&self, code: u8, from: SocketAddrV4, to: SocketAddrV4) {
        let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        let quoted = ip_packet(17, *from.ip(), *to.ip(), &[&ports[..], &[0, 100, 0, 0]].concat());
        let mut icmp = [&[3, code, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        let sum = internet_checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        self.send_ip(1, *to.ip(), *from.ip(), &icmp);
    }

    fn send_ip(&self, protocol: u8, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) {
        let packet = ip_packet(protocol, from, to, payload);
        match self.0.send_to(&packet, (to, 0)) {
            // A full queue loses it, as networks do.
            Err(why) if why.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {}
            sent => assert_eq!(sent.unwrap(), packet.len()),
        }
    }
}

fn ip_packet(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = internet_checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A datagram that came to the victim.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub payload: Vec<u8>,
}

/// Records datagrams until it is asked for them.
pub struct Recorder {
    over: Arc<AtomicBool>,
    news: Receiver<Recorded>,
    thread: JoinHandle<()>,
}

impl Recorder {
    fn new(tap: UdpSocket) -> Self {
        tap.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let (teller, news) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut packet = vec![0; 65_536];
            loop {
                match tap.recv(&mut packet) {
                    Ok(len) => {
                        let told = parse(&packet[..len]).map(|it| teller.send(it));
                        // Whoever has heard enough is gone, and there may be no end of traffic.
                        if told.is_some_and(|told| told.is_err()) {
                            return;
                        }
                    }
                    Err(_) if until.load(Ordering::SeqCst) => return,
                    Err(_) => {}
                }
            }
        });
        Self { over, news, thread }
    }

    /// What has come, in order.
    pub fn end(self) -> Vec<Recorded> {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        self.news.try_iter().collect()
    }

    /// The first that comes to `port`; the recording is over with it.
    pub fn first_to(self, port: u16) -> Recorded {
        let first = loop {
            let next = self.news.recv_timeout(LIMIT).expect("somebody speaks to the port");
            if next.to.port() == port {
                break next;
            }
        };
        self.over.store(true, Ordering::SeqCst);
        first
    }
}

fn parse(packet: &[u8]) -> Option<Recorded> {
    let udp = packet.get(usize::from(packet.first()? & 15) * 4..)?;
    let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let port = |at: usize| Some(u16::from_be_bytes(*udp.get(at..)?.first_chunk()?));
    let from = SocketAddrV4::new(address(12)?, port(0)?);
    let to = SocketAddrV4::new(address(16)?, port(2)?);
    Some(Recorded { from, to, payload: udp.get(8..)?.to_vec() })
}

/// A Request for a connection, by who has no key.
pub fn unkeyed_request(nonce: u64) -> Vec<u8> {
    let modules = Modules {
        protection: protection::NONE | protection::CRC32C,
        placement: placement::STRICT | placement::TAIL | placement::LOOSE,
        recovery: recovery::FULL | recovery::TAIL_DUP,
    };
    let limits = HelloLimits {
        datagram_octets: 1400,
        streams: 1,
        ord: 1,
        ird: 1,
        idle_ms: 30_000,
        rate_kbps: u64::MAX,
    };
    let hello = Hello {
        from: ConnectionId((nonce as u32) << 8),
        nonce,
        modules,
        limits: Some(limits),
        ..Hello::new(HelloKind::Request)
    };
    hello.encode()
}

/// A Request of MPA (RFC 6581), without private data of an application.
pub const MPA_REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x04\x00\x01\x00\x01";
