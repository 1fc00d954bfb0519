//! Reports: lines while a test runs and a table of results, or one JSON document at the end.

use std::io::{Write, stdout};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use weft_units::show_bytes_exactly;

use crate::client::ClientOptions;
use crate::control::SideTotals;
use crate::histogram::{LatencyHistogram, Percentiles};
use crate::run::{Interval, TestResult};
use crate::test::{Test, TestAmount};

/// Version of the JSON document.
const SCHEMA: u32 = 1;
/// Shortest interval that gets a line, as a share of a whole one.
const SHORT: f64 = 0.2;

/// The report of a client.
pub struct ClientReport {
    json: bool,
    /// Whether there is a table of several sizes instead of lines for each interval.
    sweep: bool,
    /// Whether lines for intervals have their head.
    headed: bool,
    server: Value,
    device: String,
    runs: Vec<Value>,
    intervals: Vec<Value>,
    interrupted: bool,
}

impl ClientReport {
    /// Nothing is said yet.
    pub fn new(options: &ClientOptions) -> Self {
        Self {
            json: options.json,
            sweep: options.tests.len() > 1,
            headed: false,
            server: json!({ "host": options.host, "port": options.port }),
            device: String::new(),
            runs: Vec::new(),
            intervals: Vec::new(),
            interrupted: false,
        }
    }

    /// All streams of a test are connected.
    ///
    /// # Errors
    /// Stdout takes nothing.
    pub fn begin(&mut self, test: &Test, device: &str) -> Result<()> {
        device.clone_into(&mut self.device);
        self.intervals.clear();
        if !self.runs.is_empty() || self.json {
            return Ok(());
        }
        let host = self.server["host"].as_str().unwrap_or_default();
        let size = if self.sweep {
            String::new()
        } else {
            format!(" of {}", show_bytes_exactly(test.bytes.into()))
        };
        let what = if test.latency { " latency" } else { "" };
        let way = if test.latency { "" } else { way(test) };
        let mut text =
            format!("weft perf: {}{what}{size}{way}, {host} over {device}", test.operation);
        if !test.latency {
            let (streams, s) = (test.streams, if test.streams == 1 { "" } else { "s" });
            text += &format!(", {streams} stream{s}, {} outstanding", test.depth);
        }
        self.print(&text)?;
        if self.sweep { self.print(&table_head(test)) } else { Ok(()) }
    }

    /// An interval is over.
    ///
    /// # Errors
    /// Stdout takes nothing.
    pub fn interval(&mut self, test: &Test, interval: &Interval) -> Result<()> {
        let percentiles = interval.times.as_ref().and_then(LatencyHistogram::percentiles);
        if self.json {
            self.intervals.push(interval_json(test, interval, percentiles));
            return Ok(());
        }
        // A short rest of an interval at the end says little.
        let rest = interval.to_s - interval.from_s < test.interval_s * SHORT;
        if self.sweep || rest {
            return Ok(());
        }
        if !std::mem::replace(&mut self.headed, true) {
            self.print(&interval_head(test))?;
        }
        let Interval { from_s, to_s, own, theirs, omitted, .. } = *interval;
        let mut line = format!("{from_s:7.1} -{to_s:6.1}");
        if test.latency {
            let p = percentiles;
            let us = |take: fn(&Percentiles) -> f64| p.as_ref().map(take);
            line += &format!("{own:12}");
            for value in [us(|p| p.p50_us), us(|p| p.p99_us), us(|p| p.max_us)] {
                line += &value.map_or(format!("{:>10}", "-"), show_us);
            }
        } else {
            let seconds = to_s - from_s;
            let [own, theirs] = [own, theirs].map(|count| rate(test, count, seconds));
            line += &rates(test, own, theirs);
        }
        self.print(&(line + if omitted { "  left out" } else { "" }))
    }

    /// A test is over.
    ///
    /// # Errors
    /// Stdout takes nothing.
    pub fn end(&mut self, test: &Test, ended: &TestResult) -> Result<()> {
        self.interrupted |= ended.stopped;
        let intervals = std::mem::take(&mut self.intervals);
        self.runs.push(run_json(test, ended, &self.device, intervals));
        if self.json {
            return Ok(());
        }
        if !self.sweep {
            self.print(&format!("\n{}", table_head(test)))?;
        }
        self.print(&table_row(test, ended))?;
        for line in notes(test, ended) {
            self.print(&line)?;
        }
        Ok(())
    }

