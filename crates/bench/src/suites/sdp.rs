//! `sdp`: an unmodified program of sockets over SDP in its basic and its enhanced mode.
//!
//! After figures 2 and 3 of Balaji and others' paper on SDP over hybrid stacks.

use super::bandwidth::STREAM;
use super::draft::{FigureDraft, Scope, Words};
use super::latency::PINGPONG;
use crate::figure::{Bound, Scale};
use crate::probes::copies::{CopyEnd, Count, CountedStream, ENDS};
use crate::probes::pattern::{Pattern, PatternProgram, PatternTransport};

/// Each layer below with SDP's basic mode and its enhanced one.
const IWARP: [PatternTransport; 2] = PatternTransport::sdp(true);
const SHUTTLE: [PatternTransport; 2] = PatternTransport::sdp(false);
const BASIC: PatternTransport = SHUTTLE[0];
const ENHANCED: PatternTransport = SHUTTLE[1];
const WAYS: [PatternTransport; 5] = [IWARP[0], IWARP[1], BASIC, ENHANCED, PatternTransport::Tcp];

const LATENCY: Words = Words {
    id: "sdp-latency",
    title: "Latency of sockets over SDP",
    paper: "Balaji and others, figure 2 (a)",
    shape: "Enhanced SDP, which leaves to the layer below what that does anyhow, takes about a \
            tenth less time than basic SDP.",
    here: "A ping-pong of blocking sockets, the same program each time, by `weft run --sockets` \
           and by kernel TCP.",
    limits: "The program has one end of a socket pair and the library the other: two copies and \
             two changes of thread more than TCP has, which the paper's SDP in the kernel had not. \
             They hide most of what the modes differ by.",
};
const BANDWIDTH: Words = Words {
    id: "sdp-bandwidth",
    title: "Bandwidth of sockets over SDP",
    paper: "Balaji and others, figure 2 (b)",
    shape: "Enhanced SDP moves about a fifth more than basic SDP.",
    here: "A stream of blocking sockets, given so many bytes by each call, by `weft run \
           --sockets` and by kernel TCP, over loopback.",
    limits: "As with latency: a copy and a change of thread on either side stand between the \
             program and SDP.",
};

const COPIES: Words = Words {
    id: "sdp-copies",
    title: "How often sockets over SDP copy a byte",
    paper: "Balaji and others, figure 3 and section 5.3",
    shape: "Basic SDP copies each byte into a buffer of its own and from there into one of iWARP; \
            enhanced SDP has one buffer for both, and so a copy less on either side.",
    here: "Copies that are counted while a stream is moved in calls of 64 KiB: those of the \
           program and its libraries by valgrind's DHAT, those of the kernel as the bytes that \
           its system calls took or gave, by strace.",
    limits: "The program has one end of a socket pair and the library the other, which is two \
             copies by the kernel on either side, in both modes. In basic mode bytes go from \
             there through the library into SDP's private buffers, in enhanced mode straight into \
             the memory that they are sent from.",
};
const TRAFFIC: Words = Words {
    id: "sdp-cache",
    title: "Cache traffic of sockets over SDP",
    paper: "Balaji and others, figure 3",
    shape: "For each byte of the network basic SDP moves nearly four between cache and memory to \
            send it and three to receive it, enhanced SDP two and one.",
    here: "What a cache of 512 KiB, the paper's, fetches and writes back for each byte of the \
           same stream: a line for each read that misses, two for each write that does, by \
           valgrind's cachegrind; and by the processor's own counters, where perf can read them.",
    limits: "Cachegrind sees what the program and its libraries access, not what the kernel does, \
             which copies on the same processor: its cache is emptied less than a real one. The \
             counters are those of the last cache, which is larger today than all that is moved.",
};
/// Bytes of each call of the streams that are counted.
const CALL: u64 = 64 << 10;

