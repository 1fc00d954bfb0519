//! Connections between applications of one host, of either device, which go by shared memory where
//! both sides permit it, and over the network without a word where something is against it.

use weft_interop::source;
use weft_testkit::{IWARP, Lab, Program, Signal, free_port, pair};

const BY: &str = " by shared memory";

fn permitted(program: Program, lane: &str) -> Program {
    program.env("WEFT_LANE", lane).env("WEFT_LOG", "info")
}

#[test]
fn every_verb_of_perftest_goes_by_it() {
    let verbs =
        ["write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat", "atomic_bw"];
    let names = verbs.map(|verb| format!("ib_{verb}"));
    Lab::over_each(&names.each_ref().map(String::as_str), |lab| {
        for name in &names {
            let by_number = format!("-F -d {} -n 200", lab.device());
            for options in ["-R -F -n 200", &by_number, "-R -F -e -n 100"] {
                // perftest has no events for Writes and Atomics, and ends Sends with an error
                // where an RNIC is not connected by rdma-cm.
                let (send, read) = (name.contains("send"), name.contains("read"));
                let is_rnic = lab.device() == "weft_iw0";
                if options.contains("-e") && !send && !read
                    || options.contains("-d") && send && is_rnic
                {
                    continue;
                }
                let port = free_port();
                let server = permitted(lab.program(name), "on");
                let server = server.args(&format!("-p {port} {options}"));
                let (server, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
                for end in [&server, &client] {
                    assert!(end.stderr.contains(BY), "{end}");
                }
            }
        }
    });
}

#[test]
fn one_side_alone_has_none() {
    Lab::over_each(&["rping"], |lab| {
        for (server, client) in [("on", "off"), ("off", "on"), ("off", "off")] {
            let port = free_port();
            let rping = |role, lane| {
                let arguments = format!("{role} -a 127.0.0.1 -p {port} -C 20");
                permitted(lab.program("rping").args(&arguments), lane)
            };
            let server = rping("-s", server).start().listening(port);
            let client = rping("-c", client).run().success();
            let server = server.wait().success();
            for end in [&server, &client] {
                assert!(end.stderr.contains(": connected to "), "{end}");
                assert!(!end.stderr.contains(BY), "{end}");
            }
        }
    });
}

#[test]
fn who_injects_faults_keeps_the_network() {
    Lab::over_each(&["rping"], |lab| {
        let port = free_port();
        let rping = |role| {
            let arguments = format!("{role} -a 127.0.0.1 -p {port} -C 20");
            permitted(lab.program("rping").args(&arguments), "on")
        };
        let server = rping("-s").start().listening(port);
        let client = rping("-c").env("WEFT_FAULT", "qp-error:after=1000000").run().success();
        for end in [server.wait().success(), client] {
            assert!(end.stderr.contains(": connected to ") && !end.stderr.contains(BY), "{end}");
        }
    });
}

#[test]
fn what_was_completed_arrives_however_the_sender_ends() {
    Lab::over_each(&["cc"], |lab| {
        for how in ["return", "exit", "_exit", "kill"] {
            let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
            let peer = permitted(peer, "on");
            let receiver = peer.clone().args(&format!("receive {port} 200 65536"));
            let receiver = receiver.start().listening(port);
            let sender = peer.args(&format!("send {port} 200 65536 {how}")).run();
            assert!(sender.stderr.contains(BY), "{how}: {sender}");
            receiver.wait().success().said("complete");
        }
    });
}

#[test]
fn what_waits_for_a_receive_outlives_its_sender() {
    let Some(lab) = Lab::with(&["cc"]) else { return };
    let lab = lab.over(IWARP);
    let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
    let peer = permitted(peer, "on");
    let receiver = peer.clone().args(&format!("receive {port} 32 1000 late"));
    let receiver = receiver.start().listening(port);
    let sender = peer.args(&format!("send {port} 32 1000 return")).run().success();
    assert!(sender.stderr.contains(BY), "{sender}");
    receiver.signal(Signal::USR1);
    receiver.wait().success().said("complete");
}
