//! Act 2: latency and bandwidth on one machine, against what is used where there is no RDMA.
//!
//! Weft goes by the network stack here, as its peers do, but for the rows that say shared memory.

use anyhow::Result;

use super::act::{DemoAct, DemoNumber};
use super::screen::DemoScreen;
use crate::lab::BenchLab;
use crate::machine;
use crate::probes::floor::FloorProbe;
use crate::probes::libfabric::{LibfabricPingPong, Writes};
use crate::probes::perftest::{Bandwidth, Latency};
use crate::probes::route::WeftRoute;
use crate::probes::ucx::Ucx;
use crate::probes::{BenchProbe, MEAN};
use crate::reading::ReadingUnit;

const MIB: u64 = 1 << 20;
const LATENCY: &str = "64 bytes one way, mean";
const BANDWIDTH: &str = "1 MiB messages";

struct DemoEntry {
    probe: Box<dyn BenchProbe>,
    is_weft: bool,
}

/// Plays the act.
///
/// # Errors
/// A measurement of Weft failed, or the user interrupts.
pub fn play(lab: &BenchLab, screen: &mut DemoScreen) -> Result<DemoAct> {
    let title = "Against what is used instead, on this machine";
    let mut act = DemoAct::new(2, title);
    screen.line("");
    screen.title(&format!("2  {title}"));
    group(lab, screen, &mut act, LATENCY, latencies())?;
    group(lab, screen, &mut act, BANDWIDTH, bandwidths())?;
    for reason in reasons(&act.measured) {
        screen.line(&format!("   {reason}"));
        act.reasons.push(reason);
    }
    Ok(act)
}

fn latencies() -> Vec<DemoEntry> {
    let (chosen, default) = machine::congestion();
    let network = |route: WeftRoute, label: &str| {
        weft(Latency::new("ib_send_lat", 64, label).over(route.network()))
    };
    let lane = Latency::new("ib_send_lat", 64, "weft0, shared memory").over(WeftRoute::SHUTTLE);
    vec![
        network(WeftRoute::SHUTTLE, "weft0 over UDP"),
        network(WeftRoute::IWARP, &format!("weft_iw0 over TCP, {chosen}")),
        weft(lane),
        peer(FloorProbe::new("pingpong", &format!("blocking TCP, {chosen}"))),
        peer(LibfabricPingPong::new(64, &format!("libfabric tcp, {default}"))),
        peer(Ucx::new("tag_lat", 64, &format!("UCX tcp, {default}"))),
    ]
}

fn bandwidths() -> Vec<DemoEntry> {
    let (chosen, default) = machine::congestion();
    let writes = |label: &str| Bandwidth::new("ib_write_bw", MIB, label);
    let network = |route: WeftRoute, label: &str| weft(writes(label).over(route.network()));
    vec![
        network(WeftRoute::SHUTTLE, "weft0 over UDP"),
        network(WeftRoute::IWARP, &format!("weft_iw0 over TCP, {chosen}")),
        weft(writes("weft0, shared memory").over(WeftRoute::SHUTTLE)),
        peer(FloorProbe::new("stream --call 1048576", &format!("blocking TCP, {chosen}"))),
        peer(Writes::new(MIB, &format!("libfabric tcp, {default}"))),
        peer(Ucx::new("tag_bw", MIB, &format!("UCX tcp, {default}"))),
    ]
}

fn weft(probe: impl BenchProbe + 'static) -> DemoEntry {
    DemoEntry { probe: Box::new(probe), is_weft: true }
}

fn peer(probe: impl BenchProbe + 'static) -> DemoEntry {
    DemoEntry { probe: Box::new(probe), is_weft: false }
}

