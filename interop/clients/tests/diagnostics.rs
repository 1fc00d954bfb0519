//! What `--log` promises of connections: `info` has them coming and going, `debug` also every
//! change of state, and without it nothing is said.

use weft_testkit::{Lab, free_port};

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
fn nothing_is_said_that_nobody_has_asked_for() {
    for (transport, device) in DEVICES {
        let Some(ends) = said(transport, "warn") else { return };
        assert_eq!(ends.map(|end| count(&end, device, "")), [0; 2]);
    }
}
