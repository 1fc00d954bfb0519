//! Two hosts in network namespaces.

use weft_testkit::{IWARP, Lab, Namespaces, Program, free_port};

fn pair(networks: &Namespaces, server: Program, client: Program, port: u16) {
    let server = server.started_by(&networks.in_first()).start();
    let server = server.until("listened", |_| networks.first_listens(port));
    client.started_by(&networks.in_second()).run().success();
    server.wait().success();
}

const PROGRAMS: [&str; 5] = ["ip", "ss", "rping", "ib_send_bw", "ibv_devinfo"];

/// A key that both machines have.
const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn over_a_cable(lab: &Lab, key: &'static str) {
    let program = |name: &str| lab.program(name).env("WEFT_KEY", key);
    let Some(networks) = Namespaces::new() else { return };
    let (port, server) = (free_port(), Namespaces::FIRST);
    let rping = |role| program("rping").args(&format!("{role} -a {server} -p {port} -V -C 10"));
    pair(&networks, rping("-s"), rping("-c"), port);
    let bw = program("ib_send_bw").args(&format!("-R -F -n 200 -p {port}"));
    pair(&networks, bw.clone(), bw.args(server), port);
    let info = program("ibv_devinfo").args("-v").started_by(&networks.in_second());
    // 10.77.0.2 as a GID.
    info.run().success().said("ffff:0a4d:0002");
}

#[test]
fn over_a_cable_in_clear_text() {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    over_a_cable(&lab.over(IWARP), "");
}

#[test]
fn over_a_cable_under_a_key() {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    // Over Shuttle, because both listen there.
    over_a_cable(&lab, KEY);
}
