//! Under a key a socket speaks to another host by SDP or not at all.
//!
//! Each test runs in a network of its own, with another host at the end of a cable.

mod common;
#[path = "../../rdmacm/tests/strangers/outside.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod outside;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Dir, Program, Running, end};
use outside::{HERE, KEY_TEXT, Outside, THERE, apart};

const OTHER_KEY: &str = "weft1:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
/// The manners in which the C program connects and waits for the outcome.
const MANNERS: [&str; 4] = ["wait", "poll", "epoll", "child"];
const REFUSED: &str = "connect: ECONNREFUSED";
const EXCHANGED: &str = "exchanged: none";
const LINE: &str = "by clear TCP";

struct Lab {
    outside: Outside,
    _dir: Dir,
    program: PathBuf,
}

impl Lab {
    fn new(test: &str) -> Option<Self> {
        let outside = apart(test, &[])?;
        let dir = common::dir(test);
        let program = common::build(&dir, "strict.c");
        Some(Self { outside, _dir: dir, program })
    }

    /// A listener on the other host that serves `count` connections, and its port.
    fn serve(&self, ours: bool, variables: &[(&str, &str)], count: u32) -> (Running, String) {
        let server = program(&self.program, ours, variables).started_by(&self.outside.entry());
        server.words(["serve", THERE, &count.to_string()]).start().line("port ")
    }

    /// A caller on this host.
    fn call(&self, variables: &[(&str, &str)], port: &str, how: &str) -> Running {
        program(&self.program, true, variables).words(["call", THERE, port, how]).start()
    }

    /// The other host hears nothing by UDP, and says nothing of it.
    fn block_udp(&self) {
        self.outside.within(|| {
            let rules = "table inet t { chain c { type filter hook input priority 0; \
                meta l4proto udp drop; }; }";
            let done = Command::new("nft").arg(rules).status();
            assert!(done.expect("nft of nftables").success());
        });
    }
}

fn program(path: &Path, ours: bool, variables: &[(&str, &str)]) -> Program {
    let program = common::program(path, ours);
    variables.iter().fold(program, |program, (name, value)| program.env(name, value))
}

fn lines(said: &str, part: &str) -> usize {
    said.lines().filter(|line| line.contains(part)).count()
}

/// Callers in every manner are refused; gives what each said.
fn refused(lab: &Lab, variables: &[(&str, &str)], port: &str) -> Vec<String> {
    let callers: Vec<_> = MANNERS.iter().map(|how| lab.call(variables, port, how)).collect();
    let said: Vec<_> = callers.into_iter().map(end).collect();
    for (how, said) in MANNERS.iter().zip(&said) {
        assert_eq!(lines(said, REFUSED), 1, "{how}: {said}");
    }
    said
}

#[test]
fn with_the_same_key_it_is_sdp_in_every_manner() {
    let Some(lab) = Lab::new("with_the_same_key_it_is_sdp_in_every_manner") else { return };
    let key = [("WEFT_KEY", KEY_TEXT)];
    let (server, port) = lab.serve(true, &key, 3);
    for how in ["wait", "poll", "epoll"] {
        let said = end(lab.call(&key, &port, how));
        assert!(said.contains(EXCHANGED) && said.contains("SDP over Shuttle"), "{how}: {said}");
    }
    assert_eq!(lines(&end(server), "SDP over Shuttle, enhanced"), 3);
}

#[test]
fn a_peer_without_weft_is_not_reached_unless_that_is_said() {
    let test = "a_peer_without_weft_is_not_reached_unless_that_is_said";
    let Some(lab) = Lab::new(test) else { return };
    let key = ("WEFT_KEY", KEY_TEXT);
    let (server, port) = lab.serve(false, &[], 3);
    for said in refused(&lab, &[key], &port) {
        assert_eq!(lines(&said, LINE), 1, "{said}");
        assert!(said.contains(&format!("{THERE}:{port}")) && said.contains("UDP"), "{said}");
    }
    let fast = end(lab.call(&[key], &port, "fast"));
    assert!(fast.contains("sendto: EOPNOTSUPP"), "{fast}");
    // A key that everybody could have is no reason to speak in clear either.
    let strict = [("WEFT_INSECURE", "1"), ("WEFT_SOCKETS", "strict")];
    assert!(end(lab.call(&strict, &port, "poll")).contains(REFUSED));
    let rule = ("WEFT_SOCKETS_RULES", "use tcp client * *:*");
    let prefer = ("WEFT_SOCKETS", "prefer");
    for (permit, how) in [(prefer, "wait"), (prefer, "poll"), (rule, "poll")] {
        let said = end(lab.call(&[key, permit], &port, how));
        assert!(said.contains(EXCHANGED) && !said.contains(LINE), "{permit:?} {how}: {said}");
    }
    // It has heard of nobody else.
    assert_eq!(lines(&end(server), "served"), 3);
}

