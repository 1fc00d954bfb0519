//! Processes that fork, and CPU use of idle ones.

use std::time::Duration;

use weft_interop::source;
use weft_testkit::{Lab, free_port};

#[test]
fn a_fork_in_the_middle_disturbs_neither_parent_nor_child() {
    let Some(lab) = Lab::with(&["cc"]) else { return };
    let (peer, ports) = (lab.verbs_program(&source("peer")), [free_port(), free_port()]);
    let receivers = ports.map(|port| {
        peer.clone().args(&format!("receive {port} 40 100000")).start().listening(port)
    });
    let [port, other] = ports;
    peer.args(&format!("send {port} 40 100000 fork {other}")).run().success();
    for receiver in receivers {
        receiver.wait().success().said("complete");
    }
}

#[test]
fn an_idle_connection_costs_nothing() {
    let Some(lab) = Lab::with(&["cc"]) else { return };
    let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
    let receiver = peer.clone().args(&format!("receive {port} 10 1000 stay"));
    let receiver = receiver.start().listening(port);
    let sender = peer.args(&format!("send {port} 10 1000 stay")).start();
    let ends = [sender.printed("staying"), receiver.printed("staying")];
    // What follows from the traffic may take a moment: leases end, a peer is decided about.
    let settle = Duration::from_secs(2);
    assert!(!ends[0].ends_within(settle) && !ends[1].ends_within(Duration::ZERO));
    let before = [ends[0].cpu_ticks(), ends[1].cpu_ticks()];
    assert!(!ends[0].ends_within(Duration::from_secs(3)));
    // A sign of life now and then may begin a tick.
    let after = [ends[0].cpu_ticks(), ends[1].cpu_ticks()];
    assert!(after.iter().zip(before).all(|(after, before)| after - before <= 1), "{after:?}");
}
