//! Keys: with the same key everything is encrypted, with different keys both sides report it, and
//! without a key nothing is sent to another host.

use std::time::Duration;

use weft_testkit::{Ended, Lab, Namespaces, Program, free_port, library, now, weft};

const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER: &str = "weft1:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
/// How long it may take to tell that keys differ, besides what both programs need where they agree.
const SOON: Duration = Duration::from_millis(1500);
/// Runs of which one has to be that quick: others may be held up by what else this machine does.
const ATTEMPTS: usize = 4;

fn pingpong(lab: &Lab, name: &str, key: Option<&str>) -> Program {
    let program = lab.program(name).args("-d weft0 -g 0");
    key.map_or(program.clone(), |key| program.env("WEFT_KEY", key))
}

/// Runs the server until it listens, and both to their ends, which may be failures.
fn both_ends(server: &Program, client: &Program) -> [Ended; 2] {
    let port = free_port();
    let server = server.clone().args(&format!("-p {port}")).start().listening(port);
    let client = client.clone().args(&format!("-p {port} 127.0.0.1")).start();
    let client = client.wait();
    [server.wait(), client]
}

#[test]
fn the_same_key_on_both_sides() {
    for name in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"] {
        let Some(lab) = Lab::with(&[name]) else { continue };
        let file = lab.path("key");
        let made = lab.program(weft().to_str().expect("a UTF-8 path")).on_its_own();
        made.args("key new").arg(&file).run().success();
        let named = format!("file:{}", file.display());
        let [server, client] = [(); 2].map(|()| pingpong(&lab, name, Some(&named)).args("-n 200"));
        for ended in both_ends(&server, &client) {
            ended.success().said("200 iters in");
        }
    }
}

#[test]
fn bandwidth_under_a_key() {
    for options in ["ib_write_bw -n 200", "ib_send_bw -c UD -n 200", "ib_read_lat -n 50"] {
        let (name, options) = options.split_once(' ').expect("a program and its options");
        let Some(lab) = Lab::with(&[name]) else { continue };
        let port = free_port();
        let end = lab.program(name).args(&format!("-d weft0 -F -p {port} {options}"));
        let end = end.env("WEFT_KEY", KEY);
        weft_testkit::pair(&end, &end.clone().args("127.0.0.1"), port);
    }
}

#[test]
fn different_keys_are_told_on_both_sides_within_a_second() {
    let cases = [
        (Some(KEY), Some(OTHER), "has another key than"),
        (Some(KEY), None, "key"),
        (None, Some(KEY), "key"),
    ];
    for (server, client, complaint) in cases {
        let Some(lab) = Lab::with(&["ibv_rc_pingpong"]) else { return };
        let ends = |keys: [Option<&str>; 2]| {
            let end = |key| pingpong(&lab, "ibv_rc_pingpong", key).args("-n 1");
            let [server, client] = keys.map(end);
            let began = now();
            (both_ends(&server, &client), now() - began)
        };
        let is_told_soon = || {
            let (agreed, usual) = ends([Some(KEY); 2]);
            agreed.into_iter().for_each(|ended| drop(ended.success()));
            let (differ, took) = ends([server, client]);
            for ended in differ {
                assert!(!ended.status.success(), "{ended}");
                let lines: Vec<_> =
                    ended.stderr.lines().filter(|l| l.contains("weft: error")).collect();
                assert_eq!(lines.len(), 1, "{ended}");
                assert!(lines[0].contains(complaint) && lines[0].contains("WEFT_KEY"), "{ended}");
                assert!(!ended.stderr.contains("weft1:"), "a key is shown: {ended}");
            }
            took < SOON + 2 * usual
        };
        assert!((0..ATTEMPTS).any(|_| is_told_soon()), "{complaint}: told late");
    }
}

#[test]
fn without_a_key_nothing_goes_to_another_host() {
    let Some(lab) = Lab::of_root(&["ip", "ss", "ibv_rc_pingpong", "ibv_ud_pingpong"]) else {
        return;
    };
    let Some(networks) = Namespaces::new() else { return };
    let ends = |name: &str, permit: bool| {
        let port = free_port();
        let end = |line: String| {
            let program = pingpong(&lab, name, None).args(&format!("-p {port} -n 50 {line}"));
            if permit { program.env("WEFT_INSECURE", "1") } else { program }
        };
        let server = end(String::new()).started_by(&networks.in_first()).start();
        let server = server.until("listened", |_| networks.first_listens(port));
        let client = end(Namespaces::FIRST.into()).started_by(&networks.in_second()).run();
        [client, server.wait()]
    };
    for name in ["ibv_rc_pingpong", "ibv_ud_pingpong"] {
        for ended in ends(name, true) {
            ended.success().said("50 iters in");
        }
        let ended = ends(name, false);
        assert!(ended.iter().all(|ended| !ended.status.success()), "{}", ended[0]);
        let told =
            |ended: &Ended| ended.stderr.contains("refused to exchange clear text with 10.77");
        assert!(ended.iter().any(told), "{}\n{}", ended[0], ended[1]);
    }
}

