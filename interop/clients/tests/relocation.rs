//! A host that loses its address while connections are open, as on the way to another network.

use weft_testkit::{Lab, Namespaces, Program, SHUTTLE, free_port};

const PROGRAMS: [&str; 4] = ["ip", "ss", "rping", "ib_send_bw"];

/// A key that both hosts have.
const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Packets that show that a program is at work, at an address or at the next one.
const AT_WORK: u64 = 500;

/// The second host's addresses one after the other; it has the first of them again at the end.
const MOVES: [&str; 3] = ["10.77.0.3", "10.77.0.4", Namespaces::SECOND];

fn goes_on_from_address_to_address(client: impl Fn(&Lab, u16) -> [Program; 2], key: &'static str) {
    // A server that is held up may be found by TCP alone, which keeps to its addresses.
    let Some(lab) = Lab::of_root(&PROGRAMS).map(|lab| lab.over(SHUTTLE)) else { return };
    let Some(networks) = Namespaces::new() else { return };
    let port = free_port();
    let [server, client] = client(&lab, port).map(|program| program.env("WEFT_KEY", key));
    let insecure = if key.is_empty() { "1" } else { "" };
    let [server, client] = [server, client].map(|program| program.env("WEFT_INSECURE", insecure));
    let server = server.started_by(&networks.in_first()).start();
    let server = server.until("listened", |_| networks.first_listens(port));
    let mut client = client.started_by(&networks.in_second()).start();
    for address in MOVES {
        let enough = networks.sent_by_second() + AT_WORK;
        client = client.until("is at work", |_| networks.sent_by_second() > enough);
        networks.move_second(address);
    }
    let enough = networks.sent_by_second() + AT_WORK;
    client.until("goes on at its last address", |_| networks.sent_by_second() > enough).end();
    server.end();
}

/// Two ends of a program that runs until it is ended.
fn rping(lab: &Lab, port: u16) -> [Program; 2] {
    let at = format!("-a {} -p {port} -V -C 100000000", Namespaces::FIRST);
    ["-s", "-c"].map(|role| lab.program("rping").args(&format!("{role} {at}")))
}

/// The same without rdma-cm. Its requests wait for half a minute, on a busy machine too.
fn send_bw(lab: &Lab, port: u16) -> [Program; 2] {
    let end = lab.program("ib_send_bw");
    let end = end.args(&format!("-F -d weft0 -x 0 -p {port} -D 600 -u 20"));
    [end.clone(), end.args(Namespaces::FIRST)]
}

#[test]
fn a_connection_of_rdma_cm() {
    goes_on_from_address_to_address(rping, "");
}

#[test]
fn a_sealed_connection_of_rdma_cm() {
    goes_on_from_address_to_address(rping, KEY);
}

#[test]
fn a_queue_pair_without_rdma_cm() {
    goes_on_from_address_to_address(send_bw, "");
}
