//! A peer that does not answer is mentioned on both sides, with the address and port that matter,
//! however the connection is made; and so is one whose datagrams are dropped because of its key.
//! A device that an application does not find is mentioned too.

use weft_testkit::{Lab, Namespaces, Program, Running, free_port};

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

/// A Read Request has no payload, and is owed an acknowledgement all the same.
#[test]
fn reads_end_when_the_host_of_their_target_is_silent() {
    let Some((lab, networks)) = lab_and_networks("ib_read_bw") else { return };
    let port = free_port();
    let line = format!("-R -F -s 8 -D 600 -p {port}");
    let program = lab.program("ib_read_bw").args(&line).env("WEFT_INSECURE", "1");
    let program = program.env("WEFT_TRANSPORT", "iwarp").env("WEFT_STALL_TIMEOUT_MS", "2000");
    let client = program.clone().args(Namespaces::FIRST);
    let [server, client] = start(&networks, program, client, port);
    let client = client.until("was at work", |client| client.cpu_ticks() > 30);
    networks.drop_tcp_in_second_but(0);
    assert_ne!(client.wait().status.code(), Some(0));
    drop(server);
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

#[test]
fn a_device_that_is_asked_for_and_not_found() {
    let Some(lab) = Lab::with(&["ibv_rc_pingpong", "ib_write_bw", "ibv_devinfo"]) else { return };
    let asked = |line: &str| {
        let (name, options) = line.split_once(' ').expect("a program and its options");
        lab.program(name).args(options)
    };
    // Some names are a driver's; whether others are a device's shows when the application ends.
    for line in ["ib_write_bw -d mlx5_0", "ibv_rc_pingpong -d nic-a1", "ibv_devinfo -d nic-a1"] {
        let ended = asked(line).run();
        let lines = ended.stderr.lines().filter(|line| line.contains("weft: ")).count();
        let told = "is asked for and not here; of Weft's there are: weft0 and weft_iw0";
        assert!(lines == 1 && ended.stderr.contains(told), "{ended}");
    }
    let ended = asked("ibv_devinfo -l").env("WEFT_DEVICES", "nic-a1").run();
    assert!(ended.stderr.contains("WEFT_DEVICES: no device is named nic-a1"), "{ended}");
    for line in ["ibv_devinfo -l", "ibv_devinfo -d weft0"] {
        let ended = asked(line).run();
        assert!(!ended.stderr.contains("weft: "), "{ended}");
    }
}

const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER: &str = "weft1:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

/// The client of perftest posts no receive, in which a notice could arrive.
#[test]
fn datagrams_under_different_keys() {
    let other = "has another key than";
    let cases = [
        (Some(KEY), Some(OTHER), other, other),
        (Some(KEY), None, "has no key, and this host has", "has a key, and this host has none"),
        (None, Some(KEY), "has a key, and this host has none", "has no key, and this host has"),
    ];
    for line in ["ibv_ud_pingpong -d weft0 -g 0", "ib_send_bw -F -c UD -d weft0"] {
        let (name, options) = line.split_once(' ').expect("a program and its options");
        let Some(lab) = Lab::with(&[name]) else { continue };
        for (server, client, on_server, on_client) in cases {
            let port = free_port();
            let end = |key: Option<&str>| {
                let end = lab.program(name).args(options).args(&format!("-p {port}"));
                key.map_or(end.clone(), |key| end.env("WEFT_KEY", key))
            };
            let server = end(server).start().listening(port);
            let client = end(client).arg("127.0.0.1").start().complained(on_client);
            let server = server.complained(on_server);
            for text in [client.stderr(), server.stderr()] {
                let lines: Vec<_> = text.lines().filter(|l| l.contains("WEFT_KEY")).collect();
                assert_eq!(lines.len(), 1, "{name}: {text}");
            }
        }
    }
}