/// The figures.
pub fn drafts(scope: &Scope) -> Vec<FigureDraft> {
    let mut latency = FigureDraft::new(LATENCY, ("bytes", Scale::Log), ("us", Scale::Linear));
    plot(&mut latency, PINGPONG, &scope.some(&[1, 64, 1 << 10, 1 << 12, 1 << 14]));
    let mut bandwidth =
        FigureDraft::new(BANDWIDTH, ("bytes", Scale::Log), ("Gbit/s", Scale::Linear));
    plot(&mut bandwidth, STREAM, &scope.some(&[1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18]));
    for (below, [basic, enhanced]) in [("iWARP", IWARP), ("Shuttle", SHUTTLE)] {
        let [basic, enhanced] = [basic.label(), enhanced.label()];
        latency.claim(
            &format!(
                "over {below} the enhanced mode takes a tenth less than the basic one for 1 KiB"
            ),
            ((enhanced, 1 << 10), (basic, 1 << 10)),
            Bound::Most(0.92),
            "The change of threads between program and library is most of the time.",
        );
        bandwidth.claim(
            &format!(
                "over {below} the enhanced mode moves a fifth more than the basic one in calls of \
                 16 KiB"
            ),
            ((enhanced, 1 << 14), (basic, 1 << 14)),
            Bound::Least(1.15),
            "The changes of threads between program and library are the limit of both.",
        );
    }
    let counted = [copies(scope), traffic(scope)];
    let few = if scope.quick { 1 } else { counted.len() };
    [latency, bandwidth].into_iter().chain(counted.into_iter().take(few)).collect()
}

/// A stream whose copies or cache traffic are counted; a look takes a short one.
fn counted(way: PatternTransport, count: Count, scope: &Scope) -> CountedStream {
    CountedStream::new(way, count, CALL, if scope.quick { 2 << 20 } else { 8 << 20 })
}

fn copies(scope: &Scope) -> FigureDraft {
    let mut draft = FigureDraft::new(COPIES, ("end", Scale::Names), ("copies", Scale::Linear));
    let ways = if scope.quick { &[BASIC, ENHANCED][..] } else { &WAYS };
    for way in ways.iter().copied() {
        let stream = counted(way, Count::Copies, scope);
        for (at, end) in (0..).step_by(2).zip(ENDS) {
            let place = |by: &str| format!("{}, by the {by}", end.label());
            draft.place(way.label(), at, &place("program"), stream.by_program(end));
            draft.place(way.label(), at + 1, &place("kernel"), stream.by_kernel(end));
        }
        draft.measure(stream);
    }
    for end in ENDS {
        let series = |way| counted(way, Count::Copies, scope).by_program(end);
        draft.claim_series(
            &format!("The {}'s library makes a copy less by the enhanced mode", end.label()),
            (series(ENHANCED), series(BASIC)),
            Bound::Most(0.55),
            "Bytes go through SDP's private buffers all the same.",
        );
    }
    draft
}

fn traffic(scope: &Scope) -> FigureDraft {
    let mut draft =
        FigureDraft::new(TRAFFIC, ("end", Scale::Names), ("bytes for each", Scale::Linear));
    for way in WAYS {
        for (at, count) in (0..).step_by(2).zip([Count::Cache, Count::Counters]) {
            let stream = counted(way, count, scope);
            for (at, end) in (at..).zip(ENDS) {
                let by = if count == Count::Cache { "simulated" } else { "by counters" };
                let place = format!("{}, {by}", end.label());
                draft.place(way.label(), at, &place, stream.series(end));
            }
            draft.measure(stream);
        }
    }
    for (end, bound) in [(CopyEnd::Sender, 0.5), (CopyEnd::Receiver, 0.4)] {
        let series = |way| counted(way, Count::Cache, scope).series(end);
        draft.claim_series(
            &format!("The {}'s cache moves half as much by the enhanced mode", end.label()),
            (series(ENHANCED), series(BASIC)),
            Bound::Most(bound * 1.2),
            "The kernel's copies and the check of what arrives are the same in both modes.",
        );
    }
    draft
}

fn plot(draft: &mut FigureDraft, program: PatternProgram, sizes: &[u64]) {
    for bytes in sizes {
        for way in WAYS {
            draft.point(way.label(), *bytes, Pattern::new(way, program, *bytes));
        }
    }
}
