//! `api` and `registration`: the cost of single calls.
//!
//! After table 1 and figure 9 of Dalessandro and Wyckoff's paper on the Ammasso adapter.

use super::draft::{FigureDraft, Scope, Words};
use crate::figure::{Bound, Scale};
use crate::probes::pattern::{Pattern, PatternProgram, PatternTransport};

const TABLE: PatternProgram = PatternProgram {
    verbs: ("calls", include_str!("../../c/calls.c")),
    pattern: "table",
    floor: "calls",
};
const MEMORY: PatternProgram = PatternProgram { pattern: "memory", ..TABLE };

const IWARP: &str = "Weft over iWARP";
const SHUTTLE: &str = "Weft over Shuttle";
const TCP: &str = "kernel TCP";
const LOCK: &str = "locking the same pages";

/// What is timed, in the order of the paper's table.
const CALLS: [&str; 9] = [
    "open a device",
    "allocate a protection domain",
    "create a completion queue",
    "create a queue pair",
    "post a receive",
    "post a Write",
    "connect",
    "poll, nothing there",
    "poll, something there",
];
/// Their places.
const POST: u64 = 5;
const CONNECT: u64 = 6;
const POLL: u64 = 7;

const COSTS: Words = Words {
    id: "api",
    title: "The cost of each call",
    paper: "Dalessandro and Wyckoff, table 1",
    shape: "To open the adapter takes 156 us, a protection domain 1.1, a queue pair 78, to post a \
            receive 4.6 and a send 4.9, to connect 305,536, to poll an empty queue 0.12 and one \
            that is not 1.96.",
    here: "Medians over a hundred calls, by a verbs program over loopback. Beside them stand a \
           non-blocking `recv` with nothing there, a `send` of 64 bytes and `connect` of sockets.",
    limits: "A Write is 64 bytes, and to post it sends it; the paper's adapter was only told. \
             To connect is from the address to the connection, once for each round. Reading the \
             clock is in each number, some 0.03 us.",
};
const REGISTER: Words = Words {
    id: "registration",
    title: "The cost of registering memory",
    paper: "Dalessandro and Wyckoff, figure 9",
    shape: "About 60 us for 1 KB, hardly more up to 256 KB, with jumps at 100 and 225 KB where \
            the driver tells the adapter of more pages.",
    here: "Medians of `ibv_reg_mr` for pages that are there, and of `mlock` for the same ones, \
           which is what an adapter's driver must do at least.",
    limits: "Weft does not pin: there is no DMA, so registering only looks whether pages are \
             mapped.",
};

/// The table of calls.
pub fn calls(_: &Scope) -> Vec<FigureDraft> {
    let mut draft = FigureDraft::new(COSTS, ("", Scale::Names), ("us", Scale::Log));
    for (curve, way) in [
        (IWARP, PatternTransport::Iwarp),
        (SHUTTLE, PatternTransport::Shuttle),
        (TCP, PatternTransport::Tcp),
    ] {
        let probe = Pattern::new(way, TABLE, 0);
        for (x, call) in (0..).zip(CALLS) {
            if way != PatternTransport::Tcp || [POST, CONNECT, POLL].contains(&x) {
                draft.place(curve, x, call, probe.call(call));
            }
        }
        draft.measure(probe);
    }
    for curve in [IWARP, SHUTTLE] {
        draft.claim(
            &format!("{curve}: to poll an empty queue is the cheapest there is, below a post"),
            ((curve, POLL), (curve, POST)),
            Bound::Most(0.5),
            "An empty poll asks the kernel whether anything has come.",
        );
        draft.claim(
            &format!("{curve}: to connect takes far more than any other call"),
            ((curve, CONNECT), (curve, POST)),
            Bound::Least(20.0),
            "",
        );
    }
    vec![draft]
}

/// Registration against size.
pub fn registration(_: &Scope) -> Vec<FigureDraft> {
    let mut draft = FigureDraft::new(REGISTER, ("bytes", Scale::Log), ("us", Scale::Log));
    let kib = [1, 4, 16, 64, 100, 225, 256, 1024, 4096, 16384, 65536];
    for (curve, way) in [(IWARP, PatternTransport::Iwarp), (SHUTTLE, PatternTransport::Shuttle)] {
        let probe = Pattern::new(way, MEMORY, 0);
        for bytes in kib.map(|kib| kib << 10) {
            draft.place(curve, bytes, "", probe.call(&format!("register {bytes}")));
            if way == PatternTransport::Iwarp {
                draft.place(LOCK, bytes, "", probe.call(&format!("lock {bytes}")));
            }
        }
        draft.measure(probe);
        draft.claim(
            &format!("{curve}: 225 KiB cost hardly more than 1 KiB"),
            ((curve, 225 << 10), (curve, 1 << 10)),
            Bound::Most(5.0),
            "Each page is looked for.",
        );
    }
    draft.claim(
        "Registering 1 MiB costs less than locking it",
        ((IWARP, 1 << 20), (LOCK, 1 << 20)),
        Bound::Most(1.0),
        "",
    );
    vec![draft]
}