    /// Nothing more is measured, perhaps because of an error.
    ///
    /// # Errors
    /// Stdout takes nothing.
    pub fn finish(&mut self, error: Option<&anyhow::Error>) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let mut document = json!({
            "weft_perf": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "server": self.server,
            "interrupted": self.interrupted,
            "runs": self.runs,
        });
        if let Some(error) = error {
            document["error"] = format!("{error:#}").into();
        }
        let text = serde_json::to_string_pretty(&document)?;
        writeln!(stdout(), "{text}").context("writing to stdout")
    }

    fn print(&self, text: &str) -> Result<()> {
        let mut out = stdout();
        writeln!(out, "{text}").and_then(|()| out.flush()).context("writing to stdout")
    }
}

/// What a server says of a test that it has served.
pub fn served(test: &Test, device: &str, ended: &TestResult) -> String {
    let size = show_bytes_exactly(test.bytes.into());
    let head = format!("{} of {size} over {device}", test.operation);
    let own = test.down.then_some(&ended.own);
    let theirs = test.up.then_some(&ended.theirs);
    if test.latency {
        return format!("{head}: {} one by one", ended.theirs.messages());
    }
    let gbps = |moved: &SideTotals| rate(test, moved.messages(), moved.seconds).gbps;
    let up = theirs.map(|moved| format!("{:.3} Gbit/s up", gbps(moved)));
    let down = own.map(|moved| format!("{:.3} Gbit/s down", gbps(moved)));
    format!("{head}: {}", up.into_iter().chain(down).collect::<Vec<_>>().join(", "))
}

fn way(test: &Test) -> &'static str {
    match (test.up, test.down) {
        (true, true) => " both ways",
        (false, true) => " by the server",
        _ => "",
    }
}

/// A rate of messages, and what it means.
#[derive(Clone, Copy, Debug)]
struct Rate {
    gbps: f64,
    per_s: f64,
}

fn rate(test: &Test, messages: u64, seconds: f64) -> Rate {
    let per_s = if seconds > 0.0 { messages as f64 / seconds } else { 0.0 };
    Rate { gbps: per_s * f64::from(test.bytes) * 8.0 / 1e9, per_s }
}

/// Direction: requests of the client, of the server, or of both.
fn rates(test: &Test, up: Rate, down: Rate) -> String {
    let shown = [(test.up, up), (test.down, down)].into_iter().filter(|(there, _)| *there);
    shown.map(|(_, rate)| format!("{:12.3}{:13.0}", rate.gbps, rate.per_s)).collect()
}

fn rates_head(test: &Test) -> String {
    let names = match (test.up, test.down) {
        (true, true) => &["up Gbit/s", "messages/s", "down Gbit/s", "messages/s"][..],
        _ => &["Gbit/s", "messages/s"],
    };
    let columns = names.iter().enumerate();
    columns.map(|(at, name)| format!("{name:>0$}", [12, 13][at % 2])).collect()
}

fn interval_head(test: &Test) -> String {
    let columns = if test.latency {
        format!("{:>12}{:>10}{:>10}{:>10}", "messages", "p50 us", "p99 us", "max us")
    } else {
        rates_head(test)
    };
    format!("{:>15}{columns}", "seconds")
}

