//! Traffic reports of `weft run` about real programs, however they end.

use weft_interop::source;
use weft_testkit::{Ended, IWARP, Lab, Program, Traffic, free_port};

/// A lab where programs connect over `weft_iw0`.
fn lab(programs: &[&str]) -> Option<Lab> {
    Some(Lab::with(programs)?.over(IWARP))
}

/// The program with the line at its end, and required to have had traffic.
fn counted(program: Program) -> Program {
    program.option("--stats").option("--require-traffic")
}

/// What was counted: connections, operations, bytes sent, bytes received.
fn numbers(ended: &Ended, device: &str) -> [u64; 4] {
    let Traffic { connections, operations, sent_bytes, received_bytes } =
        Traffic::of(ended, device);
    [connections, operations, sent_bytes, received_bytes]
}

#[test]
fn both_ends_and_their_shell_are_one_run() {
    let Some(lab) = lab(&["rping", "sh", "grep"]) else { return };
    let port = free_port();
    let line = format!("-a 127.0.0.1 -C 3 -p {port}");
    // Until somebody listens there: state 0A.
    let listens = format!("until grep -q ':{port:04X} [0-9A-F:]* 0A' /proc/net/tcp; do :; done");
    let shell = format!("rping -s {line} & {listens}; rping -c {line} && wait");
    let ended = counted(lab.program("sh")).arg("-c").arg(shell).run().success();
    let [connections, operations, sent, received] = numbers(&ended, "weft_iw0");
    assert_eq!((connections, sent), (2, received), "{ended}");
    // For each ping the client sends two messages and the server two, a Read and a Write.
    assert!(operations >= 3 * 6, "{ended}");
}

#[test]
fn what_was_done_before_a_kill_counts() {
    let Some(lab) = lab(&["cc"]) else { return };
    let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
    let receiver = counted(peer.clone()).args(&format!("receive {port} 200 65536"));
    let receiver = receiver.start().listening(port);
    let sender = counted(peer).args(&format!("send {port} 200 65536 kill")).run();
    assert_eq!(sender.status.code(), None, "{sender}");
    // The last of it may not have been noted yet.
    let [connections, operations, sent, _] = numbers(&sender, "weft_iw0");
    assert!(connections == 1 && (1..=200).contains(&operations), "{sender}");
    assert!((1..=200 * 65536).contains(&sent), "{sender}");
    let receiver = receiver.wait().success();
    assert_eq!(numbers(&receiver, "weft_iw0")[3], 200 * 65536, "{receiver}");
}

#[test]
fn a_child_counts_as_its_parent_does() {
    let Some(lab) = lab(&["cc"]) else { return };
    let (peer, ports) = (lab.verbs_program(&source("peer")), [free_port(), free_port()]);
    let receivers = ports.map(|port| {
        peer.clone().args(&format!("receive {port} 40 100000")).start().listening(port)
    });
    let [port, other] = ports;
    let sender = counted(peer).args(&format!("send {port} 40 100000 fork {other}"));
    let sender = sender.run().success();
    assert_eq!(numbers(&sender, "weft_iw0")[..3], [2, 80, 80 * 100_000], "{sender}");
    for receiver in receivers {
        receiver.wait().success();
    }
}

#[test]
fn one_side_that_only_serves_has_traffic_too() {
    let Some(lab) = lab(&["ib_write_bw"]) else { return };
    let port = free_port();
    let server = lab.program("ib_write_bw").args(&format!("-d weft0 -F -n 100 -p {port}"));
    let running = counted(server.clone()).start().listening(port);
    let client = counted(server).args("127.0.0.1").run().success();
    assert_eq!(numbers(&client, "weft0")[..3], [1, 100, 100 * 65536], "{client}");
    let server = running.wait().success();
    let [connections, operations, _, received] = numbers(&server, "weft0");
    assert_eq!((connections, operations, received), (1, 0, 100 * 65536), "{server}");
}

#[test]
fn datagrams_need_no_connection() {
    let Some(lab) = lab(&["ibv_ud_pingpong"]) else { return };
    let port = free_port();
    let line = format!("-d weft0 -g 0 -n 200 -p {port}");
    let server = lab.program("ibv_ud_pingpong").args(&line).start().listening(port);
    let client = counted(lab.program("ibv_ud_pingpong")).args(&format!("{line} 127.0.0.1"));
    let client = client.run().success();
    let [connections, operations, sent, received] = numbers(&client, "weft0");
    assert_eq!((connections, operations), (0, 200), "{client}");
    assert!(sent > 0 && sent == received, "{client}");
    server.wait().success();
}

#[test]
fn looking_at_devices_is_no_traffic() {
    let Some(lab) = lab(&["ibv_devinfo"]) else { return };
    let ended = counted(lab.program("ibv_devinfo")).run();
    assert_eq!(ended.status.code(), Some(123), "{ended}");
    assert!(ended.stderr.contains("devices were opened, and no connection was made"), "{ended}");
}
