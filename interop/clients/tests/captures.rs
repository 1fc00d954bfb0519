//! `weft run --pcap` and `--trace`: what tshark reads in the captures of programs that nobody here
//! wrote, and what `weft trace show` draws.

use std::path::{Path, PathBuf};
use std::process::Command;

use weft_testkit::{IWARP, Lab, Program, SHUTTLE, free_port, pair, weft};

/// Five rounds of rping, whose client is captured; `how` follows the name of the file.
fn ping(lab: &Lab, how: &str, and: impl Fn(Program) -> Program) -> PathBuf {
    let file = lab.path("ping.pcapng");
    ping_with(lab, &format!("--pcap={}{how}", file.display()), and);
    file
}

/// Five rounds of rping, whose client is run with `option`. Each round the server reads and writes
/// the client's memory, and both send.
fn ping_with(lab: &Lab, option: &str, and: impl Fn(Program) -> Program) {
    let port = free_port();
    let rping = |role: &str| {
        let line = format!("{role} -a 127.0.0.1 -p {port} -V -C 5 -S 3000");
        and(lab.program("rping").args(&line))
    };
    pair(&rping("-s"), &rping("-c").option(option), port);
}

/// What tshark says of the packets of `file` that `filter` takes, a line each.
fn read(lab: &Lab, file: &Path, options: &str) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/capture/shuttle.lua");
    let tshark = lab.program("tshark").on_its_own().arg("-r").arg(file);
    // Others would take the payload for theirs.
    let tshark = tshark.args("--disable-protocol smb_direct --disable-protocol rpcordma");
    let tshark = tshark.arg("-X").arg(format!("lua_script:{}", script.display()));
    tshark.args(options).run().success().stdout.lines().map(str::to_owned).collect()
}

/// How often each of `values` is among the lines.
fn counts<const N: usize>(lines: &[String], values: [&str; N]) -> [usize; N] {
    values
        .map(|value| lines.iter().flat_map(|line| line.split(',')).filter(|x| *x == value).count())
}

/// Each of the lines once: what the peer has sent again is there again.
fn once(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines.dedup();
    lines
}

const COMPLAINTS: &str = "-Y _ws.malformed||tcp.analysis.flags||ip.checksum.status==0\
    ||tcp.checksum.status==0||shuttle.truncated";

