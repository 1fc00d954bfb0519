//! Two machines, as far as the network is concerned.

use weft_interop::{Lab, Namespaces, Program, free_port};

fn pair(networks: &Namespaces, server: Program, client: Program, port: u16) {
    let server = server.started_by(&networks.in_first()).start();
    let server = server.until("listened", |_| networks.first_listens(port));
    client.started_by(&networks.in_second()).run().success();
    server.wait().success();
}

#[test]
fn over_a_cable() {
    let Some(lab) = Lab::of_root(&["ip", "ss", "rping", "ib_send_bw", "ibv_devinfo"]) else {
        return;
    };
    let Some(networks) = Namespaces::new() else { return };
    let (port, server) = (free_port(), Namespaces::FIRST);
    let rping = |role| lab.program("rping").args(&format!("{role} -a {server} -p {port} -V -C 10"));
    pair(&networks, rping("-s"), rping("-c"), port);
    let bw = lab.program("ib_send_bw").args(&format!("-R -F -n 200 -p {port}"));
    pair(&networks, bw.clone(), bw.args(server), port);
    let info = lab.program("ibv_devinfo").args("-v").started_by(&networks.in_second());
    // 10.77.0.2 as a GID.
    info.run().success().said("ffff:0a4d:0002");
}
