//! Queue pairs for datagrams: what other hosts send in clear, and what was recorded.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use weft_host::{Context, DeviceKind, HostCq, HostQp, HostQpInit, Pd};
use weft_rnic::shuttle::{AddressPair, Key, Sealer};
use weft_rnic::wire::datagram::{Cipher, DatagramHeader, GROUP_QPN, ROUTE_LEN};
use weft_verbs::{Access, QpAttrMask, QpCap, QpState, QpType, RecvWr, Sge, Wc};

use super::outside::{
    CLAIMED, CLAIMED_V6, HERE, HERE_ON_LINK, HERE_V6, KEY, KEY_TEXT, Outside, THERE, THERE_ON_LINK,
    apart,
};
use super::side::{DEADLINE, Silent, reliable};

const QKEY: u32 = 0x1234_5678;
const GROUP: &str = "239.7.7.7";
const GROUP_PORT: u16 = 65535;
/// Bytes of a receive.
const ROOM: usize = 256;

/// A queue pair for datagrams with receives posted.
struct Receiver {
    qp: Arc<HostQp>,
    cq: Arc<HostCq>,
    room: Vec<u8>,
    _pd: Arc<Pd>,
    _context: Arc<Context>,
}

impl Receiver {
    fn new() -> Self {
        let context =
            Context::open(crate::side::host(), DeviceKind::Roce, Box::new(Silent)).unwrap();
        let pd = context.alloc_pd();
        let cq = context.create_cq(64, None, 1).unwrap();
        let cap = QpCap { max_recv_wr: 32, max_recv_sge: 1, ..QpCap::default() };
        let init = HostQpInit { kind: QpType::Ud, ..reliable(&pd, &cq, cap) };
        let qp = context.create_qp(init).unwrap();
        let room = vec![0; ROOM];
        let addr = room.as_ptr() as u64;
        let lkey = context.reg_mr(&pd, addr, ROOM as u64, addr, Access::LOCAL_WRITE).unwrap();
        let mut attr = qp.query();
        (attr.port, attr.qkey) = (1, QKEY);
        let steps = [
            (QpState::Init, QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY),
            (QpState::Rtr, QpAttrMask::STATE),
        ];
        for (state, mask) in steps {
            attr.state = state;
            qp.modify(&attr, QpAttrMask::STATE | mask).unwrap();
        }
        let sge = Sge { addr, length: ROOM as u32, lkey };
        for wr_id in 0..32 {
            qp.post_recv(&RecvWr { wr_id, sges: &[sge] }).unwrap();
        }
        Self { qp, cq, room, _pd: pd, _context: context }
    }

    fn port(&self) -> u16 {
        (self.qp.num() >> 8) as u16
    }

    /// The text of the next message.
    fn next(&self) -> u8 {
        let start = weft_os::clock::now();
        let mut out = [Wc::default()];
        while self.cq.poll(&mut out).unwrap() == 0 {
            assert!(start.elapsed() < DEADLINE, "nothing has come");
        }
        assert!(out[0].is_success());
        self.room[ROUTE_LEN]
    }
}

/// A datagram to queue pair `to` with a byte of text.
fn datagram(to: u32, text: u8) -> Vec<u8> {
    let header = DatagramHeader { to, from: 0x42, qkey: QKEY, immediate: None, solicited: false };
    let mut octets = header.to_bytes()[..header.len()].to_vec();
    octets.push(text);
    octets
}

/// A sender under the key, and what it seals.
struct Sender(Sealer);

impl Sender {
    fn new() -> Self {
        Self(Sealer::new(&Key::new(KEY), Cipher::Aes128Gcm, weft_os::clock::time_of_day_ns(), 9))
    }

    fn seal(&mut self, from: &str, to: &str, plain: &[u8]) -> Vec<u8> {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut slab = vec![0; Sealer::HEADER_LEN];
        slab.extend_from_slice(plain);
        self.0.seal(
            &mut slab,
            0,
            &AddressPair { from: ip(from), to: ip(to) },
            weft_os::clock::time_of_day_ns(),
        );
        slab
    }
}

