//! What programs see on a path is what the path claims to be.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::UNFIT;
use super::common::{Check, DEGEN, expect, scratch, text, tool};

pub const CHECKS: [(&str, Check); 16] = [
    ("ping_takes_the_round_trip_time", ping_takes_the_round_trip_time),
    ("datagrams_are_lost_as_claimed_0_01", || loss(0.0001, 400_000)),
    ("datagrams_are_lost_as_claimed_0_1", || loss(0.001, 200_000)),
    ("datagrams_are_lost_as_claimed_1", || loss(0.01, 100_000)),
    ("datagrams_are_lost_as_claimed_10", || loss(0.1, 50_000)),
    ("datagrams_of_a_bundle_are_lost_one_by_one", datagrams_of_a_bundle_are_lost_one_by_one),
    ("datagrams_come_at_the_rate", datagrams_come_at_the_rate),
    ("a_stream_comes_at_the_rate", a_stream_comes_at_the_rate),
    ("a_full_queue_delays_by_its_length", a_full_queue_delays_by_its_length),
    ("cubic_suffers_as_theory_says_0_1", || cubic(0.001, 10, 20)),
    ("cubic_suffers_as_theory_says_1", || cubic(0.01, 5, 15)),
    ("bbr_bears_loss", bbr_bears_loss),
    ("segments_are_well_formed", segments_are_well_formed),
    ("no_byte_changes_whatever_happens", no_byte_changes_whatever_happens),
    ("an_outage_is_one", an_outage_is_one),
    ("a_path_that_is_too_fast_is_said_to_be", a_path_that_is_too_fast_is_said_to_be),
];

/// Bytes of an IP packet, and of its payload in TCP with timestamps.
const MTU: f64 = 1500.0;
const MSS: f64 = 1448.0;

/// Runs `command` on a path; `words` are degen's arguments before the `--`.
fn on(words: &str, server: Option<&str>, command: &str) -> Result<String, String> {
    let output = ended_well(words, server, command)?;
    if let Some(at) = text(&output.stderr).find(UNFIT) {
        return Err(text(&output.stderr)[at..].to_owned());
    }
    Ok(text(&output.stdout))
}

/// The same of a command whose result does not depend on times: the machine need not keep up.
fn ended_well(words: &str, server: Option<&str>, command: &str) -> Result<Output, String> {
    let output = started(words, server, command);
    match output.status.success() {
        true => Ok(output),
        false => Err(format!("{}: {}", output.status, text(&output.stderr))),
    }
}

fn started(words: &str, server: Option<&str>, command: &str) -> Output {
    let mut call = Command::new(DEGEN);
    call.args(words.split_whitespace());
    if let Some(server) = server {
        call.args(["--server", server]);
    }
    call.args(["--", "sh", "-c", command]).output().unwrap()
}

fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// The times that `ping` says, in milliseconds, the smallest first.
fn ping_times(output: &str) -> Result<Vec<f64>, String> {
    let times = output.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next());
    let mut times: Vec<f64> = times.map(|time| time.parse().unwrap()).collect();
    times.sort_by(f64::total_cmp);
    if times.is_empty() { Err("no answer to ping".into()) } else { Ok(times) }
}

fn ping_takes_the_round_trip_time() -> Result<(), String> {
    for (words, expected_ms) in [("70ms", 70.0), ("2ms", 2.0), ("forward:delay=30ms", 30.0)] {
        for address in ["10.77.0.2", "fd77::2"] {
            let times = ping_times(&on(words, None, &format!("ping -c 12 -i 0.05 {address}"))?)?;
            let added_ms = times[0] - expected_ms;
            expect((0.0..1.0).contains(&added_ms), || format!("{words} {address}: {times:?}"))?;
        }
    }
    Ok(())
}

fn loss(share: f64, count: u64) -> Result<(), String> {
    let words = format!("2ms forward:loss={}%", share * 100.0);
    let answer = on(&words, Some(&tool("sink")), &tool(&format!("blast {count} 100 100000")))?;
    let [came, _, _, overflows] = numbers(&answer)[..] else { return Err(answer) };
    let lost = count as f64 - came - overflows;
    let (mean, sigma) = (count as f64 * share, (count as f64 * share * (1.0 - share)).sqrt());
    // Once in ten thousand runs chance alone exceeds this.
    expect((lost - mean).abs() < 4.0 * sigma, || format!("lost {lost}, expected {mean}"))
}

