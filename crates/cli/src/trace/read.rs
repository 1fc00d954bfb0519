//! The records of a trace, as curves.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What stands before each record.
const SEPARATOR: u8 = 0x1e;
/// Bytes of a record, at most; those of Weft have a few hundred.
const RECORD_OCTETS_MAX: u64 = 1 << 20;

/// A curve: seconds, and what was measured then.
pub type Samples = Vec<(f64, f64)>;

/// What a trace says.
#[derive(Debug, Default)]
pub struct TracedRun {
    /// The program and its process.
    pub title: String,
    /// Its queue pairs, by their numbers.
    pub qps: BTreeMap<String, TracedQp>,
    /// Seconds and names of asynchronous events.
    pub events: Vec<(f64, String)>,
    /// The seconds of the last event.
    pub end_s: f64,
}

/// What a trace says of a queue pair.
#[derive(Debug, Default)]
pub struct TracedQp {
    /// Addresses of both ends, if they were told.
    pub ends: String,
    /// Bytes of payload sent and received so far.
    pub bytes_out: Samples,
    /// The same of what was received.
    pub bytes_in: Samples,
    /// Smoothed round trip, in milliseconds.
    pub rtt_ms: Samples,
    /// The least so far.
    pub min_rtt_ms: Samples,
    /// Bytes that may be in flight, and that are.
    pub window: Samples,
    /// Those that are.
    pub in_flight: Samples,
    /// Packets lost so far.
    pub lost: Samples,
    /// Packets sent and received.
    pub packets: [u64; 2],
    /// Requests posted, and completions that were polled.
    pub posts: u64,
    /// Completions, and those of them that failed.
    pub completions: u64,
    /// Seconds and status of those that failed.
    pub failures: Vec<(f64, u64)>,
    /// Seconds, and the states from and to.
    pub states: Vec<(f64, String)>,
}

#[derive(Deserialize)]
struct TraceRecord {
    time: f64,
    name: String,
    #[serde(default)]
    group_id: String,
    data: Value,
}

/// Reads a JSON text sequence of qlog, record by record. One that is cut short is left out.
///
/// # Errors
/// It does not begin as such a trace does, or cannot be read.
pub fn read(mut input: impl BufRead) -> Result<TracedRun> {
    let mut octets = Vec::new();
    let is_sequence = next_record(&mut input, &mut octets)? && octets == [SEPARATOR];
    let has_head = is_sequence && next_record(&mut input, &mut octets)?;
    let head: Option<Value> = has_head.then(|| parse(&octets)).flatten();
    let Some(head) = head.filter(|head| head["qlog_format"] == "JSON-SEQ") else {
        bail!("it does not begin with the head of qlog in JSON-SEQ");
    };
    let mut run =
        TracedRun { title: head["title"].as_str().unwrap_or("").into(), ..TracedRun::default() };
    while next_record(&mut input, &mut octets)? {
        if let Some(record) = parse::<TraceRecord>(&octets) {
            run.take(&record);
        }
    }
    Ok(run)
}

/// Reads what comes before the next separator, and that, or a part of what is too long for a
/// record; whether there was anything.
fn next_record(input: &mut impl BufRead, octets: &mut Vec<u8>) -> Result<bool> {
    octets.clear();
    let mut input = input.take(RECORD_OCTETS_MAX);
    Ok(input.read_until(SEPARATOR, octets).context("cannot read it")? > 0)
}

fn parse<T: DeserializeOwned>(octets: &[u8]) -> Option<T> {
    let text = String::from_utf8_lossy(octets.strip_suffix(&[SEPARATOR]).unwrap_or(octets));
    serde_json::from_str(text.trim()).ok()
}

impl TracedRun {
    fn take(&mut self, record: &TraceRecord) {
        let at_s = record.time / 1e3;
        self.end_s = self.end_s.max(at_s);
        let text = |key: &str| record.data[key].as_str().unwrap_or_default();
        if record.group_id.is_empty() {
            self.events.push((at_s, text("type").into()));
            return;
        }
        self.qps.entry(record.group_id.clone()).or_default().take(at_s, record);
    }
}

impl TracedQp {
    fn take(&mut self, at_s: f64, record: &TraceRecord) {
        let data = &record.data;
        match record.name.as_str() {
            "connectivity:connection_started" => {
                let end = |ip: &str, port: &str| {
                    format!("{}:{}", data[ip].as_str().unwrap_or("?"), data[port])
                };
                self.ends =
                    format!("{} to {}", end("src_ip", "src_port"), end("dst_ip", "dst_port"));
            }
            "transport:packet_sent" => self.packets[0] += 1,
            "transport:packet_received" => self.packets[1] += 1,
            "recovery:metrics_updated" => self.measure(at_s, data),
            "verbs:post_send" | "verbs:post_recv" => self.posts += 1,
            "verbs:completion" => {
                self.completions += 1;
                let status = data["status"].as_u64().unwrap_or(0);
                if status != 0 {
                    self.failures.push((at_s, status));
                }
            }
            "verbs:state_updated" => {
                let state = |key: &str| data[key].as_str().unwrap_or("?").to_owned();
                self.states.push((at_s, format!("{} to {}", state("old"), state("new"))));
            }
            _ => {}
        }
    }

    fn measure(&mut self, at_s: f64, data: &Value) {
        let sample = |curve: &mut Samples, key: &str, zero_counts: bool| {
            let value = data[key].as_f64().unwrap_or(0.0);
            if zero_counts || value > 0.0 {
                curve.push((at_s, value));
            }
        };
        sample(&mut self.bytes_out, "x_bytes_out", true);
        sample(&mut self.bytes_in, "x_bytes_in", true);
        sample(&mut self.lost, "x_lost", true);
        sample(&mut self.rtt_ms, "smoothed_rtt", false);
        sample(&mut self.min_rtt_ms, "min_rtt", false);
        sample(&mut self.window, "congestion_window", false);
        sample(&mut self.in_flight, "bytes_in_flight", true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_curves_and_one_that_is_cut_short_is_left_out() {
        let text = "\u{1e}{\"qlog_format\":\"JSON-SEQ\",\"title\":\"a\"}\n\
            \u{1e}{\"time\":1000,\"name\":\"recovery:metrics_updated\",\"group_id\":\"0x1\",\
            \"data\":{\"smoothed_rtt\":70.5,\"x_bytes_out\":9}}\n\
            \u{1e}{\"time\":2000,\"name\":\"verbs:completion\",\"group_id\":\"0x1\",\
            \"data\":{\"status\":12}}\n\
            \u{1e}{\"time\":2500,\"name\":\"verbs:async_event\",\"data\":{\"type\":\"QpFatal\"}}\n\
            \u{1e}{\"time\":3000,\"name\":\"ver";
        let run = read(text.as_bytes()).unwrap();
        assert_eq!((run.title.as_str(), run.end_s), ("a", 2.5));
        assert_eq!(run.events, [(2.5, "QpFatal".into())]);
        let qp = &run.qps["0x1"];
        assert_eq!(qp.rtt_ms, [(1.0, 70.5)]);
        assert_eq!(qp.bytes_out, [(1.0, 9.0)]);
        assert!(qp.window.is_empty());
        assert_eq!((qp.completions, &qp.failures[..]), (1, &[(2.0, 12)][..]));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for text in ["", "{}", "\u{1e}", "\u{1e}{\"qlog_format\":\"JSON\"}"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
