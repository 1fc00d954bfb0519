//! Cost of Shuttle's core: instructions per packet, counted by callgrind, without sockets.
//!
//! `crates/shuttle/examples/cost.rs` is what runs. Callgrind's CPU has AES-NI, PCLMULQDQ and SSE4.2
//! but neither VAES nor AVX-512, so ciphers and checksums cost more instructions here than on
//! newer machines; the rest is what it is everywhere. Invariant: a count depends on the compiler
//! and the C library only, so that the same tree gives the same figures.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::finding::Finding;

const PROGRAM: &str = "crates/shuttle/examples/cost.rs";
/// Instructions that a packet in clear may cost on either side.
const LIMIT: u64 = 1000;
/// The same for a message of 64 bytes that shares its packet with others.
const LIMIT_SMALL: u64 = 600;
/// The same for a round trip of a ping-pong, whose answers leave without acknowledgements.
const LIMIT_ROUND_TRIP: u64 = 6000;
const SIDES: [&str; 2] = ["sender", "receiver"];
/// Instructions for each packet (or small message, or round trip of a ping-pong), the part of that
/// in sending, and those for each datagram that arrived; then what the program says.
const HEAD: &str = "\
| | side | instructions | sending | an arrival | arrivals | runs told | in flight | kept |
|---|---|---:|---:|---:|---:|---:|---:|---:|";

/// A run of the example, with its limits.
struct CostRow {
    about: &'static str,
    words: &'static str,
    limit: Option<u64>,
}

const fn row(about: &'static str, words: &'static str, limit: Option<u64>) -> CostRow {
    CostRow { about, words, limit }
}

const ROWS: [CostRow; 8] = [
    row("clear, 1472 bytes", "stream none 1472 10 1000 0 2000 5000", Some(LIMIT)),
    row("clear, 1200 bytes", "stream none 1200 10 1000 0 2000 5000", Some(LIMIT)),
    row("clear, 1 % lost", "stream none 1472 10 1000 10 5000 10000", Some(LIMIT)),
    row("crc32c", "stream crc32c 1472 10 1000 0 2000 2000", None),
    row("aes128gcm", "stream aes128gcm 1472 10 1000 0 2000 2000", None),
    row("64-byte messages, clear", "small none 10 1000 20000 20000", Some(LIMIT_SMALL)),
    row("ping-pong, clear", "pingpong none 100 500", Some(LIMIT_ROUND_TRIP)),
    row("ping-pong, crc32c", "pingpong crc32c 100 500", None),
];

/// Growing numbers of packets in flight: the cost of a packet must not grow with them.
const FAR: [CostRow; 4] = [
    row("1 Gbit/s x 7 ms, 1 % lost", "stream none 1472 1 7000 10 5000 20000", Some(LIMIT)),
    row("2 Gbit/s x 70 ms, 1 % lost", "stream none 1472 2 70000 10 36000 20000", None),
    row("10 Gbit/s x 70 ms, 1 % lost", "stream none 1472 10 70000 10 180000 60000", Some(LIMIT)),
    row(
        "100 Gbit/s x 70 ms, 1 % lost",
        "stream none 1472 100 70000 10 1800000 200000",
        Some(LIMIT),
    ),
];

/// Counts, prints a table, and finds what costs too much; with `far`, over the long paths, which
/// takes minutes.
pub fn check(root: &Path, far: bool) -> Result<Vec<Finding>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    build(root)?;
    let program = target.join("release/examples/cost");
    let profiles = target.join("cost");
    std::fs::create_dir_all(&profiles).context("a directory for callgrind's files")?;
    println!("{HEAD}");
    let rows = if far { &FAR[..] } else { &ROWS[..] };
    let mut findings = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let out = profiles.join(format!("{}{at}.out", if far { "far" } else { "row" }));
        let said = count(&program, row.words, &out)?;
        let profile = std::fs::read_to_string(&out).context("callgrind's file")?;
        findings.extend(report(row, &profile, &said)?);
    }
    Ok(findings)
}