fn table_head(test: &Test) -> String {
    if test.latency {
        let columns = ["min us", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max us"];
        let columns: String = columns.iter().map(|name| format!("{name:>10}")).collect();
        return format!("{:>8}{:>12}{columns}", "size", "messages");
    }
    let rates = rates_head(test);
    format!("{:>8}{:>9}{rates}{:>14}{:>14}", "size", "seconds", "CPU s/GB here", "there")
}

fn table_row(test: &Test, ended: &TestResult) -> String {
    let size = show_bytes_exactly(test.bytes.into());
    if test.latency {
        let Some(p) = ended.times.percentiles() else { return format!("{size:>8}{:>12}", 0) };
        let values =
            [p.min_us, p.mean_us, p.p50_us, p.p90_us, p.p99_us, p.p999_us, p.p9999_us, p.max_us];
        return format!("{size:>8}{:>12}{}", p.count, values.map(show_us).concat());
    }
    let (own, theirs) = (&ended.own, &ended.theirs);
    let [up, down] = [own, theirs].map(|moved| rate(test, moved.messages(), moved.seconds));
    let seconds = if test.up { own.seconds } else { theirs.seconds };
    let [here, there] = costs(test, ended).map(|cost| match cost {
        Some(cost) => format!("{cost:14.3}"),
        None => format!("{:>14}", "-"),
    });
    format!("{size:>8}{seconds:9.2}{}{here}{there}", rates(test, up, down))
}

fn show_us(us: f64) -> String {
    let places = if us < 1000.0 { 2 } else { 0 };
    format!("{us:10.places$}")
}

/// CPU seconds per gigabyte, of this side and the other; data of both directions counts.
fn costs(test: &Test, ended: &TestResult) -> [Option<f64>; 2] {
    let messages = ended.own.total() as f64 + ended.theirs.total() as f64;
    let gigabytes = messages * f64::from(test.bytes) / 1e9;
    ended.cpu_s.map(|cpu_s| (gigabytes > 0.0).then(|| cpu_s / gigabytes))
}

fn notes(test: &Test, ended: &TestResult) -> Vec<String> {
    let mut notes = Vec::new();
    if test.omit_s > 0.0 && !test.latency {
        let ramp = |moved: &SideTotals| rate(test, moved.ramp_messages, moved.ramp_s).gbps;
        let sum = ramp(&ended.own) + ramp(&ended.theirs);
        notes.push(format!("left out: the first {} s, with {sum:.3} Gbit/s", test.omit_s));
    }
    if let Some(p) = ended.ramp_times.percentiles() {
        let (count, p50) = (p.count, p.p50_us);
        notes.push(format!("left out: the first {count} messages, p50 {p50:.2} us"));
    }
    if test.verify {
        let verdict = ended.verdict;
        notes
            .push(format!("data: {} messages looked at, {} wrong", verdict.checked, verdict.wrong));
    }
    if ended.stopped {
        notes.push(String::from("ended early"));
    }
    notes
}

fn percentiles_json(percentiles: Option<Percentiles>) -> Value {
    percentiles.map_or(Value::Null, |p| json!(p))
}

fn interval_json(test: &Test, interval: &Interval, percentiles: Option<Percentiles>) -> Value {
    let seconds = interval.to_s - interval.from_s;
    let mut value = json!({
        "from_s": interval.from_s,
        "to_s": interval.to_s,
        "omitted": interval.omitted,
    });
    let sides = [("up", test.up, interval.own), ("down", test.down, interval.theirs)];
    for (name, _, messages) in sides.into_iter().filter(|side| side.1) {
        let Rate { gbps, .. } = rate(test, messages, seconds);
        value[name] = json!({ "messages": messages, "gbps": gbps });
    }
    if test.latency {
        value["latency"] = percentiles_json(percentiles);
    }
    value
}

fn moved_json(test: &Test, moved: &SideTotals) -> Value {
    let Rate { gbps, per_s } = rate(test, moved.messages(), moved.seconds);
    let ramp = rate(test, moved.ramp_messages, moved.ramp_s);
    json!({
        "messages": moved.messages(),
        "bytes": moved.messages() as f64 * f64::from(test.bytes),
        "seconds": moved.seconds,
        "gbps": gbps,
        "messages_per_s": per_s,
        "streams": moved.streams,
        "omitted": { "messages": moved.ramp_messages, "seconds": moved.ramp_s, "gbps": ramp.gbps },
    })
}

fn run_json(test: &Test, ended: &TestResult, device: &str, intervals: Vec<Value>) -> Value {
    let [here, there] = costs(test, ended);
    let amount = match test.amount {
        TestAmount::Seconds(seconds) => json!({ "seconds": seconds }),
        TestAmount::Messages(messages) => json!({ "messages": messages }),
    };
    let mut value = json!({
        "device": device,
        "operation": test.operation,
        "bytes": test.bytes,
        "streams": test.streams,
        "depth": if test.latency { 1 } else { test.depth },
        "events": test.events,
        "amount": amount,
        "stopped": ended.stopped,
        "intervals": intervals,
        "cpu": {
            "here_s": ended.cpu_s[0],
            "there_s": ended.cpu_s[1],
            "here_s_per_gb": here,
            "there_s_per_gb": there,
        },
    });
    let sides = [("up", test.up, &ended.own), ("down", test.down, &ended.theirs)];
    for (name, _, moved) in sides.into_iter().filter(|side| side.1) {
        value[name] = moved_json(test, moved);
    }
    if test.latency {
        value["latency"] = percentiles_json(ended.times.percentiles());
        value["latency_omitted"] = percentiles_json(ended.ramp_times.percentiles());
        let buckets: Vec<_> = ended.times.buckets().map(<[u64; 3]>::from).collect();
        value["histogram_ns"] = json!(buckets);
    }
    if test.verify {
        let verdict = ended.verdict;
        value["data"] = json!({ "checked": verdict.checked, "wrong": verdict.wrong });
    }
    value
}