#[test]
fn where_nobody_listens_that_is_what_is_said() {
    let Some(lab) = Lab::of_root(&["ip", "rping"]) else { return };
    let Some(networks) = Namespaces::new() else { return };
    let client = lab.program("rping").args("-c -C 1 -p 7 -a").args(Namespaces::FIRST);
    let ended = client.started_by(&networks.in_second()).run();
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.stderr.contains("RDMA_CM_EVENT_REJECTED"), "{ended}");
    assert!(!ended.stderr.contains("clear text"), "{ended}");
}

#[test]
fn under_a_key_iwarp_stays_on_this_machine() {
    let Some(lab) = Lab::of_root(&["ip", "ss", "rping"]) else { return };
    let Some(networks) = Namespaces::new() else { return };
    let (port, server) = (free_port(), Namespaces::FIRST);
    let rping = |role| {
        let program = lab.program("rping").args(&format!("{role} -a {server} -p {port} -C 3"));
        program.env("WEFT_KEY", KEY).env("WEFT_TRANSPORT", "iwarp")
    };
    let server = rping("-s").started_by(&networks.in_first()).start();
    let _server = server.until("listened", |_| networks.first_listens(port));
    let client = rping("-c").started_by(&networks.in_second()).run();
    assert!(client.stderr.contains("weft_iw0 cannot encrypt"), "{client}");
}

#[test]
fn what_is_sealed_cannot_be_seen_on_the_way() {
    for name in ["ibv_rc_pingpong", "ibv_ud_pingpong"] {
        let Some(lab) = Lab::of_root(&[name]) else { return };
        assert!(seen_on_the_way(&lab, name, None), "{name}: the look is a good one");
        assert!(!seen_on_the_way(&lab, name, Some(KEY)), "{name}");
    }
}

/// Whether what the program sends, bytes of 7b, passes over the path.
fn seen_on_the_way(lab: &Lab, name: &str, key: Option<&str>) -> bool {
    let (weft, file) = (weft().display(), lab.path("near.pcapng"));
    let run = format!("{weft} run {name} -d weft0 -g 0 -n 20 -s 1000");
    let path = lab.program(&weft.to_string()).on_its_own().env("WEFT_LIB", library());
    let path = key.map_or(path.clone(), |key| path.env("WEFT_KEY", key));
    let path = path.args("wan 5ms 100mbit --pcap-near").arg(&file).args("--server").arg(&run);
    path.args(&format!("-- {run} 10.77.0.2")).run().success().said("20 iters in");
    let captured = std::fs::read(&file).expect("a capture was asked for");
    captured.windows(100).any(|bytes| bytes.iter().all(|byte| *byte == 0x7b))
}

/// Kinds of handshake packets of Shuttle (docs/shuttle.md).
const REPLY: u8 = 2;
const RETRY: u8 = 4;

#[test]
fn under_a_key_the_first_request_is_granted_without_a_retry() {
    let Some(lab) = Lab::of_root(&["rping"]) else { return };
    let (weft, file) = (weft().display(), lab.path("near.pcapng"));
    let run = format!("{weft} run rping -C 1 -a 10.77.0.2 -p 7174");
    let path = lab.program(&weft.to_string()).on_its_own().env("WEFT_LIB", library());
    let path = path.env("WEFT_KEY", KEY).args("wan 5ms 100mbit --pcap-near").arg(&file);
    let path = path.arg("--server").arg(format!("{run} -s"));
    path.args(&format!("-- {run} -c")).run().success();
    let kinds = handshake_kinds(&std::fs::read(&file).expect("a capture was asked for"));
    assert!(kinds.contains(&REPLY) && !kinds.contains(&RETRY), "{kinds:?}");
}

/// The kinds of the packets of Shuttle's handshake over IPv4 in a capture in pcapng.
fn handshake_kinds(captured: &[u8]) -> Vec<u8> {
    const ENHANCED_PACKET: u32 = 6;
    const VERSION: u8 = 3;
    let mut kinds = Vec::new();
    let mut rest = captured;
    while let Some((head, _)) = rest.split_first_chunk::<28>() {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let (block, octets) = rest.split_at(rest.len().min(word(4).max(28) as usize));
        rest = octets;
        if word(0) != ENHANCED_PACKET {
            continue;
        }
        let packet = &block[28..];
        // From a TUN device packets come without the header of Ethernet.
        let ip = if packet[0] >> 4 == 4 { packet } else { packet.get(14..).unwrap_or_default() };
        if let Some([kind, VERSION]) = ip.get(28..30) {
            kinds.push(kind >> 5);
        }
    }
    kinds
}

#[test]
fn a_key_that_cannot_be_used_is_refused_before_the_program_runs() {
    let Some(lab) = Lab::with(&["true", "chmod"]) else { return };
    let file = lab.write("key", format!("{KEY}\n"));
    lab.program("chmod").on_its_own().args("644").arg(&file).run().success();
    let named = format!("file:{}", file.display());
    for value in [named.as_str(), "weft1:00", "file:/nonexistent", "/dev/null", "secret"] {
        let ended = lab.program("true").env("WEFT_KEY", value).run();
        assert_eq!(ended.status.code(), Some(125), "{value}: {ended}");
        assert!(ended.stderr.starts_with("weft: ") && !ended.stderr.contains("000102"), "{ended}");
    }
}
