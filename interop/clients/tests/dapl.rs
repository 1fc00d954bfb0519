//! DAPL over its provider that connects by rdma-cm, and over the one that does so by sockets.

use weft_testkit::{Ended, FixedPort, IWARP, Lab, Program, SHUTTLE, own_address, pair};

/// Where dtest's server and dapltest's wait: they cannot be told otherwise.
const DTEST_PORT: u16 = 15828;
const DAPLTEST_PORT: u16 = 62000;

const REGISTRY: &str = "libdaplofa.so.2";

/// The interface that has `address`.
fn interface_of(lab: &Lab, address: &str) -> String {
    let list = lab.program("ip").on_its_own().args("-o address show to").arg(address).run();
    let name = list.stdout.split_whitespace().nth(1);
    name.unwrap_or_else(|| panic!("no interface has {address}: {list}")).to_owned()
}

fn dapl(program: &str, transport: &'static str) -> Option<(Lab, String, Program)> {
    let lab = Lab::with(&[program, "ip"])?.over(transport);
    let address = own_address()?.to_string();
    let interface = interface_of(&lab, &address);
    let line =
        format!("weft u2.0 nonthreadsafe default {REGISTRY} dapl.2.0 \"{interface} 0\" \"\"\n");
    let registry = lab.write("dat.conf", line);
    let program = lab.program(program).env("DAT_OVERRIDE", registry);
    Some((lab, address, program))
}

fn dtest(options: &str) {
    for transport in [SHUTTLE, IWARP] {
        let Some((_lab, address, dtest)) = dapl("dtest", transport) else { return };
        let dtest = dtest.args("-P weft").args(options);
        let client = dtest.clone().args("-h").arg(address);
        let _port = FixedPort::claim(DTEST_PORT);
        let (server, client) = pair(&dtest, &client, DTEST_PORT);
        server.said("DAPL Test Complete. PASSED");
        client.said("DAPL Test Complete. PASSED");
    }
}

#[test]
fn dtest_reads_writes_and_sends() {
    dtest("-b 65536 -B 20");
}

/// By sockets, the queue pairs are connected by the program itself.
#[test]
fn dtest_without_rdma_cm() {
    let Some(lab) = Lab::with(&["dtest"]) else { return };
    let Some(address) = own_address() else { return };
    let line = "weft u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 \"weft0 1\" \"\"\n";
    let registry = lab.write("dat.conf", line);
    let dtest = lab.program("dtest").env("DAT_OVERRIDE", registry).args("-P weft -b 65536 -B 20");
    let client = dtest.clone().args(&format!("-h {address}"));
    let _port = FixedPort::claim(DTEST_PORT);
    let (server, client) = pair(&dtest, &client, DTEST_PORT);
    server.said("DAPL Test Complete. PASSED");
    client.said("DAPL Test Complete. PASSED");
}

#[test]
fn dtest_checks_what_it_writes() {
    dtest("-D -b 4096 -B 20");
}

fn dapltest(kind: &str, test: &str) -> Vec<Ended> {
    [SHUTTLE, IWARP].iter().filter_map(|transport| dapltest_over(transport, kind, test)).collect()
}

fn dapltest_over(transport: &'static str, kind: &str, test: &str) -> Option<Ended> {
    let (_lab, address, dapltest) = dapl("dapltest", transport)?;
    let _port = FixedPort::claim(DAPLTEST_PORT);
    let server = dapltest.clone().args("-T S -D weft").start().listening(DAPLTEST_PORT);
    let client = dapltest.args(&format!("-T {kind} -D weft -s {address} {test}")).run().success();
    drop(server);
    Some(client)
}

#[test]
fn dapltest_runs_transactions_of_every_kind() {
    let kinds = "-P -t 1 -w 1 -i 50 client RW 4096 1 server RW 2048 4 server RR 1024 1 \
                 client RR 2048 1 client SR 1024 3 -f server SR 256 3 -f";
    for client in dapltest("T", kinds) {
        assert!(!client.stdout.contains("fail"), "{client}");
    }
}

#[test]
fn dapltest_runs_threads_with_several_endpoints() {
    for client in dapltest("T", "-i 20 -t 2 -w 4 client SR 8192 3 server SR 8192 3") {
        assert!(!client.stdout.contains("fail"), "{client}");
    }
}

#[test]
fn dapltest_measures() {
    for client in dapltest("P", "-i 100 -p 16 -m p RW 4096 2") {
        client.said("raw: RW, 100, 4096");
    }
}
