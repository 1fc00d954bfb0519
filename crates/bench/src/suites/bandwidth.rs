//! `bandwidth`: a stream of messages one way, against their size, on a machine and on a link that
//! has a rate.
//!
//! After figures 3 and 5 of Dalessandro and Wyckoff's paper on the Ammasso adapter.

use super::draft::{FigureDraft, ONE_HOST, Scope, WAYS, Words};
use crate::figure::{Bound, Scale};
use crate::probes::libfabric::Writes;
use crate::probes::pattern::{Pattern, PatternProgram, PatternTransport};
use crate::probes::ucx::Ucx;

/// RDMA Writes one way.
pub const STREAM: PatternProgram = PatternProgram {
    verbs: ("pattern", include_str!("../../c/pattern.c")),
    pattern: "stream",
    floor: "stream --call {}",
};

/// The link of the papers' adapter: Gigabit Ethernet on a LAN.
pub const LINK: &str = "rtt=0.1ms rate=1gbit queue=256kb";

const SIZES: [u64; 8] = [64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];

/// A peer's curve.
pub const FABRIC: &str = "libfabric over TCP";
/// A peer's curve.
pub const UCX: &str = "UCX over TCP";
/// Sizes at which peers are measured too.
pub const PEERS_AT: [u64; 4] = [64, 1 << 12, 1 << 16, 1 << 20];

const LOOPBACK: Words = Words {
    id: "bandwidth-size",
    title: "Bandwidth against size",
    paper: "Dalessandro and Wyckoff, figures 3 and 5",
    shape: "iWARP's bandwidth rises more quickly with the size than TCP's, then both follow the \
            same trend.",
    here: "A stream one way over loopback: RDMA Writes, posted one by one, up to 128 outstanding, \
           beside a socket that is given as many bytes by each call, RDMA Writes of libfabric's \
           TCP provider, and `ucx_perftest -t ucp_put_bw` with `UCX_TLS=tcp`.",
    limits: "Without a wire, processors are the limit. TCP joins small messages into large ones, \
             which is not what an RDMA Write of its own does.",
};
const WIRE: Words = Words {
    id: "bandwidth-link",
    title: "Bandwidth on a link of 1 Gbit/s",
    paper: "Dalessandro and Wyckoff, figure 5",
    shape: "iWARP reaches the limit of the wire, TCP does not.",
    here: "The same streams across `weft wan` at 1 Gbit/s and 0.1 ms: packets of 1500 bytes, of \
           which headers take a thirtieth.",
    limits: "A processor of today fills 1 Gbit/s by TCP as well, so that TCP falls short is not to \
             be seen again; that Weft reaches the wire is.",
};

/// The figures.
pub fn drafts(scope: &Scope) -> Vec<FigureDraft> {
    vec![loopback(scope), link(scope)]
}

fn loopback(scope: &Scope) -> FigureDraft {
    let mut draft = FigureDraft::new(LOOPBACK, ("bytes", Scale::Log), ("Gbit/s", Scale::Log));
    draft.plot(&scope.some(&SIZES), |way, bytes| Pattern::new(way, STREAM, bytes));
    for bytes in scope.some(&SIZES) {
        let pattern = Pattern::new(PatternTransport::Iwarp, STREAM, bytes);
        draft.point(ONE_HOST, bytes, pattern.permitting_lane());
    }
    let few = if scope.quick { &PEERS_AT[2..3] } else { &PEERS_AT };
    for bytes in few.iter().copied() {
        let label = |peer: &str| format!("{peer}: stream {bytes}");
        draft.point(FABRIC, bytes, Writes::new(bytes, &label(FABRIC)));
        draft.point(UCX, bytes, Ucx::new("ucp_put_bw", bytes, &label(UCX)));
    }
    for peer in [FABRIC, UCX] {
        draft.claim(
            &format!("Over iWARP Writes of 64 KiB move at the rate of {peer} or more"),
            ((WAYS[0].0, 1 << 16), (peer, 1 << 16)),
            Bound::Least(1.0),
            "Framing and the CRC are done by the sender's processor, which is the limit here.",
        );
    }
    draft.claim(
        "Over iWARP large messages move as fast as TCP moves them",
        ((WAYS[0].0, 1 << 22), (WAYS[2].0, 1 << 22)),
        Bound::Least(0.8),
        "Framing and the CRC are done by the sender's processor, which is the limit here.",
    );
    draft.claim(
        "Over Shuttle large messages move at half of TCP's rate or more",
        ((WAYS[1].0, 1 << 22), (WAYS[2].0, 1 << 22)),
        Bound::Least(0.5),
        "UDP costs the kernel more for each byte than TCP with its offloads.",
    );
    draft.claim(
        "Over iWARP bandwidth rises with the size as TCP's does",
        ((WAYS[0].0, 1 << 16), (WAYS[2].0, 1 << 16)),
        Bound::Least(0.8),
        "Each Write has a frame of its own and a turn of the queue.",
    );
    draft
}

fn link(scope: &Scope) -> FigureDraft {
    let mut draft = FigureDraft::new(WIRE, ("bytes", Scale::Log), ("Gbit/s", Scale::Linear));
    let path = scope.path(LINK);
    draft.plot(&scope.some(&[1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 20]), |way, bytes| {
        Pattern::new(way, STREAM, bytes).across(&path)
    });
    for (curve, _) in &WAYS[..2] {
        draft.claim(
            &format!("{curve} has at least what TCP has of the wire"),
            ((curve, 1 << 20), (WAYS[2].0, 1 << 20)),
            Bound::Least(0.97),
            "Weft's frames have headers and checks of their own on the same wire.",
        );
    }
    draft
}
