//! Message patterns between two processes, over one of Weft's devices or over kernel TCP, on
//! loopback or across a path.
//!
//! Over a device it is a small verbs program in C that knows nothing of Weft; over TCP one of the
//! floors. Either prints one line of JSON on the side that connects.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use super::{BenchProbe, P50};
use crate::lab::{BenchLab, is_installed};
use crate::pair::ServerEnds;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

const PEER: &str = include_str!("../../c/peer.h");

/// Keeps a connection on the network stack where both ends are on one host.
pub const LANE: &str = "WEFT_LANE";
/// The value that does so.
pub const OFF: &str = "off";

/// Address of the far side of a path.
const FAR: &str = "10.77.0.2";
/// The port of servers on the far side, where nobody else is.
const FAR_PORT: u16 = 5201;

/// Transport of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternTransport {
    /// `weft_iw0`.
    Iwarp,
    /// `weft0`.
    Shuttle,
    /// Kernel TCP sockets.
    Tcp,
    /// TCP sockets over SDP.
    Sdp {
        /// Which mode of SDP.
        style: StyleChoice,
        /// Whether over `weft_iw0`, else over `weft0`.
        iwarp: bool,
    },
}

/// Mode of SDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StyleChoice {
    /// Basic: with buffers and credits of its own.
    Basic,
    /// Enhanced: without the functions that the layer below has.
    Enhanced,
}

impl PatternTransport {
    /// The two modes of SDP, the basic one first, over `weft_iw0` or over `weft0`.
    pub const fn sdp(iwarp: bool) -> [Self; 2] {
        [
            Self::Sdp { style: StyleChoice::Basic, iwarp },
            Self::Sdp { style: StyleChoice::Enhanced, iwarp },
        ]
    }

    /// Label of its curve.
    pub fn label(self) -> &'static str {
        match self {
            Self::Iwarp => "Weft over iWARP",
            Self::Shuttle => "Weft over Shuttle",
            Self::Tcp => "kernel TCP",
            Self::Sdp { style: StyleChoice::Basic, iwarp: true } => "basic SDP over iWARP",
            Self::Sdp { style: StyleChoice::Enhanced, iwarp: true } => "enhanced SDP over iWARP",
            Self::Sdp { style: StyleChoice::Basic, iwarp: false } => "basic SDP over Shuttle",
            Self::Sdp { style: StyleChoice::Enhanced, iwarp: false } => "enhanced SDP over Shuttle",
        }
    }

    /// What it connects by, as `WEFT_TRANSPORT` has it.
    pub fn transport(self) -> &'static str {
        match self {
            Self::Iwarp | Self::Sdp { iwarp: true, .. } => "iwarp",
            _ => "shuttle",
        }
    }

    /// Runs a sockets program over this transport, with diagnostics on.
    pub fn carry(self, program: Spec, lab: &BenchLab) -> Spec {
        let Self::Sdp { style, .. } = self else { return program };
        let style = if style == StyleChoice::Basic { "basic" } else { "auto" };
        program
            // On one host there would be no SDP, and no lane is measured.
            .env("WEFT_SOCKETS_RULES", "use sdp * * *:*")
            .env(LANE, OFF)
            .env("WEFT_SOCKETS_STYLE", style)
            .env("WEFT_SOCKETS_VERBOSE", "on")
            // Several processes on two CPUs answer late.
            .env("WEFT_SOCKETS_PATIENCE_MS", "5000")
            .env("WEFT_TRANSPORT", self.transport())
            .carried(&lab.weft)
    }

    /// Looks whether every connection went this way, in what a program said on stderr.
    ///
    /// # Errors
    /// One of them did not.
    pub fn check(self, said: &str) -> Result<()> {
        let Self::Sdp { style, .. } = self else { return Ok(()) };
        let style = if style == StyleChoice::Basic { ", basic" } else { ", enhanced" };
        let mut ends = said.lines().filter(|line| !line.contains(" listens at "));
        let right = ends.clone().count() > 0
            && ends.all(|line| line.contains(": SDP over ") && line.ends_with(style));
        ensure!(right, "not all connections went by {}:\n{said}", self.label());
        Ok(())
    }

    /// Whether the program is one of sockets.
    fn is_of_sockets(self) -> bool {
        matches!(self, Self::Tcp | Self::Sdp { .. })
    }
}

