//! Floods of Requests from many forged addresses.

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

use weft_testkit::Program;

use crate::kit::{Scene, VICTIM, keyed, unkeyed_request};

fn insecure(program: Program) -> Program {
    program.env("WEFT_INSECURE", "1")
}

#[test]
fn half_open_requests_by_udp_keep_nobody_out() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_outlives(keyed, |port| {
        let forger = scene.forger();
        for at in 0..20_000_u32 {
            let host = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 3)) + at % 250);
            let from = SocketAddrV4::new(host, 1024 + (at / 250) as u16);
            let to = SocketAddrV4::new(VICTIM, port);
            forger.send_udp(from, to, &unkeyed_request(u64::from(at) + 1));
        }
    });
}

#[test]
fn half_open_streams_keep_nobody_out() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    let iwarp = |program: Program| insecure(program).env("WEFT_TRANSPORT", "iwarp");
    scene.rping_outlives(iwarp, |port| {
        let silent = scene.attack(|| {
            let streams = (0..300).map(|_| TcpStream::connect((VICTIM, port)));
            streams.filter_map(Result::ok).collect::<Vec<_>>()
        });
        assert!(silent.len() > 100);
    });
}
