//! How often the bytes of a stream of sockets are copied, and what that asks of a cache: counted
//! while they move, at each end by itself.
//!
//! The program is a floor that sends one amount out of one buffer and receives into another, and
//! copies nothing itself. DHAT, of valgrind, counts the bytes that are copied by memory-copying
//! functions of the program and its libraries, where they are no mere records; strace shows how
//! many bytes each system call took or gave, and the kernel copies each of them once. Cachegrind
//! reckons from every access what a cache like the paper's fetches and writes back; what the kernel
//! accesses it does not see. Where the CPU has counters that can be read, perf reads those.
//! Invariant: all of the amount arrived, and by the way that is measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::BenchProbe;
use super::pattern::PatternTransport;
use crate::lab::{BenchLab, is_installed};
use crate::pair::ServerEnds;
use crate::reading::{ProbeReading, ReadingUnit};

/// Quantity that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Copies of each byte, by the program with its libraries and by the kernel.
    Copies,
    /// Bytes that a cache of 512 KiB fetches or writes back for each byte, as cachegrind has it.
    Cache,
    /// The same of the CPU's last cache, as its counters have it, with the kernel's share.
    Counters,
}

/// An end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// Sender.
    Sender,
    /// Receiver.
    Receiver,
}

/// Both ends.
pub const ENDS: [CopyEnd; 2] = [CopyEnd::Sender, CopyEnd::Receiver];

impl CopyEnd {
    /// What it is called.
    pub fn label(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// One stream that is counted.
#[derive(Clone, Debug)]
pub struct CountedStream {
    way: PatternTransport,
    count: Count,
    call: u64,
    bytes: u64,
    /// What each tool counts while only one call is made: all that is done once. Sender, receiver.
    once: BTreeMap<&'static str, [f64; 2]>,
}

/// What counts while a program runs, writing to the file that follows, and reads what it wrote.
#[derive(Clone, Copy, Debug)]
struct Tool {
    line: &'static str,
    read: fn(&str) -> Option<f64>,
}

const DHAT: Tool = Tool {
    line: "valgrind --tool=dhat --mode=copy --log-file=/dev/null --dhat-out-file=",
    read: copied,
};
/// The system calls are those that move bytes between a program and the kernel.
const STRACE: Tool = Tool {
    line: "strace -f -qq -s 0 -e signal=none \
           -e trace=read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg -o ",
    read: moved,
};
/// The paper's cache: of 512 KiB.
const CACHEGRIND: Tool = Tool {
    line: "valgrind --tool=cachegrind --cache-sim=yes --LL=524288,8,64 \
           --cachegrind-out-file=/dev/null --log-file=",
    read: simulated,
};
const PERF: Tool = Tool { line: "perf stat -x , -e cache-misses -o ", read: missed };

/// How many seconds a stream may take; valgrind makes a program fifty times slower.
const PATIENCE_S: u64 = 80;
/// Where copies are shorter than so many bytes on average, they are of records that a program
/// keeps, and not of payload.
const RECORD: f64 = 512.0;
/// Bytes of a line of a cache.
const LINE: f64 = 64.0;
/// Where the kernel shows a CPU's counters.
const COUNTERS: &str = "/sys/bus/event_source/devices/cpu";

impl CountedStream {
    /// `bytes` given by calls of `call` bytes.
    pub fn new(way: PatternTransport, count: Count, call: u64, bytes: u64) -> Self {
        Self { way, count, call, bytes, once: BTreeMap::new() }
    }

    /// The series of one end.
    pub fn series(&self, end: CopyEnd) -> String {
        format!("{}, {}", self.name(), end.label())
    }

    /// The series of what an end's program and its libraries copy.
    pub fn by_program(&self, end: CopyEnd) -> String {
        format!("{}, by the program", self.series(end))
    }

    /// The series of what the kernel copies for an end.
    pub fn by_kernel(&self, end: CopyEnd) -> String {
        format!("{}, by the kernel", self.series(end))
    }

    /// What `tool` counts at the sender and at the receiver while so many bytes are moved.
    fn counted(&self, lab: &BenchLab, tool: Tool, bytes: u64) -> Result<[f64; 2]> {
        let files = ENDS.map(|end| lab.dir().join(end.label()));
        let pair = lab.pair(ServerEnds::ByItself, |port| {
            let side = |role: &str, file: &PathBuf| {
                let line = format!(
                    "floor stream --call {} --bytes {bytes} --seconds {PATIENCE_S} --{role} \
                     {}:{port}",
                    self.call, lab.address
                );
                let tool = format!("{}{}", tool.line, file.display());
                self.way.carry(lab.own().args(&line).under_tool(&tool), lab)
            };
            (side("listen", &files[1]), side("connect", &files[0]))
        })?;
        self.way.check(&pair.client.stderr)?;
        let report: Value = serde_json::from_str(&pair.client.stdout).context("the report")?;
        let arrived = report["bytes"].as_f64() == Some(bytes as f64);
        ensure!(arrived, "not all of it arrived in {PATIENCE_S} s: {report}");
        let read = |file: PathBuf| -> Result<f64> {
            let said = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            (tool.read)(&said).with_context(|| format!("no count in\n{said}"))
        };
        let [sender, receiver] = files.map(read);
        Ok([sender?, receiver?])
    }

    /// The same for each byte, without what is done once.
    fn each(&mut self, lab: &BenchLab, tool: Tool) -> Result<[f64; 2]> {
        let once = match self.once.get(tool.line) {
            Some(once) => *once,
            None => self.counted(lab, tool, self.call)?,
        };
        self.once.insert(tool.line, once);
        let all = self.counted(lab, tool, self.bytes)?;
        let bytes = (self.bytes - self.call) as f64;
        Ok([0, 1].map(|end| (all[end] - once[end]).max(0.0) / bytes))
    }

    fn copies(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let (program, kernel) = (self.each(lab, DHAT)?, self.each(lab, STRACE)?);
        let mut readings = Vec::new();
        for (end, (program, kernel)) in ENDS.into_iter().zip(program.into_iter().zip(kernel)) {
            let reading = |series, value| ProbeReading::new(series, ReadingUnit::Ratio, value);
            readings.push(reading(self.by_program(end), program));
            readings.push(reading(self.by_kernel(end), kernel));
            readings.push(reading(self.series(end), program + kernel));
        }
        Ok(readings)
    }

    fn traffic(&mut self, lab: &BenchLab, tool: Tool) -> Result<Vec<ProbeReading>> {
        let each = self.each(lab, tool)?;
        let reading = |(end, each)| ProbeReading::new(self.series(end), ReadingUnit::Ratio, each);
        Ok(ENDS.into_iter().zip(each).map(reading).collect())
    }
}

impl BenchProbe for CountedStream {
    fn name(&self) -> String {
        let what = match self.count {
            Count::Copies => "copies",
            Count::Cache => "cache traffic",
            Count::Counters => "cache traffic by counters",
        };
        format!("{}: {what}, calls of {}", self.way.label(), self.call)
    }

    fn program(&self) -> Option<&str> {
        Some(if self.count == Count::Counters { "perf" } else { "valgrind" })
    }

    fn lacks(&self) -> Option<String> {
        let programs = [self.program(), (self.count == Count::Copies).then_some("strace")];
        let absent = programs.into_iter().flatten().find(|program| !is_installed(program));
        if let Some(program) = absent {
            return Some(format!("{program} is not installed"));
        }
        let blind = self.count == Count::Counters && !Path::new(COUNTERS).exists();
        blind.then(|| String::from("this processor has no counters that can be read"))
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        match self.count {
            Count::Copies => self.copies(lab),
            Count::Cache => self.traffic(lab, CACHEGRIND),
            Count::Counters => self.traffic(lab, PERF),
        }
    }
}

/// What DHAT counted, as JSON: `{"pps": [{"tb": bytes, "tbk": copies, ...}, ...], ...}`, an item
/// for each place in the program.
fn copied(said: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(said).ok()?;
    let bytes = |place: &Value| -> Option<f64> {
        let (bytes, copies) = (place["tb"].as_f64()?, place["tbk"].as_f64()?);
        Some(if bytes >= copies * RECORD { bytes } else { 0.0 })
    };
    report["pps"].as_array()?.iter().map(bytes).sum()
}

/// Output of cachegrind: `==1== LLd misses:  1,234  (  1,000 rd  +  234 wr)`. A read miss is a
/// fetch; a write miss is a fetch and, later, a write-back.
fn simulated(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.split_once("LLd misses:"))?.1;
    let (reads, writes) = line.split_once('(')?.1.split_once('+')?;
    let first = |part: &str| number(part.split_whitespace().next()?);
    Some((first(reads)? + 2.0 * first(writes)?) * LINE)
}

/// What perf counted: `1234,,cache-misses,...`.
fn missed(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("cache-misses"))?;
    Some(number(line.split(',').next()?)? * LINE)
}

