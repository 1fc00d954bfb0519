//! `offload-modes`: bandwidth and CPU time by who moves the data.
//!
//! After appendix A.3 of the HP-WAN gap analysis, where iWARP is done by the host, by the adapter,
//! or by both.

use super::bandwidth::STREAM;
use super::draft::{FigureDraft, Scope, Words};
use crate::figure::{Bound, Scale};
use crate::probes::pattern::{Pattern, PatternTransport};

/// The modes, and what they stand for.
const MODES: [(&str, &str); 3] = [
    ("inline", "inline (the program's threads)"),
    ("engine", "engine (a thread of Weft's)"),
    ("hybrid", "hybrid (whoever is there)"),
];
const TCP: &str = "kernel TCP";
const LARGE: u64 = 256 << 10;

const RATE: Words = Words {
    id: "offload-bandwidth",
    title: "Bandwidth by who moves the data",
    paper: "HP-WAN gap analysis, appendix A.3",
    shape: "Of iWARP done by the host, by the adapter, or by both together, the last reaches most \
            (5.8 for messages of 256 KB, beside 1.8 by the host and 3.5 by the adapter), and none \
            fills the adapter.",
    here: "RDMA Writes over iWARP on loopback with `WEFT_PROGRESS` as inline, engine and hybrid: \
           the program's own thread in place of the host, Weft's thread in place of the adapter.",
    limits: "Weft's thread has no processor of its own here: each process is held on one, as \
             everywhere here. Markers, which the draft blames, are off by default.",
};
const COST: Words = Words {
    id: "offload-cpu",
    title: "Processor time by who moves the data",
    paper: "HP-WAN gap analysis, appendix A.3",
    shape: "The adapter leaves the host at 10 % whatever the size; the host alone takes up to \
            75 %, both together 80 %.",
    here: "Processor seconds of both processes for 10^9 bytes, in the same runs.",
    limits: "There is no adapter to take the work away: a thread of Weft's costs processor time \
             too. A program that polls uses all of its processor whatever moves.",
};

/// The figures.
pub fn drafts(scope: &Scope) -> Vec<FigureDraft> {
    let mut rate = FigureDraft::new(RATE, ("bytes", Scale::Log), ("Gbit/s", Scale::Log));
    let mut cost = FigureDraft::new(COST, ("bytes", Scale::Log), ("CPU s/GB", Scale::Log));
    for bytes in scope.some(&[128, 1 << 10, 16 << 10, LARGE]) {
        for (mode, curve) in MODES {
            let with =
                Pattern::new(PatternTransport::Iwarp, STREAM, bytes).with("WEFT_PROGRESS", mode);
            cost.place(curve, bytes, "", with.cost());
            rate.point(curve, bytes, with);
        }
        let tcp = Pattern::new(PatternTransport::Tcp, STREAM, bytes);
        cost.place(TCP, bytes, "", tcp.cost());
        rate.point(TCP, bytes, tcp);
    }
    let [inline, engine, hybrid] = MODES.map(|(_, curve)| curve);
    for (other, name) in [(inline, "inline"), (engine, "engine")] {
        rate.claim(
            &format!("Hybrid moves at least as much as {name} does, in messages of 256 KiB"),
            ((hybrid, LARGE), (other, LARGE)),
            Bound::Least(0.9),
            "Who polls does the same work without Weft's thread.",
        );
    }
    cost.claim(
        "Hybrid costs no more than what Weft's thread alone costs, in messages of 256 KiB",
        ((hybrid, LARGE), (engine, LARGE)),
        Bound::Most(1.1),
        "A program that polls and a thread that works take turns on one processor.",
    );
    vec![rate, cost]
}
