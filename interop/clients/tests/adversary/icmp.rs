//! Forged ICMP "destination unreachable".

use std::net::SocketAddrV4;

use weft_testkit::{Program, free_port};

use crate::kit::{ATTACKER, Scene, VICTIM, keyed};

/// Codes of "destination unreachable": host, protocol, port, prohibited.
const CODES: [u8; 4] = [1, 2, 3, 13];

fn insecure(program: Program) -> Program {
    program.env("WEFT_INSECURE", "1").env("WEFT_TRANSPORT", "shuttle")
}

#[test]
fn forged_icmp_ends_no_connection() {
    for set in [keyed as fn(Program) -> Program, insecure] {
        let Some(scene) = Scene::with(&["rping"]) else { return };
        let port = free_port();
        let _server = scene.rping_server(port, |program| set(program).args("-C 10000000"));
        let recorder = scene.record();
        let client = scene.lab.program("rping").args(&format!("-c -v -a {VICTIM} -p {port}"));
        let client = set(client).started_by(&scene.networks.in_second()).start();
        let client = client.printed("ping data: ");
        let from = recorder.first_to(port).from;
        let forger = scene.forger();
        let here = SocketAddrV4::new(VICTIM, port);
        for code in CODES.repeat(200) {
            forger.send_unreachable(code, here, from);
            forger.send_unreachable(code, SocketAddrV4::new(ATTACKER, from.port()), here);
        }
        let before = client.stdout().len();
        // It goes on for as much as it wrote before, and some more.
        client.until("went on", |client| client.stdout().len() > 2 * before + 10_000);
    }
}
