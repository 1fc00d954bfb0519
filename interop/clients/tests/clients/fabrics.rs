//! What lies between applications and verbs: libfabric's own tests, MPIs, and a Rust library.

use std::path::{Path, PathBuf};

use weft_interop::{Lab, Program, free_port, mpi, own_address, pair, peer};

use crate::{Client, counted, debian, operations, said_version};

pub const FABTESTS: Client = Client {
    name: "libfabric's fabtests",
    version: || said_version(&peer("peers/fabtests/bin/fi_info")?, "--version"),
    does: "messages, tags, remote memory, atomics, connections; the data checked",
    refuses: None,
    run: fabtests,
};

pub const INTEL_MPI: Client = Client {
    name: "Intel MPI",
    version: || {
        let said = said_version(&peer("peers/impi/bin/impi_info")?, "-v");
        said.or_else(|| Some("2021.18".to_owned()))
    },
    does: "messages, collectives, one-sided access of four ranks, checked",
    refuses: None,
    run: intel_mpi,
};

pub const SIDEWAY: Client = Client {
    name: "sideway (Rust)",
    version: || Some("0.4.3".to_owned()),
    does: "its ping-pong",
    refuses: Some(("weft_iw0", "it asks for Send with immediate data, which iWARP has not")),
    run: sideway,
};

