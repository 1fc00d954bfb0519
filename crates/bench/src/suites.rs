//! The suites: each is some figures, and the probes that their points come from.
//!
//! A suite is a function from a [`Scope`] to [`Draft`]s. Figures share series where they show the
//! same thing, and what several figures need is measured once.

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

pub use draft::{Draft, Scope};

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
