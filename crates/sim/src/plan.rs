//! Plans: what people write about a simulation, in TOML.
//!
//! A plan is one run, or with a table `vary` one run for every combination of its values, which
//! stand in the plan's texts in braces: `path = "70ms {loss} 1gbit"`. What follows from a value
//! stands in the table `given` of that value. Every link is written in degen's words.
//! [`SimPlan::runs`] gives runs that can be made without further questions.

mod flow;

use std::collections::{BTreeMap, BTreeSet};

use degen::link::LinkConfig;
use degen::spec::PathSpec;
use serde::Deserialize;
use weft_units::parse_time_ns;

use crate::reference::Shape;
use crate::report::{Metric, OutcomeTable, PublishedFigure, SimTarget};
use crate::run::RunOutcome;
use crate::stack::StackConfig;
use flow::FlowPlan;

/// A plan as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimPlan {
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
    /// More values in braces, by the one that they follow from.
    #[serde(default)]
    given: BTreeMap<String, BTreeMap<String, String>>,
    /// What others have published, to stand beside the results in tables.
    #[serde(default, rename = "figure")]
    figures: Vec<PublishedFigure>,
    /// Tables to be made of the results.
    #[serde(default, rename = "table")]
    pub tables: Vec<OutcomeTable>,
    /// What the results are to be.
    #[serde(default, rename = "target")]
    pub targets: Vec<SimTarget>,
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

/// A simulation, ready to be made.
#[derive(Clone, Debug)]
pub struct SimRun {
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
    /// What others have published for the same.
    pub published: Vec<PublishedFigure>,
}

/// A link of a run.
#[derive(Clone, Debug)]
pub struct RunLink {
    /// Its name.
    pub name: String,
    /// What it does, for people.
    pub described: String,
    /// Forward and back.
    pub configs: [LinkConfig; 2],
    /// Round trip without queues.
    pub rtt_ns: u64,
}

/// A flow of a run.
#[derive(Clone, Debug)]
pub struct RunFlow {
    /// Flows of one label are counted together.
    pub label: String,
    /// The name of its controller.
    pub controller: String,
    /// How it sends.
    pub shape: Shape,
    /// What it runs.
    pub engine: Engine,
    /// A rate that an earlier connection found here, to begin with.
    pub saved_bps: Option<u64>,
    /// Each link is a path of its own, instead of one path over all of them.
    pub spread: bool,
    /// The links that it passes, by number.
    pub via: Vec<usize>,
}

impl RunFlow {
    /// Whether something bounds what it has in flight: its own rate or size, or a link's rate.
    /// Otherwise it grows until there is no memory.
    fn has_limit(&self, links: &[(RunLink, u32)]) -> bool {
        let is_bounded = |link: &usize| {
            let config = &links[*link].0.configs[0];
            let rate = config.rate.clone().at(0);
            rate.is_some() || config.policer.is_some() || config.fading.is_some()
        };
        self.controller.starts_with("fixed:")
            || self.shape.size_octets.is_some()
            || self.via.iter().any(is_bounded)
    }
}

/// What a flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// An idealised transport around its controller.
    Reference,
    /// A pair of Shuttle's own connections.
    Shuttle(StackConfig),
    /// A pair of queue pairs for unreliable datagrams.
    Datagrams {
        /// The hosts have a key.
        is_sealed: bool,
    },
}

/// A plan that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum SimPlanError {
    /// It is not TOML, or lacks something.
    #[error("the plan is not valid TOML, or lacks something")]
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

const MS_NS: u64 = 1_000_000;
/// The meter keeps a number for every millisecond.
const DURATION_NS_MAX: u64 = 4 * 3600 * 1000 * MS_NS;
const RUNS_MAX: usize = 10_000;
const FLOWS_MAX: usize = 1_000_000;

fn nothing() -> String {
    "0s".into()
}

fn one() -> u64 {
    1
}

