//! What a plan says about its flows.

use serde::Deserialize;
use weft_shuttle::{MAX_PATHS, MAX_STREAMS};
use weft_units::{Bitrate, parse_bytes};
use weft_wire::shuttle::hello::protection;

use super::{Engine, RunFlow, RunLink, SimPlanError, time, wrong};
use crate::datagrams;
use crate::reference::{Acks, Shape};
use crate::stack::StackConfig;

/// Flows that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowPlan {
    controller: String,
    /// What they are counted as; the controller if nothing is said.
    label: Option<String>,
    /// `reference`, `shuttle` for the whole protocol, or `datagrams`.
    #[serde(default = "reference")]
    engine: String,
    /// Of the whole protocol: `none`, `crc32c`. Of datagrams: `none`, `sealed`.
    protection: Option<String>,
    /// Of the whole protocol: streams of the connection.
    #[serde(default = "one")]
    streams: String,
    /// `udp` or `tcp`, which decides about headers.
    #[serde(default = "udp")]
    over: String,
    /// `each` or `timed`.
    #[serde(default = "timed")]
    acks: String,
    /// Whether the network may mark their packets.
    #[serde(default)]
    ecn: bool,
    #[serde(default = "one")]
    count: String,
    /// Of the whole protocol: each link is a path of its own.
    #[serde(default)]
    spread: bool,
    /// The links that it passes, in order; all if nothing is said.
    #[serde(default)]
    via: Vec<String>,
    #[serde(default = "nothing")]
    start: String,
    /// From the start of one to the start of the next.
    #[serde(default = "nothing")]
    stagger: String,
    stop: Option<String>,
    size: Option<String>,
    /// `ON/EVERY`: it sends for the first time of every second one.
    pulse: Option<String>,
    /// The rate that an earlier connection found here, or `none`.
    saved: Option<String>,
}

const IPV4_UDP_OCTETS: u32 = 28;
/// IPv4 and TCP with timestamps.
const IPV4_TCP_OCTETS: u32 = 52;
/// What Shuttle adds to a tagged segment under CRC32C (docs/shuttle.md, Packets), and DDP to its
/// payload.
const SHUTTLE_OCTETS: u32 = 14 + 4 + 14;
/// An acknowledgement of Shuttle with a few holes, and one of TCP with two SACK blocks.
const UDP_ACK_OCTETS: u32 = 80;
const TCP_ACK_OCTETS: u32 = 72;
const COUNT_MAX: u64 = 100_000;

fn nothing() -> String {
    "0s".into()
}

fn one() -> String {
    "1".into()
}

fn reference() -> String {
    "reference".into()
}

fn udp() -> String {
    "udp".into()
}

fn timed() -> String {
    "timed".into()
}

impl FlowPlan {
    /// Adds the flows to `flows`; `fill` puts values in the place of their names, `links` come with
    /// their largest packets.
    pub(super) fn resolve(
        &self,
        fill: &impl Fn(&str) -> String,
        links: &[(RunLink, u32)],
        duration_ns: u64,
        flows: &mut Vec<RunFlow>,
    ) -> Result<(), SimPlanError> {
        let count_text = fill(&self.count);
        let count = count_text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
        let count = count.ok_or_else(|| wrong("count", &count_text, "a number up to 100000"))?;
        let via = self.route(links)?;
        let mtu = via.iter().map(|link| links[*link].1).min().unwrap_or(1500);
        let engine = self.engine(fill)?;
        let shape = self.shape(fill, mtu, duration_ns)?;
        let shape = match engine {
            Engine::Datagrams { is_sealed } => datagrams::fit(shape, is_sealed),
            Engine::Reference | Engine::Shuttle(_) => shape,
        };
        let controller = fill(&self.controller);
        if matches!(engine, Engine::Datagrams { .. }) && !controller.starts_with("fixed:") {
            return Err(wrong("controller", &controller, "datagrams have no rate but fixed:RATE"));
        }
        if controller == "none" && shape.size_octets.is_none() {
            return Err(wrong("controller", "none", "without a limit it needs a size"));
        }
        let one = RunFlow {
            label: self.label.as_ref().map_or_else(|| controller.clone(), |label| fill(label)),
            controller,
            shape,
            engine,
            saved_bps: self.saved(fill)?,
            spread: self.spread,
            via,
        };
        let is_whole = matches!(engine, Engine::Shuttle(_));
        if one.spread && (!is_whole || one.via.len() > MAX_PATHS) {
            return Err(wrong("spread", "true", "engine shuttle, over 16 links at most"));
        }
        let stagger_ns = time("stagger", &fill(&self.stagger))?;
        let last_ns = one.shape.start_ns.saturating_add((count - 1).saturating_mul(stagger_ns));
        self.check_times(fill, last_ns, one.shape.stop_ns, duration_ns)?;
        flows.extend((0..count).map(|number| {
            let mut flow = one.clone();
            let later_ns = number.saturating_mul(stagger_ns);
            flow.shape.start_ns = flow.shape.start_ns.saturating_add(later_ns);
            flow
        }));
        Ok(())
    }

