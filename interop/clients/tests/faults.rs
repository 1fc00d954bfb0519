//! Faults on purpose in real programs: each ends, and says what it met.

use std::ops::RangeInclusive;
use std::time::Duration;

use weft_testkit::{Ended, IWARP, Lab, Program, SHUTTLE, free_port};

/// Runs both ends; the client under `plan`.
fn ends(server: &Program, client: &Program, plan: &str, port: u16) -> (Ended, Ended) {
    let server = server.clone().start().listening(port);
    let client = client.clone().option("--fault").option(plan).run();
    assert!(client.stderr.contains("weft: going wrong on purpose: "), "{client}");
    // A server that has not noticed is none that this is about.
    (server.end(), client)
}

fn pingpong(plan: &str) -> Option<Ended> {
    let lab = Lab::with(&["ibv_rc_pingpong"])?;
    let port = free_port();
    let server = lab.program("ibv_rc_pingpong").args(&format!("-d weft0 -g 0 -n 300 -p {port}"));
    Some(ends(&server, &server.clone().args("127.0.0.1"), plan, port).1)
}

/// What rdma-cm connects is on `weft_iw0`.
fn perftest(name: &str, options: &str, plan: &str) -> Option<Ended> {
    let lab = Lab::with(&[name])?.over(IWARP);
    let port = free_port();
    let server = lab.program(name).args(&format!("-F -p {port} {options}"));
    Some(ends(&server, &server.clone().args("127.0.0.1"), plan, port).1)
}

/// Also on `weft_iw0`, where a peer that is gone is missed sooner: rping waits without a request.
/// Damage to the length of a frame has its receiver wait for the rest, as long as a peer may stall.
fn rping(plan: &str) -> Option<Ended> {
    let lab = Lab::with(&["rping"])?.over(IWARP);
    let port = free_port();
    let rping = |role: &str| {
        let line = format!("{role} -a 127.0.0.1 -p {port} -v -V -C 50 -S 100");
        lab.program("rping").env("WEFT_STALL_TIMEOUT_MS", "2000").args(&line)
    };
    Some(ends(&rping("-s"), &rping("-c"), plan, port).1)
}

/// The program failed by itself, and wrote `words`.
fn failed(ended: Option<Ended>, words: &str) -> String {
    let Some(ended) = ended else { return String::new() };
    assert!(ended.status.code().is_some_and(|code| code != 0), "{ended}");
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains(words), "no {words:?} from {ended}");
    said
}

/// rping ended by itself, after so many pings.
fn cut_short(ended: Option<Ended>, pings: RangeInclusive<usize>) {
    let Some(ended) = ended else { return };
    let done = ended.stdout.lines().filter(|line| line.starts_with("ping data: ")).count();
    assert!(ended.status.code().is_some() && pings.contains(&done), "{done} pings from {ended}");
}

fn succeeded(ended: Option<Ended>) {
    ended.map(Ended::success);
}

#[test]
fn a_queue_pair_of_weft0_fails_in_the_middle() {
    failed(pingpong("qp-error:after=100"), "transport retry counter exceeded (12)");
    failed(pingpong("qp-error:after=100,status=rem-access"), "remote access error (10)");
    let plan = "qp-error:after=50,status=rem-op";
    failed(perftest("ib_write_bw", "-d weft0 -n 200", plan), "Failed status 11");
}

#[test]
fn the_same_seed_fails_the_same_request() {
    let said = |seed: u32| {
        let plan = format!("qp-error=1%; seed={seed}");
        let said = failed(pingpong(&plan), "Failed status");
        said.lines().find(|line| line.contains("Failed status")).map(str::to_owned)
    };
    assert_eq!(said(3), said(3));
}

#[test]
fn a_queue_pair_of_weft_iw0_fails_in_the_middle() {
    // rping sends twice for each ping, and succeeds whatever comes.
    cut_short(rping("qp-error:after=20"), 10..=10);
    let plan = "qp-error:after=50";
    failed(perftest("ib_send_bw", "-R -n 200", plan), "Failed status 12");
}

