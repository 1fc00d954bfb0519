//! libfabric's verbs provider, as it is and under its reliable datagrams, with the data checked.

use weft_testkit::{IWARP, Lab, SHUTTLE, free_port, own_address, pair};

fn ping_pong(provider: &str, endpoint: &str, sizes: &str) {
    Lab::over_each(&["fi_pingpong"], |lab| ping_pong_in(lab, provider, endpoint, sizes));
}

fn ping_pong_in(lab: &Lab, provider: &str, endpoint: &str, sizes: &str) {
    let Some(address) = own_address() else { return };
    let port = free_port();
    let common = lab.program("fi_pingpong").option("--require-traffic").arg("-p").arg(provider);
    let common = common.args(&format!("-e {endpoint} -c -I 10 {sizes}"));
    let server = common.clone().args(&format!("-B {port}"));
    let client = common.args(&format!("-P {port} {address}"));
    let (_, client) = pair(&server, &client, port);
    client.said("usec/xfer");
}

/// What an RNIC has not.
fn ping_pong_of_an_adapter(provider: &str, endpoint: &str, sizes: &str) {
    let Some(lab) = Lab::with(&["fi_pingpong"]) else { return };
    ping_pong_in(&lab.over(SHUTTLE), provider, endpoint, sizes);
}

#[test]
fn the_provider_finds_the_device() {
    Lab::over_each(&["fi_info"], |lab| {
        let (device, protocol) = match lab.transport() {
            Some(IWARP) => ("weft_iw0", "FI_PROTO_IWARP"),
            _ => ("weft0", "FI_PROTO_RDMA_CM_IB_RC"),
        };
        let info = lab.program("fi_info").args("-p verbs").run().success();
        info.said(&format!("domain: {device}")).said(protocol);
    });
}

#[test]
fn connected_messages() {
    ping_pong("verbs", "msg", "-S all");
}

#[test]
fn reliable_datagrams() {
    ping_pong("verbs;ofi_rxm", "rdm", "-S 1000000");
}

#[test]
fn tagged_reliable_datagrams() {
    ping_pong("verbs;ofi_rxm", "rdm", "-S 100000 -m tagged");
}

#[test]
fn unreliable_datagrams() {
    ping_pong_of_an_adapter("verbs", "dgram", "-S 1024");
}

#[test]
fn reliable_datagrams_made_of_unreliable_ones() {
    ping_pong_of_an_adapter("verbs;ofi_rxd", "rdm", "-S 100000");
    ping_pong_of_an_adapter("verbs;ofi_rxd", "rdm", "-S 100000 -m tagged");
}
