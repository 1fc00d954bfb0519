//! Forged link-local source addresses.

use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6, UdpSocket};

use rustix::net::netdevice::name_to_index;
use weft_interop::source;
use weft_testkit::Program;
use weft_wire::datagram::DatagramHeader;

use crate::kit::{ATTACKER, ATTACKER_V6, Scene, VICTIM, VICTIM_V6, unkeyed_request};
use crate::target::started;

fn shuttle(program: Program) -> Program {
    program.env("WEFT_TRANSPORT", "shuttle")
}

#[test]
fn a_source_address_of_the_link_opens_no_listener() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_at_home_outlives(shuttle, |port| {
        let forger = scene.forger();
        let from = SocketAddrV4::new([169, 254, 9, 9].into(), 4791);
        for nonce in 1..20 {
            forger.send_udp(from, SocketAddrV4::new(VICTIM, port), &unkeyed_request(nonce));
        }
    });
}

/// What rdma-cm gives queue pairs for datagrams.
const QKEY: u32 = 0x0123_4567;

/// A datagram to queue pair `to` with so many bytes.
fn datagram(to: u32, bytes: usize) -> Vec<u8> {
    let header = DatagramHeader { to, from: 0x42, qkey: QKEY, immediate: None, solicited: false };
    [&header.to_bytes()[..header.len()], &vec![5; bytes]].concat()
}

#[test]
fn a_source_address_of_the_link_opens_no_queue_pair_for_datagrams() {
    let Some(scene) = Scene::with(&["cc", "ip"]) else { return };
    scene.add_ipv6();
    let program = scene.lab.verbs_program(&source("target")).args(&format!("datagrams {VICTIM}"));
    let target = started(&scene, shuttle(program)).printed("queue pair ").printed("\n");
    let number = target.stdout().trim_start_matches("queue pair ").trim().parse::<u32>().unwrap();
    let port = (number >> 8) as u16;

    let forger = scene.forger();
    let sources = [[169, 254, 9, 9], [169, 254, 0, 1], [127, 0, 0, 1]].map(Ipv4Addr::from);
    for from in sources.into_iter().chain([ATTACKER, VICTIM]) {
        let (from, to) = (SocketAddrV4::new(from, 4791), SocketAddrV4::new(VICTIM, port));
        forger.send_udp(from, to, &datagram(number, 1));
    }
    for (from, to) in ATTACKER_V6.into_iter().zip(VICTIM_V6) {
        scene.attack(|| {
            let any = UdpSocket::bind("[::]:0").unwrap();
            let link = name_to_index(&any, "cable").unwrap();
            let socket = UdpSocket::bind(SocketAddrV6::new(from, 4791, 0, link)).unwrap();
            socket.send_to(&datagram(number, 2), SocketAddrV6::new(to, port, 0, link)).unwrap();
        });
    }
    scene.until_arrived();
    let home = scene.at_home(|| UdpSocket::bind((VICTIM, 0)).unwrap());
    home.send_to(&datagram(number, 100), (VICTIM, port)).unwrap();
    let target = target.printed(" bytes\n");
    assert!(target.stdout().ends_with("\n100 bytes\n"), "{}", target.end());
}