#[test]
fn a_completion_queue_overflows() {
    failed(perftest("ib_write_bw", "-d weft0 -n 2000", "cq-overflow:after=10"), "");
    failed(perftest("ib_write_bw", "-R -n 2000", "cq-overflow:after=10"), "");
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    succeeded(pingpong("rnr:3,after=10"));
    succeeded(rping("rnr:3,after=10"));
}

#[test]
fn calls_fail() {
    failed(pingpong("fail=reg_mr"), "Couldn't register MR");
    failed(pingpong("fail=create_cq"), "Couldn't create CQ");
    failed(rping("fail=create_qp"), "");
}

#[test]
fn loss_and_damage_are_repaired_over_weft0() {
    for plan in ["drop=5%", "drop=20%:way=out", "corrupt=2%", "drop=2%; corrupt=1%; delay=1ms"] {
        succeeded(perftest("ib_write_bw", "-d weft0 -n 200 -s 20000", plan));
    }
    // Here each loss is waited for.
    succeeded(pingpong("drop=2%; corrupt=1%"));
}

#[test]
fn datagrams_are_lost_for_good() {
    let Some(lab) = Lab::with(&["ibv_ud_pingpong"]) else { return };
    let port = free_port();
    let server = lab.program("ibv_ud_pingpong").args(&format!("-d weft0 -g 0 -n 100 -p {port}"));
    let client = server.clone().args("127.0.0.1").option("--fault").option("drop=100%:way=in");
    let server = server.start().listening(port);
    // Whole, it takes some milliseconds.
    assert!(!client.start().ends_within(Duration::from_secs(1)));
    drop(server);
}

#[test]
fn damage_ends_a_connection_of_weft_iw0() {
    cut_short(rping("corrupt=100%"), 0..=49);
}

/// The typical latency that perftest measured, in microseconds.
fn latency_us(ended: &Ended) -> f64 {
    let table = ended.stdout.lines().skip_while(|line| !line.contains("#bytes"));
    let row = table.skip(1).find(|line| line.split_whitespace().count() > 4);
    let typical = row.and_then(|row| row.split_whitespace().nth(4)).map(str::parse);
    typical.unwrap_or_else(|| panic!("no latency from {ended}")).expect("a number")
}

#[test]
fn a_delay_is_at_least_as_long_as_it_says() {
    for options in ["-d weft0 -n 20", "-R -n 20"] {
        let Some(ended) = perftest("ib_write_lat", options, "delay=4ms") else { return };
        let ended = ended.success();
        // Half of a round trip, of which only the way to the client is slow.
        assert!(latency_us(&ended) >= 2000.0, "{ended}");
    }
}

#[test]
fn a_peer_that_is_gone_ends_a_program() {
    cut_short(rping("peer-gone:after=20"), 5..=10);
    failed(perftest("ib_send_bw", "-R -n 100000", "peer-gone:at=200ms"), "");
    // Always with requests outstanding: who only waits for messages waits on, as with hardware.
    let plan = "peer-gone:after=100";
    failed(perftest("ib_write_bw", "-d weft0 -n 100000", plan), "Failed status 12");
}

#[test]
fn a_request_that_hangs_keeps_its_program() {
    let Some(lab) = Lab::with(&["ib_write_bw"]) else { return };
    let port = free_port();
    let server = lab.program("ib_write_bw").args(&format!("-d weft0 -F -n 500 -p {port}"));
    let client = server.clone().args("127.0.0.1").option("--fault").option("hang:after=50");
    let server = server.start().listening(port);
    // As long as the transport waits for a peer that is silent, and longer.
    assert!(!client.start().ends_within(Duration::from_secs(4)));
    drop(server);
}

#[test]
fn an_outage_of_the_port_is_survived() {
    succeeded(pingpong("port-down=300ms"));
    succeeded(rping("port-down=300ms"));
}

/// `ibv_asyncwatch` of weft0 under `plan`, until it has said `words`.
fn watched(plan: &str, words: &[&str]) {
    let Some(lab) = Lab::with(&["ibv_asyncwatch", "stdbuf"]) else { return };
    let watch = lab.program("stdbuf").args("-oL ibv_asyncwatch -d weft0");
    let mut watch = watch.option("--fault").option(plan).start();
    for words in words {
        watch = watch.printed(words);
    }
}

