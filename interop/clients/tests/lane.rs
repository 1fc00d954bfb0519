//! Connections of `weft_iw0` between applications of one host, which go by shared memory where
//! both sides permit it, and by TCP without a word where something is against it.

use weft_interop::source;
use weft_testkit::{Lab, Program, free_port, pair};

const BY: &str = " by shared memory";

fn permitted(program: Program, lane: &str) -> Program {
    program.env("WEFT_TRANSPORT", "iwarp").env("WEFT_LANE", lane).env("WEFT_LOG", "info")
}

#[test]
fn every_verb_of_perftest_goes_by_it() {
    let verbs =
        ["write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat", "atomic_bw"];
    let names = verbs.map(|verb| format!("ib_{verb}"));
    let Some(lab) = Lab::with(&names.each_ref().map(String::as_str)) else { return };
    for name in &names {
        for options in ["-R -F -n 200", "-F -d weft_iw0 -n 200", "-R -F -e -n 100"] {
            // perftest has no events for Writes and Atomics, and ends Sends with an error where an
            // RNIC is not connected by rdma-cm.
            let (send, read) = (name.contains("send"), name.contains("read"));
            if options.contains("-e") && !send && !read || options.contains("-d") && send {
                continue;
            }
            let port = free_port();
            let server = permitted(lab.program(name), "on").args(&format!("-p {port} {options}"));
            let (server, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
            for end in [&server, &client] {
                assert!(end.stderr.contains(BY), "{end}");
            }
        }
    }
}

#[test]
fn one_side_alone_has_none() {
    for (server, client) in [("on", "off"), ("off", "on"), ("off", "off")] {
        let Some(lab) = Lab::with(&["rping"]) else { return };
        let port = free_port();
        let rping = |role, lane| {
            let arguments = format!("{role} -a 127.0.0.1 -p {port} -C 20");
            permitted(lab.program("rping").args(&arguments), lane)
        };
        let server = rping("-s", server).start().listening(port);
        let client = rping("-c", client).run().success();
        let server = server.wait().success();
        for end in [&server, &client] {
            assert!(end.stderr.contains(": connected to ") && !end.stderr.contains(BY), "{end}");
        }
    }
}

#[test]
fn who_injects_faults_keeps_the_network() {
    let Some(lab) = Lab::with(&["rping"]) else { return };
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
}

#[test]
fn what_was_completed_arrives_however_the_sender_ends() {
    for how in ["return", "exit", "_exit", "kill"] {
        let Some(lab) = Lab::with(&["cc"]) else { return };
        let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
        let peer = permitted(peer, "on");
        let receiver = peer.clone().args(&format!("receive {port} 200 65536"));
        let receiver = receiver.start().listening(port);
        let sender = peer.args(&format!("send {port} 200 65536 {how}")).run();
        assert!(sender.stderr.contains(BY), "{how}: {sender}");
        receiver.wait().success().said("complete");
    }
}