/// The bytes that system calls took or gave, of what strace wrote: those that failed have a
/// negative result, those that another thread's came between end in a line of their own.
fn moved(said: &str) -> Option<f64> {
    let result = |line: &str| -> Option<f64> {
        let (_, result) = line.rsplit_once(" = ")?;
        result.split_whitespace().next()?.parse().ok().filter(|bytes| *bytes > 0.0)
    };
    (!said.is_empty()).then(|| said.lines().filter_map(result).sum())
}

fn number(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let dhat = r#"{"dhatFileVersion": 2, "mode": "copy", "pps": [
            {"tb": 65536, "tbk": 2, "fs": [1]}, {"tb": 9000, "tbk": 100, "fs": [2]}]}"#;
        assert_eq!(copied(dhat), Some(65536.0));
        let cachegrind = "==7== D1  misses:     99  ( 60 rd   +  39 wr)\n\
                          ==7== LLd misses:     1,300  ( 1,000 rd   +   300 wr)\n";
        assert_eq!(simulated(cachegrind), Some(1600.0 * 64.0));
        let perf = "# started\n\n2500,,cache-misses,1234,100.00,,\n";
        assert_eq!(missed(perf), Some(2500.0 * 64.0));
        assert_eq!(missed("<not supported>,,cache-misses,0,100.00,,\n"), None);
        assert_eq!((copied(""), simulated(""), missed(""), moved("")), (None, None, None, None));
    }

    #[test]
    fn what_system_calls_moved_is_summed() {
        let strace = "7 read(3, \"\"..., 832) = 832\n\
                      8 sendmsg(9, {msg_name=NULL, msg_iov=[{iov_base=\"\"..., iov_len=70}], \
                      msg_iovlen=1}, 0 <unfinished ...>\n\
                      7 recvfrom(5, 0x1, 65536, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily \
                      unavailable)\n\
                      8 <... sendmsg resumed>) = 70\n\
                      7 write(4, \"\"..., 100) = 100\n\
                      7 +++ exited with 0 +++\n";
        assert_eq!(moved(strace), Some(1002.0));
    }
}
