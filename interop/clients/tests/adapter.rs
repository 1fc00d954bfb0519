//! perftest in its default mode, without rdma-cm, over `weft0`: on one machine, and across a path
//! that is long, loses and reorders.

use weft_interop::{Lab, free_port, library, pair, weft};

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

/// The same through `weft wan`.
fn measure_far(line: &str) {
    let (program, options) = line.split_once(' ').expect("a program and its options");
    let Some(lab) = Lab::of_root(&[program]) else { return };
    let weft = weft().display();
    let run = format!("{weft} run {program} -F {options}");
    let path = lab.program(&weft.to_string()).on_its_own().env("WEFT_LIB", library());
    let path = path.args("wan 70ms 200mbit 1% reorder=25%:5ms --server").arg(&run);
    let client = path.args(&format!("-- {run} 10.77.0.2")).run();
    client.success().said("#bytes");
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

#[test]
fn writes_across_a_bad_path() {
    measure_far("ib_write_bw -n 200");
}

#[test]
fn polling_the_last_octet_across_a_bad_path() {
    measure_far("ib_write_lat -n 30 -s 20000");
}

#[test]
fn reads_across_a_bad_path() {
    measure_far("ib_read_bw -n 50 -o 16");
}
