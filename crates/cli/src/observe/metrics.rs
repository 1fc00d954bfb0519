//! `weft metrics`: counters and gauges as OpenMetrics text (version 1.0.0).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use weft_observe::{Counters, DeviceReport, DeviceType, ReaderAnswer};

use super::sample::Sample;
use super::{MetricsOptions, directory, http};

/// Prints them, or serves them until this process is ended.
///
/// # Errors
/// Nobody reads them, the address cannot be served, or the processes are not to be seen
/// ([`Sample::take`]).
pub fn main(options: &MetricsOptions) -> Result<()> {
    let last = Mutex::new(LastCounters::default());
    let metrics = move || -> io::Result<String> {
        let sample = Sample::take(&directory())?;
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        last.note(&sample);
        Ok(text(&sample, &last))
    };
    match &options.listen {
        Some(at) => http::serve(at, metrics),
        None => Ok(io::stdout().write_all(metrics()?.as_bytes())?),
    }
}

/// What each process has said last of its devices: one that is too slow to answer, or stopped, has
/// not undone what it did.
#[derive(Default)]
struct LastCounters(HashMap<u32, Vec<DeviceReport>>);

impl LastCounters {
    fn note(&mut self, sample: &Sample) {
        let mut before = std::mem::take(&mut self.0);
        for seen in &sample.seen {
            let devices = match &seen.answer {
                ReaderAnswer::Report(report) => Some(report.devices.clone()),
                ReaderAnswer::Silent | ReaderAnswer::Nonsense => before.remove(&seen.pid),
            };
            self.0.extend(devices.map(|devices| (seen.pid, devices)));
        }
    }
}

/// What each counter counts.
const HELP: [(&str, &str); 15] = [
    ("connections", "Ends of connections that were made"),
    ("operations", "Requests that completed without an error"),
    ("bytes_out", "Bytes of payload sent"),
    ("bytes_in", "Bytes of payload placed"),
    ("segments_out", "DDP segments sent"),
    ("segments_in", "DDP segments received"),
    ("packets_out", "Packets sent"),
    ("packets_in", "Packets received"),
    ("resent", "Segments sent again"),
    ("lost", "Packets declared lost"),
    ("spurious", "Packets declared lost that arrived after all"),
    ("duplicates", "Segments received twice"),
    ("timeouts", "Probe timeouts"),
    ("peer_drops", "Packets dropped by the host of the peer"),
    ("foreign", "Datagrams that were not authentic"),
];

fn text(sample: &Sample, last: &LastCounters) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "# TYPE weft_processes gauge\n# HELP weft_processes Processes seen.");
    let _ = writeln!(text, "weft_processes {}", sample.seen.len());
    let devices = devices(sample, last);
    for (name, help) in HELP {
        let _ = writeln!(text, "# TYPE weft_{name} counter\n# HELP weft_{name} {help}.");
        for device in &devices {
            let value = device.counters.named().find(|(known, _)| *known == name);
            let value = value.map_or(0, |(_, value)| value);
            let _ =
                writeln!(text, "weft_{name}_total{{device=\"{}\"}} {value}", label(&device.name));
        }
    }
    connections(&mut text, sample);
    text + "# EOF\n"
}

/// The devices, with what was done over each by all processes. Of a kind that nobody has used the
/// usual one is among them.
fn devices(sample: &Sample, last: &LastCounters) -> Vec<DeviceReport> {
    let mut devices = sample.ended.devices().to_vec();
    for seen in last.0.values().flatten() {
        match devices.iter_mut().find(|device| device.name == seen.name) {
            Some(device) => device.counters.add(&seen.counters),
            None => devices.push(seen.clone()),
        }
    }
    for (kind, name) in [(DeviceType::Roce, "weft0"), (DeviceType::Iwarp, "weft_iw0")] {
        if devices.iter().all(|device| device.kind != kind) {
            let (name, counters) = (name.to_owned(), Counters::default());
            devices.push(DeviceReport { kind, name, counters });
        }
    }
    devices.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    devices
}

