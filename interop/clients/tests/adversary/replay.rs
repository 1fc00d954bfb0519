//! What a rightful peer said to one process is said again to the next.

use weft_interop::free_port;

use crate::kit::{Scene, keyed};

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
    let forger = scene.forger();
    for datagram in record.iter().chain(&record) {
        forger.send_udp(datagram.from, datagram.to, &datagram.payload);
    }
    let client = scene.rping_client(port, keyed);
    assert!(client.status.success(), "{client}\n{}", server.end());
    server.wait().success();
}
