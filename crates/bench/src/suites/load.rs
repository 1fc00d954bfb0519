//! `overlap`, `progress` and `server-load`: RDMA of an application that computes.
//!
//! After figures 5, 6 and 7 of Jin and others' paper on RDMA over IP in the WAN.

use super::draft::{FigureDraft, Scope, WAYS, Words};
use crate::figure::{Bound, Scale};
use crate::probes::pattern::{Pattern, PatternProgram};

const FETCH: PatternProgram = PatternProgram {
    verbs: ("load", include_str!("../../c/load.c")),
    pattern: "fetch",
    floor: "fetch --load {}",
};
const OVERLAP: PatternProgram =
    PatternProgram { pattern: "overlap", floor: "overlap --load {}", ..FETCH };
const CROWD: PatternProgram =
    PatternProgram { pattern: "crowd", floor: "crowd --bytes {}", ..FETCH };

/// Microseconds in the load of the figures over delays.
const LOAD_US: u64 = 16_000;
const FIXED_US: u64 = 242_000;
/// Bytes of a message in the figure of a server over delays.
const CROWD_BYTES: u64 = 16 << 10;

const COMPUTING: Words = Words {
    id: "overlap-computation",
    title: "Overlap against computation",
    paper: "Jin and others, figure 5 (a)",
    shape: "The share of computing in the time between a message and its answer comes near 1 \
            with less computing by RDMA than by sockets.",
    here: "1 KB goes to and fro, by RDMA Writes into memory that is watched or by sockets that do \
           not block; between the two the side that began computes for so long.",
    limits: "Nobody but this processor receives: over Weft a thread interrupts the computing for \
             it, and the paper's adapter did not. The other side watches its memory on the same \
             processor that must receive for it.",
};
const DELAYED: Words = Words {
    id: "overlap-delay",
    title: "Overlap against the delay of the path",
    paper: "Jin and others, figure 5 (b)",
    shape: "With a fixed computation of 242 ms both overlap nearly all of it; RDMA is ahead by a \
            little, and less so with more delay.",
    here: "The same with 242 ms of computing through `weft wan`, with this delay each way.",
    limits: "The router shares the processors with both ends.",
};
const PROGRESS: Words = Words {
    id: "progress-load",
    title: "Fetching 1 KB from a program that computes",
    paper: "Jin and others, figure 6 (a)",
    shape: "By RDMA Read it takes the same time whatever the load; by sockets as much longer as \
            the program computes before it answers.",
    here: "RDMA Reads from a program that never looks up from computing, beside a request and an \
           answer by sockets, before which the program computes for so long.",
    limits: "Weft's thread must get the processor from the program that computes, for some \
             microseconds each time; an adapter need not.",
};
const PROGRESS_DELAY: Words = Words {
    id: "progress-delay",
    title: "Fetching 1 KB across a path, with a load of 16 ms",
    paper: "Jin and others, figure 6 (b)",
    shape: "The more delay, the less the load counts; RDMA stays ahead.",
    here: "The same with 16 ms of computing through `weft wan`, with this delay each way.",
    limits: "The router shares the processors with the program that computes.",
};
const CROWDED: Words = Words {
    id: "server-load",
    title: "A program that computes while 40 clients send",
    paper: "Jin and others, figure 7 (a)",
    shape: "With clients that send by sockets the program takes many times as long, for all sizes; \
            with clients that write by RDMA hardly longer than alone.",
    here: "The time of a fixed computation beside its time without clients, while 40 connections \
           bring 1 Gbit/s together: by RDMA Writes, or by sockets that a thread of the program \
           reads.",
    limits: "Without an adapter somebody must receive, on the program's own processor; so the \
             clients keep a rate, the same by each way, and do not send what they can.",
};

const CROWDED_FAR: Words = Words {
    id: "server-load-delay",
    title: "A program that computes while 40 clients send from afar",
    paper: "Jin and others, figure 7 (b)",
    shape: "With clients that send messages of 16 KB by sockets the program takes much longer \
            across any delay; with clients that write by RDMA as long as alone across each.",
    here: "The same with messages of 16 KiB through `weft wan`, with this delay each way.",
    limits: "As without delay. The router has a real-time priority and shares the processors with \
             the program that computes: what it takes counts as the clients', by each way.",
};