#[test]
fn changes_of_the_device_and_its_port_are_events() {
    watched("pkey-change=0x8001; lid-change=7", &["_PKEY_CHANGE", "_LID_CHANGE"]);
    watched("gid-change", &["_GID_CHANGE"]);
    watched("addr-gone=100ms", &["_GID_CHANGE"]);
    watched("port-down=100ms", &["_PORT_ERR", "_PORT_ACTIVE"]);
    watched("device-fatal=100ms", &["_DEVICE_FATAL"]);
}

#[test]
fn a_device_that_is_reset_ends_a_program_by_itself() {
    failed(perftest("ib_write_bw", "-d weft0 -D 20", "device-fatal=100ms:at=1s"), "");
    failed(pingpong("device-fatal=100ms"), "");
    cut_short(rping("device-fatal=100ms"), 0..=49);
}

#[test]
fn a_gid_that_has_moved_is_not_where_it_was() {
    let first = "-d weft0 -x 0 -n 100";
    failed(perftest("ib_write_bw", first, "gid-change"), "");
    failed(perftest("ib_write_bw", first, "addr-gone=3600s"), "");
    succeeded(perftest("ib_write_bw", first, "gid-change:at=3600s"));
}

#[test]
fn objects_that_cannot_be_made_are_missed() {
    failed(pingpong("alloc-fail=pd"), "Couldn't allocate PD");
    failed(pingpong("alloc-fail=cq"), "Couldn't create CQ");
    failed(pingpong("alloc-fail=mr"), "Couldn't register MR");
    failed(pingpong("alloc-fail=qp"), "Couldn't create QP");
    succeeded(pingpong("alloc-fail=qp:nth=2"));
}

#[test]
fn a_region_that_is_invalid_fails_its_owner() {
    let plan = "mr-invalid:after=50";
    // Those behind it are flushed, and so are those before it that were not out yet.
    failed(perftest("ib_write_bw", "-d weft0 -n 2000", plan), "Failed status");
}

#[test]
fn late_acknowledgements_make_nothing_wrong() {
    succeeded(pingpong("slow-ack=2ms"));
    succeeded(perftest("ib_write_bw", "-d weft0 -n 200 -q 2", "slow-ack=5ms:only=1"));
}

#[test]
fn what_no_crc_sees_a_program_that_checks_does() {
    let lab = Lab::with(&["rping"]);
    for transport in [IWARP, SHUTTLE] {
        let Some(lab) = &lab else { return };
        let port = free_port();
        let rping = |role: &str| {
            let line = format!("{role} -a 127.0.0.1 -p {port} -V -C 50");
            lab.program("rping").args(&line).env("WEFT_TRANSPORT", transport)
        };
        let (_, client) = ends(&rping("-s"), &rping("-c"), "corrupt=100%:crc=good", port);
        let said = format!("{}{}", client.stdout, client.stderr);
        assert!(said.contains("data mismatch"), "{client}");
    }
}

#[test]
fn a_program_that_sees_no_more_completions_waits_on() {
    let Some(lab) = Lab::with(&["ibv_rc_pingpong"]) else { return };
    let port = free_port();
    let server = lab.program("ibv_rc_pingpong").args(&format!("-d weft0 -g 0 -n 300 -p {port}"));
    let client = server.clone().args("127.0.0.1").option("--fault").option("cq-overrun:after=50");
    let server = server.start().listening(port);
    // Whole, it takes some milliseconds.
    assert!(!client.start().ends_within(Duration::from_secs(1)));
    drop(server);
}

#[test]
fn one_of_many_programs_is_chosen_by_its_name() {
    failed(pingpong("alloc-fail=qp:process=ibv_rc_*"), "Couldn't create QP");
    succeeded(pingpong("alloc-fail=qp:process=ib_*"));
    succeeded(pingpong("qp-error:dev=weft_iw0"));
}
