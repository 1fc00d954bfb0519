//! Key-value stores and the transfer engines of inference: they find the device by its name, and
//! some would take TCP without a word.

use std::process::Command;

use weft_testkit::{Lab, Program, free_port, peer};

use crate::{Client, counted, operations, said_version};

pub const VALKEY: Client = Client {
    name: "Valkey",
    version: || said_version(&peer("peers/valkey/valkey-server")?, "--version"),
    does: "its benchmark's SET and GET of 3000 bytes",
    refuses: None,
    run: valkey,
};

pub const NIXL: Client = Client {
    name: "NIXL (UCX)",
    version: || wheel("nixl", "nixl-cu12"),
    does: "a Write and a Read of 4 MiB, checked",
    refuses: Some(("weft_iw0", "UCX takes no iWARP")),
    run: |lab| {
        let program = python(lab, "nixl", "nixl_pair.py")?;
        let program = program.env("UCX_TLS", "rc_v,ud_v").env("UCX_NET_DEVICES", "weft0:1");
        Some(operations(lab, program.run().said("all right")))
    },
};

pub const MOONCAKE: Client = Client {
    name: "Mooncake transfer engine",
    version: || wheel("mooncake", "mooncake-transfer-engine-non-cuda"),
    does: "a Write and a Read of 2 MiB, checked",
    refuses: None,
    run: |lab| {
        let program = python(lab, "mooncake", "mooncake_pair.py")?.arg(lab.device());
        // On an RNIC it would take the first GID, which is the device's and no address.
        let program = program.env("MC_GID_INDEX", "1");
        Some(operations(lab, program.run().said("all right")))
    },
};

pub const INFINISTORE: Client = Client {
    name: "InfiniStore",
    version: || wheel("infinistore", "infinistore"),
    does: "64 blocks of 64 KiB stored and loaded, checked",
    refuses: Some(("weft_iw0", "it looks for RoCE's GIDs alone")),
    run: |lab| {
        let program = python(lab, "infinistore", "infinistore_pair.py")?;
        let program = program.arg(lab.device()).arg(free_port().to_string());
        Some(operations(lab, program.run().said("all right")))
    },
};

/// The program `py/NAME`, with the packages of one of `scripts/peers.sh`'s environments.
fn python(lab: &Lab, packages: &str, name: &str) -> Option<Program> {
    let Some(home) = peer(&format!("peers/{packages}/bin")) else {
        weft_testkit::skip(&format!("no {packages}: scripts/peers.sh {packages}"));
        return None;
    };
    let program = lab.program(&home.join("python").to_string_lossy());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/py/");
    Some(counted(program).arg(format!("{file}{name}")))
}

/// The version of a package of PyPI.
fn wheel(environment: &str, package: &str) -> Option<String> {
    let python = peer(&format!("peers/{environment}/bin"))?.join("python");
    let line = format!("import importlib.metadata as m; print(m.version('{package}'))");
    let output = Command::new(python).arg("-c").arg(line).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    Some(version.trim().to_owned()).filter(|version| !version.is_empty())
}

fn valkey(lab: &Lab) -> Option<u64> {
    let Some(home) = peer("peers/valkey") else {
        weft_testkit::skip("no Valkey: scripts/peers.sh valkey");
        return None;
    };
    let program = |name: &str| counted(lab.program(&home.join(name).to_string_lossy()));
    let port = free_port();
    let server = program("valkey-server").arg("--save").arg("");
    let server = server.args(&format!("--port 0 --rdma-bind 127.0.0.1 --rdma-port {port}"));
    let server = server.start().listening(port);
    let at = format!("--rdma -h 127.0.0.1 -p {port}");
    let cli = |line: &str| program("valkey-cli").args(&at).args(line).run().success();
    cli("set key value").said("OK");
    let benchmark =
        program("valkey-benchmark").args(&at).args("-n 2000 -c 4 -d 3000 -t set,get -q");
    let count = operations(lab, benchmark.run().said("requests per second"));
    cli("get key").said("value");
    cli("shutdown nosave");
    Some(count + operations(lab, server.wait()))
}

#[test]
#[ignore = "scripts/peers.sh"]
fn valkey_serves() {
    VALKEY.holds();
}

#[test]
#[ignore = "scripts/peers.sh"]
fn nixl_transfers() {
    NIXL.holds();
}

#[test]
#[ignore = "scripts/peers.sh"]
fn mooncake_transfers() {
    MOONCAKE.holds();
}

#[test]
#[ignore = "scripts/peers.sh"]
fn infinistore_stores() {
    INFINISTORE.holds();
}
