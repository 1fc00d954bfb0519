//! `bidirectional`: streams in both directions at once against one direction.
//!
//! After figure 6 of Dalessandro and Wyckoff's paper on the Ammasso adapter.

use super::bandwidth::{LINK, STREAM};
use super::draft::{FigureDraft, Scope, Words};
use crate::figure::{Bound, Scale};
use crate::probes::pattern::{Pattern, PatternProgram, PatternTransport};

/// RDMA Writes both ways at once.
const BOTH: PatternProgram =
    PatternProgram { pattern: "both", floor: "stream --both --call {}", ..STREAM };

const WAYS: [(PatternTransport, [&str; 2]); 3] = [
    (PatternTransport::Iwarp, ["Weft over iWARP, one way", "Weft over iWARP, both ways"]),
    (PatternTransport::Shuttle, ["Weft over Shuttle, one way", "Weft over Shuttle, both ways"]),
    (PatternTransport::Tcp, ["kernel TCP, one way", "kernel TCP, both ways"]),
];

const SHAPE: &str = "Both ways at once iWARP moves nearly twice as much as one way. TCP moves \
                     slightly less than one way.";
const LINKED: Words = Words {
    id: "bidirectional-link",
    title: "One way and both ways, on a link of 1 Gbit/s",
    paper: "Dalessandro and Wyckoff, figure 6",
    shape: SHAPE,
    here: "Streams across `weft wan` at 1 Gbit/s each way and 0.1 ms; both ways is the sum.",
    limits: "A processor of today can serve a link of 1 Gbit/s both ways by TCP too, so TCP \
             doubles as well: what the paper found was of processors that were full.",
};
const LOOPBACK: Words = Words {
    id: "bidirectional-loopback",
    title: "One way and both ways, where processors are the limit",
    paper: "Dalessandro and Wyckoff, figure 6",
    shape: SHAPE,
    here: "The same streams over loopback, each process on a processor of its own, both of which \
           are full one way already.",
    limits: "Without an adapter there is nobody to do the work of the other direction: neither \
             doubles. What is to be seen is whether the sum falls.",
};

/// The figures.
pub fn drafts(scope: &Scope) -> Vec<FigureDraft> {
    let sizes = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
    let sizes = if scope.quick { vec![1 << 16, 1 << 20] } else { sizes.to_vec() };
    let mut linked = FigureDraft::new(LINKED, ("bytes", Scale::Log), ("Gbit/s", Scale::Linear));
    plot(&mut linked, &sizes, Some(&scope.path(LINK)));
    let mut loopback = FigureDraft::new(LOOPBACK, ("bytes", Scale::Log), ("Gbit/s", Scale::Linear));
    plot(&mut loopback, &sizes, None);
    for (_, [one, both]) in &WAYS[..2] {
        linked.claim(
            &format!("{both}: nearly twice as much as one way"),
            ((both, 1 << 20), (one, 1 << 20)),
            Bound::Least(1.8),
            "Acknowledgements share each direction with the other one's data.",
        );
    }
    for (_, [one, both]) in WAYS {
        loopback.claim(
            &format!("{both}: the sum is no less than one way"),
            ((both, 1 << 20), (one, 1 << 20)),
            Bound::Least(0.95),
            "Both processors were full already.",
        );
    }
    vec![linked, loopback]
}

fn plot(draft: &mut FigureDraft, sizes: &[u64], path: Option<&str>) {
    for bytes in sizes {
        for (way, curves) in WAYS {
            for (curve, program) in curves.into_iter().zip([STREAM, BOTH]) {
                let pattern = Pattern::new(way, program, *bytes);
                let pattern = path.map_or(pattern.clone(), |path| pattern.clone().across(path));
                draft.point(curve, *bytes, pattern);
            }
        }
    }
}
