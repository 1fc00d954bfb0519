//! Both ends of a test in one process, over each device: the environment chooses it, so that each
//! has a process.

use std::process::Command;
use std::time::Duration;
use std::{net, thread};

use crate::client::{self, ClientOptions, ClientOutcome};
use crate::server::{self, ServerOptions};
use crate::test::{Test, TestAmount, TestOperation, VERSION};

const INNER: &str = "own::tests::what_both_ends_do";

#[test]
fn both_devices_carry_every_operation() {
    for transport in ["shuttle", "iwarp"] {
        let mut inner = Command::new(std::env::current_exe().unwrap());
        inner.args(["--exact", INNER, "--ignored", "--nocapture"]);
        inner.env("WEFT_TRANSPORT", transport).env("WEFT_LOG", "warn");
        let output = inner.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{transport}: {output:?}");
        let device = if transport == "iwarp" { "over weft_iw0" } else { "over weft0" };
        // The server's line for each of them.
        let of_server = said.lines().filter(|line| line.starts_with("127.0.0.1: "));
        let over_device = of_server.filter(|line| line.contains(device)).count();
        assert_eq!(over_device, tests().len(), "{said}");
    }
}

/// Every operation, with its data looked at where that can be: both ways, with events, and one by
/// one.
fn tests() -> Vec<Test> {
    let bandwidth = Test {
        version: VERSION,
        operation: TestOperation::Write,
        latency: false,
        bytes: 5000,
        streams: 2,
        up: true,
        down: true,
        amount: TestAmount::Messages(301),
        omit_s: 0.0,
        depth: 40,
        events: false,
        verify: true,
        interval_s: 1.0,
    };
    let latency =
        Test { latency: true, streams: 1, down: false, verify: false, bytes: 7, ..bandwidth };
    let atomic = Test { operation: TestOperation::Atomic, bytes: 8, verify: false, ..bandwidth };
    let (read, send) = (TestOperation::Read, TestOperation::Send);
    vec![
        bandwidth.clone(),
        Test { operation: read, events: true, ..bandwidth.clone() },
        Test { operation: send, events: true, ..bandwidth },
        atomic,
        latency.clone(),
        Test { operation: send, events: true, ..latency.clone() },
        Test { operation: read, ..latency },
    ]
}

/// Two ports in a row that nobody has.
fn free_port() -> u16 {
    loop {
        let any = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = any.local_addr().unwrap().port();
        if port < u16::MAX && net::TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

#[test]
#[ignore = "both_devices_carry_every_operation runs it"]
fn what_both_ends_do() {
    let port = free_port();
    let patience = Duration::from_secs(60);
    let server = thread::spawn(move || {
        server::serve(&ServerOptions { port, one_off: true, device: None, patience })
    });
    while net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(!server.is_finished(), "{:?}", server.join());
        thread::yield_now();
    }
    let (host, device) = (String::from("127.0.0.1"), None);
    let options = ClientOptions { host, port, tests: tests(), device, json: false };
    assert_eq!(client::measure(&options).unwrap(), ClientOutcome::Whole);
    server.join().unwrap().unwrap();
}