fn no_complaint(lab: &Lab, file: &Path) {
    let complaints = read(lab, file, COMPLAINTS);
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn iwarp_is_shown_as_it_is() {
    let Some(lab) = Lab::with(&["rping", "tshark"]) else { return };
    let lab = lab.over(IWARP);
    let file = ping(&lab, "", |program| program);
    let opcodes = read(&lab, &file, "-Y iwarp_ddp_rdmap -T fields -e iwarp_rdma.opcode");
    // Writes, Read Requests, Read Responses, Sends.
    let [writes, requests, responses, sends] = counts(&opcodes, ["0x00", "0x01", "0x02", "0x03"]);
    assert!(writes >= 5 && sends >= 20, "{opcodes:?}");
    assert!(requests >= 5 && responses >= requests, "{opcodes:?}");
    no_complaint(&lab, &file);
    let start = read(&lab, &file, "-Y iwarp_mpa.req||iwarp_mpa.rep -T fields -e frame.number");
    assert_eq!(start, ["4", "5"], "after the three segments that open the connection");
}

#[test]
fn shuttle_is_shown_as_roce_although_it_is_sealed() {
    let Some(lab) = Lab::with(&["rping", "tshark"]) else { return };
    let lab = lab.over(SHUTTLE);
    let key = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let file = ping(&lab, "", |program| program.env("WEFT_KEY", key));
    let opcodes = read(&lab, &file, "-Y infiniband -T fields -e infiniband.bth.opcode");
    // Write only, Read Request, Read Response only, Send only, Acknowledge.
    let [writes, responses, sends, acks] = counts(&opcodes, ["10", "16", "4", "17"]);
    assert!(writes + responses >= 5 && sends >= 20 && acks > 0, "{opcodes:?}");
    let numbers =
        "-Y infiniband.bth.opcode==12 -T fields -e infiniband.bth.psn -e infiniband.bth.destqp";
    let requests = once(read(&lab, &file, numbers));
    assert_eq!(requests.len(), 5, "{requests:?} of {opcodes:?}");
    assert!(requests.iter().all(|line| !line.ends_with("0x000000")), "{requests:?}");
    let syndromes = read(&lab, &file, "-Y infiniband.aeth -T fields -e infiniband.aeth.syndrome");
    assert!(syndromes.iter().all(|syndrome| syndrome == "31"), "{syndromes:?}");
    no_complaint(&lab, &file);
}

#[test]
fn shuttle_is_shown_as_it_is_by_its_own_dissector() {
    let Some(lab) = Lab::with(&["rping", "tshark"]) else { return };
    let lab = lab.over(SHUTTLE);
    let file = ping(&lab, ",view=shuttle", |program| program);
    let packets = read(&lab, &file, "-T fields -e _ws.col.Protocol -e _ws.col.Info");
    let shown = |what: &str| packets.iter().any(|line| line.contains(what));
    assert!(shown("Shuttle\tReply") && shown("segment 0, frontier 0"), "{packets:?}");
    assert!(shown(": Ack to ") && shown("Stream "), "{packets:?}");
    let requests = "-Y iwarp_rdma.opcode==1 -T fields -e iwarp_ddp.qn -e iwarp_ddp.msn";
    let requests = once(read(&lab, &file, requests));
    assert_eq!(requests.len(), 5, "{requests:?}");
    no_complaint(&lab, &file);
}

#[test]
fn what_is_sent_again_says_so() {
    let Some(lab) = Lab::with(&["rping", "tshark"]) else { return };
    let lab = lab.over(SHUTTLE);
    let faults = |program: Program| program.env("WEFT_FAULT", "drop=20%; seed=7");
    let file = ping(&lab, "", faults);
    let comments = read(&lab, &file, "-Y frame.comment -T fields -e frame.comment");
    assert!(comments.iter().any(|comment| comment.starts_with("sent again: ")), "{comments:?}");
}

#[test]
fn a_ring_keeps_so_many_files_and_one_queue_pair_can_be_chosen() {
    Lab::over_each(&["rping", "tshark"], |lab| {
        let file = ping(lab, ",size=8K,files=2", |program| program);
        let names = |prefix: &str| -> Vec<String> {
            let entries = std::fs::read_dir(lab.path("")).expect("a directory");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let names = names.map(|name| name.to_string_lossy().into_owned());
            let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
            names.sort();
            names
        };
        let ring = names("ping-");
        assert_eq!(ring.len(), 2, "{ring:?}");
        assert!(!file.exists());
        let newest = lab.path(&ring[1]);
        assert!(!read(lab, &newest, "-T fields -e frame.number").is_empty());
        ring.iter().for_each(|name| std::fs::remove_file(lab.path(name)).expect("it is there"));
        ping(lab, ",qp=2", |program| program);
        assert!(names("ping").is_empty(), "there was one queue pair");
    });
}

#[test]
fn a_trace_has_what_was_posted_and_completed_and_is_drawn() {
    Lab::over_each(&["rping"], |lab| {
        let file = lab.path("ping.qlog");
        let by_network = |program: Program| program.env("WEFT_LANE", "off");
        ping_with(lab, &format!("--trace={}", file.display()), by_network);
        let text = std::fs::read_to_string(&file).expect("it was written");
        let records: Vec<&str> = text.split_terminator('\n').collect();
        assert!(
            records.iter().all(|record| record.starts_with("\u{1e}{") && record.ends_with('}'))
        );
        let count = |name: &str| {
            let name = format!("\"name\":\"{name}\"");
            records.iter().filter(|record| record.contains(&name)).count()
        };
        // Two Sends a round, each answered by one: the completions of both kinds.
        assert!(count("verbs:post_send") >= 10 && count("verbs:post_recv") >= 10, "{text}");
        assert!(count("verbs:completion") >= 20, "{text}");
        assert!(count("transport:packet_sent") > 0 && count("transport:packet_received") > 0);
        assert!(count("recovery:metrics_updated") > 0 && count("verbs:state_updated") >= 2);
        let mut weft = Command::new(weft());
        let drawn = weft.args(["trace", "show", "-o", "-"]).arg(&file).output().expect("it runs");
        let page = weft_testkit::text(&drawn.stdout);
        assert!(
            page.contains("rping, process") && page.contains("payload, Mbit/s</text>"),
            "{page}"
        );
    });
}

#[test]
fn a_file_that_is_no_capture_stays() {
    let Some(lab) = Lab::with(&["true"]) else { return };
    let file = lab.write("notes.txt", "precious");
    let program = lab.program("true").option(&format!("--pcap={}", file.display()));
    let ended = program.run();
    assert_eq!(ended.status.code(), Some(125), "{ended}");
    assert!(ended.stderr.contains("notes.txt exists and is no capture"), "{ended}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "precious");
}
