//! `apps`: two programs of filters and streams over SDP in its basic and its enhanced mode.
//!
//! After figure 4 of Balaji and others' paper on SDP over hybrid stacks. The programs are those of
//! `examples/`.

use super::draft::{FigureDraft, Scope, Words};
use crate::figure::{Bound, Scale};
use crate::probes::BenchProbe;
use crate::probes::examples::{Example, Filters};
use crate::probes::pattern::PatternTransport;

/// Basic SDP and enhanced SDP over each layer below.
const PAIRS: [(&str, [PatternTransport; 2]); 2] =
    [("iWARP", PatternTransport::sdp(true)), ("Shuttle", PatternTransport::sdp(false))];

/// What is measured; the two of the paper come first.
const PLACES: [(Example, &str); 4] = [
    (Example::Microscope, "1K"),
    (Example::Isosurface, "8K"),
    (Example::Microscope, "8K"),
    (Example::Isosurface, "1K"),
];

const WORDS: Words = Words {
    id: "apps",
    title: "Applications of filters and streams",
    paper: "Balaji and others, figure 4",
    shape: "A virtual microscope of five filters with units of work of 1 KB, and iso-surface \
            rendering by four with units of 8 KB, get some 5 % more done over enhanced SDP than \
            over basic SDP.",
    here: "Units of work in a second, over all streams, of the same two programs with units of 1 \
           KB and 8 KB: each filter a process, plain blocking sockets over loopback, unchanged by \
           `weft run --sockets` and by kernel TCP.",
    limits: "The data are tens of megabytes that are asked for again and again, not a gigabyte; \
             five processes share the processors that there are, so that what SDP costs is missing \
             where the filters compute.",
};

/// The figure.
pub fn drafts(scope: &Scope) -> Vec<FigureDraft> {
    let mut draft =
        FigureDraft::new(WORDS, ("program and unit", Scale::Names), ("units/s", Scale::Linear));
    let count = if scope.quick { 2 } else { PLACES.len() };
    for (at, (example, unit)) in (0..).zip(&PLACES[..count]) {
        for way in PAIRS.into_iter().flat_map(|(_, ways)| ways).chain([PatternTransport::Tcp]) {
            let probe = Filters::new(*example, way, unit, scope.quick);
            let place = format!("{} {unit}", example.label());
            draft.place(way.label(), at, &place, probe.name());
            draft.measure(probe);
        }
    }
    for (below, [basic, enhanced]) in PAIRS {
        for (at, (example, unit)) in (0..).zip(&PLACES[..count]) {
            let what = format!("{} {unit}", example.label());
            draft.claim(
                &format!("Enhanced SDP over {below} gets a twentieth more done, {what}"),
                ((enhanced.label(), at), (basic.label(), at)),
                Bound::Least(1.03),
                "The filters compute, and the change of threads between program and library costs \
                 the same in either mode.",
            );
        }
    }
    vec![draft]
}
