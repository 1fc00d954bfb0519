//! `wan`: bulk data across a long path that loses, by streams.
//!
//! After the tables of appendix A.1 and A.2 of the HP-WAN gap analysis. `make bench-wan` has the
//! whole grid, with deliveries and CPU time.

use super::draft::{FigureDraft, Scope, Words};
use crate::figure::{Bound, Scale};
use crate::probes::wan::{Mover, Transfer, TransferAmount};

const MOVERS: [(&str, Mover); 4] = [
    ("Weft over Shuttle", Mover::Weft),
    ("TCP, BBR", Mover::Tcp("bbr")),
    ("TCP, CUBIC", Mover::Tcp("cubic")),
    ("QUIC (quinn, CUBIC)", Mover::Quic),
];

const LITTLE: Words = Words {
    id: "wan-0.1",
    title: "Bulk data across 70 ms that lose 0.1 %",
    paper: "HP-WAN gap analysis, appendix A.1 and A.2",
    shape: "At 100 Gbit/s and 70 ms TCP with BBR has 14 Gbit/s by one stream, 70 by ten and 84 by \
            25; with CUBIC 8.6, 28 and 91 Mbit/s by one, three and ten. QUIC with BBR, across a \
            real 65 ms, has 47 Gbit/s by 40 streams on 40 processors and 63 by 100 on 80.",
    here: HERE,
    limits: LIMITS,
};
const MUCH: Words = Words {
    id: "wan-1",
    title: "Bulk data across 70 ms that lose 1 %",
    paper: "HP-WAN gap analysis, appendix A.1",
    shape: "TCP with BBR has 10 Gbit/s by one stream, 61 by ten and 84.7 by 25; with CUBIC nothing \
            to speak of.",
    here: HERE,
    limits: LIMITS,
};
const HERE: &str = "`ib_write_bw` over `weft0`, `iperf3` with each rate control, and quinn where \
                    `make bench-wan` has built it, in turn through `weft wan` at 1 Gbit/s and \
                    70 ms; rates are of payload, without the first 2 s.";
const LIMITS: &str = "1 Gbit/s instead of 100: the router, both ends and the kernel share two \
                      processors. Headers take 4 %. What the start costs is in `make bench-wan`.";

/// Within this every mover has found its rate where nothing is lost.
const OMIT_S: u64 = 2;

/// The figures.
pub fn drafts(scope: &Scope) -> Vec<FigureDraft> {
    let much = draft(MUCH, "1", scope);
    if scope.quick {
        return vec![much];
    }
    vec![draft(LITTLE, "0.1", scope), much]
}

fn draft(words: Words, loss: &str, scope: &Scope) -> FigureDraft {
    let mut draft = FigureDraft::new(words, ("streams", Scale::Log), ("Gbit/s", Scale::Linear));
    let path = scope.path(&format!("70ms 1gbit {loss}%"));
    let (streams, seconds): (&[u64], f64) = if scope.quick { (&[1], 1.0) } else { (&[1, 10], 3.0) };
    for streams in streams {
        for (curve, mover) in MOVERS {
            let label = format!("{curve}: {streams} streams across {path}");
            let transfer = Transfer::new(mover, &path, *streams, TransferAmount::Time, label);
            let steady = transfer.at_least(seconds).omitting(OMIT_S).only_rate();
            draft.point(curve, *streams, steady);
        }
    }
    let [(weft, _), (bbr, _), (cubic, _), _] = MOVERS;
    draft.claim(
        "By one stream Weft moves no less than TCP with BBR",
        ((weft, 1), (bbr, 1)),
        Bound::Least(1.0),
        "A router that is late is another path.",
    );
    draft.claim(
        "By one stream Weft moves many times what TCP with CUBIC does",
        ((weft, 1), (cubic, 1)),
        Bound::Least(10.0),
        "With little loss and a short time CUBIC has not met much of it.",
    );
    draft
}
