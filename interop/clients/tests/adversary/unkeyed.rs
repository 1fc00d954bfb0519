//! Requests without a key to a listener that has one, or that serves its own host only.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::time::Duration;

use crate::kit::{ATTACKER, MPA_REQUEST, Scene, VICTIM, keyed, unkeyed_request};

#[test]
fn a_request_by_udp_is_not_announced() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_outlives(keyed, |port| ask_by_udp(&scene, port));
}

#[test]
fn a_request_from_false_addresses_is_not_announced() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_outlives(keyed, |port| {
        let forger = scene.forger();
        for from in [[169, 254, 9, 9], [10, 77, 0, 1], [10, 77, 0, 99]] {
            let from = SocketAddrV4::new(from.into(), 4791);
            forger.send_udp(from, SocketAddrV4::new(VICTIM, port), &unkeyed_request(7));
        }
    });
}

#[test]
fn a_request_of_mpa_is_not_announced() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_outlives(keyed, |port| ask_by_mpa(&scene, port));
}

#[test]
fn without_a_key_a_request_of_another_host_is_not_announced() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_at_home_outlives(|program| program, |port| ask_by_udp(&scene, port));
}

#[test]
fn without_a_key_a_request_of_mpa_of_another_host_is_not_announced() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_at_home_outlives(|program| program, |port| ask_by_mpa(&scene, port));
}

fn ask_by_udp(scene: &Scene, port: u16) {
    let socket = scene.attack(|| UdpSocket::bind((ATTACKER, 0)).unwrap());
    for nonce in 1..20 {
        socket.send_to(&unkeyed_request(nonce), (VICTIM, port)).unwrap();
    }
}

/// The stream may be refused, closed or left alone, but not answered.
fn ask_by_mpa(scene: &Scene, port: u16) {
    let Ok(mut stream) = scene.attack(|| TcpStream::connect((VICTIM, port))) else { return };
    let _ = stream.write_all(MPA_REQUEST);
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert_eq!(said, b"", "who has no key is answered");
}