fn connections(text: &mut String, sample: &Sample) {
    type Value = fn(&weft_observe::ConnReport) -> f64;
    let families: [(&str, &str, Value); 7] = [
        ("rtt_seconds", "Smoothed round trip", |conn| conn.gauges.rtt_ns as f64 / 1e9),
        ("window_bytes", "What may be in flight", |conn| conn.gauges.window_bytes as f64),
        ("in_flight_bytes", "What is in flight", |conn| conn.gauges.in_flight_bytes as f64),
        ("sends", "Requests posted and not complete", |conn| conn.gauges.sends as f64),
        ("recvs", "Receives posted", |conn| conn.gauges.recvs as f64),
        ("sent_bytes", "Bytes of payload sent", |conn| conn.counters.bytes_out as f64),
        ("received_bytes", "Bytes of payload placed", |conn| conn.counters.bytes_in as f64),
    ];
    for (name, help, value) in families {
        let _ = writeln!(
            text,
            "# TYPE weft_connection_{name} gauge\n# HELP weft_connection_{name} {help}."
        );
        for process in sample.reports() {
            for conn in &process.connections {
                let _ = writeln!(
                    text,
                    "weft_connection_{name}{{pid=\"{}\",process=\"{}\",device=\"{}\",qpn=\"{}\",\
                     peer=\"{}\",limit=\"{}\"}} {}",
                    process.pid,
                    label(&process.name),
                    label(&conn.device),
                    conn.qpn,
                    label(&conn.peer),
                    conn.limit,
                    value(conn)
                );
            }
        }
    }
}

/// A value between quotes.
fn label(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_observe::{ConnReport, PastSums, ProcessReport, ReaderAnswer, SeenProcess};

    /// The metrics while process 5 answers so.
    fn said(last: &mut LastCounters, answer: ReaderAnswer) -> String {
        let seen = vec![SeenProcess { pid: 5, answer }];
        let sample = Sample { at: weft_os::clock::now(), seen, ended: PastSums::default() };
        last.note(&sample);
        text(&sample, last)
    }

    #[test]
    fn a_counter_does_not_go_back_while_a_process_is_silent() {
        let counters = Counters { bytes_in: 7, ..Counters::default() };
        let device = DeviceReport { name: "mine".into(), counters, ..Default::default() };
        let report = ProcessReport { pid: 5, devices: vec![device], ..ProcessReport::default() };
        let mut last = LastCounters::default();
        let line = "weft_bytes_in_total{device=\"mine\"} 7\n";
        for answer in
            [ReaderAnswer::Report(Box::new(report)), ReaderAnswer::Silent, ReaderAnswer::Silent]
        {
            let text = said(&mut last, answer);
            assert!(text.contains(line), "{text}");
        }
        let gone =
            Sample { at: weft_os::clock::now(), seen: Vec::new(), ended: PastSums::default() };
        last.note(&gone);
        assert!(!text(&gone, &last).contains("mine"));
    }

    #[test]
    fn counters_have_all_names_and_labels_are_quoted() {
        let named: Vec<&str> = Counters::default().named().map(|(name, _)| name).collect();
        assert_eq!(named, HELP.map(|(name, _)| name));
        let counters = Counters { bytes_out: 7, ..Counters::default() };
        let report = ProcessReport {
            pid: 5,
            name: "a\"b\\".into(),
            devices: vec![DeviceReport { name: "mine".into(), counters, ..Default::default() }],
            connections: vec![ConnReport { qpn: 3, ..ConnReport::default() }],
            ..ProcessReport::default()
        };
        let text = said(&mut LastCounters::default(), ReaderAnswer::Report(Box::new(report)));
        assert!(text.contains("weft_bytes_out_total{device=\"mine\"} 7\n"), "{text}");
        assert!(text.contains("weft_bytes_out_total{device=\"weft_iw0\"} 0\n"), "{text}");
        assert!(text.contains("process=\"a\\\"b\\\\\",device"), "{text}");
        assert!(text.ends_with("\n# EOF\n"));
    }
}
