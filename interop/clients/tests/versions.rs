//! Two versions of Shuttle that meet: the call fails at once, and both ends name the other. A relay
//! makes the other version: it stamps what passes as that of another release, either way.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weft_testkit::{Ended, Lab, SHUTTLE, free_port};
use weft_wire::crc::Crc32c;
use weft_wire::shuttle::VERSION;
use weft_wire::shuttle::hello::{Hello, HelloKind};

/// What each end takes the other for.
const OTHER: u8 = VERSION - 1;
/// How often the relay looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// Calls of which one has to fail at once.
const ATTEMPTS: usize = 4;
/// What an end says of a peer that does not answer, after two seconds.
const SILENT: &str = " by UDP from ";

/// Where a packet has its version.
fn place() -> usize {
    let hello = Hello::new(HelloKind::Request);
    let (own, other) = (hello.encode_as(VERSION), hello.encode_as(OTHER));
    own.iter().zip(&other).position(|(a, b)| a != b).expect("versions show")
}

/// The packet as one of the other version, if it is one of `from`.
fn stamped(datagram: &[u8], from: u8) -> Vec<u8> {
    let to = if from == VERSION { OTHER } else { VERSION };
    let mut packet = datagram.to_vec();
    if packet.get(place()) == Some(&from) && packet.len() > 4 {
        packet[place()] = to;
        let covered = packet.len() - 4;
        let crc = Crc32c::of(&packet[..covered]);
        packet[covered..].copy_from_slice(&crc);
    }
    packet
}

/// Between a client and the server at a port of this host.
struct Relay {
    port: u16,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn before(server: u16) -> Self {
        let [client, beyond] = [(); 2].map(|()| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            socket.set_read_timeout(Some(LOOK)).expect("a limit");
            socket
        });
        let port = client.local_addr().expect("an address").port();
        let end = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&end);
        let thread = thread::spawn(move || relay(&client, &beyond, server, &done));
        Self { port, end, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _its_own_panic = thread.join();
        }
    }
}

fn relay(client: &UdpSocket, beyond: &UdpSocket, server: u16, done: &AtomicBool) {
    let mut room = [0; 65536];
    let mut caller: Option<SocketAddr> = None;
    while !done.load(Ordering::Acquire) {
        if let Ok((length, from)) = client.recv_from(&mut room) {
            caller = Some(from);
            let to = (Ipv4Addr::LOCALHOST, server);
            let _lost = beyond.send_to(&stamped(&room[..length], VERSION), to);
        }
        if let (Ok(length), Some(caller)) = (beyond.recv(&mut room), caller) {
            let _lost = client.send_to(&stamped(&room[..length], OTHER), caller);
        }
    }
}

/// What both ends say of a call through a relay, the client first.
fn call(lab: &Lab) -> [Ended; 2] {
    let port = free_port();
    let rping = |line: &str| lab.program("rping").args(line).args("-a 127.0.0.1");
    let server = rping(&format!("-s -p {port}")).start().listening(port);
    let relay = Relay::before(port);
    let client = rping(&format!("-c -C 1 -p {}", relay.port)).start().wait();
    let server = server.complained("speaks another version of Shuttle").end();
    assert!(!client.status.success(), "{client}");
    assert!(client.stderr.contains("speaks another version of Shuttle"), "{client}");
    [client, server]
}

#[test]
fn a_call_fails_at_once_and_both_ends_say_why() {
    let Some(lab) = Lab::with(&["rping"]) else { return };
    let lab = lab.over(SHUTTLE);
    // An end or the relay may be held up by what else this machine does.
    let waits: Vec<_> = (0..ATTEMPTS)
        .map_while(|_| call(&lab).into_iter().find(|end| end.stderr.contains(SILENT)))
        .collect();
    let last = waits.last().map(ToString::to_string).unwrap_or_default();
    assert!(waits.len() < ATTEMPTS, "it waits until a peer is called silent: {last}");
}