/// A program over verbs, and what it is over sockets.
#[derive(Clone, Copy, Debug)]
pub struct PatternProgram {
    /// What the C program is called, and its text.
    pub verbs: (&'static str, &'static str),
    /// The program's own name for the pattern.
    pub pattern: &'static str,
    /// The floor and its options; `{}` is the number.
    pub floor: &'static str,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Pattern {
    way: PatternTransport,
    program: PatternProgram,
    number: u64,
    /// What distinguishes it from the same pattern elsewhere.
    variant: String,
    permits_lane: bool,
    label: Option<String>,
    path: Option<String>,
    environment: Vec<(&'static str, String)>,
}

impl Pattern {
    /// `program` with one number, which is bytes or whatever it takes.
    pub fn new(way: PatternTransport, program: PatternProgram, number: u64) -> Self {
        let variant = String::new();
        let (label, path, environment) = (None, None, Vec::new());
        let permits_lane = false;
        Self { way, program, number, variant, permits_lane, label, path, environment }
    }

    /// The same by shared memory, where Weft uses it on one host.
    pub fn permitting_lane(mut self) -> Self {
        self.permits_lane = true;
        self.variant += ", one host";
        self
    }

    /// The same under another name.
    pub fn called(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }

    /// The same across a path, in the words of `weft wan`.
    pub fn across(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// The same with a variable of the environment.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variant += &format!(", {name}={value}");
        self.environment.push((name, value.to_owned()));
        self
    }

    fn side(&self, lab: &BenchLab, role: &str, address: &str, port: u16) -> Result<Spec> {
        let (number, seconds) = (self.number, lab.seconds);
        let mut spec = if self.way.is_of_sockets() {
            let floor = self.program.floor.replace("{}", &number.to_string());
            let line = format!("floor {floor} --{role} {address}:{port} --seconds {seconds}");
            self.way.carry(lab.own().args(&line), lab)
        } else {
            let (name, source) = self.program.verbs;
            let program = lab.build(name, source, &["-libverbs", "-lrdmacm", "-lpthread"])?;
            let pattern = self.program.pattern;
            let line = format!("{role} {address} {port} {seconds} {pattern} {number}");
            Spec::at(&program).args(&line).under(&lab.weft)
        };
        spec = spec.env("WEFT_TRANSPORT", self.way.transport());
        if !self.permits_lane {
            spec = spec.env(LANE, OFF);
        }
        for (name, value) in &self.environment {
            spec = spec.env(name, value);
        }
        Ok(spec)
    }

    /// What the side that connects prints; on loopback also the CPU time of both.
    fn said(&self, lab: &BenchLab) -> Result<(String, Option<f64>)> {
        let side = |role: &str, address: &str, port| self.side(lab, role, address, port);
        let Some(path) = &self.path else {
            // Built before, so that the sides only start.
            side("listen", &lab.address, 0)?;
            let specs = |port| {
                let both = ["listen", "connect"].map(|role| side(role, &lab.address, port));
                let [server, client] = both.map(|spec| spec.expect("it has just been built"));
                (server, client)
            };
            let pair = lab.pair(ServerEnds::ByItself, specs)?;
            self.way.check(&pair.client.stderr)?;
            let cpu_s = pair.cpu().as_secs_f64();
            return Ok((pair.client.stdout, Some(cpu_s)));
        };
        let sides = [side("listen", "0.0.0.0", FAR_PORT)?, side("connect", FAR, FAR_PORT)?];
        let [server, client] = lab.placed(sides).map(|spec| spec.shell());
        // Without a shell in between, the kernel kills them with `weft wan`.
        let [server, client] = [server, client].map(|side| format!("exec {side}"));
        let spec = Spec::at(&lab.weft).args("wan").args(path).arg("--server").arg(&server);
        let spec = spec.args("-- sh -c").arg(&client);
        Ok((lab.alone(&spec)?.stdout, None))
    }
}

impl BenchProbe for Pattern {
    fn name(&self) -> String {
        if let Some(label) = &self.label {
            return label.clone();
        }
        let (way, pattern, number) = (self.way.label(), self.program.pattern, self.number);
        let path = self.path.as_ref().map_or(String::new(), |path| format!(" across {path}"));
        // A floor has variants that the pattern does not have.
        let floor = if self.way.is_of_sockets() { variant_of(self.program.floor) } else { "" };
        format!("{way}{floor}: {pattern} {number}{path}{}", self.variant)
    }