#[test]
fn rules_that_make_no_sense_permit_nothing() {
    let Some(lab) = Lab::new("rules_that_make_no_sense_permit_nothing") else { return };
    let (_server, port) = lab.serve(false, &[], 1);
    let nonsense = [("WEFT_KEY", KEY_TEXT), ("WEFT_SOCKETS_RULES", "use tcp")];
    let said = end(lab.call(&nonsense, &port, "wait"));
    assert!(said.contains(REFUSED) && said.contains("none of them holds"), "{said}");
}

#[test]
fn where_udp_is_blocked_nothing_goes_by_tcp() {
    let Some(lab) = Lab::new("where_udp_is_blocked_nothing_goes_by_tcp") else { return };
    let key = [("WEFT_KEY", KEY_TEXT)];
    let (server, port) = lab.serve(true, &key, 1);
    lab.block_udp();
    let interrupted = ["alarm", "again"].map(|how| lab.call(&key, &port, how));
    for said in refused(&lab, &key, &port) {
        assert_eq!(lines(&said, "no answer by UDP"), 1, "{said}");
        assert_eq!(lines(&said, "weft: error"), 1, "{said}");
    }
    for said in interrupted.map(end) {
        assert!(said.contains(REFUSED), "{said}");
    }
    // A caller that prefers SDP is not served in clear text either.
    let prefer = [key[0], ("WEFT_SOCKETS", "prefer"), ("WEFT_SOCKETS_PATIENCE_MS", "0")];
    let said = end(lab.call(&prefer, &port, "wait"));
    assert!(!said.contains(EXCHANGED) && said.contains("TCP, it does not answer"), "{said}");
    drop(server);
}

#[test]
fn where_keys_differ_nothing_goes_by_tcp() {
    let Some(lab) = Lab::new("where_keys_differ_nothing_goes_by_tcp") else { return };
    let (server, port) = lab.serve(true, &[("WEFT_KEY", OTHER_KEY)], 1);
    for said in refused(&lab, &[("WEFT_KEY", KEY_TEXT)], &port) {
        assert_eq!(lines(&said, "weft: error"), 1, "{said}");
        assert!(said.contains("has another key than"), "{said}");
    }
    let server = server.complained("has another key than");
    // It serves who has its key, and has served nobody else.
    let said = end(lab.call(&[("WEFT_KEY", OTHER_KEY)], &port, "wait"));
    assert!(said.contains(EXCHANGED), "{said}");
    assert_eq!(lines(&end(server), "served"), 1);
}

#[test]
fn a_listener_under_a_key_serves_nobody_in_clear_text() {
    let Some(lab) = Lab::new("a_listener_under_a_key_serves_nobody_in_clear_text") else { return };
    let key = ("WEFT_KEY", KEY_TEXT);
    let (server, port) = lab.serve(true, &[key], 1);
    let plain = common::program(&lab.program, false);
    let said = common::run(&plain.words(["call", THERE, &port, "wait"]));
    assert!(!said.contains(EXCHANGED), "{said}");
    let server = server.complained("by clear TCP");
    assert!(end(lab.call(&[key], &port, "wait")).contains(EXCHANGED));
    let said = end(server);
    assert_eq!((lines(&said, "served"), lines(&said, "TCP, it did not")), (1, 0), "{said}");
    // Where it is said that TCP may be used, it is.
    let rule = ("WEFT_SOCKETS_RULES", "use tcp server * *:*");
    for permit in [("WEFT_SOCKETS", "prefer"), rule] {
        let (server, port) = lab.serve(true, &[key, permit], 1);
        let plain = common::program(&lab.program, false);
        let said = common::run(&plain.words(["call", THERE, &port, "wait"]));
        assert!(said.contains(EXCHANGED), "{permit:?}: {said}");
        end(server);
    }
}

#[test]
fn what_stays_on_this_machine_may_go_by_tcp() {
    let Some(lab) = Lab::new("what_stays_on_this_machine_may_go_by_tcp") else { return };
    let key = [("WEFT_KEY", KEY_TEXT)];
    for at in ["127.0.0.1", HERE] {
        for (ours, how) in
            [([true, false], "wait"), ([false, true], "poll"), ([false, true], "wait")]
        {
            let server = program(&lab.program, ours[0], &key).words(["serve", at, "1"]);
            let (server, port) = server.start().line("port ");
            let caller = program(&lab.program, ours[1], &key);
            let said = common::run(&caller.words(["call", at, &port, how]));
            assert!(said.contains(EXCHANGED) && !said.contains(LINE), "{at} {ours:?}: {said}");
            end(server);
        }
    }
}
