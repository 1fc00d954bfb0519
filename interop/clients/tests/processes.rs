//! Processes that fork, and CPU use of idle ones.

use std::time::Duration;

use weft_interop::source;
use weft_testkit::{Lab, Running, free_port};

/// How long it is looked at what an idle end costs, and how often at most: one that costs nothing
/// is seen once.
const LOOK: Duration = Duration::from_secs(3);
const LOOKS: usize = 6;

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
    // What follows from the traffic may take some time on a busy machine: leases end, a peer is
    // decided about. A sign of life now and then may begin a tick.
    let spent = || {
        let before = ends.each_ref().map(Running::cpu_ticks);
        assert!(!ends[0].ends_within(LOOK) && !ends[1].ends_within(Duration::ZERO));
        [0, 1].map(|end| ends[end].cpu_ticks() - before[end])
    };
    let busy: Vec<_> = (0..LOOKS)
        .map(|_| spent())
        .take_while(|spent| spent.iter().any(|ticks| *ticks > 1))
        .collect();
    assert!(busy.len() < LOOKS, "{busy:?}");
}