fn send(socket: &UdpSocket, to: (&str, u16), octets: &[u8]) {
    let ip: IpAddr = to.0.parse().unwrap();
    socket.send_to(octets, SocketAddr::new(ip, to.1)).unwrap();
}

/// The interface of the cable.
fn interface() -> u32 {
    let index = std::process::Command::new("ip").args(["-o", "link", "show", "cable"]).output();
    let index = String::from_utf8(index.unwrap().stdout).unwrap();
    index.split(':').next().unwrap().parse().unwrap()
}

#[test]
fn without_a_key_no_other_host_is_heard_whatever_it_claims_to_be() {
    let test = "datagrams::without_a_key_no_other_host_is_heard_whatever_it_claims_to_be";
    let Some(outside) = apart(test, &[]) else { return };
    let receiver = Receiver::new();
    let (number, port) = (receiver.qp.num(), receiver.port());
    let cases =
        [(THERE, HERE), (THERE_ON_LINK, HERE_ON_LINK), (CLAIMED, HERE), (CLAIMED_V6, HERE_V6)];
    for (text, (from, to)) in cases.into_iter().enumerate() {
        send(&outside.socket(from), (to, port), &datagram(number, text as u8));
    }
    // The same way and behind them, so that they have come before what is sent here.
    flush(&outside);
    for (text, address) in ["127.0.0.1", HERE, HERE_V6].into_iter().enumerate() {
        let here = UdpSocket::bind((address, 0)).unwrap();
        send(&here, (address, port), &datagram(number, 100 + text as u8));
        assert_eq!(receiver.next(), 100 + text as u8, "{address}");
    }
}

/// Waits until a datagram has come from the other host.
fn flush(outside: &Outside) {
    let here = UdpSocket::bind((HERE, 0)).unwrap();
    here.set_read_timeout(Some(DEADLINE)).unwrap();
    send(&outside.socket(THERE), (HERE, here.local_addr().unwrap().port()), b"last");
    here.recv(&mut [0; 16]).unwrap();
}

#[test]
fn a_record_is_worth_nothing_to_who_listens_later_or_elsewhere() {
    let test = "datagrams::a_record_is_worth_nothing_to_who_listens_later_or_elsewhere";
    let Some(outside) = apart(test, &[("WEFT_KEY", KEY_TEXT)]) else { return };
    let socket = outside.socket(THERE);
    outside.within(|| {
        let add = ["route", "add", "239.0.0.0/8", "dev", "plug"];
        assert!(std::process::Command::new("ip").args(add).status().unwrap().success());
    });
    let group: IpAddr = GROUP.parse().unwrap();
    let member = Receiver::new();
    member.qp.attach_group(group, &[interface()]).unwrap();
    let mut sender = Sender::new();
    let records: Vec<_> =
        (0..5).map(|text| sender.seal(THERE, GROUP, &datagram(GROUP_QPN, text))).collect();
    for (text, record) in records.iter().enumerate() {
        send(&socket, (GROUP, GROUP_PORT), record);
        assert_eq!(member.next(), text as u8);
    }
    let fresh = Receiver::new();
    fresh.qp.attach_group(group, &[interface()]).unwrap();
    // To the group, from elsewhere, and to one of its members alone.
    for record in &records {
        send(&socket, (GROUP, GROUP_PORT), record);
        send(&outside.socket(THERE_ON_LINK), (HERE_ON_LINK, GROUP_PORT), record);
        send(&socket, (HERE, GROUP_PORT), record);
    }
    send(&socket, (GROUP, GROUP_PORT), &sender.seal(THERE, GROUP, &datagram(GROUP_QPN, 50)));
    for receiver in [&member, &fresh] {
        assert_eq!(receiver.next(), 50);
    }
    // What was sealed for one address opens at no other.
    let to_one = sender.seal(THERE, HERE, &datagram(fresh.qp.num(), 60));
    send(&outside.socket(THERE_ON_LINK), (HERE_ON_LINK, fresh.port()), &to_one);
    send(&socket, (HERE, fresh.port()), &sender.seal(THERE, HERE, &datagram(fresh.qp.num(), 61)));
    assert_eq!(fresh.next(), 61);
}
