//! Which machine and which commit the numbers are of.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// One line about the machine.
pub fn describe() -> String {
    let cpu = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown CPU".into());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let (kernel, congestion) = (kernel.trim(), default_congestion());
    format!("{cpu}, {count} processors, Linux {kernel}, TCP's default is {congestion}")
}

/// TCP's congestion control for sockets that choose none.
pub fn default_congestion() -> String {
    read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned()
}

/// The kernel's release.
pub fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").trim().to_owned()
}

/// The time, in UTC, to the second.
pub fn date() -> String {
    first_line("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]).unwrap_or_default()
}

/// The programs that take part in measurements, and what they say their versions are.
pub fn versions() -> BTreeMap<String, String> {
    let weft = (String::from("weft"), String::from(env!("CARGO_PKG_VERSION")));
    let usual = ["fi_info", "gcc", "ib_write_bw", "iperf3", "mpirun", "strace", "valgrind"];
    let flags = usual.map(|program| (program, "--version"));
    let asked = flags.into_iter().chain([("ucx_info", "-v")]);
    let said = asked
        .filter_map(|(program, flag)| Some((program.to_owned(), first_line(program, &[flag])?)));
    std::iter::once(weft).chain(said).collect()
}

/// All that a program says, on stdout or else on stderr.
pub fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Some(String::from_utf8_lossy(&said).into_owned())
}

fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}

/// The commit that was measured, and whether the tree has changed since.
pub fn commit() -> String {
    // A build lies in the tree that it is of, whatever the directory it is called in.
    let own = std::env::current_exe().ok();
    let Some(place) = own.as_deref().and_then(Path::parent) else {
        return String::from("unknown");
    };
    let git = |args: &[&str]| -> Option<String> {
        let output = Command::new("git").arg("-C").arg(place).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return String::from("unknown");
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let changed = changed.is_some_and(|list| !list.is_empty());
    if changed { format!("{commit}, with changes") } else { commit }
}

/// What is set for Weft in the environment.
pub fn settings() -> Vec<String> {
    let all = std::env::vars().filter(|(name, _)| name.starts_with("WEFT_"));
    let mut settings: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
    settings.sort();
    settings
}

/// Whether this user may choose `name` as a socket's congestion control.
pub fn allows_congestion(name: &str) -> bool {
    let list = read("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    list.split_whitespace().any(|allowed| allowed == name)
}

/// Congestion control of the plain sockets of measurements, and of those that do not choose.
pub fn congestion() -> (String, String) {
    let default = default_congestion();
    let chosen = if allows_congestion("reno") { String::from("reno") } else { default.clone() };
    (chosen, default)
}

/// CPU ticks, by who used them.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Clock ticks of all CPUs together.
    all: u64,
    /// Ticks of all processes.
    processes: u64,
    /// Ticks stolen by the hypervisor.
    stolen: u64,
    /// Ticks of this process and of the children that it has waited for.
    ours: u64,
}

/// Shares of the machine's time, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// What processes took that do not belong to the benchmark.
    pub others: f64,
    /// Share stolen by the hypervisor.
    pub host: f64,
}

impl Usage {
    /// Up to now. What cannot be read counts as nothing.
    pub fn now() -> Self {
        Self::parse(&read("/proc/stat"), &read("/proc/self/stat")).unwrap_or(NOTHING)
    }

    fn parse(machine: &str, own: &str) -> Option<Self> {
        let numbers = |line: &str| -> Vec<u64> {
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        // user nice system idle iowait irq softirq steal, and guests that are in user already.
        let machine = numbers(machine.lines().next()?);
        // utime stime cutime cstime are the fields 14 to 17; the second may hold spaces.
        let own = own.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
        Some(Self {
            all: machine.get(..8)?.iter().sum(),
            processes: machine.get(..3)?.iter().sum(),
            stolen: *machine.get(7)?,
            ours: own.filter_map(|word| word.parse::<u64>().ok()).sum(),
        })
    }

    /// Load by others since `self`.
    pub fn disturbance(&self, until: &Self) -> Disturbance {
        let all = until.all.saturating_sub(self.all).max(1) as f64;
        let others = (until.processes - self.processes).saturating_sub(until.ours - self.ours);
        let host = until.stolen.saturating_sub(self.stolen);
        Disturbance { others: others as f64 / all * 100.0, host: host as f64 / all * 100.0 }
    }
}

const NOTHING: Usage = Usage { all: 0, processes: 0, stolen: 0, ours: 0 };

/// Largest share of others, in per cent, at which numbers still count.
const DISTURBED: f64 = 3.0;

impl Disturbance {
    /// Whether it is too much.
    pub fn is_no_result(&self) -> bool {
        self.others.max(self.host) > DISTURBED
    }

    /// A sentence for the report.
    pub fn sentence(&self) -> String {
        let verdict = if self.is_no_result() { "; this is no result" } else { "" };
        let (others, host) = (self.others, self.host);
        format!(
            "Others took {others:.1} % of the machine meanwhile, its host {host:.1} %{verdict}."
        )
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn field(table: &str, name: &str) -> Option<String> {
    let line = table.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let line = describe();
        assert!(line.contains("Linux ") && line.contains("processors"), "{line}");
    }

    #[test]
    fn disturbances_are_what_is_not_ours() {
        let at = |machine: &str, own: &str| Usage::parse(machine, own).unwrap();
        let before =
            at("cpu  10 0 10 100 0 0 0 0 0 0\n", "7 (a) b) S 1 1 1 0 0 0 0 0 0 0 1 1 1 1 9");
        let after =
            at("cpu  70 0 50 190 0 0 0 10 0 0\n", "7 (a) b) S 1 1 1 0 0 0 0 0 0 0 9 9 9 9 9");
        let disturbance = before.disturbance(&after);
        assert_eq!(disturbance, Disturbance { others: 34.0, host: 5.0 });
        assert!(disturbance.sentence().contains("no result"));
        assert!(!Disturbance { others: 2.0, host: 0.0 }.sentence().contains("no result"));
    }

    #[test]
    fn usage_grows() {
        let before = Usage::now();
        let after = Usage::now();
        assert!(before.all > 0 && after.all >= before.all);
    }

    #[test]
    fn fields_are_found() {
        assert_eq!(field("a\t: 1\nmodel name\t: X Y\n", "model name").unwrap(), "X Y");
        assert_eq!(field("a: 1", "b"), None);
    }
}
