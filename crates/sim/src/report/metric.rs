//! Values of an outcome by name.

use crate::run::{FlowOutcome, LinkOutcome, RunOutcome, jain};

/// A value of an outcome: `share`, or `payload:cubic` for the flows of one label.
#[derive(Clone, Debug)]
pub struct Metric {
    kind: &'static MetricKind,
    label: Option<String>,
    /// How its values are written.
    unit: MetricUnit,
}

/// A name, what its values are, and where they are found.
#[derive(Debug)]
struct MetricKind {
    name: &'static str,
    unit: MetricUnit,
    find: fn(&Selection<'_>) -> Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum MetricUnit {
    BitsPerSecond,
    Nanoseconds,
    Part,
    /// How often something is contained in the value.
    Times,
}

/// The flows that a value is about.
struct Selection<'a> {
    outcome: &'a RunOutcome,
    label: Option<&'a str>,
}

/// Every metric; `docs/simulator.md` says what they are.
const KINDS: [MetricKind; 26] = [
    kind("payload", MetricUnit::BitsPerSecond, |s| Some(s.payload())),
    kind("flow", MetricUnit::BitsPerSecond, |s| s.mean(|f| Some(f.payload_bps as f64))),
    kind("share", MetricUnit::Part, |s| Some(s.outcome.total.share_of_ceiling)),
    kind("part", MetricUnit::Part, |s| s.part()),
    kind("jain", MetricUnit::Part, |s| s.jain()),
    kind("streams", MetricUnit::Part, |s| s.mean(|f| f.streams_jain)),
    kind("queue", MetricUnit::Nanoseconds, |s| s.most(|link| link.queue_mean_ns as f64)),
    kind("queue99", MetricUnit::Nanoseconds, |s| s.most(|link| link.queue_p99_ns as f64)),
    kind("dropped", MetricUnit::Part, |s| s.most(|link| link.dropped_bdp)),
    kind("policed", MetricUnit::Part, |s| s.most(policed)),
    kind("overrun", MetricUnit::Part, |s| s.most(|link| link.overrun)),
    kind("t50", MetricUnit::Nanoseconds, |s| s.outcome.total.t50_ns.map(|ns| ns as f64)),
    kind("t90", MetricUnit::Nanoseconds, |s| s.outcome.total.t90_ns.map(|ns| ns as f64)),
    kind("t90rtt", MetricUnit::Times, |s| s.round_trips(s.outcome.total.t90_ns)),
    kind("back", MetricUnit::Nanoseconds, |s| s.outcome.total.back_ns.map(|ns| ns as f64)),
    kind("backrtt", MetricUnit::Times, |s| s.round_trips(s.outcome.total.back_ns)),
    kind("fair", MetricUnit::Nanoseconds, |s| s.outcome.total.fair_ns.map(|ns| ns as f64)),
    kind("resent", MetricUnit::Part, |s| s.ratio(|f| f.resent, |f| f.lost - f.spurious)),
    kind("spurious", MetricUnit::Part, |s| s.ratio(|f| f.spurious, |f| f.sent)),
    kind("delivered", MetricUnit::Part, |s| s.ratio(|f| f.arrived, |f| f.sent)),
    kind("twice", MetricUnit::Part, |s| s.ratio(|f| f.twice, |f| f.sent)),
    kind("late", MetricUnit::Part, |s| s.ratio(|f| f.late, |f| f.sent)),
    kind("acks", MetricUnit::Part, |s| Some(s.outcome.total.acks_per_data)),
    kind("completion", MetricUnit::Nanoseconds, |s| {
        s.mean(|f| f.completion_ns.map(|ns| ns as f64))
    }),
    kind("slowdown", MetricUnit::Times, |s| s.mean(|f| f.slowdown)),
    kind("slowdown99", MetricUnit::Times, |s| s.slowdown_p99()),
];

const fn kind(
    name: &'static str,
    unit: MetricUnit,
    find: fn(&Selection<'_>) -> Option<f64>,
) -> MetricKind {
    MetricKind { name, unit, find }
}

impl Metric {
    /// The metric of a name, if there is one.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, label) = match text.split_once(':') {
            Some((name, label)) => (name, Some(label.to_owned())),
            None => (text, None),
        };
        let kind = KINDS.iter().find(|kind| kind.name == name)?;
        Some(Self { kind, label, unit: kind.unit })
    }

    /// The same; if `is_ratio`, its values are shown as those that were divided by others of it.
    pub fn as_ratio(self, is_ratio: bool) -> Self {
        if is_ratio { Self { unit: MetricUnit::Part, ..self } } else { self }
    }

    /// The names that there are.
    pub fn names() -> String {
        KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
    }

    /// Its value, if the outcome has one: bits per second, nanoseconds, or a plain number.
    pub fn of(&self, outcome: &RunOutcome) -> Option<f64> {
        let selection = Selection { outcome, label: self.label.as_deref() };
        (self.kind.find)(&selection)
    }

    /// A value of it for people.
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            _ if value == 0.0 => plain(value),
            MetricUnit::BitsPerSecond => scaled(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k")]),
            MetricUnit::Nanoseconds => scaled(value, &NANOSECONDS),
            MetricUnit::Part => plain(value),
            MetricUnit::Times => weft_chart::number(value),
        }
    }
}

