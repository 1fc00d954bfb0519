//! Act 3: one stream across an emulated WAN, against kernel TCP.
//!
//! While a program runs, the bar shows what the path delivers, from the path's own counters; the
//! number that stays is the program's own.

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::Value;
use weft_chart::number as number_text;

use super::act::{DemoAct, DemoNumber, PATH};
use super::screen::DemoScreen;
use crate::lab::{BenchLab, is_installed};
use crate::probes::BenchProbe;
use crate::probes::wan::{Mover, Transfer, TransferAmount};
use crate::process::Spec;
use crate::reading::ReadingUnit;
use crate::wan::PAYLOAD;

/// Seconds that a rate is measured over, and those before that do not count.
const MEASURED_S: f64 = 3.0;
const OMITTED_S: u64 = 1;
/// The bottleneck, in Mbit/s.
const BOTTLENECK: f64 = 1000.0;
const LOOK_EVERY: Duration = Duration::from_millis(300);
const MOVERS: [(Mover, &str, &str); 3] = [
    (Mover::Weft, "ib_write_bw", "ib_write_bw, weft0"),
    (Mover::Tcp("bbr"), "iperf3", "iperf3, TCP with BBR"),
    (Mover::Tcp("cubic"), "iperf3", "iperf3, TCP with CUBIC"),
];

/// Plays the act.
///
/// # Errors
/// `ib_write_bw` failed over the path, or the user interrupts.
pub fn play(lab: &BenchLab, screen: &mut DemoScreen) -> Result<DemoAct> {
    let mut act = DemoAct::new(3, "One stream across a WAN");
    screen.line("");
    screen.title(&format!("3  One stream across a WAN: weft wan {PATH}"));
    if let Some(why) = obstacle(lab) {
        screen.line(&format!("   skipped: {why}"));
        act.skipped.push(why);
        return Ok(act);
    }
    screen.line("   payload after the first second (more is better)");
    for (mover, program, label) in MOVERS {
        let taken = match is_installed(program) {
            true => rate(lab, screen, mover, label),
            false => Err(anyhow!("{program} is not installed")),
        };
        match taken {
            Ok(number) => {
                screen.bar(&number, BOTTLENECK);
                act.measured.push(number);
            }
            Err(error) if crate::sys::interrupted() => return Err(error),
            Err(error) if mover == Mover::Weft && is_installed(program) => return Err(error),
            Err(error) => {
                let why = format!("{error:#}");
                let why = format!("{label}: {}", why.lines().last().unwrap_or_default().trim());
                screen.line(&format!("   not measured: {why}"));
                act.skipped.push(why);
            }
        }
    }
    Ok(act)
}

/// Why there can be no path here, in the words of `weft wan`.
pub fn obstacle(lab: &BenchLab) -> Option<String> {
    let error = lab.alone(&Spec::at(&lab.weft).args("wan lan -- true")).err()?;
    let why = format!("{error:#}");
    Some(format!("no path can be made here: {}", why.lines().last().unwrap_or_default().trim()))
}

fn rate(lab: &BenchLab, screen: &DemoScreen, mover: Mover, label: &str) -> Result<DemoNumber> {
    let name = format!("demo-{}", std::process::id());
    let path = format!("{PATH} --name {name}");
    let transfer = Transfer::new(mover, &path, 1, TransferAmount::Time, label.to_owned());
    let mut transfer = transfer.omitting(OMITTED_S).at_least(MEASURED_S).only_rate();
    let number = |mbps, note| DemoNumber {
        group: PATH,
        label: label.to_owned(),
        unit: "Mbit/s",
        value: Some(mbps),
        is_weft: mover == Mover::Weft,
        note,
    };
    let mut last = (0.0, 0.0);
    let look = |seconds: f64, bytes: f64| {
        let mbps = (bytes - last.1) * 8.0 / 1e6 / (seconds - last.0).max(0.001);
        last = (seconds, bytes);
        screen.live_bar(&number(mbps, String::new()), BOTTLENECK);
    };
    let readings = watched(lab, screen, &name, look, || transfer.run(lab))?;
    screen.clear_live();
    let rate = readings.iter().find(|reading| reading.unit == ReadingUnit::GigabitsPerSecond);
    let gbps = rate.map(|reading| reading.value);
    let gbps = gbps.ok_or_else(|| anyhow!("no rate"))?;
    let (mbps, note) = carried(gbps * 1e3);
    Ok(number(mbps, note))
}

/// A rate that the path can carry, and what the program said where that is more: perftest counts
/// acknowledgements, and some of those in its interval are for data from before it.
fn carried(mbps: f64) -> (f64, String) {
    let most = BOTTLENECK * PAYLOAD;
    if mbps <= most {
        return (mbps, String::new());
    }
    (most, format!("all that fits; it counts {} with late acknowledgements", number_text(mbps)))
}

/// Does `work` while `look` is told, now and then, the seconds that the path `name` is up and the
/// bytes that it has delivered forward.
pub fn watched<T>(
    lab: &BenchLab,
    screen: &DemoScreen,
    name: &str,
    look: impl FnMut(f64, f64) + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !screen.is_live() {
        return work();
    }
    let (done, until) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || observe(lab, name, &until, look));
        let result = work();
        drop(done);
        result
    })
}

fn observe(lab: &BenchLab, name: &str, until: &Receiver<()>, mut look: impl FnMut(f64, f64)) {
    while until.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let mut stat = Command::new(&lab.weft);
        stat.args(["wan", "stat", name, "--json"]).stdin(Stdio::null());
        // Before the path is up and when it is down there is nothing to see.
        let Ok(output) = stat.output() else { continue };
        let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else { continue };
        let bytes = report["forward"]["link"]["delivered_octets"].as_f64();
        if let Some((ns, bytes)) = report["elapsed_ns"].as_f64().zip(bytes) {
            look(ns / 1e9, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_is_above_what_the_path_carries() {
        assert_eq!(carried(950.0), (950.0, String::new()));
        let (mbps, note) = carried(980.0);
        assert!((965.0..966.0).contains(&mbps) && note.contains("980"), "{mbps} {note}");
    }
}