fn build(root: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["build", "--quiet", "--release", "--locked", "-p", "weft-shuttle", "--example"];
    let status = Command::new(cargo).args(args).arg("cost").current_dir(root).status();
    ensure!(status.context("running cargo build")?.success(), "{PROGRAM} does not build");
    Ok(())
}

/// Runs the example under callgrind; returns its output.
fn count(program: &Path, words: &str, out: &Path) -> Result<String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(program).args(words.split(' '));
    let output = command.output().context("running valgrind, which `make deps` installs")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{PROGRAM} under callgrind: {complaint}");
    String::from_utf8(output.stdout).context("the program's answer")
}

/// Prints a line for each side; gives what is wrong with it.
fn report(row: &CostRow, profile: &str, said: &str) -> Result<Vec<Finding>> {
    let of = |side, what| calls_of(profile, &format!("cost::counted::{side}_{what}"));
    let units: u64 = row.words.rsplit(' ').next().context("no words")?.parse()?;
    let mut findings = Vec::new();
    for (side, said) in SIDES.into_iter().zip(said.lines()) {
        let (sends, hears) = (of(side, "sends"), of(side, "hears"));
        ensure!(hears.count > 0, "callgrind saw nothing arrive: {}", row.words);
        let each = (sends.instructions + hears.instructions) / units;
        let (sending, arrivals) = (sends.instructions / units, hears.count);
        let hearing = hears.instructions / arrivals;
        let (about, said) = (row.about, said.replace(' ', " | "));
        println!("| {about} | {side} | {each} | {sending} | {hearing} | {arrivals} | {said} |");
        if row.limit.is_some_and(|limit| each > limit) {
            let message = format!("{about}: the {side} spends {each} instructions on each");
            findings.push(Finding::new(PROGRAM, 1, message));
        }
    }
    Ok(findings)
}

/// How often a function was called, and what that cost with all that it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct VerbCalls {
    count: u64,
    instructions: u64,
}

/// Sums the calls of `function` in a file of callgrind's: `cfn=` names who is called, `calls=` says
/// how often, and the line after it where from and at what cost.
fn calls_of(profile: &str, function: &str) -> VerbCalls {
    let (mut calls, mut named) = (VerbCalls::default(), false);
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("cfn=") {
            named = name.starts_with(function);
        } else if let Some(count) = line.strip_prefix("calls=").filter(|_| named) {
            let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
            calls.count += number(count.split(' ').next());
            calls.instructions += number(lines.next().and_then(|line| line.split(' ').nth(1)));
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "fn=main\n10 5\ncfn=cost::counted::sender_sends\ncalls=3 7\n11 600\n\
        cfn=other\ncalls=9 9\n12 9000\nfn=cost::counted::sender_sends\n1 200\n\
        fn=main\ncfn=cost::counted::sender_sends\ncalls=1 7\n14 40\n";

    #[test]
    fn calls_are_summed_over_their_places() {
        let calls = calls_of(PROFILE, "cost::counted::sender_sends");
        assert_eq!(calls, VerbCalls { count: 4, instructions: 640 });
        assert_eq!(calls_of(PROFILE, "nobody"), VerbCalls::default());
    }

    #[test]
    fn what_costs_too_much_is_found() {
        let of = |name: &str, cost| format!("cfn=cost::counted::{name}\ncalls=4 7\n1 {cost}\n");
        let profile = of("sender_sends", 1999) + &of("sender_hears", 3) + &of("receiver_hears", 2);
        let found =
            |limit, profile| report(&row("clear", "stream 2", limit), profile, "1 2 3\n0 0 0");
        let findings = found(Some(1000), &profile).unwrap();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("sender spends 1001"), "{findings:?}");
        assert!(found(None, &profile).unwrap().is_empty());
        assert!(found(None, "").is_err());
    }
}
