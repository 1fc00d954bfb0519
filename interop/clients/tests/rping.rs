//! rping with its data checked: sizes, IPv6, several clients of one server.

use weft_interop::{free_port, installed, pair, start};

fn run(address: &str, size: &str) {
    let port = free_port();
    let number = port.to_string();
    let common = ["-a", address, "-p", &number, "-v", "-V", "-C", "10", "-S", size];
    let server = [&["rping", "-s"], &common[..]].concat();
    let client = [&["rping", "-c"], &common[..]].concat();
    let (_, client) = pair(&server, &client, port, 30);
    assert_eq!(client.stdout.matches("ping data").count(), 10, "{}", client.stdout);
}

#[test]
fn sizes_from_the_smallest_to_the_largest() {
    if installed("rping") {
        for size in ["17", "64", "1500", "65536"] {
            run("127.0.0.1", size);
        }
    }
}

#[test]
fn over_ipv6() {
    if installed("rping") {
        run("::1", "1000");
    }
}

#[test]
fn several_clients_of_one_server() {
    if !installed("rping") {
        return;
    }
    let port = free_port();
    let number = port.to_string();
    let server = start(&["rping", "-s", "-P", "-a", "127.0.0.1", "-p", &number]);
    server.wait_listening(port);
    let client = ["rping", "-c", "-a", "127.0.0.1", "-p", &number, "-V", "-C", "20", "-S", "4000"];
    let clients: Vec<_> = (0..4).map(|_| start(&client)).collect();
    for client in clients {
        client.wait(30).expect_success();
    }
}
