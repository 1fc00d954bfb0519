//! Plans: what people write about a simulation, in TOML.
//!
//! A plan is one run, or with a table `vary` one run for every combination of its values, which
//! stand in the plan's texts in braces: `path = "70ms {loss} 1gbit"`. Every link is written in
//! degen's words. [`Plan::runs`] gives runs that can be made without further questions.

use std::collections::BTreeMap;

use degen::link::Config;
use degen::spec::PathSpec;
use degen::units::{parse_octets, parse_time_ns};
use serde::Deserialize;

use crate::reference::{Acks, Shape};

/// A plan as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What the plan is called.
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// How long a run lasts.
    duration: String,
    /// What is not counted at the beginning.
    #[serde(default = "nothing")]
    warmup: String,
    /// What all that is random follows from.
    #[serde(default = "one")]
    pub seed: u64,
    /// What others have published, to be printed beside the results.
    #[serde(default)]
    pub published: Vec<String>,
    /// Values that stand for names in braces.
    #[serde(default)]
    vary: BTreeMap<String, Vec<String>>,
    #[serde(rename = "link")]
    links: Vec<LinkPlan>,
    #[serde(rename = "flow")]
    flows: Vec<FlowPlan>,
}

/// A path between two places, both directions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkPlan {
    name: String,
    path: String,
}

/// Flows that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowPlan {
    controller: String,
    /// `reference`, or `shuttle` for the whole protocol.
    #[serde(default = "reference")]
    engine: String,
    /// `udp` or `tcp`, which decides about headers.
    #[serde(default = "udp")]
    over: String,
    /// `each` or `timed`.
    #[serde(default = "timed")]
    acks: String,
    #[serde(default = "one_text")]
    count: String,
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
}

/// A simulation, ready to be made.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan's name, and the values that this run has of what varies.
    pub name: String,
    /// Those values by their names.
    pub values: BTreeMap<String, String>,
    /// What all that is random follows from.
    pub seed: u64,
    /// When it ends.
    pub duration_ns: u64,
    /// When counting begins.
    pub warmup_ns: u64,
    /// The links, both directions of each.
    pub links: Vec<RunLink>,
    /// The flows.
    pub flows: Vec<RunFlow>,
}

/// A link of a run.
#[derive(Clone, Debug)]
pub struct RunLink {
    /// Its name.
    pub name: String,
    /// What it does, for people.
    pub described: String,
    /// Forward and back.
    pub configs: [Config; 2],
    /// Round trip without queues.
    pub rtt_ns: u64,
}

/// A flow of a run.
#[derive(Clone, Debug)]
pub struct RunFlow {
    /// The name of its controller.
    pub controller: String,
    /// How it sends.
    pub shape: Shape,
    /// Whether it is a pair of Shuttle's own connections.
    pub whole_stack: bool,
    /// The links that it passes, by number.
    pub via: Vec<usize>,
}

/// A plan that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is not TOML, or lacks something.
    #[error("the plan cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// A value is wrong.
    #[error("`{key} = \"{value}\"`: {why}")]
    Value {
        /// What it stands for.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
}

const IPV4_UDP_OCTETS: u32 = 28;
/// IPv4 and TCP with timestamps.
const IPV4_TCP_OCTETS: u32 = 52;
/// An acknowledgement of Shuttle with a few holes, and one of TCP with two SACK blocks.
const UDP_ACK_OCTETS: u32 = 80;
const TCP_ACK_OCTETS: u32 = 72;
const MS_NS: u64 = 1_000_000;
/// The meter keeps a number for every millisecond.
const DURATION_NS_MAX: u64 = 4 * 3600 * 1000 * MS_NS;
const COUNT_MAX: u64 = 100_000;
const RUNS_MAX: usize = 10_000;

fn nothing() -> String {
    "0s".into()
}

fn one() -> u64 {
    1
}

