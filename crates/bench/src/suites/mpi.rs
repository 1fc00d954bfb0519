//! `mpi-overhead` and `cpu-availability`: the overhead of MPI, and the CPU left for computing.
//!
//! After figures 7 and 8 of Dalessandro and Wyckoff's paper on the Ammasso adapter.

use super::bandwidth::STREAM;
use super::draft::{FigureDraft, Scope, WAYS, Words};
use crate::figure::{Bound, Relation, Scale};
use crate::probes::BenchProbe;
use crate::probes::mpi::Mpi;
use crate::probes::pattern::{Pattern, PatternTransport};

const LARGE: u64 = 1 << 20;

const OVERHEAD: Words = Words {
    id: "mpi-overhead",
    title: "What MPI takes of the bandwidth",
    paper: "Dalessandro and Wyckoff, figure 7",
    shape: "Of the bandwidth without MPI about a tenth is lost over iWARP, about a fifth over TCP.",
    here: "A stream between two ranks of Open MPI beside the stream without it: by libfabric over \
           `weft_iw0` beside RDMA Writes, by UCX over `weft0` beside RDMA Writes, by its own TCP \
           beside a socket. The share that is lost, round by round; below 0 MPI is faster.",
    limits: "On a wire of 1 Gbit/s an additional copy hides behind the wire; over loopback it \
             takes the time of the same processor, so MPI's copies count in full.",
};
const COMB: Words = Words {
    id: "cpu-availability",
    title: "Bandwidth against the share of the processor that computes",
    paper: "Dalessandro and Wyckoff, figure 8",
    shape: "iWARP keeps its bandwidth while more and more of the processor computes, and up to \
            80 % has more than TCP, which falls at once; then its queues run empty.",
    here: "Messages of 100 KB between two ranks, of which the receiving one computes for so much \
           of each 4 ms and calls nothing then. Beside its bandwidth without computing.",
    limits: "Without an adapter the data is moved by a thread of Weft's, which interrupts the \
             computing; and MPI over verbs asks for large messages only when it is called.",
};

/// The figure of overhead.
pub fn overhead(scope: &Scope) -> Vec<FigureDraft> {
    let y = ("share lost", Scale::Linear);
    let mut draft = FigureDraft::new(OVERHEAD, ("bytes", Scale::Log), y);
    for (curve, way) in WAYS {
        for bytes in scope.some(&[1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, LARGE]) {
            let (with, without) =
                (Mpi::new(way, "stream", bytes), Pattern::new(way, STREAM, bytes));
            let lack = Relation::Lack(without.name());
            draft.point(curve, bytes, with);
            draft.measure(without);
            draft.relate(curve, lack);
        }
        let [with, without] =
            [Mpi::new(way, "stream", LARGE).name(), Pattern::new(way, STREAM, LARGE).name()];
        draft.claim_series(
            &format!("{curve}: with MPI 1 MiB messages keep four fifths of the bandwidth"),
            (with, without),
            Bound::Least(0.8),
            "MPI asks for the place of a large message first, or copies it.",
        );
    }
    vec![draft]
}

/// The figure of availability.
pub fn availability(scope: &Scope) -> Vec<FigureDraft> {
    let y = ("of the bandwidth without computing", Scale::Linear);
    let mut draft = FigureDraft::new(COMB, ("% that compute", Scale::Linear), y);
    for (curve, way) in WAYS {
        let alone = Mpi::new(way, "comb", 0).name();
        for share in scope.some(&[0, 20, 40, 60, 80, 90]) {
            draft.point(curve, share, Mpi::new(way, "comb", share));
            draft.relate(curve, Relation::Share(alone.clone()));
        }
        if way != PatternTransport::Tcp {
            draft.claim_series(
                &format!("{curve}: with 60 % computing half of the bandwidth or more is left"),
                (Mpi::new(way, "comb", 60).name(), alone),
                Bound::Least(0.5),
                "MPI moves large messages only when it is called.",
            );
        }
    }
    vec![draft]
}
