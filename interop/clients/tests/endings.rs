//! However one side ends, what it completed arrives, and the other side ends by itself.

use weft_interop::source;
use weft_testkit::{Ended, Lab, Running, Signal, free_port};

/// Sends 200 messages of 64 KiB and ends as `how` says; the receiver must get all.
fn all_arrives_when_the_sender_ends_by(how: &str, status: Option<i32>) {
    Lab::over_each(&["cc"], |lab| {
        let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
        let receiver = peer.clone().args(&format!("receive {port} 200 65536"));
        let receiver = receiver.start().listening(port);
        let sender = peer.args(&format!("send {port} 200 65536 {how}")).run();
        assert_eq!(sender.status.code(), status, "{sender}");
        receiver.wait().success().said("complete");
    });
}

#[test]
fn returning_from_main_loses_nothing() {
    all_arrives_when_the_sender_ends_by("return", Some(0));
}

#[test]
fn exit_loses_nothing() {
    all_arrives_when_the_sender_ends_by("exit", Some(0));
}

#[test]
fn leaving_without_handlers_loses_nothing() {
    all_arrives_when_the_sender_ends_by("_exit", Some(0));
}

#[test]
fn being_killed_loses_nothing_that_was_completed() {
    all_arrives_when_the_sender_ends_by("kill", None);
}

/// Runs `name` on both ends until both are in the middle of it, kills one, and gives what became
/// of the other.
fn survivor(lab: &Lab, name: &str, server: &str, client: &str, victim: Victim) -> Ended {
    let port = free_port().to_string();
    let line = |line: &str| lab.program(name).args(&line.replace("PORT", &port));
    let server = line(server).start().listening(port.parse().expect("a port"));
    let client = line(client).start();
    let busy = |this: &Running| this.cpu_ticks() > 20;
    let (server, client) = (server.until("worked", busy), client.until("worked", busy));
    let (dead, alive) = match victim {
        Victim::Server => (server, client),
        Victim::Client => (client, server),
    };
    dead.signal(Signal::KILL);
    let ended = alive.wait();
    assert!(ended.status.code().is_some(), "it crashed: {ended}");
    ended
}

#[derive(Clone, Copy)]
enum Victim {
    Server,
    Client,
}

#[test]
fn perftest_ends_when_its_peer_is_killed() {
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        let (server, client) = ("-R -F -n 5000000 -p PORT", "-R -F -n 5000000 -p PORT 127.0.0.1");
        Lab::over_each(&[program], |lab| {
            let client = survivor(lab, program, server, client, Victim::Server);
            assert!(!client.status.success(), "{client}");
        });
    }
}

/// What a server of perftest may rely on when its client is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    /// It ends: its socket to the client, or its queue pair, fails.
    Ends,
    /// rdma-cm tells of it. The queue pair stays, as on a card, and perftest, which then looks at
    /// nothing but its completion queue, waits on.
    Event,
}

/// Starts a server of perftest and its client; whether they use rdma-cm is up to `options`.
fn perftest_pair(lab: &Lab, name: &str, options: &str) -> [Running; 2] {
    let port = free_port();
    let end = lab.program(name).args(&format!("-F -n 5000000 -p {port} {options}"));
    let end = end.option("--log").option("debug");
    let server = end.clone().start().listening(port);
    [server, end.arg("127.0.0.1").start()]
}

#[test]
fn servers_of_perftest_are_told_of_a_killed_client() {
    Lab::over_each(&["ib_read_bw", "ib_write_bw", "ib_atomic_bw"], |lab| {
        let by_number = format!("-d {}", lab.device());
        let with_rdma_cm = if lab.device() == "weft0" { Notice::Event } else { Notice::Ends };
        let ways = [("-R", with_rdma_cm), (by_number.as_str(), Notice::Ends)];
        let names = ["ib_read_bw", "ib_write_bw", "ib_atomic_bw"];
        let cases = names.into_iter().flat_map(|name| ways.map(|way| (name, way)));
        let pairs: Vec<_> = cases
            .map(|(name, (options, notice))| (perftest_pair(lab, name, options), notice))
            .collect();
        let servers: Vec<_> = pairs
            .into_iter()
            .map(|([server, client], notice)| {
                let told = |this: &Running| this.stderr().contains(" is connected");
                let client = client.until("worked", |client| {
                    client.cpu_ticks() > 20 && (notice == Notice::Ends || told(client))
                });
                client.signal(Signal::KILL);
                client.wait();
                (server, notice)
            })
            .collect();
        for (server, notice) in servers {
            let server = match notice {
                Notice::Ends => server.wait(),
                Notice::Event => server.complained("CONNECTED -> CLOSED").end(),
            };
            assert!(!server.status.success(), "{server}");
        }
    });
}

#[test]
fn who_only_waits_for_events_is_told_of_a_killed_peer() {
    Lab::over_each(&["cc"], |lab| {
        let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
        let receiver = peer.clone().args(&format!("receive {port} 1 64 event"));
        let receiver = receiver.start().listening(port);
        let sender = peer.args(&format!("send {port} 1 64 stay")).start().printed("staying");
        let receiver = receiver.printed("complete");
        sender.signal(Signal::KILL);
        receiver.wait().success().said("RDMA_CM_EVENT_DISCONNECTED");
    });
}

#[test]
fn rping_ends_when_its_peer_is_killed() {
    let (server, client) = ("-s -a 127.0.0.1 -p PORT", "-c -a 127.0.0.1 -p PORT");
    Lab::over_each(&["rping"], |lab| {
        for victim in [Victim::Server, Victim::Client] {
            survivor(lab, "rping", server, client, victim);
        }
    });
}
