//! What `--log` promises of connections: `info` has them coming and going, and those that are open
//! when a process ends; `debug` also every change of state of queue pairs and rdma-cm ids; and
//! without it nothing is said.

use weft_interop::source;
use weft_testkit::{Lab, SHUTTLE, Signal, free_port};

const DEVICES: [(&str, &str); 2] = [("iwarp", "weft_iw0"), ("shuttle", "weft0")];

/// What both ends of rping say on stderr at a level, where there is an rping: the server, which
/// waits for the end of the connection, and the client, which need not.
fn said(transport: &str, level: &str) -> Option<[String; 2]> {
    let lab = Lab::with(&["rping"])?;
    let port = free_port();
    let rping = |role| {
        let program = lab.program("rping").args(&format!("{role} -a 127.0.0.1 -p {port} -C 3"));
        program.env("WEFT_TRANSPORT", transport).env("WEFT_LOG", level)
    };
    let server = rping("-s").start().listening(port);
    let client = rping("-c").run().success();
    Some([server.wait().success().stderr, client.stderr])
}

fn count(said: &str, device: &str, what: &str) -> usize {
    let ours = |line: &&str| line.contains(device) && line.contains(what);
    said.lines().filter(ours).count()
}

#[test]
fn connections_are_seen_coming_and_going() {
    for (transport, device) in DEVICES {
        let Some(ends) = said(transport, "info") else { return };
        assert_eq!(count(&ends[0], device, " ended: closed by the peer"), 1, "{}", ends[0]);
        for end in ends {
            assert_eq!(count(&end, device, ": connected to 127.0.0.1:"), 1, "{end}");
            assert_eq!(count(&end, device, " -> "), 0, "{end}");
        }
    }
}

#[test]
fn a_line_of_json_has_the_fields_of_its_event() {
    // A server that is held up may be found by TCP alone.
    let Some(lab) = Lab::with(&["rping"]).map(|lab| lab.over(SHUTTLE)) else { return };
    let port = free_port();
    let rping = |role| {
        let program = lab.program("rping").args(&format!("{role} -a 127.0.0.1 -p {port} -C 3"));
        program.env("WEFT_LOG", "debug").env("WEFT_LOG_FORMAT", "json")
    };
    let server = rping("-s").start().listening(port);
    let said = rping("-c").run().success().stderr;
    server.end();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("{\"time\":")).collect();
    let line =
        |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    let peer = format!("\"peer\":\"127.0.0.1:{port}\"");
    assert!(line(&["\"event\":\"connected\"", "\"device\":\"weft0\"", "\"qp\":", &peer]), "{said}");
    assert!(line(&["\"event\":\"state\"", "\"to\":\"RTS\"", "\"level\":\"debug\""]), "{said}");
    assert!(line(&["\"event\":\"id state\"", "\"to\":\"CONNECTED\"", &peer]), "{said}");
}

/// The sockets library writes its log in the same form.
#[test]
fn each_line_of_a_program_of_sockets_is_an_object() {
    let Some(lab) = Lab::with(&["python3", "curl"]) else { return };
    let port = free_port();
    let program = |name| {
        let program = lab.program(name).with_sockets().env("WEFT_LANE", "off");
        let program = program.env("WEFT_SOCKETS_RULES", "use sdp * * *:*");
        program.env("WEFT_LOG", "debug").env("WEFT_LOG_FORMAT", "json")
    };
    let served = lab.write("served", "what is fetched");
    let server = program("python3").args("-m http.server --bind 127.0.0.1").arg(port.to_string());
    let server = server.within(served.parent().expect("a directory")).start().listening(port);
    let curl = program("curl").arg("-sS").arg(format!("http://127.0.0.1:{port}/served"));
    let fetched = curl.run().success();
    let server = server.end();
    assert_eq!(fetched.stdout, "what is fetched");
    for said in [fetched.stderr, server.stderr] {
        // The server has a log of its own, which names the time first.
        let lines = said.lines().filter(|line| line.starts_with('{') || line.contains("weft"));
        let lines = lines.map(|line| {
            let parsed = serde_json::from_str::<serde_json::Value>(line);
            parsed.unwrap_or_else(|error| panic!("{error}: {line}"))
        });
        let lines: Vec<_> = lines.collect();
        let has = |event: &str| lines.iter().any(|line| line["event"] == event);
        assert!(has("state") && (has("connected") || has("accepted")), "{said}");
    }
}

#[test]
fn every_change_of_state_is_seen() {
    for (transport, device) in DEVICES {
        let Some(ends) = said(transport, "debug") else { return };
        assert_eq!(count(&ends[0], device, "RTS -> ERR"), 1, "{}", ends[0]);
        for end in ends {
            assert_eq!(count(&end, device, ": connected to 127.0.0.1:"), 1, "{end}");
            assert_eq!(count(&end, device, "-> RTS"), 1, "{end}");
        }
    }
}

