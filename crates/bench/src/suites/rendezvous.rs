//! `rendezvous` and `connections`: eager and rendezvous transfer of large messages, and the cost of
//! a connection.
//!
//! After figure 9 of Jin and others' paper on RDMA over IP in the WAN, and the connecting line of
//! table 1 of Dalessandro and Wyckoff's on the Ammasso adapter.

use super::draft::{FigureDraft, Scope, WAYS, Words};
use crate::figure::{Bound, Scale};
use crate::probes::pattern::{Pattern, PatternProgram, PatternTransport};

const EAGER: PatternProgram = PatternProgram {
    verbs: ("exchange", include_str!("../../c/exchange.c")),
    pattern: "eager",
    floor: "",
};
const BY_WRITE: PatternProgram = PatternProgram { pattern: "by-write", ..EAGER };
const BY_READ: PatternProgram = PatternProgram { pattern: "by-read", ..EAGER };
const CONNECT: PatternProgram =
    PatternProgram { pattern: "connect", floor: "connect --count {}", ..EAGER };

/// For each device eager, by Write and by Read.
const CURVES: [(PatternTransport, [(&str, PatternProgram); 3]); 2] = [
    (
        PatternTransport::Iwarp,
        [("eager, iWARP", EAGER), ("by Write, iWARP", BY_WRITE), ("by Read, iWARP", BY_READ)],
    ),
    (
        PatternTransport::Shuttle,
        [("eager, Shuttle", EAGER), ("by Write, Shuttle", BY_WRITE), ("by Read, Shuttle", BY_READ)],
    ),
];
const LARGE: u64 = 64 << 10;

const DELAYS: Words = Words {
    id: "rendezvous-delay",
    title: "Rendezvous against the delay of the path",
    paper: "Jin and others, figure 9",
    shape: "A picture of the two protocols, without numbers: START, REPLY, Write, FIN; and START, \
            Read, FIN. Each asks for the place of the data before it is sent, which costs a round \
            trip more than sending it into buffers that are there.",
    here: "64 KiB until their sender knows that they are there, through `weft wan` with this delay \
           each way; with both protocols, and eagerly by a Send.",
    limits: "The path has no rate, so nothing but round trips counts.",
};
const SIZES: Words = Words {
    id: "rendezvous-size",
    title: "Rendezvous against size",
    paper: "Jin and others, figure 9",
    shape: "A picture of the two protocols, without numbers.",
    here: "The same over loopback: how much the additional messages cost beside the data.",
    limits: "An eager message is in its place here without another copy; in MPI it would be copied \
             from the buffer that took it.",
};
const CONNECTING: Words = Words {
    id: "connections",
    title: "What a connection takes",
    paper: "Dalessandro and Wyckoff, table 1",
    shape: "To connect a queue pair takes 305.5 ms, by far the most of all calls.",
    here: "From an address to a connection by rdma-cm, so many one after the other, all kept; \
           beside `connect` of sockets until they have been accepted.",
    limits: "Both ends are on one machine.",
};

/// The figures of rendezvous.
pub fn rendezvous(scope: &Scope) -> Vec<FigureDraft> {
    let mut far =
        FigureDraft::new(DELAYS, ("delay each way, ms", Scale::Linear), ("us", Scale::Linear));
    let mut near = FigureDraft::new(SIZES, ("bytes", Scale::Log), ("us", Scale::Log));
    for (way, curves) in CURVES {
        for (curve, program) in curves {
            for delay in scope.some(&[1, 4, 16]) {
                let path = scope.path(&format!("delay={delay}ms"));
                far.point(curve, delay, Pattern::new(way, program, LARGE).across(&path));
            }
            for bytes in scope.some(&[1 << 10, 16 << 10, LARGE, 256 << 10, 1 << 20]) {
                near.point(curve, bytes, Pattern::new(way, program, bytes));
            }
        }
        let [(eager, _), (by_write, _), (by_read, _)] = curves;
        for curve in [by_write, by_read] {
            far.claim(
                &format!("{curve}: one round trip more than eagerly, which is twice the time"),
                ((curve, 16), (eager, 16)),
                Bound::Most(2.2),
                "Somewhere a message waited for the acknowledgement of another.",
            );
        }
        near.claim(
            &format!("{by_write}: for 1 MiB the additional messages hardly count"),
            ((by_write, 1 << 20), (eager, 1 << 20)),
            Bound::Most(1.3),
            "Each message wakes a program or a thread.",
        );
    }
    vec![far, near]
}

/// The figure of connections.
pub fn connections(scope: &Scope) -> Vec<FigureDraft> {
    let mut draft = FigureDraft::new(CONNECTING, ("connections", Scale::Log), ("us", Scale::Log));
    draft.plot(&scope.some(&[1, 10, 100]), |way, count| Pattern::new(way, CONNECT, count));
    for (curve, _) in &WAYS[..2] {
        draft.claim(
            &format!("{curve}: a hundred connections cost each no more than one by itself"),
            ((curve, 100), (curve, 1)),
            Bound::Most(1.2),
            "What is looked through for each connection grows with those that are there.",
        );
    }
    vec![draft]
}
