//! fio's rdma engine: a job of each verb, its data checked by CRC on the server's side.

use weft_interop::{Scratch, free_port, installed, pair};

fn run(verb: &str, extra: &[&str]) {
    if !installed("fio") {
        return;
    }
    let scratch = Scratch::new(&format!("fio-{verb}"));
    let directory = format!("--directory={}", scratch.path().display());
    let port = free_port();
    let port_option = format!("--port={port}");
    let server = ["fio", "--name=server", "--ioengine=rdma", &port_option, "--rw=read"];
    let client = ["fio", "--name=client", "--ioengine=rdma", "--hostname=127.0.0.1", &port_option];
    let common = ["--bs=64k", "--size=8m", &directory];
    let verb = format!("--verb={verb}");
    let server = [&server[..], &common, &["--iodepth=32"], extra].concat();
    let client = [&client[..], &["--rw=write", &verb, "--iodepth=4"], &common, extra].concat();
    pair(&server, &client, port, 60);
}

#[test]
fn write_is_verified() {
    run("write", &["--verify=crc32c"]);
}

#[test]
fn read_moves_everything() {
    run("read", &[]);
}

#[test]
fn send_is_verified() {
    run("send", &["--verify=crc32c"]);
}
