//! `latency`: ping-pong, against size and against the delay of the path.
//!
//! After figures 2 and 4 of Dalessandro and Wyckoff's paper on the Ammasso adapter, and figures 3
//! and 8 of Jin and others' on RDMA over IP in the WAN.

use super::bandwidth::{FABRIC, PEERS_AT, UCX};
use super::draft::{FigureDraft, ONE_HOST, Scope, Words};
use crate::figure::{Bound, Scale};
use crate::probes::libfabric::LibfabricPingPong;
use crate::probes::pattern::{Pattern, PatternProgram, PatternTransport};
use crate::probes::ucx::Ucx;

/// Sends to and fro.
pub const PINGPONG: PatternProgram = PatternProgram {
    verbs: ("pattern", include_str!("../../c/pattern.c")),
    pattern: "pingpong",
    floor: "pingpong --bytes {}",
};
/// The same where the sockets poll.
pub const SPINNING: PatternProgram =
    PatternProgram { floor: "pingpong --spin --bytes {}", ..PINGPONG };

const IWARP: &str = "Weft over iWARP";
const SHUTTLE: &str = "Weft over Shuttle";
const BLOCKING: &str = "kernel TCP, blocking";
const SPIN: &str = "kernel TCP, spinning";

const SMALL: Words = Words {
    id: "latency-small",
    title: "Latency of small messages",
    paper: "Dalessandro and Wyckoff, figure 2",
    shape: "iWARP takes about half as long as MPI over TCP, and less for 100 bytes than TCP for \
            none. Both rise by some 2 us from 1 byte to 100, side by side.",
    here: "Half of a round trip between two processes over loopback, each on a processor of its \
           own: RDMA Sends whose completions are polled, beside sockets that block and sockets \
           that poll.",
    limits: "There is no adapter and no wire, so time does not rise with the size: at 1 Gbit/s \
             100 bytes take 0.8 us on each hop. The sockets have no MPI above them.",
};
const SIZES: Words = Words {
    id: "latency-size",
    title: "Latency against size",
    paper: "Dalessandro and Wyckoff, figure 4; Jin and others, figure 8",
    shape: "On a LAN RDMA takes half as long for small messages; for large ones the wire is the \
            limit and the curves run together.",
    here: "The same ping-pong over loopback with messages up to 1 MiB; beside it `fi_pingpong -p \
           tcp` and `ucx_perftest -t tag_lat` with `UCX_TLS=tcp`. One more curve is Weft as it \
           comes, by shared memory where both ends may; the others of Weft are with WEFT_LANE=off.",
    limits: "Loopback has no wire: for large messages copying is the limit, not 1 Gbit/s.",
};
const ROUTED: Words = Words {
    id: "latency-routed",
    title: "Latency against size, through the router",
    paper: "Jin and others, figure 3 (a)",
    shape: "Through a router without added delay RDMA and sockets take the same time, whatever \
            the size: what the path takes is much more than what the ends take.",
    here: "The same ping-pong between two network namespaces, through `weft wan` without delay.",
    limits: "The router is two threads on the same processors, not a machine of its own; it takes \
             tens of microseconds, theirs took some hundred.",
};
const DELAY: Words = Words {
    id: "latency-delay",
    title: "Latency against the delay of the path",
    paper: "Jin and others, figure 3 (b)",
    shape: "With 1 KB and a delay of milliseconds both take the delay and nothing else to speak \
            of: latency does not tell RDMA from sockets across a WAN.",
    here: "The ping-pong with messages of 1 KiB through `weft wan`, with this delay each way.",
    limits: "",
};

/// The figures.
pub fn drafts(scope: &Scope) -> Vec<FigureDraft> {
    vec![small(scope), sizes(scope), routed(scope), delays(scope)]
}

fn small(scope: &Scope) -> FigureDraft {
    let mut draft = FigureDraft::new(SMALL, ("bytes", Scale::Linear), ("us, mean", Scale::Linear));
    plot(&mut draft, &scope.some(&[1, 16, 32, 64, 80, 100]), true, None);
    draft.claim(
        "Over iWARP 64 bytes take well below what blocking sockets take",
        ((IWARP, 64), (BLOCKING, 64)),
        Bound::Most(0.65),
        "Who polls saves a wake-up; where the kernel wakes threads quickly that is less.",
    );
    draft.claim(
        "Over iWARP 100 bytes take less than 1 byte takes blocking sockets",
        ((IWARP, 100), (BLOCKING, 1)),
        Bound::Most(1.0),
        "Who polls saves a wake-up; where the kernel wakes threads quickly that is less.",
    );
    draft.claim(
        "Over Shuttle 64 bytes take well below what blocking sockets take",
        ((SHUTTLE, 64), (BLOCKING, 64)),
        Bound::Most(0.65),
        "Who polls saves a wake-up; where the kernel wakes threads quickly that is less.",
    );
    draft
}

