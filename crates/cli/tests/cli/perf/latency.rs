//! Messages one by one, and how long they take.

use super::{Server, TRANSPORTS};
use crate::common::text;

#[test]
fn every_operation_has_its_percentiles() {
    let server = Server::start(&[]);
    for (transport, device) in TRANSPORTS {
        for operation in ["send", "write", "read", "atomic"] {
            let line = format!("--transport {transport} --latency --op {operation} -n 300");
            let run = &server.json(&line)["runs"][0];
            assert_eq!(run["device"], device);
            let latency = &run["latency"];
            assert_eq!(latency["count"], 300, "{line}");
            let names = ["min_us", "p50_us", "p90_us", "p99_us", "p99.9_us", "p99.99_us", "max_us"];
            let values = names.map(|name| latency[name].as_f64().unwrap());
            assert!(values[0] > 0.0 && values.is_sorted(), "{line}: {latency}");
            let buckets = run["histogram_ns"].as_array().unwrap();
            let count: u64 = buckets.iter().map(|bucket| bucket[2].as_u64().unwrap()).sum();
            assert_eq!(count, 300);
        }
    }
}

#[test]
fn lines_come_while_it_runs() {
    let server = Server::start(&[]);
    let output = server.run("--latency --events -t 0.3 -i 0.1 -O 0.1");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert_eq!(said.lines().filter(|line| line.ends_with("left out")).count(), 1, "{said}");
    assert!(said.lines().filter(|line| line.contains(" - ")).count() >= 2, "{said}");
    assert!(said.contains("p99.99"), "{said}");
}
