//! What lies between applications and verbs: libfabric's own tests, and a Rust library.

use weft_testkit::{Lab, free_port, own_address, pair, peer};

use crate::{Client, counted, first_gid, operations, said_version};

pub const FABTESTS: Client = Client {
    name: "libfabric's fabtests",
    version: || said_version(&peer("peers/fabtests/bin/fi_info")?, "--version"),
    does: "messages, tags, remote memory, atomics, connections; the data checked",
    refuses: None,
    run: fabtests,
};

pub const SIDEWAY: Client = Client {
    name: "sideway (Rust)",
    version: || Some("0.4.3".to_owned()),
    does: "its ping-pong",
    refuses: None,
    run: sideway,
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
const DATAGRAMS: [&str; 8] = [
    "fi_inject_test -N -A inject",
    "fi_rdm_cntr_pingpong -I 5",
    "fi_rdm_pingpong -I 5 -v",
    "fi_rdm_pingpong -I 5 -v -U",
    "fi_rdm_tagged_pingpong -I 5 -v",
    "fi_rdm_tagged_bw -I 5 -v",
    "fi_rma_bw -e rdm -o write -I 5",
    "fi_rma_bw -e rdm -o read -I 5",
];
/// Atomics of every kind, each by itself: all in one run may take longer than a run may last where
/// programs that poll have to share a CPU.
const ATOMICS: [&str; 19] = [
    "min", "max", "sum", "prod", "lor", "land", "bor", "band", "lxor", "bxor", "read", "write",
    "cswap", "cswap_ne", "cswap_le", "cswap_lt", "cswap_ge", "cswap_gt", "mswap",
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
        weft_testkit::skip("no fabtests: scripts/peers.sh fabtests");
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
    let atomic = |kind: &&str| {
        run("verbs;ofi_rxm", &format!("fi_rdm_atomic -I 5 -v -o {kind}"), ["-B ", "-P "])
    };
    let atomics = ATOMICS.iter().map(atomic);
    let meeting = MEETING.iter().map(|line| run("verbs;ofi_rxm", line, ["-b=", "-b="]));
    Some(messages.chain(datagrams).chain(atomics).chain(meeting).sum())
}

fn sideway(lab: &Lab) -> Option<u64> {
    let Some(home) = peer("peers/sideway/bin") else {
        weft_testkit::skip("no sideway: scripts/peers.sh sideway");
        return None;
    };
    let port = free_port();
    let server = counted(lab.program(&home.join("rc_pingpong").to_string_lossy()));
    let server =
        server.args(&format!("-d {} -g {} -n 200 -p {port}", lab.device(), first_gid(lab)));
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
fn sideway_plays() {
    SIDEWAY.holds();
}