fn one_text() -> String {
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

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// It is not TOML or lacks something. Values are looked at by [`Plan::runs`].
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        Ok(toml::from_str(text)?)
    }

    /// The runs of the plan, in the order of the values that vary.
    ///
    /// # Errors
    /// A value that cannot be understood, or too many runs.
    pub fn runs(&self) -> Result<Vec<Run>, PlanError> {
        let count: usize = self.vary.values().map(Vec::len).product();
        if count == 0 || count > RUNS_MAX {
            return Err(wrong("vary", &count.to_string(), "1 to 10000 combinations"));
        }
        let mut combinations = vec![BTreeMap::new()];
        for (name, values) in &self.vary {
            let with = |value: &String, before: &BTreeMap<String, String>| {
                let mut all = before.clone();
                all.insert(name.clone(), value.clone());
                all
            };
            combinations = combinations
                .iter()
                .flat_map(|before| values.iter().map(move |value| with(value, before)))
                .collect();
        }
        combinations.into_iter().map(|values| self.run(values)).collect()
    }

    fn run(&self, values: BTreeMap<String, String>) -> Result<Run, PlanError> {
        let fill = |text: &str| {
            values.iter().fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
        };
        let duration_ns = time("duration", &fill(&self.duration))?;
        if !(MS_NS..=DURATION_NS_MAX).contains(&duration_ns) {
            return Err(wrong("duration", &fill(&self.duration), "1 ms to 4 hours"));
        }
        let links =
            self.links.iter().map(|link| link.resolve(&fill)).collect::<Result<Vec<_>, _>>();
        let links = links?;
        if links.is_empty() {
            return Err(wrong("link", "", "a plan needs at least one"));
        }
        let mut flows = Vec::new();
        for flow in &self.flows {
            flow.resolve(&fill, &links, duration_ns, &mut flows)?;
        }
        let suffix: String = values.values().map(|value| format!(" {value}")).collect();
        Ok(Run {
            name: format!("{}{suffix}", self.name),
            seed: self.seed,
            duration_ns,
            warmup_ns: time("warmup", &fill(&self.warmup))?.min(duration_ns),
            links: links.into_iter().map(|(link, _)| link).collect(),
            flows,
            values,
        })
    }
}

impl LinkPlan {
    /// The link and its largest packet.
    fn resolve(&self, fill: &impl Fn(&str) -> String) -> Result<(RunLink, u32), PlanError> {
        let words = fill(&self.path);
        let spec = PathSpec::parse(&words.split_whitespace().collect::<Vec<_>>());
        let spec = spec.map_err(|error| wrong("path", &words, &error.to_string()))?;
        let link = RunLink {
            name: self.name.clone(),
            described: spec.to_string(),
            configs: spec.links(),
            rtt_ns: spec.rtt_ns(),
        };
        Ok((link, u32::from(spec.mtu)))
    }
}

impl FlowPlan {
    fn resolve(
        &self,
        fill: &impl Fn(&str) -> String,
        links: &[(RunLink, u32)],
        duration_ns: u64,
        flows: &mut Vec<RunFlow>,
    ) -> Result<(), PlanError> {
        let count_text = fill(&self.count);
        let count = count_text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
        let count = count.ok_or_else(|| wrong("count", &count_text, "a number up to 100000"))?;
        let via = self.route(links)?;
        let mtu = via.iter().map(|link| links[*link].1).min().unwrap_or(1500);
        let shape = self.shape(fill, mtu, duration_ns)?;
        let engine = fill(&self.engine);
        let whole_stack = match engine.as_str() {
            "reference" => false,
            "shuttle" => true,
            _ => return Err(wrong("engine", &engine, "reference or shuttle")),
        };
        let stagger_ns = time("stagger", &fill(&self.stagger))?;
        flows.extend((0..count).map(|number| RunFlow {
            controller: fill(&self.controller),
            shape: Shape {
                start_ns: shape.start_ns.saturating_add(number.saturating_mul(stagger_ns)),
                ..shape
            },
            whole_stack,
            via: via.clone(),
        }));
        Ok(())
    }

