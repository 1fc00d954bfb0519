//! The ping-pongs of rdma-core, which connect their queue pairs themselves, over `weft0`.

use weft_testkit::{Lab, free_port};

/// Runs both ends of `name`; the first GID is the address that programs take which do not look.
fn both_ends(name: &str, options: &str) {
    let Some(lab) = Lab::with(&[name]) else { return };
    let port = free_port();
    let line = format!("-d weft0 -g 0 -n 200 -p {port} {options}");
    let server = lab.program(name).args(&line).start().listening(port);
    let client = lab.program(name).args(&format!("{line} 127.0.0.1")).run();
    client.success().said("200 iters in");
    server.wait().success().said("200 iters in");
}

#[test]
fn reliable_connections() {
    both_ends("ibv_rc_pingpong", "-c");
}

#[test]
fn reliable_connections_that_sleep_until_something_happens() {
    both_ends("ibv_rc_pingpong", "-e");
}

#[test]
fn a_shared_receive_queue_and_an_end_right_after_the_last_message() {
    both_ends("ibv_srq_pingpong", "-q 4");
}

#[test]
fn unreliable_connections() {
    both_ends("ibv_uc_pingpong", "");
}

#[test]
fn datagrams() {
    both_ends("ibv_ud_pingpong", "");
}

#[test]
fn datagrams_that_sleep_until_something_happens() {
    both_ends("ibv_ud_pingpong", "-e");
}
