//! Somebody claims to be on the link, by the source address of a packet.

use std::net::SocketAddrV4;

use weft_interop::Program;

use crate::kit::{Scene, VICTIM, unkeyed_request};

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
