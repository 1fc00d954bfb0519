//! `sdp`: an unmodified program of sockets over SDP in its basic and its enhanced mode.
//!
//! After figure 2 of Balaji and others' paper on SDP over hybrid stacks.

use super::bandwidth::STREAM;
use super::latency::PINGPONG;
use super::{Draft, Scope, Words};
use crate::figure::{Bound, Scale};
use crate::probes::pattern::{Pattern, Program, Style, Way};

const BASIC: Way = Way::Sdp { style: Style::Basic, iwarp: false };
const ENHANCED: Way = Way::Sdp { style: Style::Enhanced, iwarp: false };
/// Over iWARP, where a message waits for a receive for a second only, sockets have the basic mode
/// alone.
const WAYS: [Way; 4] = [Way::Sdp { style: Style::Basic, iwarp: true }, BASIC, ENHANCED, Way::Tcp];

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
    here: "A stream of blocking sockets, given so many octets by each call, by `weft run \
           --sockets` and by kernel TCP, over loopback.",
    limits: "As with latency: a copy and a change of thread on either side stand between the \
             program and SDP.",
};

/// The figures.
pub fn drafts(scope: &Scope) -> Vec<Draft> {
    let mut latency = Draft::new(LATENCY, ("octets", Scale::Log), ("us", Scale::Linear));
    plot(&mut latency, PINGPONG, &scope.some(&[1, 64, 1 << 10, 1 << 12, 1 << 14]));
    let mut bandwidth = Draft::new(BANDWIDTH, ("octets", Scale::Log), ("Gbit/s", Scale::Linear));
    plot(&mut bandwidth, STREAM, &scope.some(&[1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18]));
    let [basic, enhanced] = [BASIC.label(), ENHANCED.label()];
    latency.claim(
        "the enhanced mode takes a tenth less than the basic one for 1 KiB",
        ((enhanced, 1 << 10), (basic, 1 << 10)),
        Bound::Most(0.92),
        "The change of threads between program and library is most of the time.",
    );
    bandwidth.claim(
        "the enhanced mode moves a fifth more than the basic one in calls of 16 KiB",
        ((enhanced, 1 << 14), (basic, 1 << 14)),
        Bound::Least(1.15),
        "The copy between program and library is the limit of both.",
    );
    vec![latency, bandwidth]
}

fn plot(draft: &mut Draft, program: Program, sizes: &[u64]) {
    for octets in sizes {
        for way in WAYS {
            draft.point(way.label(), *octets, Pattern::new(way, program, *octets));
        }
    }
}