impl<'a> Selection<'a> {
    fn flows(&self) -> impl Iterator<Item = &'a FlowOutcome> {
        let label = self.label;
        let is_own = move |flow: &&FlowOutcome| label.is_none_or(|label| flow.label == label);
        self.outcome.flows.iter().filter(is_own)
    }

    fn payload(&self) -> f64 {
        self.flows().map(|flow| flow.payload_bps as f64).sum()
    }

    fn part(&self) -> Option<f64> {
        let all: u64 = self.outcome.flows.iter().map(|flow| flow.goodput_bps).sum();
        let own: u64 = self.flows().map(|flow| flow.goodput_bps).sum();
        (all > 0).then(|| own as f64 / all as f64)
    }

    /// Of the flows of the label, or the least of all labels.
    fn jain(&self) -> Option<f64> {
        if self.label.is_some() {
            let rates: Vec<f64> = self.flows().map(|flow| flow.goodput_bps as f64).collect();
            return Some(jain(&rates));
        }
        self.outcome.groups.iter().map(|group| group.jain).min_by(f64::total_cmp)
    }

    fn most(&self, of: impl Fn(&LinkOutcome) -> f64) -> Option<f64> {
        self.outcome.links.iter().map(of).max_by(f64::total_cmp)
    }

    fn round_trips(&self, ns: Option<u64>) -> Option<f64> {
        Some(ns? as f64 / self.outcome.rtt_ns.max(1) as f64)
    }

    fn ratio(&self, above: fn(&FlowOutcome) -> u64, below: fn(&FlowOutcome) -> u64) -> Option<f64> {
        let sum = |of: fn(&FlowOutcome) -> u64| self.flows().map(of).sum::<u64>();
        (sum(below) > 0).then(|| sum(above) as f64 / sum(below) as f64)
    }

    /// None unless every flow has a value.
    fn all(&self, of: impl Fn(&FlowOutcome) -> Option<f64>) -> Option<Vec<f64>> {
        self.flows().map(of).collect::<Option<Vec<_>>>().filter(|values| !values.is_empty())
    }

    fn mean(&self, of: impl Fn(&FlowOutcome) -> Option<f64>) -> Option<f64> {
        let values = self.all(of)?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    fn slowdown_p99(&self) -> Option<f64> {
        let mut values = self.all(|flow| flow.slowdown)?;
        values.sort_by(f64::total_cmp);
        Some(values[(values.len() - 1) * 99 / 100])
    }
}

fn policed(link: &LinkOutcome) -> f64 {
    link.counters.dropped_policer as f64 / link.counters.offered.max(1) as f64
}

const NANOSECONDS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];

/// A part, or a ratio. Tables of parts are easier to read without the zero that they all have.
fn plain(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        _ if value < 0.001 => format!("{value:.1e}"),
        ..1.0 => format!("{value:.3}").trim_start_matches('0').into(),
        ..10.0 => format!("{value:.3}"),
        ..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Three digits and a unit.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let found = units.iter().find(|(size, _)| value >= 0.9995 * size).or(units.last());
    let Some((size, name)) = found else { return plain(value) };
    let number = value / size;
    let digits = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_their_unit() {
        let show = |name: &str, value| Metric::parse(name).unwrap().show(value);
        assert_eq!(show("payload", 95.44e9), "95.4 G");
        assert_eq!(show("payload:cubic", 8.6e6), "8.60 M");
        assert_eq!(show("queue", 310_000.0), "310 us");
        assert_eq!(show("t90", 843e6), "843 ms");
        assert_eq!(show("queue", 45.0), "45.0 ns");
        assert_eq!(show("queue", 0.0), "0");
        let ratio = |value| Metric::parse("payload").unwrap().as_ratio(true).show(value);
        assert_eq!((ratio(0.97), ratio(120.0)), (".970".into(), "120.0".into()));
        assert_eq!(show("spurious", 0.00003), "3.0e-5");
        assert_eq!((show("share", 0.9996), show("share", 0.0012)), ("1.000".into(), ".001".into()));
        assert_eq!((show("t90rtt", 12.04), show("slowdown", 2.6)), ("12.0".into(), "2.60".into()));
        assert!(Metric::parse("colour").is_none());
    }

    #[test]
    fn no_two_have_a_name() {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
    }
}