fn datagrams_of_a_bundle_are_lost_one_by_one() -> Result<(), String> {
    // 400 calls of 50 datagrams each, which the kernel leaves together (UDP_SEGMENT).
    let send = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
                s.setsockopt(17, 103, 1000); s.connect(('10.77.0.2', 7001)); \
                [s.send(bytes(50000)) for _ in range(400)]";
    let json = scratch("bundles.json");
    let words = format!("2ms forward:loss=1% 200mbit queue=100MB --json {}", json.display());
    let command = format!("python3 -c \"{send}\" && {}", tool("blast 0 1 1"));
    // So much at once may be read late, which changes nothing here.
    let answer = text(&started(&words, Some(&tool("sink")), &command).stdout);
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    let [came, _, nanoseconds, overflows] = numbers(&answer)[..] else { return Err(answer) };
    let lost = 20_000.0 - came - overflows;
    expect((lost - 200.0).abs() < 4.0 * 14.07, || format!("lost {lost}, expected 200"))?;
    let rate_bps = came * 1028.0 * 8e9 / nanoseconds / 0.99;
    // All of it lasts 0.8 s, of which a sink that is woken late misses some: the tests of rates
    // measure for longer.
    expect((rate_bps / 200e6 - 1.0).abs() < 0.05, || format!("{rate_bps} bit/s"))?;
    // A kernel before 6.2 hands over each datagram by itself.
    let bundles = report["forward"]["bundles_read"].as_u64();
    let splits_late = kernel_version() >= (6, 2);
    expect(!splits_late || bundles < Some(1000), || format!("{bundles:?} bundles"))
}

fn kernel_version() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn datagrams_come_at_the_rate() -> Result<(), String> {
    for (mbit, bytes) in [(20.0, 1000.0), (100.0, 1400.0)] {
        let (words, count) = (format!("10ms {mbit}mbit"), mbit * 1e6 * 3.0 / 8.0 / bytes);
        let per_second = count as u64;
        let blast = tool(&format!("blast {} {bytes} {per_second}", count as u64));
        let answer = on(&words, Some(&tool("sink")), &blast)?;
        let [_, came, nanoseconds, _] = numbers(&answer)[..] else { return Err(answer) };
        let bps = came * 8e9 / nanoseconds;
        let expected = mbit * 1e6 * bytes / (bytes + 28.0);
        let ratio = bps / expected;
        expect((0.99..1.01).contains(&ratio), || format!("{mbit} Mbit/s: {bps} bit/s"))?;
    }
    Ok(())
}

/// What iperf3 received over a path, in bits per second, over all streams together.
fn iperf(words: &str, options: &str) -> Result<f64, String> {
    let json = on(words, Some("iperf3 -s"), &format!("iperf3 -J -c $WAN_FAR {options}"))?;
    let value: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let bps = &value["end"]["sum_received"]["bits_per_second"];
    bps.as_f64().ok_or_else(|| value["error"].to_string())
}

fn a_stream_comes_at_the_rate() -> Result<(), String> {
    let bps = iperf("10ms 200mbit", "-C cubic -O 2 -t 4")?;
    let ratio = bps / (200e6 * MSS / MTU);
    expect((0.97..1.01).contains(&ratio), || format!("{bps} bit/s, {ratio} of what can be"))
}

fn a_full_queue_delays_by_its_length() -> Result<(), String> {
    // 250 kB at 100 Mbit/s take 20 ms.
    let words = "10ms 100mbit queue=250kB";
    let blast = tool("blast 40000 1400 15000");
    let command = format!("{blast} >/dev/null & ping -c 15 -i 0.1 $WAN_FAR; wait");
    // The first pings may be earlier than the datagrams, some find the queue full, and others find
    // it shorter, when the sender has waited for a processor.
    let output = on(words, Some(&tool("sink")), &command)?;
    let times = ping_times(&output)?;
    let high = times[times.len() * 4 / 5];
    expect((29.0..31.5).contains(&high), || {
        format!("{times:?} ms, of which a fifth is not about 30")
    })
}

/// Streams that lose at random, against Mathis et al. with the constants for periodic and random
/// loss, 1.22 and 1.31; at these losses CUBIC is in its Reno-friendly region (RFC 9438, 4.3).
fn cubic(share: f64, warm_up_s: u32, measured_s: u32) -> Result<(), String> {
    let (streams, rtt_s) = (12.0, 0.07);
    let words = format!("70ms 1gbit {}%", share * 100.0);
    let options = format!("-C cubic -P {streams} -O {warm_up_s} -t {measured_s}");
    let each_bps = iperf(&words, &options)? / streams;
    let theory_bps = |constant: f64| constant * MSS * 8.0 / (rtt_s * share.sqrt());
    let (least, most) = (0.75 * theory_bps(1.22), 1.35 * theory_bps(1.31));
    let holds = (least..most).contains(&each_bps);
    expect(holds, || format!("{each_bps} bit/s a stream, expected {least} to {most}"))
}

