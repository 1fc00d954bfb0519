//! `weft ss`: every connection once.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::{Map, Value, json};
use weft_observe::{ConnReport, ReaderAnswer, SeenProcess};

use super::figures::{scaled, share, table, time};
use super::sample::Sample;
use super::{SsOptions, directory};

/// Prints what there is.
///
/// # Errors
/// Nobody reads it, or the processes are not to be seen ([`Sample::take`]).
pub fn main(options: &SsOptions) -> Result<()> {
    let sample = Sample::take(&directory())?;
    let text = match options.json {
        true => serde_json::to_string_pretty(&json(&sample))? + "\n",
        false => text(&sample),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

const HEADING: [&str; 14] = [
    "PID", "PROCESS", "DEVICE", "QP", "STATE", "PEER", "BY", "SENDQ", "RECVQ", "SENT", "RECEIVED",
    "RTT", "LOSS", "LIMIT",
];
/// Columns of text.
const LEFT: [usize; 6] = [1, 2, 4, 5, 6, 13];

fn text(sample: &Sample) -> String {
    let mut rows = Vec::new();
    for process in sample.reports() {
        for conn in &process.connections {
            rows.push(row(process.pid, &process.name, conn));
        }
    }
    let mut text = table(HEADING, &LEFT, &rows);
    for seen in &sample.seen {
        if let Some(line) = remark(seen) {
            text += &line;
        }
    }
    text
}

/// What there is to say of a process besides its connections.
pub fn remark(seen: &SeenProcess) -> Option<String> {
    let pid = seen.pid;
    Some(match &seen.answer {
        ReaderAnswer::Silent => {
            format!("process {pid} does not answer: it is stopped, or overloaded\n")
        }
        ReaderAnswer::Nonsense => {
            format!("process {pid} answers nothing that this weft understands\n")
        }
        ReaderAnswer::Report(report) if report.left_out > 0 => {
            format!("process {pid} has {} more connections\n", report.left_out)
        }
        ReaderAnswer::Report(_) => return None,
    })
}

fn row(pid: u32, name: &str, conn: &ConnReport) -> [String; 14] {
    let (counters, gauges) = (&conn.counters, &conn.gauges);
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    [
        pid.to_string(),
        name.to_owned(),
        conn.device.clone(),
        format!("{:#x}", conn.qpn),
        conn.state.clone(),
        or_dash(&conn.peer),
        carrier(conn),
        gauges.sends.to_string(),
        gauges.recvs.to_string(),
        scaled(counters.bytes_out as f64),
        scaled(counters.bytes_in as f64),
        time(gauges.rtt_ns),
        share(counters.lost, counters.packets_out),
        conn.limit.to_string(),
    ]
}

/// What carries a connection, and by how many paths if there are several.
fn carrier(conn: &ConnReport) -> String {
    match conn.gauges.paths {
        0 | 1 => conn.carrier.clone(),
        paths => format!("{}*{paths}", conn.carrier),
    }
}

fn json(sample: &Sample) -> Value {
    sample.seen.iter().map(process).collect()
}

fn numbers(named: impl Iterator<Item = (&'static str, u64)>) -> Value {
    Value::Object(named.map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}

fn process(seen: &SeenProcess) -> Value {
    // Whoever looks for connections finds none of a process that says nothing.
    let without = |answer: &str| {
        let none: [Value; 0] = [];
        json!({ "pid": seen.pid, "answer": answer, "devices": none, "connections": none })
    };
    let report = match &seen.answer {
        ReaderAnswer::Report(report) => report,
        ReaderAnswer::Silent => return without("silent"),
        ReaderAnswer::Nonsense => return without("not understood"),
    };
    let device = |device: &weft_observe::DeviceReport| {
        json!({
            "name": device.name,
            "kind": device.kind.word(),
            "counters": numbers(device.counters.named()),
        })
    };
    json!({
        "pid": report.pid,
        "answer": "report",
        "name": report.name,
        "cpu_ns": report.cpu_ns,
        "connections_left_out": report.left_out,
        "devices": report.devices.iter().map(device).collect::<Vec<_>>(),
        "connections": report.connections.iter().map(connection).collect::<Vec<_>>(),
    })
}

fn connection(conn: &ConnReport) -> Value {
    json!({
        "device": conn.device,
        "qpn": conn.qpn,
        "type": conn.kind,
        "state": conn.state,
        "carrier": conn.carrier,
        "local": conn.local,
        "peer": conn.peer,
        "limit": conn.limit.word(),
        "counters": numbers(conn.counters.named()),
        "gauges": numbers(conn.gauges.named()),
    })
}
