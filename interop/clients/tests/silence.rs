//! A peer that does not answer is mentioned on both sides, with the address and port that matter,
//! however the connection is made.

use weft_interop::{Lab, Namespaces, Program, Running, free_port};

/// Starts `client` in the second namespace once `server` listens in the first.
fn start(networks: &Namespaces, server: Program, client: Program, port: u16) -> [Running; 2] {
    let server = server.started_by(&networks.in_first()).start();
    let server = server.until("listened", |_| networks.first_listens(port));
    [server, client.started_by(&networks.in_second()).start()]
}

fn lab_and_networks(program: &str) -> Option<(Lab, Namespaces)> {
    let lab = Lab::of_root(&["ip", "ss", "nft", program])?;
    Some((lab, Namespaces::new()?))
}

/// The port that follows `before` in what `running` has said of the silent peer.
fn port_after(running: &Running, before: &str) -> String {
    let stderr = running.stderr();
    let line = stderr.lines().find(|line| line.contains(before)).expect("a line about the peer");
    let rest = line.split(" port ").nth(1).expect("a port");
    rest.chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn queue_pairs_that_exchange_their_numbers_over_blocked_udp() {
    let Some((lab, networks)) = lab_and_networks("ibv_rc_pingpong") else { return };
    networks.drop_udp_in_second();
    let port = free_port();
    let end = lab.program("ibv_rc_pingpong").args(&format!("-d weft0 -g 0 -p {port}"));
    let end = end.env("WEFT_INSECURE", "1");
    let client = end.clone().args(Namespaces::FIRST);
    let ends = start(&networks, end, client, port);
    let [server, client] = ends.map(|end| end.complained(" by UDP from "));
    let [first, second] = [(&server, Namespaces::SECOND), (&client, Namespaces::FIRST)]
        .map(|(end, peer)| port_after(end, &format!("by UDP from {peer}")));
    assert_eq!(first, second, "both name the port of the one that is asked");
}

#[test]
fn queue_pairs_that_exchange_their_numbers_over_blocked_tcp() {
    let Some((lab, networks)) = lab_and_networks("ibv_rc_pingpong") else { return };
    let port = free_port();
    networks.drop_tcp_in_second_but(port);
    let end = lab.program("ibv_rc_pingpong").args(&format!("-d weft_iw0 -g 1 -p {port}"));
    let client = end.clone().args(Namespaces::FIRST);
    let ends = start(&networks, end.env("WEFT_INSECURE", "1"), client, port);
    let [server, client] = ends.map(|end| end.complained(" by TCP from "));
    let [first, second] = [(&server, Namespaces::SECOND), (&client, Namespaces::FIRST)]
        .map(|(end, peer)| port_after(end, &format!("by TCP from {peer}")));
    assert_eq!(first, second, "both name the port of the one that is called");
}

#[test]
fn a_listener_whose_host_is_silent() {
    let Some((lab, networks)) = lab_and_networks("rping") else { return };
    let port = free_port();
    networks.drop_udp_in_second();
    networks.drop_tcp_in_second_but(0);
    for transport in ["auto", "shuttle", "iwarp"] {
        let client = lab.program("rping").args(&format!("-c -C 1 -p {port} -a"));
        let client = client.args(Namespaces::FIRST).env("WEFT_INSECURE", "1");
        let client = client.env("WEFT_TRANSPORT", transport).started_by(&networks.in_second());
        let client = client.start().complained(&format!("from {} port {port}", Namespaces::FIRST));
        client.end();
    }
}
