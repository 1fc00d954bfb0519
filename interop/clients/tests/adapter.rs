//! perftest in its default mode, without rdma-cm, over `weft0`.

use weft_testkit::{Lab, free_port, pair};

/// Runs each program on both ends with each of the options.
fn measure(programs: &[&str], options: &[&str]) {
    let Some(lab) = Lab::with(programs) else { return };
    for program in programs {
        for option in options {
            let port = free_port();
            let server = lab.program(program).args(&format!("-F -p {port} {option}"));
            let (server, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
            assert!(client.stdout.contains("#bytes"), "{client}\n{server}");
        }
    }
}

#[test]
fn bandwidth() {
    measure(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-n 100", "-b -q 2 -n 50"]);
}

#[test]
fn bandwidth_of_all_sizes() {
    measure(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-a -n 5"]);
}

#[test]
fn latency() {
    let programs = ["ib_write_lat", "ib_read_lat", "ib_send_lat"];
    measure(&programs, &["-n 100", "-n 20 -s 100000"]);
}

#[test]
fn waiting_for_events() {
    measure(&["ib_send_bw", "ib_read_bw", "ib_send_lat"], &["-e -n 200"]);
}

#[test]
fn atomic_operations() {
    measure(&["ib_atomic_bw", "ib_atomic_lat"], &["-n 100", "-A CMP_AND_SWAP -n 100"]);
}

#[test]
fn unreliable_connections() {
    measure(&["ib_write_bw", "ib_send_bw"], &["-c UC -n 100"]);
}