/// The figures of overlap.
pub fn overlap(scope: &Scope) -> Vec<FigureDraft> {
    let ratio = ("share of computing", Scale::Linear);
    let mut near = FigureDraft::new(COMPUTING, ("computing, us", Scale::Log), ratio);
    near.plot(&scope.some(&[10, 30, 100, 300, 1000, 3000]), |way, load| {
        Pattern::new(way, OVERLAP, load)
    });
    let mut far = FigureDraft::new(DELAYED, ("delay each way, ms", Scale::Linear), ratio);
    across(&mut far, scope, OVERLAP, FIXED_US);
    for (curve, _) in &WAYS[..2] {
        near.claim(
            &format!("{curve} overlaps no less than sockets with 3 ms of computing"),
            ((curve, 3000), (WAYS[2].0, 3000)),
            Bound::Least(0.95),
            "The thread that receives and the program that computes share a processor.",
        );
        far.claim(
            &format!("{curve} overlaps no less than sockets across 4 ms"),
            ((curve, 4), (WAYS[2].0, 4)),
            Bound::Least(0.95),
            "The router, both ends and Weft's threads share two processors.",
        );
    }
    vec![near, far]
}

/// The figures of progress.
pub fn progress(scope: &Scope) -> Vec<FigureDraft> {
    let mut near = FigureDraft::new(PROGRESS, ("load, us", Scale::Linear), ("us", Scale::Log));
    near.plot(&scope.some(&[0, 1000, 4000, 8000, 16_000]), |way, load| {
        Pattern::new(way, FETCH, load)
    });
    let mut far = FigureDraft::new(
        PROGRESS_DELAY,
        ("delay each way, ms", Scale::Linear),
        ("us", Scale::Linear),
    );
    across(&mut far, scope, FETCH, LOAD_US);
    for (curve, _) in &WAYS[..2] {
        near.claim(
            &format!("{curve}: a load of 16 ms does not show"),
            ((curve, LOAD_US), (curve, 0)),
            Bound::Most(1.3),
            "Weft's thread waits for the processor of the program that computes.",
        );
        near.claim(
            &format!("{curve} takes a tenth of what sockets take with 16 ms of load, or less"),
            ((curve, LOAD_US), (WAYS[2].0, LOAD_US)),
            Bound::Most(0.1),
            "Weft's thread waits for the processor of the program that computes.",
        );
        far.claim(
            &format!("{curve} is ahead of sockets across 4 ms as well"),
            ((curve, 4), (WAYS[2].0, 4)),
            Bound::Most(0.6),
            "The router and the program that computes share the processors.",
        );
    }
    vec![near, far]
}

/// The figures of a server's load.
pub fn server(scope: &Scope) -> Vec<FigureDraft> {
    let y = ("times as long as alone", Scale::Linear);
    let mut draft = FigureDraft::new(CROWDED, ("bytes", Scale::Log), y);
    draft.plot(&scope.some(&[1 << 10, 4 << 10, 16 << 10, 64 << 10]), |way, bytes| {
        Pattern::new(way, CROWD, bytes)
    });
    for (curve, _) in &WAYS[..2] {
        draft.claim(
            &format!("{curve} takes less from the program than sockets, by messages of 16 KiB"),
            ((curve, 16 << 10), (WAYS[2].0, 16 << 10)),
            Bound::Most(1.0),
            "At an equal rate both are received by the same processor.",
        );
    }
    let mut far = FigureDraft::new(CROWDED_FAR, ("delay each way, ms", Scale::Linear), y);
    across(&mut far, scope, CROWD, CROWD_BYTES);
    for (curve, _) in &WAYS[..2] {
        far.claim(
            &format!("{curve} takes less from the program than sockets across 4 ms"),
            ((curve, 4), (WAYS[2].0, 4)),
            Bound::Most(1.0),
            "At an equal rate both are received by the same processor, and the router's share is \
             equal.",
        );
        far.claim(
            &format!("{curve} takes as much across 16 ms as across 1 ms"),
            ((curve, 16), (curve, 1)),
            Bound::Most(1.1),
            "More is outstanding, so that more comes at once.",
        );
    }
    vec![draft, far]
}

fn across(draft: &mut FigureDraft, scope: &Scope, program: PatternProgram, load: u64) {
    let delays = if scope.quick { &[1, 4][..] } else { &[1, 4, 16] };
    draft.plot(delays, |way, delay| {
        let path = scope.path(&format!("delay={delay}ms"));
        Pattern::new(way, program, load).across(&path)
    });
}
