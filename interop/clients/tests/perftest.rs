//! perftest connected by rdma-cm: every verb, every way to post and to wait.

use weft_testkit::{Lab, free_port, pair};

/// Runs each program on both ends with each of the options.
fn measure(programs: &[&str], options: &[&str]) {
    Lab::over_each(programs, |lab| measure_in(lab, programs, options));
}

fn measure_in(lab: &Lab, programs: &[&str], options: &[&str]) {
    for program in programs {
        for option in options {
            let port = free_port();
            let server = lab.program(program).args(&format!("-R -F -p {port} {option}"));
            let (server, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
            assert!(client.stdout.contains("#bytes"), "{client}\n{server}");
        }
    }
}

#[test]
fn bandwidth() {
    measure(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-n 100"]);
}

/// Queue pairs of two devices, which exchange their numbers.
#[test]
fn bandwidth_between_two_devices() {
    let Some(lab) = Lab::with(&["ib_write_bw"]) else { return };
    for list in ["weft0,weft1", "weft0=127.0.0.1,weft1=127.0.0.2"] {
        let port = free_port();
        let end = lab.program("ib_write_bw").args(&format!("-F -n 100 -p {port}"));
        let on = |name: &str| end.clone().args("-d").args(name).env("WEFT_DEVICES", list);
        let (server, client) = pair(&on("weft0"), &on("weft1").args("127.0.0.1"), port);
        assert!(client.stdout.contains("#bytes"), "{client}\n{server}");
    }
}

/// Ids of rdma-cm, each bound to the device that has its address.
#[test]
fn bandwidth_of_the_device_that_has_the_address() {
    let Some(lab) = Lab::with(&["ib_send_bw"]) else { return };
    for name in ["weft", "weft_iw"] {
        let port = free_port();
        let list = format!("{name}0=127.0.0.1,{name}1=127.0.0.2");
        let end = lab.program("ib_send_bw").args(&format!("-R -F -n 100 -p {port}"));
        let end = end.args(&format!("-d {name}1")).env("WEFT_DEVICES", &list);
        let (server, client) = pair(&end, &end.clone().args("127.0.0.2"), port);
        assert!(client.stdout.contains("#bytes"), "{client}\n{server}");
    }
}

#[test]
fn bandwidth_in_both_directions() {
    measure(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-b -n 100"]);
}

#[test]
fn bandwidth_of_several_queue_pairs() {
    measure(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-q 4 -n 50", "-q 16 -n 20 -s 4096"]);
}

#[test]
fn lists_of_requests() {
    measure(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-l 4 -n 64"]);
}

#[test]
fn a_completion_for_every_few_requests() {
    measure(&["ib_write_bw", "ib_send_bw"], &["--cq-mod 5 -n 100"]);
}

#[test]
fn bandwidth_of_all_sizes() {
    measure(&["ib_write_bw", "ib_read_bw", "ib_send_bw"], &["-a -n 5"]);
}

#[test]
fn latency() {
    measure(&["ib_write_lat", "ib_read_lat", "ib_send_lat"], &["-n 100", "-n 20 -s 100000"]);
}

#[test]
fn inline_data() {
    let programs = ["ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat"];
    measure(&programs, &["-I 64 -s 64 -n 100"]);
}

#[test]
fn waiting_for_events() {
    measure(&["ib_send_lat", "ib_read_lat", "ib_read_bw"], &["-e -n 50"]);
    // perftest's sender takes a few completions for each event.
    measure(&["ib_send_bw", "ib_read_bw"], &["-e -q 4 -n 600 -s 4096", "-e -b -n 600 -s 4096"]);
}

#[test]
fn waiting_for_an_event_that_only_a_credit_brings() {
    // All that the receiver's credit allows is with TCP, and complete, before the next one comes.
    measure(&["ib_send_bw"], &["-e -n 5000 -s 64", "-e -l 64 -r 128 -n 6400 -s 64"]);
}

#[test]
fn a_shared_receive_queue() {
    measure(&["ib_send_bw", "ib_send_lat"], &["--use-srq -n 100"]);
}

#[test]
fn atomics_between_weft_peers() {
    measure(&["ib_atomic_bw", "ib_atomic_lat"], &["-n 50", "-A CMP_AND_SWAP -n 50"]);
}
