//! Streams: every operation, both ways, over both devices, with their data looked at.

use serde_json::Value;

use super::{Server, TRANSPORTS};
use crate::common::text;

#[test]
fn every_operation_goes_over_both_devices() {
    let server = Server::start(&[]);
    for (transport, device) in TRANSPORTS {
        for operation in ["write", "read", "send"] {
            let line = format!(
                "--transport {transport} --op {operation} -s 5000 -n 301 -P 2 -b --verify \
                 --depth 40"
            );
            let run = &server.json(&line)["runs"][0];
            assert_eq!(run["device"], device, "{line}");
            for way in ["up", "down"] {
                assert_eq!(run[way]["streams"], Value::from(vec![301, 301]), "{line}");
                assert!(run[way]["gbps"].as_f64().unwrap() > 0.0);
            }
            // Of Writes the last one in each slot is there to be seen.
            let slots = if operation == "write" { 40 } else { 301 };
            assert_eq!(run["data"]["checked"], 4 * slots, "{line}");
            assert_eq!(run["data"]["wrong"], 0, "{line}");
        }
        let line = format!("--transport {transport} --op atomic -n 100 -R");
        let run = &server.json(&line)["runs"][0];
        assert_eq!(run["down"]["bytes"], 800.0);
        assert_eq!(run["up"], Value::Null);
    }
}

/// A run with at least two intervals: where a busy machine keeps either process from running,
/// what would be several is one, and a longer run has more.
fn of_several_intervals(server: &Server, reverse: &str) -> Value {
    let seconds = [0.3, 1.0, 3.0, 9.0].into_iter();
    let mut runs = seconds.map(|seconds| {
        server.json(&format!("-t {seconds} -O 0.1 -i 0.1 {reverse}"))["runs"][0].clone()
    });
    let found = runs.find(|run| run["intervals"].as_array().unwrap().len() >= 2);
    found.expect("nine seconds have two intervals of a tenth")
}

#[test]
fn intervals_add_up_to_what_was_moved() {
    let server = Server::start(&[]);
    for way in ["up", "down"] {
        let reverse = if way == "down" { "-R" } else { "" };
        let run = of_several_intervals(&server, reverse);
        let intervals = run["intervals"].as_array().unwrap();
        let sum = |omitted: bool| -> u64 {
            let some = intervals.iter().filter(|interval| interval["omitted"] == omitted);
            some.map(|interval| interval[way]["messages"].as_u64().unwrap()).sum()
        };
        let (counted, left_out) = (&run[way]["messages"], &run[way]["omitted"]["messages"]);
        let all = counted.as_u64().unwrap() + left_out.as_u64().unwrap();
        assert_eq!(sum(false) + sum(true), all);
        if way == "up" {
            assert_eq!(sum(true), left_out.as_u64().unwrap());
        }
        // From the first counted message to the last: a busy machine may leave any part of it.
        assert!(run[way]["seconds"].as_f64().unwrap() > 0.0);
        assert!(run["cpu"]["here_s"].as_f64().unwrap() > 0.0);
        assert!(run["cpu"]["there_s_per_gb"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn several_sizes_make_a_table() {
    let server = Server::start(&[]);
    let output = server.run("-s 1,4K,1M -n 50 -P 3");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for size in ["     1 B", "   4 KiB", "   1 MiB"] {
        assert_eq!(said.lines().filter(|line| line.starts_with(size)).count(), 1, "{said}");
    }
    assert!(said.contains("127.0.0.1 over weft0, 3 streams"), "{said}");
}

#[test]
fn who_sleeps_moves_data_too() {
    let server = Server::start(&[]);
    for (transport, _) in TRANSPORTS {
        for operation in ["send", "write"] {
            let line = format!("--transport {transport} --op {operation} --events -n 500 -b");
            let run = &server.json(&line)["runs"][0];
            assert_eq!(run["up"]["messages"], 500);
            assert_eq!(run["down"]["messages"], 500);
        }
    }
}
