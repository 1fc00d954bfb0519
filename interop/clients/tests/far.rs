//! rdma-cm's connections across a path that is long and loses.

use weft_interop::{Ended, Lab, library, weft};

/// Runs both ends of `program` through `weft wan`; the client's options end with the address.
fn far(program: &str, server: &str, client: &str) -> Option<Ended> {
    let lab = Lab::of_root(&[program])?;
    let weft = weft().display();
    let path = lab.program(&weft.to_string()).on_its_own().env("WEFT_LIB", library());
    let run = |line: &str| format!("{weft} run {program} {line}");
    let path = path.args("wan 70ms 200mbit 1% --server").arg(run(server));
    Some(path.args(&format!("-- {}", run(client))).run().success())
}

#[test]
fn rping() {
    let options = "-a 10.77.0.2 -V -v -C 5 -S 20000";
    let client = far("rping", &format!("-s {options}"), &format!("-c {options}"));
    if let Some(client) = client {
        assert_eq!(client.stdout.matches("ping data: ").count(), 5, "{client}");
    }
}

#[test]
fn bandwidth() {
    if let Some(client) = far("ib_write_bw", "-R -F -n 200", "-R -F -n 200 10.77.0.2") {
        client.said("#bytes");
    }
}

#[test]
fn fio_with_its_data_checked() {
    let common = "--ioengine=rdma --port=7777 --bs=64k --size=8m --iodepth=16 --verify=crc32c";
    let server = format!("--name=server {common} --rw=read");
    let client = format!("--name=client {common} --hostname=10.77.0.2 --verb=write --rw=write");
    if let Some(client) = far("fio", &server, &client) {
        client.said("io=8192KiB");
    }
}