impl SimPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// It is not TOML or lacks something. Values are looked at by [`SimPlan::runs`].
    pub fn parse(text: &str) -> Result<Self, SimPlanError> {
        Ok(toml::from_str(text)?)
    }

    /// The runs of the plan, in the order of the values that vary.
    ///
    /// # Errors
    /// A value that cannot be understood, or too many runs.
    pub fn runs(&self) -> Result<Vec<SimRun>, SimPlanError> {
        self.check_links()?;
        self.check_reports()?;
        let count = self.vary.values().fold(1, |all: usize, some| all.saturating_mul(some.len()));
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
        let (mut runs, mut flows) = (Vec::new(), 0);
        for values in combinations {
            runs.push(self.run(values)?);
            flows += runs.last().map_or(0, |run| run.flows.len());
            if flows > FLOWS_MAX {
                return Err(wrong("count", &flows.to_string(), "a million flows in all runs"));
            }
        }
        Ok(runs)
    }

    /// What the plan has to say in a page: its tables, except those that are not meant for one.
    /// None if there is no such table.
    pub fn page(&self, outcomes: &[RunOutcome]) -> Option<String> {
        let tables = self.page_tables().map(|table| table.markdown(outcomes));
        Some(tables.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
    }

    /// The tables that have a place in a page.
    pub fn page_tables(&self) -> impl Iterator<Item = &OutcomeTable> {
        self.tables.iter().filter(|table| table.in_page)
    }

    /// Every link has a name of its own.
    fn check_links(&self) -> Result<(), SimPlanError> {
        let mut names = BTreeSet::new();
        match self.links.iter().find(|link| !names.insert(&link.name)) {
            Some(link) => Err(wrong("name", &link.name, "another link has this name")),
            None => Ok(()),
        }
    }

    /// Tables and targets name metrics and values that are there, and targets ask for something.
    fn check_reports(&self) -> Result<(), SimPlanError> {
        if let Some(target) = self.targets.iter().find(|target| target.asks_nothing()) {
            return Err(wrong("target", &target.name, "it needs at_least or at_most"));
        }
        let cells = self.tables.iter().flat_map(|table| &table.cells);
        let targets = self.targets.iter().map(|target| &target.metric);
        for metric in cells.chain(targets).chain(self.figures.iter().map(|figure| &figure.metric)) {
            if Metric::parse(metric).is_none() {
                return Err(wrong("metric", metric, &format!("there are {}", Metric::names())));
            }
        }
        for key in self.tables.iter().flat_map(|table| table.rows.iter().chain(&table.columns)) {
            if !self.vary.contains_key(key) {
                return Err(wrong("table", key, "nothing of this name varies"));
            }
        }
        let of = self.targets.iter().flat_map(|target| target.of.iter().chain(&target.per));
        let of = of.chain(self.figures.iter().flat_map(|figure| &figure.of));
        let of = of.chain(self.tables.iter().flat_map(|table| &table.per));
        let only = self.tables.iter().flat_map(|table| &table.only);
        let only = only.flat_map(|(key, some)| some.iter().map(move |value| (key, value)));
        for (key, value) in of.chain(only) {
            if !self.vary.get(key).is_some_and(|values| values.contains(value)) {
                return Err(wrong("of", &format!("{key} = {value}"), "no run has this value"));
            }
        }
        Ok(())
    }

    fn run(&self, values: BTreeMap<String, String>) -> Result<SimRun, SimPlanError> {
        let fill = |text: &str| {
            // What is given may itself name what varies.
            let given = values.values().filter_map(|value| self.given.get(value)).flatten();
            given.chain(&values).fold(text.to_owned(), |text, (name, value)| {
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
        let warmup_ns = time("warmup", &fill(&self.warmup))?;
        if warmup_ns >= duration_ns {
            let why = "nothing is counted; make it shorter than duration";
            return Err(wrong("warmup", &fill(&self.warmup), why));
        }
        let mut flows = Vec::new();
        for flow in &self.flows {
            flow.resolve(&fill, &links, duration_ns, &mut flows)?;
        }
        if let Some(flow) = flows.iter().find(|flow| !flow.has_limit(&links)) {
            let path = fill(&self.links[flow.via.first().copied().unwrap_or(0)].path);
            let why = format!("a flow of {} needs a rate here, such as 1gbit", flow.controller);
            return Err(wrong("path", &path, &why));
        }
        let suffix: String = values.values().map(|value| format!(" {value}")).collect();
        Ok(SimRun {
            name: format!("{}{suffix}", self.name),
            seed: self.seed,
            duration_ns,
            warmup_ns,
            links: links.into_iter().map(|(link, _)| link).collect(),
            flows,
            published: self
                .figures
                .iter()
                .filter(|figure| figure.is_of(&values))
                .cloned()
                .collect(),
            values,
        })
    }
}

impl LinkPlan {
    /// The link and its largest packet.
    fn resolve(&self, fill: &impl Fn(&str) -> String) -> Result<(RunLink, u32), SimPlanError> {
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

fn time(key: &'static str, text: &str) -> Result<u64, SimPlanError> {
    parse_time_ns(text).map_err(|error| wrong(key, text, &error.to_string()))
}

fn wrong(key: &'static str, value: &str, why: &str) -> SimPlanError {
    SimPlanError::Value { key, value: value.to_owned(), why: why.to_owned() }
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
    fn a_flow_that_nothing_limits_is_refused() {
        let runs =
            |path: &str| SimPlan::parse(&PLAN.replace("70ms {loss} 1gbit", path)).unwrap().runs();
        let endless = |path: &str| {
            let text = PLAN.replace("70ms {loss} 1gbit", path).replace("size = \"1MB\"", "");
            SimPlan::parse(&text).unwrap().runs()
        };
        assert!(runs("70ms {loss}").is_ok() && endless("70ms {loss} 1gbit").is_ok());
        let error = endless("70ms {loss}").unwrap_err().to_string();
        assert!(error.contains("a flow of cubic needs a rate here, such as 1gbit"), "{error}");
    }

    #[test]
    fn every_combination_is_a_run() {
        let runs = SimPlan::parse(PLAN).unwrap().runs().unwrap();
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["two 1s 0%", "two 1s 1%", "two 2s 0%", "two 2s 1%"]);
        let flow = &runs[0].flows[1];
        assert_eq!((flow.shape.datagram_octets, flow.shape.start_ns), (1448, 100_000_000));
        assert_eq!((flow.shape.size_packets(), &flow.via), (691, &vec![0]));
    }

    #[test]
    fn what_follows_from_a_value_is_filled_in_too() {
        let text = PLAN.replace("\"cubic\"", "\"{kind}\"").replace(
            "[[link]]",
            "[given.\"0%\"]\nkind = \"weave\"\n[given.\"1%\"]\nkind = \"bbr1\"\n[[link]]",
        );
        let runs = SimPlan::parse(&text).unwrap().runs().unwrap();
        let controllers: Vec<&str> =
            runs.iter().map(|run| run.flows[0].controller.as_str()).collect();
        assert_eq!(controllers, ["weave", "bbr1", "weave", "bbr1"]);
    }

    /// Why the plan is refused with `to` in the place of `from`.
    fn refused(from: &str, to: &str) -> String {
        let plan = SimPlan::parse(&PLAN.replace(from, to));
        let error = plan.and_then(|plan| plan.runs()).unwrap_err();
        // With its causes, as the command prints it.
        format!("{:#}", anyhow::Error::from(error))
    }

    #[test]
    fn a_plan_that_measures_or_asks_nothing_is_refused() {
        assert!(refused("[vary]", "warmup = \"1s\"\n[vary]").contains("nothing is counted"));
        assert!(
            refused("size =", "start = \"1s\"\nsize =").contains("the run is over, after 1000ms")
        );
        assert!(refused("\"100ms\"", "\"1s\"").contains("`start = \"1000ms\"`"));
        let halt = |stop: &str| format!("start = \"500ms\"\nstop = \"{stop}\"\nsize =");
        assert!(refused("size =", &halt("600ms")).contains("`stop = \"600ms\"`"));
        assert!(SimPlan::parse(&PLAN.replace("size =", &halt("700ms"))).unwrap().runs().is_ok());
        let twin = "[[link]]\nname = \"core\"\npath = \"1ms\"\n[[flow]]";
        assert!(refused("[[flow]]", twin).contains("another link has this name"));
        let target = "[[target]]\nname = \"idle\"\nmetric = \"share\"\n[[link]]";
        assert!(refused("[[link]]", target).contains("it needs at_least or at_most"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(refused("70ms", "70").contains("path"));
        assert!(refused("\"2\"", "\"many\"").contains("count"));
        assert!(refused("\"tcp\"", "\"carrier\"").contains("udp or tcp"));
        assert!(refused("\"each\"", "\"never\"").contains("timed"));
        assert!(refused("\"1s\"", "\"0s\"").contains("4 hours"));
        assert!(refused("size", "weight").contains("weight"));
        assert!(refused("[\"1s\", \"2s\"]", "[]").contains("combinations"));
        assert!(refused("size =", "engine = \"shuttle\"\npulse = \"1s/2s\" #").contains("pulse"));
        assert!(
            refused("size = \"1MB\"", "start = \"0s\"\n[[flow]]\ncontroller = \"none\"")
                .contains("size")
        );
        assert!(refused("size =", "pulse = \"2s/1s\" #").contains("pulse"));
        let table = "[[table]]\ncells = [\"speed\"]\n[[link]]";
        assert!(refused("[[link]]", table).contains("speed"));
        let table = "[[table]]\ncells = [\"share\"]\nrows = [\"colour\"]\n[[link]]";
        assert!(refused("[[link]]", table).contains("colour"));
        let table = "[[table]]\ncells = [\"share\"]\nper = { loss = \"7%\" }\n[[link]]";
        assert!(refused("[[link]]", table).contains("7%"));
    }
}
