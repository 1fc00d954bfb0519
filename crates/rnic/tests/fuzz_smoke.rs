//! The fuzz target of unreliable datagrams, over mutations of good ones.

#[path = "../../../fuzz/src/ud.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use bodies::{NOW_NS, NUMBER, QKEY, SEALED, SHUT, V6, route};
use weft_rnic::shuttle::{AddressPair, Sealer};
use weft_rnic::wire::datagram::{DatagramHeader, Dropped, Notice};

/// Datagrams of all kinds, each after its length.
fn seed(flags: u8) -> Vec<u8> {
    let route = route(flags);
    let ends = AddressPair { from: route.remote.ip(), to: route.local.ip() };
    let (mut sealer, _) = bodies::seals(2);
    let mut all = vec![flags];
    for (immediate, qkey, len) in
        [(None, QKEY, 0), (Some([1; 4]), QKEY, 300), (None, QKEY + 1, 9), (None, QKEY, 100)]
    {
        let header = DatagramHeader { to: NUMBER, from: 5, qkey, immediate, solicited: len == 9 };
        let mut datagram = vec![0; if flags & SEALED == 0 { 0 } else { Sealer::HEADER_LEN }];
        datagram.extend_from_slice(&header.to_bytes()[..header.len()]);
        datagram.resize(datagram.len() + len, 0xab);
        if flags & SEALED != 0 {
            sealer.seal(&mut datagram, 0, &ends, NOW_NS);
        }
        let notice = Notice::about(&datagram, Dropped::OtherKey).expect("it is long enough");
        for part in [&datagram[..], &notice.to_bytes()] {
            all.extend((part.len() as u16).to_be_bytes());
            all.extend(part);
        }
    }
    all
}

#[test]
fn ud_qp() {
    let seeds = [0, SEALED, V6, SHUT, SEALED | V6].map(seed);
    mutate::smoke("ud_qp", &seeds, 3000, bodies::datagrams);
}