/// Measures each, then shows all by one scale.
fn group(
    lab: &BenchLab,
    screen: &mut DemoScreen,
    act: &mut DemoAct,
    group: &'static str,
    entries: Vec<DemoEntry>,
) -> Result<()> {
    let (mut taken, mut skipped) = (Vec::new(), Vec::new());
    for DemoEntry { mut probe, is_weft } in entries {
        let label = probe.name();
        let unit = if group == LATENCY { "us" } else { "Gbit/s" };
        let note = String::new();
        let mut number = DemoNumber { group, label, unit, value: None, is_weft, note };
        if let Some(lack) = probe.lacks() {
            skipped.push(format!("{}: {lack}", number.label));
            continue;
        }
        screen.live_bar(&number, 1.0);
        match value(probe.as_mut(), lab) {
            Ok(value) => number.value = Some(value),
            Err(error) if is_weft || crate::sys::interrupted() => {
                screen.clear_live();
                return Err(error.context(number.label));
            }
            Err(error) => {
                let why = format!("{error:#}");
                let first = why.lines().next().unwrap_or_default();
                skipped.push(format!("{}: {first}", number.label));
                continue;
            }
        }
        taken.push(number);
    }
    screen.clear_live();
    let better = if group == LATENCY { "less is better" } else { "more is better" };
    screen.line(&format!("   {group} ({better})"));
    let longest = taken.iter().filter_map(|number| number.value).fold(0.0, f64::max);
    taken.iter().for_each(|number| screen.bar(number, longest));
    for why in &skipped {
        screen.line(&format!("   not measured: {why}"));
    }
    act.skipped.extend(skipped);
    act.measured.extend(taken);
    Ok(())
}

/// The mean latency in us, or the rate in Gbit/s.
fn value(probe: &mut dyn BenchProbe, lab: &BenchLab) -> Result<f64> {
    let readings = probe.run(lab)?;
    let mean = readings.iter().find(|reading| reading.series.ends_with(MEAN));
    let rate = |unit| readings.iter().find(|reading| reading.unit == unit);
    let found = mean.or_else(|| rate(ReadingUnit::GigabitsPerSecond));
    found.map(|reading| reading.value).ok_or_else(|| anyhow::anyhow!("no number"))
}

/// What an engineer would ask about the bars: who polls, and why Weft is slower where it is.
fn reasons(measured: &[DemoNumber]) -> Vec<String> {
    let best = |is_weft: bool| {
        let network = measured.iter().filter(|number| !number.label.contains("shared memory"));
        let rates = network.filter(|number| number.group == BANDWIDTH && number.is_weft == is_weft);
        rates.filter_map(|number| number.value).reduce(f64::max)
    };
    let mut reasons = Vec::new();
    if measured.iter().any(|number| number.group == LATENCY && number.is_weft) {
        reasons.push(String::from(
            "ib_send_lat polls, so Weft and both its ends take a CPU each; blocking TCP sleeps.",
        ));
    }
    if let Some((weft, peer)) = best(true).zip(best(false))
        && weft < peer
    {
        reasons.push(String::from(
            "Over the network Weft moves less than the best of them: possibly since it runs on \
             top of the\n   same sockets, and checks a CRC32C (weft_iw0) or numbers each packet \
             (weft0) besides. Not touching\n   the receiver's CPU is what verbs are for: \
             `weft bench progress`.",
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(label: &str, is_weft: bool, value: f64) -> DemoNumber {
        let (label, note) = (label.to_owned(), String::new());
        DemoNumber { group: BANDWIDTH, label, unit: "Gbit/s", value: Some(value), is_weft, note }
    }

    #[test]
    fn where_weft_is_slower_over_the_network_that_is_said() {
        let slower = [
            number("weft0 over UDP", true, 20.0),
            number("weft0, shared memory", true, 90.0),
            number("blocking TCP, reno", false, 30.0),
        ];
        assert!(reasons(&slower)[0].contains("moves less than the best"));
        let faster = [number("weft0 over UDP", true, 40.0), number("TCP", false, 30.0)];
        assert!(reasons(&faster).is_empty());
    }
}