/// Whether this kernel has bbr.
pub fn has_bbr() -> bool {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    available.unwrap_or_default().contains("bbr")
}

fn bbr_bears_loss() -> Result<(), String> {
    let ratio = iperf("70ms 200mbit 1%", "-C bbr -O 3 -t 8")? / (200e6 * MSS / MTU * 0.99);
    expect((0.88..1.01).contains(&ratio), || format!("{ratio} of what can be"))
}

fn segments_are_well_formed() -> Result<(), String> {
    for address in ["10.77.0.2", "fd77::2"] {
        let [near, far] = ["near", "far"].map(|side| scratch(&format!("{side}.pcapng")));
        let words = format!(
            "10ms 0.5% 300mbit --pcap-near {} --pcap-far {}",
            near.display(),
            far.display()
        );
        // iperf3 never repeats the datagram that begins a test, and the path loses some.
        let datagrams = format!("iperf3 -u -b 50M -c {address} -t 1");
        let again = format!("{{ {datagrams} || {datagrams} || {datagrams}; }}");
        let command = format!("iperf3 -c {address} -n 10M && {again}");
        ended_well(&words, Some("iperf3 -s"), &command)?;
        for file in [near, far] {
            check_capture(&file)?;
            std::fs::remove_file(file).unwrap();
        }
    }
    Ok(())
}

fn check_capture(file: &Path) -> Result<(), String> {
    let count = |filter: &str| {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(file).args(["-Y", filter]);
        // Other dissectors would take iperf3's bytes for messages of theirs.
        tshark.args(["-d", "tcp.port==5201,data", "-d", "udp.port==5201,data"]);
        for protocol in ["ip", "tcp", "udp"] {
            tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
        let output = tshark.output().map_err(|error| format!("tshark: {error}"))?;
        Ok::<usize, String>(output.stdout.iter().filter(|byte| **byte == b'\n').count())
    };
    let good = count("tcp.checksum.status==1 || udp.checksum.status==1")?;
    let bad = count(
        "ip.checksum.status==0 || tcp.checksum.status==0 || udp.checksum.status==0 || \
         _ws.malformed || ip.len > 1500",
    )?;
    expect(good > 5000 && bad == 0, || format!("{}: {good} good, {bad} bad", file.display()))
}

fn no_byte_changes_whatever_happens() -> Result<(), String> {
    let words = "6ms 500mbit loss=0.3% reorder=1%:1ms duplicate=1% corrupt=1% jitter=200us";
    let bytes = 8 << 20;
    let json = scratch("all.json");
    let words = format!("{words} --json {}", json.display());
    // What arrives does not depend on when it does.
    let output = ended_well(&words, Some(&tool("take")), &tool(&format!("give {bytes}")))?;
    let answer = text(&output.stdout);
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    for counter in ["lost", "reordered", "duplicated", "corrupted"] {
        let happened = report["forward"]["link"][counter].as_u64().unwrap_or(0);
        expect(happened > 0, || format!("nothing was {counter}: {report}"))?;
    }
    expect(answer.trim() == bytes.to_string(), || format!("{answer} bytes of {bytes}"))
}

fn an_outage_is_one() -> Result<(), String> {
    // Of pings at 0, 0.2, ... 1.8 s those between 0.5 s and 1.5 s are lost. A path is a little
    // older than its first ping.
    let words = "2ms outage=500ms+1s";
    let output = started(words, None, "ping -c 10 -i 0.2 $WAN_FAR");
    let answers = text(&output.stdout).matches("time=").count();
    expect((4..=6).contains(&answers), || format!("{answers} answers"))
}

fn a_path_that_is_too_fast_is_said_to_be() -> Result<(), String> {
    // The router is held up by a capture of every segment, which no machine keeps up with.
    let capture = scratch("too-fast.pcapng");
    let words = format!("1ms --pcap-near {} --pcap-far /dev/null", capture.display());
    let output = started(&words, Some("iperf3 -s"), "iperf3 -P 4 -c $WAN_FAR -t 3");
    std::fs::remove_file(capture).unwrap();
    let said = text(&output.stderr);
    expect(said.contains(UNFIT), || said)
}
