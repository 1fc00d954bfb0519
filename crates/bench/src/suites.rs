//! The suites: each is some figures, and the probes that their points come from.
//!
//! A suite is a function from a [`Scope`] to [`FigureDraft`]s. Figures share series where they show
//! the same thing, and what several figures need is measured once.

mod api;
mod applications;
mod bandwidth;
mod bidirectional;
mod draft;
mod latency;
mod load;
mod mpi;
mod offload;
mod rendezvous;
mod sdp;
mod wan;

pub use draft::{FigureDraft, Scope};

/// A suite.
#[derive(Clone, Copy, Debug)]
pub struct BenchSuite {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    drafts: fn(&Scope) -> Vec<FigureDraft>,
}

/// All of them, in the order in which they are shown.
pub const SUITES: [BenchSuite; 16] = [
    BenchSuite { name: "latency", about: "a message to and fro", drafts: latency::drafts },
    BenchSuite { name: "bandwidth", about: "a stream of messages", drafts: bandwidth::drafts },
    BenchSuite { name: "bidirectional", about: "streams both ways", drafts: bidirectional::drafts },
    BenchSuite { name: "mpi-overhead", about: "what MPI takes", drafts: mpi::overhead },
    BenchSuite {
        name: "cpu-availability",
        about: "what computing takes",
        drafts: mpi::availability,
    },
    BenchSuite { name: "api", about: "what each call costs", drafts: api::calls },
    BenchSuite { name: "registration", about: "what memory costs", drafts: api::registration },
    BenchSuite { name: "overlap", about: "computing meanwhile", drafts: load::overlap },
    BenchSuite { name: "progress", about: "reading from who computes", drafts: load::progress },
    BenchSuite { name: "server-load", about: "computing among clients", drafts: load::server },
    BenchSuite {
        name: "rendezvous",
        about: "asking for the place",
        drafts: rendezvous::rendezvous,
    },
    BenchSuite { name: "sdp", about: "sockets over RDMA", drafts: sdp::drafts },
    BenchSuite { name: "apps", about: "filters and streams", drafts: applications::drafts },
    BenchSuite { name: "wan", about: "a long path that loses", drafts: wan::drafts },
    BenchSuite { name: "connections", about: "how they begin", drafts: rendezvous::connections },
    BenchSuite { name: "offload-modes", about: "who moves the data", drafts: offload::drafts },
];

impl BenchSuite {
    /// Its figures.
    pub fn drafts(&self, scope: &Scope) -> Vec<FigureDraft> {
        let mut drafts = (self.drafts)(scope);
        for draft in &mut drafts {
            self.name.clone_into(&mut draft.figure.suite);
        }
        drafts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn drafts(quick: bool) -> Vec<FigureDraft> {
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
        let count =
            |drafts: &[FigureDraft]| drafts.iter().map(|draft| draft.probes.len()).sum::<usize>();
        assert!(quick.len() <= whole.len());
        assert!(count(&quick) < count(&whole));
        assert!(quick.iter().all(|draft| !draft.figure.claims.is_empty()));
    }
}