    /// Each flow sends for some of the run; the last one begins at `last_ns`.
    fn check_times(
        &self,
        fill: &impl Fn(&str) -> String,
        last_ns: u64,
        stop_ns: u64,
        duration_ns: u64,
    ) -> Result<(), SimPlanError> {
        let ms = |ns: u64| format!("{}ms", ns as f64 / 1e6);
        if last_ns >= duration_ns {
            let why = format!(
                "the last flow would start when the run is over, after {}; shorten start or \
                 stagger, or make duration longer",
                ms(duration_ns)
            );
            return Err(wrong("start", &ms(last_ns), &why));
        }
        if last_ns >= stop_ns {
            let stop = self.stop.as_deref().map(fill).unwrap_or_default();
            let why = format!("the last flow starts after {}, and is to stop later", ms(last_ns));
            return Err(wrong("stop", &stop, &why));
        }
        Ok(())
    }

    fn route(&self, links: &[(RunLink, u32)]) -> Result<Vec<usize>, SimPlanError> {
        if self.via.is_empty() {
            return Ok((0..links.len()).collect());
        }
        let find = |name: &String| {
            let found = links.iter().position(|(link, _)| link.name == *name);
            found.ok_or_else(|| wrong("via", name, "no link has this name"))
        };
        self.via.iter().map(find).collect()
    }

    /// What it runs, and how that is made.
    fn engine(&self, fill: &impl Fn(&str) -> String) -> Result<Engine, SimPlanError> {
        let engine = fill(&self.engine);
        let protected = self.protection.as_ref().map(|protection| fill(protection));
        match engine.as_str() {
            "reference" => Ok(Engine::Reference),
            "shuttle" if self.pulse.is_none() => self.whole(fill, protected).map(Engine::Shuttle),
            "shuttle" => Err(wrong("engine", &engine, "without pulse")),
            "datagrams" => match protected.as_deref() {
                None | Some("none") => Ok(Engine::Datagrams { is_sealed: false }),
                Some("sealed") => Ok(Engine::Datagrams { is_sealed: true }),
                Some(other) => Err(wrong("protection", other, "none or sealed")),
            },
            _ => Err(wrong("engine", &engine, "reference, shuttle or datagrams")),
        }
    }

    /// How its connections are made, if the flow is one of the whole protocol.
    fn whole(
        &self,
        fill: &impl Fn(&str) -> String,
        protected: Option<String>,
    ) -> Result<StackConfig, SimPlanError> {
        let protection = match protected.as_deref() {
            Some("none") => protection::NONE,
            None | Some("crc32c") => protection::CRC32C,
            Some(other) => return Err(wrong("protection", other, "none or crc32c")),
        };
        let streams = fill(&self.streams);
        let count = streams.parse().ok().filter(|count| (1..=MAX_STREAMS).contains(count));
        let count = count.ok_or_else(|| wrong("streams", &streams, "a number up to 256"))?;
        Ok(StackConfig { protection, streams: count })
    }

    fn saved(&self, fill: &impl Fn(&str) -> String) -> Result<Option<u64>, SimPlanError> {
        let rate = self.saved.as_ref().map(|rate| fill(rate)).filter(|rate| rate != "none");
        let Some(rate) = rate else { return Ok(None) };
        let parsed = rate.parse::<Bitrate>();
        parsed.map(|rate| Some(rate.bps())).map_err(|e| wrong("saved", &rate, &e.to_string()))
    }

    fn shape(
        &self,
        fill: &impl Fn(&str) -> String,
        mtu: u32,
        duration_ns: u64,
    ) -> Result<Shape, SimPlanError> {
        let over = fill(&self.over);
        let (overhead_octets, own_octets, ack_octets) = match over.as_str() {
            "udp" => (IPV4_UDP_OCTETS, SHUTTLE_OCTETS, UDP_ACK_OCTETS),
            "tcp" => (IPV4_TCP_OCTETS, 0, TCP_ACK_OCTETS),
            _ => return Err(wrong("over", &over, "udp or tcp")),
        };
        let acks = fill(&self.acks);
        let stop = self.stop.as_ref().map(|stop| time("stop", &fill(stop))).transpose()?;
        let size = self.size.as_ref().map(|size| {
            let size = fill(size);
            parse_bytes(&size).map_err(|error| wrong("size", &size, &error.to_string()))
        });
        Ok(Shape {
            datagram_octets: mtu - overhead_octets,
            overhead_octets,
            payload_octets: mtu - overhead_octets - own_octets,
            ack_octets,
            acks: match acks.as_str() {
                "each" => Acks::Each,
                "timed" => Acks::Timed,
                _ => return Err(wrong("acks", &acks, "each or timed")),
            },
            start_ns: time("start", &fill(&self.start))?,
            stop_ns: stop.unwrap_or(duration_ns),
            size_octets: size.transpose()?,
            pulse: self.pulse.as_ref().map(|pulse| parse_pulse(&fill(pulse))).transpose()?,
            ecn: self.ecn,
        })
    }
}

fn parse_pulse(text: &str) -> Result<(u64, u64), SimPlanError> {
    let parts = text.split_once('/').ok_or_else(|| wrong("pulse", text, PULSE))?;
    let (on_ns, every_ns) = (time("pulse", parts.0)?, time("pulse", parts.1)?);
    if on_ns == 0 || on_ns >= every_ns {
        return Err(wrong("pulse", text, PULSE));
    }
    Ok((on_ns, every_ns))
}

const PULSE: &str = "ON/EVERY with ON shorter than EVERY, such as 1s/3s";
