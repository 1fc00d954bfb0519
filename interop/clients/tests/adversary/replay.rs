//! Replay of a rightful peer's packets, to the same process or to the next one.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::SystemTime;

use weft_interop::source;
use weft_shuttle::{AddressPair, Key, Sealer};
use weft_testkit::{Running, free_port};
use weft_wire::datagram::{Cipher, DatagramHeader, GROUP_QPN};
use weft_wire::rdmap::Opcode;
use weft_wire::shuttle::greeting::Purpose;

use crate::kit::{ATTACKER, KEY, Recorded, Scene, VICTIM, keyed};
use crate::peer::{Peer, tagged, untagged};
use crate::target::{Region, SIZE, Told, connections, queries, started};

/// How often a record is played: what was lost once, for want of room, comes again.
const TIMES: usize = 3;

/// Plays `record` to who is at the addresses that it has.
fn replay(scene: &Scene, record: &[Recorded]) {
    let forger = scene.forger();
    for datagram in record.iter().cycle().take(TIMES * record.len()) {
        forger.send_udp(datagram.from, datagram.to, &datagram.payload);
    }
}

#[test]
fn a_recorded_connection_is_not_announced_to_a_new_process() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    let port = free_port();
    let server = scene.rping_server(port, keyed);
    let recorder = scene.record();
    scene.rping_client(port, keyed).success();
    server.wait().success();
    let record = recorder.end();
    assert!(record.len() > 5, "the record is a good one: {}", record.len());

    let server = scene.rping_server(port, keyed);
    replay(&scene, &record);
    let client = scene.rping_client(port, keyed);
    assert!(client.status.success(), "{client}\n{}", server.end());
    server.wait().success();
}

/// Says that a rightful peer has written `fill` and the target has it.
fn write(peer: &mut Peer, region: Region, fill: u8) {
    peer.say(tagged(Opcode::Write, region.key, region.addr, &[fill; SIZE]));
    peer.until_taken();
}

#[test]
fn what_a_living_process_has_heard_changes_nothing_when_it_comes_again() {
    let Some(scene) = Scene::with(&["cc", "ss"]) else { return };
    let port = free_port();
    let target = connections(&scene, port);
    let recorder = scene.record();
    // One connection that is over, and one that goes on.
    let (ended, _) = Peer::connect(&scene, port, b"");
    ended.close();
    let (mut peer, said) = Peer::connect(&scene, port, b"");
    let open = Told::parse(&said).open;
    write(&mut peer, open, 1);
    write(&mut peer, open, 2);
    let record = recorder.end();
    assert!(record.len() >= 8, "two handshakes and two Writes: {}", record.len());

    replay(&scene, &record);
    // The peer is heard as before, behind the record.
    peer.say(untagged(Opcode::Send, (0, 1, 0), &[1]));
    peer.until_taken();
    peer.close();
    let target = target.wait().success().said("open 2 2\nuntouched");
    assert_eq!(target.stdout.matches("asked").count(), 2, "{target}");
}

#[test]
fn a_question_for_a_queue_pair_counts_once() {
    let Some(scene) = Scene::with(&["cc", "ss"]) else { return };
    let port = free_port();
    let target = queries(&scene, port);
    let recorder = scene.record();
    Peer::ask(&scene, port, Purpose::Datagrams, b"").until_refused();
    let record = recorder.end();
    replay(&scene, &record);
    Peer::ask(&scene, port, Purpose::Datagrams, b"").until_refused();
    assert_eq!(target.stdout().matches("asked").count(), 2, "{}", target.end());
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 1, 1);
/// Where datagrams to groups go.
const GROUP_PORT: u16 = 65_535;
/// What rdma-cm gives queue pairs for datagrams.
const QKEY: u32 = 0x0123_4567;
/// Bytes of the messages that are recorded, and of the one that comes afterwards.
const OLD: [usize; 5] = [101, 102, 103, 104, 105];
const NEW: usize = 500;

/// A rightful sender to the group.
struct Sender {
    sealer: Sealer,
    socket: UdpSocket,
}

impl Sender {
    fn new(scene: &Scene) -> Self {
        let sealer = Sealer::new(&Key::parse(KEY).unwrap(), Cipher::Aes128Gcm, time_of_day_ns(), 9);
        Self { sealer, socket: scene.attack(|| UdpSocket::bind((ATTACKER, 0)).unwrap()) }
    }

    /// Sends a message of so many bytes, and gives what has left.
    fn send(&mut self, bytes: usize) -> Recorded {
        let header = DatagramHeader {
            to: GROUP_QPN,
            from: 0x42,
            qkey: QKEY,
            immediate: None,
            solicited: false,
        };
        let mut payload = vec![0; Sealer::HEADER_LEN];
        payload.extend_from_slice(&header.to_bytes()[..header.len()]);
        payload.resize(payload.len() + bytes, 5);
        let ends = AddressPair { from: ATTACKER.into(), to: GROUP.into() };
        self.sealer.seal(&mut payload, 0, &ends, time_of_day_ns());
        let from = SocketAddrV4::new(ATTACKER, self.socket.local_addr().unwrap().port());
        let to = SocketAddrV4::new(GROUP, GROUP_PORT);
        self.socket.send_to(&payload, to).unwrap();
        Recorded { from, to, payload }
    }
}

/// The clock of both hosts.
#[allow(clippy::disallowed_methods, reason = "a sender says when it seals")]
fn time_of_day_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Sizes of the messages that a member has got, once `size` is among them.
fn sizes_until(member: Running, size: usize) -> Vec<usize> {
    let member = member.printed(&format!("\n{size} bytes\n"));
    let out = member.stdout();
    out.lines().filter_map(|line| line.strip_suffix(" bytes")?.parse().ok()).collect()
}

#[test]
fn recorded_datagrams_to_a_group_open_for_no_member_again() {
    let Some(scene) = Scene::with(&["cc", "ip"]) else { return };
    scene.route_groups();
    let member = || {
        let program =
            scene.lab.verbs_program(&source("target")).args(&format!("group {VICTIM} {GROUP}"));
        started(&scene, keyed(program)).printed("queue pair ")
    };
    let old = member();
    let mut sender = Sender::new(&scene);
    let record: Vec<_> = OLD.iter().map(|bytes| sender.send(*bytes)).collect();
    let old = old.printed(&format!("\n{} bytes\n", OLD[4]));

    let fresh = member();
    replay(&scene, &record);
    // To the members alone, too.
    let alone =
        |it: &Recorded| Recorded { to: SocketAddrV4::new(VICTIM, GROUP_PORT), ..it.clone() };
    replay(&scene, &record.iter().map(alone).collect::<Vec<_>>());
    sender.send(NEW);
    assert_eq!(sizes_until(fresh, NEW), [NEW]);
    assert_eq!(sizes_until(old, NEW), [&OLD[..], &[NEW]].concat());
}
