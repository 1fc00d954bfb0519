//! A peer that is killed in the middle: the other side ends by itself and does not crash.

use std::time::Duration;

use weft_interop::{Running, free_port, installed, start};

/// Both ends of a transfer that would go on for a minute, once it is under way.
fn transfer(program: &str) -> Option<(Running, Running)> {
    if !installed(program) {
        return None;
    }
    let port = free_port();
    let number = port.to_string();
    let server = [program, "-R", "-F", "-p", &number, "-D", "60"];
    let client = [&server[..], &["127.0.0.1"]].concat();
    let server = start(&server);
    server.wait_listening(port);
    let client = start(&client);
    client.wait_until("moving data", || moved(client.id()) > Duration::from_millis(300));
    Some((server, client))
}

/// Processor time of a process.
fn moved(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn the_client_survives_its_server() {
    for program in ["ib_write_bw", "ib_send_bw", "ib_read_bw"] {
        if let Some((mut server, client)) = transfer(program) {
            server.kill();
            let client = client.wait(30);
            assert!(!client.crashed() && !client.status.success(), "{program}: {}", client.status);
        }
    }
}

#[test]
fn the_server_survives_its_client() {
    if let Some((server, mut client)) = transfer("ib_send_bw") {
        client.kill();
        let server = server.wait(30);
        assert!(!server.crashed(), "{}", server.status);
    }
}

#[test]
fn an_idle_connection_takes_no_processor_time() {
    if !installed("rping") {
        return;
    }
    let port = free_port();
    let number = port.to_string();
    let server = start(&["rping", "-s", "-P", "-a", "127.0.0.1", "-p", &number]);
    server.wait_listening(port);
    let client = ["rping", "-c", "-a", "127.0.0.1", "-p", &number, "-C", "3"];
    start(&client).wait(30).expect_success();
    // A listener with its engine, and a connection that says nothing.
    let mut silent = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let before = moved(server.id());
    silent.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let _ = std::io::Read::read(&mut silent, &mut [0]);
    let spent = moved(server.id()) - before;
    assert!(spent <= Duration::from_millis(20), "{spent:?} of processor time in three seconds");
}
