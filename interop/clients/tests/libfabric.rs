//! libfabric's verbs provider, as it is and under its reliable datagram layer, with data checked.

use weft_interop::{free_port, installed, own_address, pair, start};

fn ping_pong(provider: &str, endpoint: &str) {
    if !installed("fi_pingpong") {
        return;
    }
    let Some(address) = own_address() else { return };
    let (address, port) = (address.to_string(), free_port());
    let number = port.to_string();
    let common = ["fi_pingpong", "-p", provider, "-e", endpoint, "-v", "-I", "20"];
    let server = [&common[..], &["-B", &number]].concat();
    let client = [&common[..], &["-P", &number, &address]].concat();
    let (_, client) = pair(&server, &client, port, 60);
    assert!(client.stdout.contains("usec/xfer"), "{}", client.stdout);
}

#[test]
fn the_provider_finds_the_device() {
    if installed("fi_info") {
        let info = start(&["fi_info", "-p", "verbs"]).wait(30);
        info.expect_success();
        assert!(info.stdout.contains("domain: weft_iw0"), "{}", info.stdout);
    }
}

#[test]
fn connected_messages() {
    ping_pong("verbs", "msg");
}

#[test]
fn reliable_datagrams_on_top() {
    ping_pong("verbs;ofi_rxm", "rdm");
}
