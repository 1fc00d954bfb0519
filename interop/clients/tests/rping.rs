//! rping reads, writes and compares.

use weft_testkit::{Lab, free_port, pair};

const COUNT: usize = 10;

fn ping(lab: &Lab, address: &str, size: &str) {
    let port = free_port();
    let rping = |role: &str| {
        let line = format!("{role} -a {address} -p {port} -v -V -C {COUNT} -S {size}");
        lab.program("rping").args(&line)
    };
    let (server, client) = pair(&rping("-s"), &rping("-c"), port);
    for (end, tag) in [(server, "server ping data: "), (client, "ping data: ")] {
        assert_eq!(end.stdout.lines().filter(|line| line.starts_with(tag)).count(), COUNT, "{end}");
    }
}

#[test]
fn from_its_smallest_size_to_its_largest() {
    Lab::over_each(&["rping"], |lab| {
        for size in ["23", "64", "1500", "65535"] {
            ping(lab, "127.0.0.1", size);
        }
    });
}

#[test]
fn over_ipv6() {
    Lab::over_each(&["rping"], |lab| {
        ping(lab, "::1", "1000");
    });
}

#[test]
fn several_clients_of_one_server() {
    Lab::over_each(&["rping"], |lab| {
        let port = free_port();
        let line = format!("-a 127.0.0.1 -p {port} -V -S 4000");
        let server = lab.program("rping").args("-s -P").args(&line).start().listening(port);
        let client = lab.program("rping").args("-c -v").args(&line);
        // One after the other, because the server keeps only one request in mind; all at the same
        // time, because they go on for long.
        let clients =
            [(); 4].map(|()| client.clone().args("-C 1000000").start().printed("ping data: "));
        client.args("-C 10").run().success();
        drop((clients, server));
    });
}

#[test]
fn a_client_whose_device_is_reset_is_told_by_rdma_cm() {
    Lab::over_each(&["rping"], |lab| {
        let port = free_port();
        let line = format!("-a 127.0.0.1 -p {port} -C 100000000");
        let server = lab.program("rping").args("-s").args(&line).start().listening(port);
        let client = lab.program("rping").args("-c").args(&line);
        let client = client.env("WEFT_FAULT", "device-fatal=3600s:at=1s").start();
        client.complained("cma detected device removal").end();
        server.end();
    });
}
