//! librdmacm's rsockets, unmodified.

use weft_testkit::{Lab, free_port, pair};

/// Both ends of `program`; the client's table has a line for each test.
fn stream(lab: &Lab, program: &str, options: &str, lines: usize) {
    let port = free_port();
    let server = lab.program(program).args(&format!("-p {port} {options}"));
    let client = server.clone().args("-s 127.0.0.1");
    let (server, client) = pair(&server, &client, port);
    for end in [server, client] {
        assert_eq!(end.stdout.lines().count(), 1 + lines, "{end}");
    }
}

#[test]
fn rstream_verifies_each_size() {
    Lab::over_each(&["rstream"], |lab| {
        for (size, transfers) in
            [("1", 50), ("64", 200), ("4000", 200), ("65536", 50), ("1000000", 5)]
        {
            stream(lab, "rstream", &format!("-T v -S {size} -C {transfers}"), 1);
        }
    });
}

#[test]
fn rstream_blocks_polls_or_tries_again() {
    Lab::over_each(&["rstream"], |lab| {
        for mode in ["-T b", "-T n", "-T r", "-T b -i 16", "-T b -B 4096"] {
            stream(lab, "rstream", &format!("{mode} -T v -S 10000 -C 50 -I 2"), 1);
        }
    });
}

#[test]
fn rstream_polls() {
    Lab::over_each(&["rstream"], |lab| {
        let port = free_port();
        let rstream =
            lab.program("rstream").args(&format!("-p {port} -T a -T v -S 10000 -C 50 -I 2"));
        let server = rstream.start().listening(port);
        let client = rstream.args("-s 127.0.0.1").run();
        assert_eq!(server.wait().success().stdout.lines().count(), 2);
        // Its client takes the server's good-bye for an error (POLLHUP) if data comes with it.
        assert!(client.status.success() || client.status.code() == Some(16), "{client}");
    });
}

#[test]
fn riostream_writes_into_the_peers_memory() {
    Lab::over_each(&["riostream"], |lab| {
        for options in
            ["-T v -S 4096 -C 50", "-T v -T b -S 500000 -C 10", "-T v -T n -S 100000 -C 20"]
        {
            stream(lab, "riostream", options, 1);
        }
    });
}

#[test]
fn rcopy_copies_a_file() {
    Lab::over_each(&["rcopy"], |lab| {
        let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        let (from, to) = (lab.write("from", &bytes), lab.path("to"));
        let port = free_port();
        let server = lab.program("rcopy").args(&format!("-p {port}")).start().listening(port);
        let client = lab.program("rcopy").arg(&from).arg(format!("127.0.0.1:{}", to.display()));
        client.args(&format!("-p {port}")).run().success();
        drop(server);
        assert!(std::fs::read(to).expect("rcopy wrote the file") == bytes);
    });
}
