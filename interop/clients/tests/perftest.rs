//! perftest connected by rdma-cm: every verb, every way to post and to wait.

use weft_interop::{free_port, installed, pair};

/// Runs `program` with `options` on both ends.
fn run(program: &str, options: &str) {
    if !installed(program) {
        return;
    }
    let port = free_port();
    let number = port.to_string();
    let mut server = vec![program, "-R", "-F", "-p", &number];
    server.extend(options.split_whitespace());
    let mut client = server.clone();
    client.push("127.0.0.1");
    let (_, client) = pair(&server, &client, port, 60);
    assert!(client.stdout.contains("#bytes"), "{program} {options}: a table\n{}", client.stdout);
}

fn run_each(programs: &[&str], options: &[&str]) {
    for program in programs {
        for option in options {
            run(program, option);
        }
    }
}

#[test]
fn bandwidth_of_each_verb_in_several_ways() {
    let programs = ["ib_write_bw", "ib_read_bw", "ib_send_bw"];
    run_each(&programs, &["-n 100", "-b -n 50", "-q 4 -n 20", "-l 4 -n 32", "-Q 5 -n 50"]);
}

#[test]
fn latency_of_each_verb() {
    run_each(&["ib_write_lat", "ib_read_lat", "ib_send_lat"], &["-n 50"]);
}

#[test]
fn all_sizes() {
    run_each(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-a -n 5"]);
}

#[test]
fn inline_data() {
    let programs = ["ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat"];
    run_each(&programs, &["-I 64 -s 64 -n 50"]);
}

#[test]
fn waiting_for_events() {
    run_each(&["ib_send_lat", "ib_read_bw", "ib_read_lat"], &["-e -n 50"]);
    // Not ib_send_bw: for iWARP it waits for the peer's credit by waiting for a completion, and none
    // comes if it has taken them all already.
}

#[test]
fn a_shared_receive_queue() {
    // One queue pair: perftest gives credits by the request that a message took, which with several
    // queue pairs need not be one that it counts for the sender.
    run_each(&["ib_send_bw", "ib_send_lat"], &["--use-srq -n 50"]);
}

#[test]
fn atomics_between_weft_peers() {
    run_each(&["ib_atomic_bw", "ib_atomic_lat"], &["-n 20", "-A CMP_AND_SWAP -n 20"]);
}
