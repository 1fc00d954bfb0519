//! fio's rdma engine: every verb, the data checked by CRC.

use weft_interop::{Lab, free_port, pair};

fn transfer(verb: &str, depth: u32) {
    Lab::over_each(&["fio"], |lab| {
        let port = free_port();
        let fio = |name: &str, rest: &str| {
            let line =
                format!("--name={name} --ioengine=rdma --port={port} --bs=64k --size=8m {rest}");
            lab.program("fio").args(&line).args(&format!("--iodepth={depth} --verify=crc32c"))
        };
        let client = format!("--hostname=127.0.0.1 --verb={verb} --rw=write");
        let (server, client) = pair(&fio("server", "--rw=read"), &fio("client", &client), port);
        client.said("io=8192KiB");
        assert!(!server.stdout.contains("verify:"), "{server}");
    });
}

#[test]
fn writes() {
    transfer("write", 4);
}

#[test]
fn reads() {
    transfer("read", 4);
}

#[test]
fn sends() {
    transfer("send", 4);
}

#[test]
fn sends_with_a_single_receive() {
    transfer("send", 1);
}