pub const PERFTEST: Client = Client {
    name: "perftest",
    version: || debian("perftest"),
    does: "bandwidth of Write and Read",
    refuses: None,
    run: |lab| {
        let bandwidth = |name: &str| {
            let port = free_port();
            let server = counted(lab.program(name)).args(&format!("-R -F -n 200 -p {port}"));
            let (_, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
            operations(lab, client)
        };
        Some(["ib_write_bw", "ib_read_bw"].into_iter().map(bandwidth).sum())
    },
};

pub const RPING: Client = Client {
    name: "rdma-core's rping",
    version: || debian("rdmacm-utils"),
    does: "Reads, Writes and Sends, checked",
    refuses: None,
    run: |lab| {
        let port = free_port();
        let line = format!("-a 127.0.0.1 -p {port} -V -C 100 -S 4000");
        let server = counted(lab.program("rping")).arg("-s").args(&line);
        let client = counted(lab.program("rping")).arg("-c").args(&line);
        let (server, client) = pair(&server, &client, port);
        Some(operations(lab, server) + operations(lab, client))
    },
};

pub const UCX: Client = Client {
    name: "UCX",
    version: || debian("ucx-utils"),
    does: "ucx_perftest's tag_bw over rc_verbs",
    refuses: Some(("weft_iw0", "it takes no iWARP")),
    run: |lab| {
        let port = free_port();
        let server = counted(lab.program("ucx_perftest")).env("UCX_TLS", "rc_v,self");
        let server = server.env("UCX_NET_DEVICES", "weft0:1");
        let server = server.args(&format!("-t tag_bw -s 4000 -n 500 -w 10 -p {port}"));
        let (_, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
        Some(operations(lab, client))
    },
};

/// What fabtests' own script runs on `verbs` and on `verbs;ofi_rxm`, in its quick suite, but
/// for `fi_msg_sockets`, where libfabric 2.1 resolves an address twice, which rdma-cm refuses.
const MESSAGES: [&str; 6] = [
    "fi_msg -e msg",
    "fi_msg_epoll",
    "fi_msg_pingpong -I 5 -v",
    "fi_msg_bw -I 5 -v",
    "fi_rma_bw -e msg -o write -I 5",
    "fi_rma_bw -e msg -o read -I 5",
];
const DATAGRAMS: [&str; 9] = [
    "fi_inject_test -N -A inject",
    "fi_rdm_cntr_pingpong -I 5",
    "fi_rdm_pingpong -I 5 -v",
    "fi_rdm_pingpong -I 5 -v -U",
    "fi_rdm_tagged_pingpong -I 5 -v",
    "fi_rdm_tagged_bw -I 5 -v",
    "fi_rdm_atomic -I 5 -o all -v",
    "fi_rma_bw -e rdm -o write -I 5",
    "fi_rma_bw -e rdm -o read -I 5",
];
/// Those that meet over a socket first.
const MEETING: [&str; 4] = [
    "fi_av_xfer -e rdm",
    "fi_multi_recv -e rdm -I 5",
    "fi_rdm_tagged_peek",
    "fi_unexpected_msg -e rdm -I 5",
];

fn fabtests(lab: &Lab) -> Option<u64> {
    let Some(home) = peer("peers/fabtests") else {
        lab.skip("no fabtests: scripts/peers.sh fabtests");
        return None;
    };
    let address = own_address()?;
    let run = |provider: &str, line: &str, [server, client]: [&str; 2]| {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let port = free_port();
        let program = lab.program(&home.join("bin").join(name).to_string_lossy());
        let program = counted(program).env("LD_LIBRARY_PATH", home.join("lib"));
        let program =
            program.args(arguments).arg("-p").arg(provider).args(&format!("-s {address}"));
        let server = program.clone().args(&format!("{server}{port}"));
        let client = program.args(&format!("{client}{port} {address}"));
        let (_, client) = pair(&server, &client, port);
        operations(lab, client)
    };
    let messages = MESSAGES.iter().map(|line| run("verbs", line, ["-B ", "-P "]));
    let datagrams = DATAGRAMS.iter().map(|line| run("verbs;ofi_rxm", line, ["-B ", "-P "]));
    let meeting = MEETING.iter().map(|line| run("verbs;ofi_rxm", line, ["-b=", "-b="]));
    Some(messages.chain(datagrams).chain(meeting).sum())
}

fn intel_mpi(lab: &Lab) -> Option<u64> {
    let Some(home) = peer("peers/impi") else {
        lab.skip("no Intel MPI: scripts/peers.sh impi");
        return None;
    };
    let run = |name: &&str| {
        let program = compiled(lab, &home, name);
        let mpiexec = lab.program(&home.join("bin/mpiexec").to_string_lossy());
        let mpiexec = mpiexec.option("--stats");
        let mpiexec = mpiexec.env("I_MPI_ROOT", &home).env("I_MPI_FABRICS", "ofi");
        let mpiexec = mpiexec.env("I_MPI_OFI_PROVIDER", "verbs");
        let mpiexec = mpiexec.env("FI_PROVIDER_PATH", home.join("lib"));
        let mpiexec = mpiexec.env("LD_LIBRARY_PATH", home.join("lib")).args("-n 4");
        operations(lab, mpi::all_right(&mpiexec.arg(program.path()).arg("1")))
    };
    Some(mpi::PROGRAMS.iter().map(run).sum())
}

/// Intel's compiler command finds its files by a variable.
fn compiled(lab: &Lab, home: &Path, name: &str) -> Program {
    let wrapper = format!("#!/bin/sh\nI_MPI_ROOT={0} exec {0}/bin/mpicc \"$@\"\n", home.display());
    let compiler: PathBuf = lab.write("mpicc", wrapper);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&compiler, mode).expect("the script was just written");
    lab.compile(&compiler, name, &[])
}

fn sideway(lab: &Lab) -> Option<u64> {
    let Some(home) = peer("peers/sideway/bin") else {
        lab.skip("no sideway: scripts/peers.sh sideway");
        return None;
    };
    let port = free_port();
    let server = counted(lab.program(&home.join("rc_pingpong").to_string_lossy()));
    let server = server.args(&format!("-d {} -g 0 -n 200 -p {port}", lab.device()));
    let (server, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
    Some(operations(lab, server) + operations(lab, client))
}

#[test]
#[ignore = "scripts/peers.sh"]
fn fabtests_pass() {
    FABTESTS.holds();
}

#[test]
#[ignore = "scripts/peers.sh"]
fn intel_mpi_finds_everything_right() {
    INTEL_MPI.holds();
}

#[test]
#[ignore = "scripts/peers.sh"]
fn sideway_plays() {
    SIDEWAY.holds();
}