#[test]
fn a_queue_pair_that_fails_says_why() {
    for (transport, device) in DEVICES {
        let Some(lab) = Lab::with(&["rping"]) else { return };
        let port = free_port();
        let rping = |role| {
            let program = lab.program("rping").args(&format!("{role} -a 127.0.0.1 -p {port} -C 3"));
            program.env("WEFT_TRANSPORT", transport).env("WEFT_LOG", "debug")
        };
        let server = rping("-s").start().listening(port);
        let plan = "qp-error:after=4,status=rem-access";
        let client = rping("-c").env("WEFT_FAULT", plan).run().stderr;
        let planned = " -> ERR: a planned fault: remote access error";
        assert_eq!(count(&client, device, planned), 1, "{client}");
        let server = server.wait().stderr;
        // An adapter's queue pair outlives its connection, until the program disconnects too.
        let closed = if transport == "iwarp" { "the peer" } else { "this end" };
        let closed = format!(" -> ERR: {closed} closed the connection");
        assert_eq!(count(&server, device, &closed), 1, "{server}");
    }
}

#[test]
fn nothing_is_said_that_nobody_has_asked_for() {
    for (transport, device) in DEVICES {
        let Some(ends) = said(transport, "warn") else { return };
        assert_eq!(ends.map(|end| count(&end, device, "")), [0; 2]);
    }
}

/// The states that the lines about rdma-cm ids lead to, in order.
fn id_states(said: &str, device: &str) -> Vec<String> {
    let id = |line: &&str| line.contains(&format!("{device} id ")) && line.contains(" -> ");
    let to = |line: &str| {
        let (_, to) = line.rsplit_once(" -> ").expect("it was looked for");
        to.split(' ').next().unwrap_or_default().to_owned()
    };
    said.lines().filter(id).map(to).collect()
}

/// Whether `wanted` are among `found`, in this order.
fn has_in_order(found: &[String], wanted: &[&str]) -> bool {
    let mut rest = found.iter();
    wanted.iter().all(|wanted| rest.any(|state| state == wanted))
}

#[test]
fn the_states_of_ids_are_seen_on_both_ends() {
    let listener = ["ADDR_BOUND", "LISTEN", "CONNECT_REQUEST", "CONNECTED", "CLOSED"];
    let caller = ["ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT", "CONNECTED", "DISCONNECT"];
    for (transport, device) in DEVICES {
        let Some(ends) = said(transport, "debug") else { return };
        for (end, wanted) in ends.iter().zip([listener, caller]) {
            assert!(has_in_order(&id_states(end, device), &wanted), "{wanted:?}: {end}");
        }
        let peer = "to 127.0.0.1:";
        assert!(ends.iter().all(|end| end.lines().any(|line| {
            line.contains(peer) && line.contains("queue pair") && line.contains("CONNECTED")
        })));
    }
}

#[test]
fn a_refusal_is_the_reason_of_a_change_of_state() {
    for (transport, device) in DEVICES {
        let Some(lab) = Lab::with(&["rping"]) else { return };
        let program = lab.program("rping").args(&format!("-c -a 127.0.0.1 -p {}", free_port()));
        let ended = program.env("WEFT_TRANSPORT", transport).env("WEFT_LOG", "debug").run();
        let refused = format!("{device} id ");
        let line = ended.stderr.lines().find(|line| {
            line.starts_with(&format!("weft: debug: {refused}"))
                && line.contains("-> CLOSED (rejected: ")
        });
        assert!(line.is_some(), "{ended}");
    }
}

#[test]
fn who_ends_with_a_connection_says_so_and_whether_the_peer_was_told() {
    let line = "connections open at the end of the process: 1; peers told: ";
    for (how, told) in [("exit", "1, not told: 0"), ("_exit", "0, not told: 1")] {
        for (level, lines) in [("info", 1), ("warn", 0)] {
            Lab::over_each(&["cc"], |lab| {
                let (peer, port) = (lab.verbs_program(&source("peer")), free_port());
                let peer = peer.env("WEFT_LOG", level);
                // It waits for a message that never comes, and so does not end first.
                let receiver = peer.clone().args(&format!("receive {port} 2 64"));
                let receiver = receiver.start().listening(port);
                let sender = peer.args(&format!("send {port} 1 64 {how}")).run().success();
                assert!(!sender.stdout.contains("connections open"), "{sender}");
                let said = sender.stderr.matches(&format!("{line}{told}\n")).count();
                assert_eq!(said, lines, "{how} at {level}: {sender}");
                receiver.signal(Signal::KILL);
                receiver.wait();
            });
        }
    }
}
