//! A client behind a NAT whose mapping changes during the connection.

use weft_testkit::{Lab, SHUTTLE, Translator, free_port};

/// Bytes between two changes.
const SPAN: u64 = 4 << 20;

#[test]
fn a_connection_of_rdma_cm_goes_on_with_its_data_checked() {
    let programs = ["ip", "ss", "nft", "sysctl", "fio"];
    let Some(lab) = Lab::of_root(&programs) else { return };
    let lab = lab.over(SHUTTLE);
    let Some(network) = Translator::new() else { return };
    let (port, outside) = (free_port(), Translator::OUTSIDE);
    let common = format!("--ioengine=rdma --port={port} --bs=64k --size=24m --verify=crc32c");
    let fio = |line: &str| lab.program("fio").env("WEFT_INSECURE", "1").args(&common).args(line);
    let server = fio("--name=server --rw=read").started_by(&network.outside()).start();
    let server = server.until("listened", |_| network.outside_listens(port));
    let client = format!("--name=client --hostname={outside} --verb=write --rw=write --rate=12m");
    let mut client = fio(&client).started_by(&network.inside()).start();
    for change in 1..=4 {
        client = client.until("moved data", |_| network.octets_out() > change * SPAN);
        network.rebind();
    }
    client.wait().success().said("io=24.0MiB");
    server.wait().success();
}
