//! Programs that call verbs and rdma-cm themselves, most of them rdma-core's own.

use weft_interop::pyverbs::{NEWEST, Score};
use weft_testkit::{Ended, FixedPort, Lab, Program, free_port, own_address, pair};

use crate::{Client, counted, debian, first_gid, operations};

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
        Some(both(lab, &server, &client, port))
    },
};

pub const PING_PONG: Client = Client {
    name: "rdma-core's ibv_rc_pingpong",
    version: || debian("ibverbs-utils"),
    does: "Sends between queue pairs that it connects by their numbers, checked",
    refuses: None,
    run: |lab| {
        let port = free_port();
        let line = format!("-d {} -g {} -n 200 -c -p {port}", lab.device(), first_gid(lab));
        let server = counted(lab.program("ibv_rc_pingpong")).args(&line);
        Some(both(lab, &server, &server.clone().args("127.0.0.1"), port))
    },
};

pub const UCMATOSE: Client = Client {
    name: "rdma-core's ucmatose",
    version: || debian("rdmacm-utils"),
    does: "Sends on many connections at once",
    refuses: None,
    run: |lab| {
        let port = free_port();
        Some(greets(lab, "ucmatose", &format!("-p {port} -c 20 -C 10 -S 1000"), port))
    },
};

pub const UDADDY: Client = Client {
    name: "rdma-core's udaddy",
    version: || debian("rdmacm-utils"),
    does: "datagrams to addresses that rdma-cm resolves",
    refuses: Some(("weft_iw0", "iWARP has no datagrams")),
    run: |lab| {
        let _port = FixedPort::claim(UDADDY_PORT);
        Some(greets(lab, "udaddy", "-c 2 -C 10 -S 1000", UDADDY_PORT))
    },
};

pub const RSTREAM: Client = Client {
    name: "rdma-core's rsockets",
    version: || debian("rdmacm-utils"),
    does: "rstream, checked",
    refuses: None,
    run: |lab| {
        let port = free_port();
        let server = counted(lab.program("rstream"));
        let server = server.args(&format!("-p {port} -T v -S 65536 -C 50"));
        Some(both(lab, &server, &server.clone().args("-s 127.0.0.1"), port))
    },
};

pub const PYVERBS: Client = Client {
    name: "rdma-core's python tests",
    version: || Some(NEWEST.version.to_owned()),
    does: "all that the device offers, none fails; see [pyverbs.md](pyverbs.md)",
    refuses: None,
    run: |lab| {
        let (score, ended) = NEWEST.run(lab)?;
        let Score { passed, failed, .. } = score;
        assert!(failed == 0 && passed > 0, "{score:?}\n{ended}");
        Some(weft_testkit::Traffic::of(&ended, lab.device()).operations)
    },
};

pub const QPERF: Client = Client {
    name: "qperf",
    version: || debian("qperf"),
    does: "latency and bandwidth of Send, Read and Write",
    refuses: None,
    run: |lab| {
        let port = free_port();
        let server = counted(lab.program("qperf")).args(&format!("-lp {port}"));
        let tests = ["rc_lat", "rc_bw", "rc_rdma_read_bw", "rc_rdma_write_bw"];
        let client = server.clone().args("-cm 1 -t 1 -m 4096 127.0.0.1").args(&tests.join(" "));
        let (_, client) = pair(&server, &client.args("quit"), port);
        let client = tests.iter().fold(client, |client, test| client.said(&format!("{test}:")));
        Some(operations(lab, client))
    },
};

pub const DAPL: Client = Client {
    name: "DAPL",
    version: || debian("dapl2-utils"),
    does: "dtest over `libdaplofa`, checked",
    refuses: None,
    run: |lab| {
        let address = own_address()?.to_string();
        let list = lab.program("ip").on_its_own().args("-o address show to").arg(&address).run();
        let interface = list.stdout.split_whitespace().nth(1)?;
        let provider = "u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0";
        let registry = lab.write("dat.conf", format!("weft {provider} \"{interface} 0\" \"\"\n"));
        let dtest = counted(lab.program("dtest")).env("DAT_OVERRIDE", registry);
        let dtest = dtest.args("-P weft -D -b 4096 -B 20");
        let client = dtest.clone().args("-h").arg(address);
        let _port = FixedPort::claim(DTEST_PORT);
        let (server, client) = pair(&dtest, &client, DTEST_PORT);
        let done = [server, client].map(|end| end.said("DAPL Test Complete. PASSED"));
        Some(done.into_iter().map(|end| operations(lab, end)).sum())
    },
};

/// Where the servers of dtest and udaddy wait: they cannot be told otherwise.
const DTEST_PORT: u16 = 15828;
const UDADDY_PORT: u16 = 7174;

/// The operations of both ends.
fn both(lab: &Lab, server: &Program, client: &Program, port: u16) -> u64 {
    let (server, client): (Ended, Ended) = pair(server, client, port);
    operations(lab, server) + operations(lab, client)
}

/// One of the programs that say how they ended.
fn greets(lab: &Lab, name: &str, options: &str, port: u16) -> u64 {
    let server = counted(lab.program(name)).args(options);
    let (server, client) = pair(&server, &server.clone().args("-s 127.0.0.1"), port);
    let ends = [server, client].map(|end| end.said("return status 0"));
    ends.into_iter().map(|end| operations(lab, end)).sum()
}

/// Quick enough to run with all tests: the others of this file have tests of their own.
#[test]
fn queue_pairs_play_that_meet_by_their_numbers() {
    PING_PONG.holds();
}
