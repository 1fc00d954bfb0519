//! The suites: each is some figures, and the probes that their points come from.
//!
//! A suite is a function from a [`Scope`] to [`Draft`]s. Figures share series where they show the
//! same thing, and what several figures need is measured once.

mod api;
mod applications;
mod bandwidth;
mod bidirectional;
mod latency;
mod load;
mod mpi;
mod offload;
mod rendezvous;
mod sdp;
mod wan;

use crate::figure::{Axis, Bound, Claim, Curve, Figure, Point, Relation, Scale};
use crate::probes::Probe;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// A look: few points.
    pub quick: bool,
    /// What everything random on paths follows from.
    pub seed: u64,
}

/// A suite.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    drafts: fn(&Scope) -> Vec<Draft>,
}

/// All of them, in the order in which they are shown.
pub const SUITES: [Suite; 16] = [
    Suite { name: "latency", about: "a message to and fro", drafts: latency::drafts },
    Suite { name: "bandwidth", about: "a stream of messages", drafts: bandwidth::drafts },
    Suite { name: "bidirectional", about: "streams both ways", drafts: bidirectional::drafts },
    Suite { name: "mpi-overhead", about: "what MPI takes", drafts: mpi::overhead },
    Suite { name: "cpu-availability", about: "what computing takes", drafts: mpi::availability },
    Suite { name: "api", about: "what each call costs", drafts: api::calls },
    Suite { name: "registration", about: "what memory costs", drafts: api::registration },
    Suite { name: "overlap", about: "computing meanwhile", drafts: load::overlap },
    Suite { name: "progress", about: "reading from who computes", drafts: load::progress },
    Suite { name: "server-load", about: "computing among clients", drafts: load::server },
    Suite { name: "rendezvous", about: "asking for the place", drafts: rendezvous::rendezvous },
    Suite { name: "sdp", about: "sockets over RDMA", drafts: sdp::drafts },
    Suite { name: "apps", about: "filters and streams", drafts: applications::drafts },
    Suite { name: "wan", about: "a long path that loses", drafts: wan::drafts },
    Suite { name: "connections", about: "how they begin", drafts: rendezvous::connections },
    Suite { name: "offload-modes", about: "who moves the data", drafts: offload::drafts },
];

/// A figure that is being put together, and its probes.
pub struct Draft {
    /// The figure.
    pub figure: Figure,
    /// What its points come from.
    pub probes: Vec<Box<dyn Probe>>,
}

/// The words of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// [`Figure::id`].
    pub id: &'static str,
    /// [`Figure::title`].
    pub title: &'static str,
    /// [`Figure::paper`].
    pub paper: &'static str,
    /// [`Figure::shape`].
    pub shape: &'static str,
    /// [`Figure::here`].
    pub here: &'static str,
    /// [`Figure::limits`].
    pub limits: &'static str,
}

impl Scope {
    /// Of a quick look the first, the middle one and the last, else all.
    fn some(&self, all: &[u64]) -> Vec<u64> {
        match all {
            [first, .., last] if self.quick => vec![*first, all[all.len() / 2], *last],
            _ => all.to_vec(),
        }
    }

    /// A path in the words of `weft wan`, with the run's seed.
    fn path(&self, words: &str) -> String {
        format!("{words} seed={}", self.seed)
    }
}

impl Suite {
    /// Its figures.
    pub fn drafts(&self, scope: &Scope) -> Vec<Draft> {
        let mut drafts = (self.drafts)(scope);
        for draft in &mut drafts {
            self.name.clone_into(&mut draft.figure.suite);
        }
        drafts
    }
}

impl Draft {
    /// A figure without curves.
    fn new(words: Words, x: (&str, Scale), y: (&str, Scale)) -> Self {
        let axis = |(label, scale): (&str, Scale)| Axis { label: label.to_owned(), scale };
        let figure = Figure {
            id: words.id.to_owned(),
            title: words.title.to_owned(),
            paper: words.paper.to_owned(),
            shape: words.shape.to_owned(),
            here: words.here.to_owned(),
            limits: words.limits.to_owned(),
            x: axis(x),
            y: axis(y),
            ..Figure::default()
        };
        Self { figure, probes: Vec::new() }
    }

    /// A point whose height is the main series of a probe.
    fn point(&mut self, curve: &str, x: u64, probe: impl Probe + 'static) {
        let series = probe.name();
        self.measure(probe);
        self.place(curve, x, "", series);
    }

    /// A probe whose series are placed by themselves.
    fn measure(&mut self, probe: impl Probe + 'static) {
        self.probes.push(Box::new(probe));
    }

    /// A point whose height is a series of some probe.
    fn place(&mut self, curve: &str, x: u64, place: &str, series: String) {
        let (place, relation) = (place.to_owned(), Relation::Alone);
        let point = Point { x: x as f64, place, series, relation };
        match self.figure.curves.iter_mut().find(|known| known.name == curve) {
            Some(known) => known.points.push(point),
            None => {
                self.figure.curves.push(Curve { name: curve.to_owned(), points: vec![point] });
            }
        }
    }

    /// What the height of a curve's last point is of its series.
    fn relate(&mut self, curve: &str, relation: Relation) {
        let known = self.figure.curves.iter_mut().find(|known| known.name == curve);
        if let Some(last) = known.and_then(|known| known.points.last_mut()) {
            last.relation = relation;
        }
    }

    /// A claim about two series.
    fn claim_series(
        &mut self,
        text: &str,
        (over, under): (String, String),
        bound: Bound,
        otherwise: &str,
    ) {
        let (text, otherwise) = (text.to_owned(), otherwise.to_owned());
        self.figure.claims.push(Claim { text, over, under, bound, otherwise });
    }

    /// A claim about two points, each of a curve and a place; it is left out where one of them is
    /// not measured.
    fn claim(
        &mut self,
        text: &str,
        (over, under): ((&str, u64), (&str, u64)),
        bound: Bound,
        otherwise: &str,
    ) {
        let series =
            |(curve, x): (&str, u64)| Some(self.figure.curve(curve)?.at(x as f64)?.series.clone());
        if let (Some(over), Some(under)) = (series(over), series(under)) {
            self.claim_series(text, (over, under), bound, otherwise);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn drafts(quick: bool) -> Vec<Draft> {
        let scope = Scope { quick, seed: 1 };
        SUITES.iter().flat_map(|suite| suite.drafts(&scope)).collect()
    }

    #[test]
    fn every_figure_is_whole() {
        let mut ids = BTreeSet::new();
        for draft in drafts(false) {
            let figure = &draft.figure;
            assert!(ids.insert(figure.id.clone()), "{} twice", figure.id);
            for words in [&figure.title, &figure.paper, &figure.shape, &figure.here] {
                assert!(!words.is_empty(), "{}", figure.id);
            }
            assert!(!figure.claims.is_empty(), "{} claims nothing", figure.id);
            assert!(figure.curves.len() > 1, "{} has nothing beside", figure.id);
            for curve in &figure.curves {
                assert!(curve.points.is_sorted_by(|a, b| a.x < b.x), "{}", curve.name);
            }
        }
    }

    #[test]
    fn a_look_is_smaller_and_checks_something() {
        let (quick, whole) = (drafts(true), drafts(false));
        let count = |drafts: &[Draft]| drafts.iter().map(|draft| draft.probes.len()).sum::<usize>();
        assert!(quick.len() <= whole.len());
        assert!(count(&quick) < count(&whole));
        assert!(quick.iter().all(|draft| !draft.figure.claims.is_empty()));
    }
}