fn sizes(scope: &Scope) -> FigureDraft {
    let mut draft = FigureDraft::new(SIZES, ("bytes", Scale::Log), ("us, mean", Scale::Log));
    let sizes = [64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
    plot(&mut draft, &scope.some(&sizes), true, None);
    for bytes in scope.some(&sizes) {
        let pattern = Pattern::new(PatternTransport::Iwarp, PINGPONG, bytes);
        draft.point(ONE_HOST, bytes, pattern.permitting_lane());
    }
    let few = &PEERS_AT[..if scope.quick { 1 } else { PEERS_AT.len() }];
    for bytes in few.iter().copied() {
        let label = |peer: &str| format!("{peer}: pingpong {bytes}");
        draft.point(FABRIC, bytes, LibfabricPingPong::new(bytes, &label(FABRIC)));
        draft.point(UCX, bytes, Ucx::new("tag_lat", bytes, &label(UCX)));
    }
    for (curve, peer) in [(IWARP, FABRIC), (IWARP, UCX), (SHUTTLE, FABRIC), (SHUTTLE, UCX)] {
        draft.claim(
            &format!("{curve} takes 64 bytes to and fro as quickly as {peer}"),
            ((curve, 64), (peer, 64)),
            Bound::Most(1.15),
            "Weft frames and checks what its peers hand to the kernel as it is.",
        );
    }
    draft.claim(
        "Over iWARP small messages take about half of what blocking sockets take",
        ((IWARP, 64), (BLOCKING, 64)),
        Bound::Most(0.65),
        "Who polls saves a wake-up; where the kernel wakes threads quickly that is less.",
    );
    draft.claim(
        "For 1 MiB the curves of iWARP and of sockets have come together",
        ((IWARP, 1 << 20), (BLOCKING, 1 << 20)),
        Bound::Most(1.25),
        "A large message is received as a whole before its completion is seen.",
    );
    draft
}

fn routed(scope: &Scope) -> FigureDraft {
    let mut draft = FigureDraft::new(ROUTED, ("bytes", Scale::Log), ("us, mean", Scale::Linear));
    let path = scope.path("rtt=0ms");
    plot(&mut draft, &scope.some(&[4, 64, 1 << 10, 1 << 12, 1 << 14]), false, Some(&path));
    together(&mut draft, 1 << 10, 1.3);
    draft
}

fn delays(scope: &Scope) -> FigureDraft {
    let mut draft =
        FigureDraft::new(DELAY, ("delay each way, ms", Scale::Linear), ("us, mean", Scale::Linear));
    for delay in scope.some(&[1, 2, 4, 8, 16]) {
        let path = scope.path(&format!("delay={delay}ms"));
        for (curve, way) in [
            (IWARP, PatternTransport::Iwarp),
            (SHUTTLE, PatternTransport::Shuttle),
            (BLOCKING, PatternTransport::Tcp),
        ] {
            draft.point(curve, delay, Pattern::new(way, PINGPONG, 1 << 10).across(&path));
        }
    }
    together(&mut draft, 4, 1.05);
    draft
}

/// Claims that both of Weft's curves are as the sockets' there.
fn together(draft: &mut FigureDraft, x: u64, most: f64) {
    for curve in [IWARP, SHUTTLE] {
        draft.claim(
            &format!("{curve} takes no longer than sockets"),
            ((curve, x), (BLOCKING, x)),
            Bound::Most(most),
            "The router and both ends share the processors of one machine.",
        );
    }
}

fn plot(draft: &mut FigureDraft, sizes: &[u64], spinning: bool, path: Option<&str>) {
    for bytes in sizes {
        let mut add = |curve, way, program| {
            let pattern = Pattern::new(way, program, *bytes);
            let pattern = path.map_or(pattern.clone(), |path| pattern.clone().across(path));
            draft.point(curve, *bytes, pattern);
        };
        add(IWARP, PatternTransport::Iwarp, PINGPONG);
        add(SHUTTLE, PatternTransport::Shuttle, PINGPONG);
        add(BLOCKING, PatternTransport::Tcp, PINGPONG);
        if spinning {
            add(SPIN, PatternTransport::Tcp, SPINNING);
        }
    }
}
