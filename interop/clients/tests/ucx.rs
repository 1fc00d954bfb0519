//! ucx_perftest over `weft0`: UCX's own layer (`uct`) and the one above it (`ucp`), by connections
//! and by datagrams. It does not look at the data; the tests of MPI over UCX do.
//!
//! What UCX does not offer is refused by UCX, with a message that is expected here, so that a row
//! that begins to work is noticed.

use weft_testkit::{Lab, Program, free_port};

/// UCX's name of a transport, long and short.
const CONNECTIONS: [&str; 2] = ["rc_verbs", "rc_v"];
const DATAGRAMS: [&str; 2] = ["ud_verbs", "ud_v"];

/// What is said about an operation that a transport has not.
const REFUSED: &str = "Unsupported operation";

/// Tests of `uct`, with their options, that both transports have.
const MESSAGES: [&str; 8] = [
    "am_lat -D short",
    "am_lat -D shortiov",
    "am_lat -D bcopy -s 1000",
    "am_lat -D zcopy -s 1000",
    "am_bw -D short",
    "am_bw -D shortiov",
    "am_bw -D bcopy -s 1000",
    "am_bw -D zcopy -s 1000",
];

/// Those that only connections have: remote memory, and atomics of 64 bits.
const MEMORY: [&str; 12] = [
    "put_lat -D short",
    "put_lat -D bcopy -s 4000",
    "put_lat -D zcopy -s 100000",
    "put_bw -D short",
    "put_bw -D bcopy -s 4000",
    "put_bw -D zcopy -s 100000",
    "get -D bcopy -s 4000",
    "get -D zcopy -s 100000",
    "add_lat",
    "add_mr",
    "fadd",
    "cswap",
];

/// Those that neither has: verbs know no swap, and no atomics of 32 bits.
const NOWHERE: [&str; 5] = ["swap", "add_lat -s 4", "add_mr -s 4", "fadd -s 4", "cswap -s 4"];

/// Tests of `ucp` with messages, each at several sizes.
const LAYERED: [&str; 11] = [
    "tag_lat",
    "tag_bw",
    "tag_sync_lat",
    "tag_sync_bw",
    "ucp_put_lat",
    "ucp_put_bw",
    "ucp_get",
    "stream_lat",
    "stream_bw",
    "ucp_am_lat",
    "ucp_am_bw",
];

/// The rest of `ucp`: atomics, and ways to do the same. UCX makes what a transport has not of
/// messages, so that both have all.
const FURTHER: [&str; 15] = [
    "ucp_add -s 4",
    "ucp_add",
    "ucp_fadd -s 4",
    "ucp_fadd",
    "ucp_swap -s 4",
    "ucp_swap",
    "ucp_cswap -s 4",
    "ucp_cswap",
    "tag_bw -D iov,iov -s 100,200,3000,50000",
    "stream_bw -r recv_data -s 4000",
    "tag_lat -C",
    "tag_lat -U",
    "tag_lat -E sleep",
    "tag_bw -T 2 -M multi",
    "tag_bw -e",
];

/// Runs one test on both ends; gives what the client complained about if it failed.
fn run(perftest: &Program, test: &str) -> Result<(), String> {
    let port = free_port();
    let server = perftest.clone().args(&format!("-p {port}")).start().listening(port);
    // Whoever is written to need not do anything.
    let client = perftest.clone().option("--require-traffic");
    let client = client.args(&format!("-f -n 100 -w 10 -p {port} -t {test} 127.0.0.1")).run();
    if client.status.success() {
        server.wait().success();
        return Ok(());
    }
    Err(format!("{test}: {client}\n{}", server.end()))
}

/// Tests of `uct` that must run, and tests that UCX must refuse.
fn uct(transport: &str, runs: &[&str], refused: &[&str]) {
    let Some(lab) = Lab::with(&["ucx_perftest"]) else { return };
    let perftest = lab.program("ucx_perftest").args(&format!("-d weft0:1 -x {transport}"));
    for test in runs {
        run(&perftest, test).unwrap_or_else(|complaint| panic!("{transport} {complaint}"));
    }
    for test in refused {
        let complaint = run(&perftest, test).expect_err("UCX refuses this");
        assert!(complaint.contains(REFUSED), "{transport} {complaint}");
    }
}

fn ucp(transport: &str, tests: &[&str], sizes: &[&str]) {
    let Some(lab) = Lab::with(&["ucx_perftest"]) else { return };
    let perftest = lab.program("ucx_perftest").env("UCX_TLS", format!("{transport},self"));
    let perftest = perftest.env("UCX_NET_DEVICES", "weft0:1");
    for (test, size) in tests.iter().flat_map(|test| sizes.iter().map(move |size| (test, size))) {
        let test = format!("{test} {size}");
        run(&perftest, &test).unwrap_or_else(|complaint| panic!("{transport} {complaint}"));
    }
}

#[test]
fn connections() {
    uct(CONNECTIONS[0], &["am_lat -D short", "put_bw -D zcopy -s 100000"], &NOWHERE[..1]);
    uct(CONNECTIONS[0], &["get -D bcopy -s 4000", "fadd"], &[]);
}

#[test]
fn datagrams() {
    uct(DATAGRAMS[0], &["am_lat -D bcopy -s 1000", "am_bw -D short"], &MEMORY[..1]);
}

#[test]
fn tags_and_streams() {
    ucp(CONNECTIONS[1], &["tag_bw", "stream_lat", "ucp_get"], &["-s 100000"]);
    ucp(DATAGRAMS[1], &["tag_bw", "ucp_put_lat"], &["-s 100000"]);
}

/// UCX polls, asks for an event and sleeps, in this order: what comes in between must wake it.
#[test]
fn sleeping_until_something_comes() {
    ucp(CONNECTIONS[1], &["tag_lat -E sleep"], &["-s 8", "-s 4000"]);
}

/// `make peer-suites`: the whole matrix.
#[test]
#[ignore = "minutes"]
fn the_matrix_of_connections() {
    uct(CONNECTIONS[0], &[&MESSAGES[..], &MEMORY].concat(), &NOWHERE);
    ucp(CONNECTIONS[1], &LAYERED, &["-s 8", "-s 4000", "-s 100000"]);
    ucp(CONNECTIONS[1], &FURTHER, &[""]);
}

/// `make peer-suites`: the whole matrix.
#[test]
#[ignore = "minutes"]
fn the_matrix_of_datagrams() {
    uct(DATAGRAMS[0], &MESSAGES, &[&MEMORY[..], &NOWHERE].concat());
    ucp(DATAGRAMS[1], &LAYERED, &["-s 8", "-s 4000", "-s 100000"]);
    ucp(DATAGRAMS[1], &FURTHER, &[""]);
}
