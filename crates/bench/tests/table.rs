//! `weft bench table lan`: every kind of series is taken, and the table finds its place in a page.
//! What the numbers are does not matter here.

use std::process::{Command, Output};

use weft_testkit::{Dir, text, weft, without_settings};

fn table(line: &str, only: &str) -> Output {
    let mut command = Command::new(weft());
    without_settings(&mut command);
    command.args(["bench", "table", "lan", "--rounds", "1", "--seconds", "0.05"]);
    command.args(line.split_whitespace()).args(["--only", only]).output().expect("weft starts")
}

/// Whether each of `series` was taken in a run of the measurements with `only` in their name.
fn takes(only: &str, series: &[&str]) {
    let output = table("--json", only);
    assert!(output.status.success(), "{only}: {}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for name in series {
        let value = report["series"][name]["values"][0][1].as_f64();
        assert!(value.is_some(), "{name} is not in {}", report["series"]);
    }
}

#[test]
fn latencies_are_medians_and_means() {
    takes("ib_send_lat -e 64 B, network", &["ib_send_lat -e 64 B, network, p50"]);
    takes("ib_write_lat 64 B, weft0, network", &["ib_write_lat 64 B, weft0, network, mean"]);
    takes("AF_UNIX ping-pong, spinning", &["floor: AF_UNIX ping-pong, spinning, p50"]);
}

#[test]
fn streams_have_rates_and_costs() {
    let name = "ib_send_bw -e 1 MiB, network";
    takes(name, &[name, &format!("{name}, CPU"), &format!("{name}, messages")]);
    let name = "floor: AF_UNIX stream, 256 KiB calls";
    takes(name, &[name, &format!("{name}, CPU")]);
}

#[test]
fn a_ring_in_shared_memory_is_a_floor() {
    let lat = "floor: ring in shared memory, ping-pong, p50";
    let rate = "floor: ring in shared memory, 64 B, messages";
    takes("floor: ring", &[lat, rate, "floor: ring in shared memory, 1 MiB"]);
}

#[test]
fn many_connections_share_a_completion_queue() {
    takes("one of 16 connections, network", &["one of 16 connections, network, p50"]);
    takes("16 active connections, weft0", &["16 active connections, weft0, network"]);
    takes("TCP, 16 active", &["floor: TCP, 16 active connections"]);
    let name = "1000 connections, network";
    takes(name, &[&format!("{name}: arm"), &format!("{name}: poll, something there")]);
}

#[test]
fn fio_stands_against_its_own_engine_of_tcp() {
    takes("fio, engine net", &["fio, engine net (TCP)"]);
    takes("fio, engine rdma, network", &["fio, engine rdma, network"]);
}

#[test]
fn what_others_reach_is_one_row_each() {
    let scratch = Dir::new("compared");
    let [page, vm] = ["page.md", "vm.json"].map(|name| scratch.root().join(name));
    std::fs::write(&page, "<!-- compared -->\n<!-- end of compared -->\n").unwrap();
    let machines =
        r#"{"about": "in machines", "columns": ["device", "us"], "rows": [["rxe", "9"]]}"#;
    std::fs::write(&vm, machines).unwrap();
    let line = "bench table compared --rounds 1 --seconds 0.1 --only".split(' ');
    let mut command = Command::new(weft());
    without_settings(&mut command);
    command.args(line).arg(": 64 bytes").arg("--vm").arg(&vm).arg("--into").arg(&page);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(&page).unwrap();
    let row = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(&format!("| {name}")));
        let cells = line.unwrap_or_else(|| panic!("{name} is not in\n{page}")).split('|');
        cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    for name in ["`weft0` (UDP)", "`weft_iw0` (TCP)", "TCP, blocking"] {
        let us = row(name)[3].trim_matches('*').parse::<f64>();
        assert!(us.is_ok_and(|us| us > 0.0), "{name} in\n{page}");
    }
    let best = page.lines().filter(|line| line.starts_with("| ") && line.contains("| **"));
    assert_eq!(best.count(), 1, "one of a column is the best\n{page}");
    assert_eq!(row("rxe")[1..3], ["rxe", "9"]);
    assert!(
        page.contains("in machines") && row("rsync over ssh")[3..7].iter().all(String::is_empty)
    );
}

#[test]
fn a_table_is_put_into_its_place_in_a_page() {
    let scratch = Dir::new("into");
    let page = scratch.root().join("page.md");
    let into = format!("--into {}", page.display());
    std::fs::write(&page, "before\n<!-- lan -->\nold\n<!-- end of lan -->\nafter\n").unwrap();
    let output = table(&into, "pingpong --spin");
    assert_eq!(output.status.code(), Some(125), "no measurement has that name");
    let output = table(&into, "TCP ping-pong, spinning");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "", "the page has it");
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(written.starts_with("before\n<!-- lan -->\n\n"), "{written}");
    assert!(written.ends_with("\n\n<!-- end of lan -->\nafter\n"), "{written}");
    assert!(written.contains("floor: TCP ping-pong, spinning, p50") && !written.contains("old"));

    std::fs::write(&page, "no place\n").unwrap();
    let output = table(&into, "TCP ping-pong, spinning");
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("has no lines"), "{}", text(&output.stderr));
}