    fn route(&self, links: &[(RunLink, u32)]) -> Result<Vec<usize>, PlanError> {
        if self.via.is_empty() {
            return Ok((0..links.len()).collect());
        }
        let find = |name: &String| {
            let found = links.iter().position(|(link, _)| link.name == *name);
            found.ok_or_else(|| wrong("via", name, "no link has this name"))
        };
        self.via.iter().map(find).collect()
    }

    fn shape(
        &self,
        fill: &impl Fn(&str) -> String,
        mtu: u32,
        duration_ns: u64,
    ) -> Result<Shape, PlanError> {
        let over = fill(&self.over);
        let (overhead_octets, ack_octets) = match over.as_str() {
            "udp" => (IPV4_UDP_OCTETS, UDP_ACK_OCTETS),
            "tcp" => (IPV4_TCP_OCTETS, TCP_ACK_OCTETS),
            _ => return Err(wrong("over", &over, "udp or tcp")),
        };
        let datagram_octets = mtu - overhead_octets;
        let acks = fill(&self.acks);
        let stop = self.stop.as_ref().map(|stop| time("stop", &fill(stop))).transpose()?;
        let size = self.size.as_ref().map(|size| {
            let size = fill(size);
            parse_octets(&size).map_err(|error| wrong("size", &size, &error.to_string()))
        });
        let octets = size.transpose()?;
        Ok(Shape {
            datagram_octets,
            overhead_octets,
            ack_octets,
            acks: match acks.as_str() {
                "each" => Acks::Each,
                "timed" => Acks::Timed,
                _ => return Err(wrong("acks", &acks, "each or timed")),
            },
            start_ns: time("start", &fill(&self.start))?,
            stop_ns: stop.unwrap_or(duration_ns),
            size_packets: octets
                .map_or(u64::MAX / 2, |octets| octets.div_ceil(u64::from(datagram_octets)).max(1)),
        })
    }
}

fn time(key: &'static str, text: &str) -> Result<u64, PlanError> {
    parse_time_ns(text).map_err(|error| wrong(key, text, &error.to_string()))
}

fn wrong(key: &'static str, value: &str, why: &str) -> PlanError {
    PlanError::Value { key, value: value.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
        name = "two"
        about = "Two flows."
        duration = "{length}"
        [vary]
        length = ["1s", "2s"]
        loss = ["0%", "1%"]
        [[link]]
        name = "core"
        path = "70ms {loss} 1gbit"
        [[flow]]
        controller = "cubic"
        over = "tcp"
        acks = "each"
        count = "2"
        stagger = "100ms"
        size = "1MB"
    "#;

    #[test]
    fn every_combination_is_a_run() {
        let runs = Plan::parse(PLAN).unwrap().runs().unwrap();
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["two 1s 0%", "two 1s 1%", "two 2s 0%", "two 2s 1%"]);
        let flow = &runs[0].flows[1];
        assert_eq!((flow.shape.datagram_octets, flow.shape.start_ns), (1448, 100_000_000));
        assert_eq!((flow.shape.size_packets, &flow.via), (691, &vec![0]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |from: &str, to: &str| {
            let plan = Plan::parse(&PLAN.replace(from, to));
            plan.and_then(|plan| plan.runs()).unwrap_err().to_string()
        };
        assert!(refused("70ms", "70").contains("path"));
        assert!(refused("\"2\"", "\"many\"").contains("count"));
        assert!(refused("\"tcp\"", "\"carrier\"").contains("udp or tcp"));
        assert!(refused("\"each\"", "\"never\"").contains("timed"));
        assert!(refused("\"1s\"", "\"0s\"").contains("4 hours"));
        assert!(refused("size", "weight").contains("weight"));
        assert!(refused("[\"1s\", \"2s\"]", "[]").contains("combinations"));
    }
}