    fn program(&self) -> Option<&str> {
        (!self.way.is_of_sockets()).then_some("gcc")
    }

    fn lacks(&self) -> Option<String> {
        if self.path.is_some() && !Path::new("/dev/net/tun").exists() {
            return Some(String::from("there is no /dev/net/tun"));
        }
        let program = self.program().filter(|program| !is_installed(program));
        program.map(|program| format!("{program} is not installed"))
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let (said, cpu_s) = self.said(lab)?;
        let line = said.lines().rev().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("no report in\n{said}"))?;
        let report: Map<String, Value> = serde_json::from_str(line).context("reading a report")?;
        let calls = report.get("calls").and_then(Value::as_object).into_iter().flatten();
        let calls = calls.filter_map(|(call, us)| {
            Some(ProbeReading::new(self.call(call), ReadingUnit::Microseconds, us.as_f64()?))
        });
        let main = report.iter().filter_map(|(key, value)| self.reading(key, value));
        let bytes = report.get("bytes").and_then(Value::as_f64);
        let cost = cpu_s.zip(bytes).map(|(cpu_s, bytes)| {
            ProbeReading::new(
                self.cost(),
                ReadingUnit::CpuSecondsPerGigabyte,
                cpu_s / (bytes / 1e9),
            )
        });
        let taken: Vec<ProbeReading> = main.chain(calls).chain(cost).collect();
        ensure!(!taken.is_empty(), "nothing known in {line}");
        Ok(taken)
    }
}

impl Pattern {
    /// The series of the CPU time that both sides use for an amount of data.
    pub fn cost(&self) -> String {
        format!("{}, CPU", self.name())
    }

    /// The series of one of the calls that a program times.
    pub fn call(&self, call: &str) -> String {
        format!("{}: {call}", self.name())
    }

    fn reading(&self, key: &str, value: &Value) -> Option<ProbeReading> {
        if key == "p50" {
            let series = format!("{}{P50}", self.name());
            return Some(ProbeReading::new(series, ReadingUnit::Microseconds, value.as_f64()?));
        }
        let unit = match key {
            "us" => ReadingUnit::Microseconds,
            "gbps" => ReadingUnit::GigabitsPerSecond,
            "per_second" => ReadingUnit::UnitsPerSecond,
            "ratio" => ReadingUnit::Ratio,
            _ => return None,
        };
        Some(ProbeReading::new(self.name(), unit, value.as_f64()?))
    }
}

fn variant_of(floor: &str) -> &'static str {
    if floor.contains("--spin") { ", spinning" } else { "" }
}

/// Headers of the C programs, written to the same directory.
pub const HEADERS: [(&str, &str); 2] =
    [("peer.h", PEER), ("trips.h", include_str!("../../c/trips.h"))];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_by_tcp_does_not_count_as_sdp() {
        let sdp = |style| PatternTransport::Sdp { style, iwarp: false };
        let said = "weft: 1: listens at 127.0.0.1:1: SDP over Shuttle, and TCP\n\
                    weft: 1: accepted 127.0.0.1:2: SDP over Shuttle, enhanced\n";
        assert!(sdp(StyleChoice::Enhanced).check(said).is_ok());
        assert!(sdp(StyleChoice::Basic).check(said).is_err());
        assert!(sdp(StyleChoice::Enhanced).check("").is_err());
        let fell_back = format!("{said}weft: 1: connected to 127.0.0.1:3: TCP, no answer\n");
        assert!(sdp(StyleChoice::Enhanced).check(&fell_back).is_err());
        assert!(PatternTransport::Tcp.check("").is_ok());
    }

    #[test]
    fn a_name_says_all_that_differs() {
        let program = PatternProgram { verbs: ("p", ""), pattern: "pingpong", floor: "pingpong" };
        let name = |way, path: Option<&str>| {
            let pattern = Pattern::new(way, program, 64).with("WEFT_PROGRESS", "engine");
            path.map_or(pattern.clone(), |path| pattern.clone().across(path)).name()
        };
        let names = [
            name(PatternTransport::Iwarp, None),
            name(PatternTransport::Shuttle, None),
            name(PatternTransport::Tcp, None),
            name(PatternTransport::Tcp, Some("1ms")),
        ];
        assert_eq!(names[0], "Weft over iWARP: pingpong 64, WEFT_PROGRESS=engine");
        assert_eq!(names[3], "kernel TCP: pingpong 64 across 1ms, WEFT_PROGRESS=engine");
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }
}
