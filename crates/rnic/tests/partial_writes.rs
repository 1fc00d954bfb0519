//! TCP takes a part of a batch; what is posted before it takes the rest goes out with that.
#![allow(dead_code)]

mod common;

use common::*;
use weft_rnic::{Sending, Written};
use weft_verbs::SendOp;

#[test]
fn what_is_posted_behind_a_partial_write_goes_out_with_the_rest() {
    let (mut a, mut b) = pair(1460);
    settle(&mut a, &mut b);
    let (source, target) = (a.memory(64, ALL), b.memory(64, ALL));
    let write = SendOp::Write { to: target.addr(), stag: target.key };
    a.send(1, write, &[source.sge(0, 64)]);
    assert_eq!(a.output(10).len(), 10);
    a.send(2, write, &[source.sge(0, 64)]);
    // One call, as when the socket has room again: nobody rings for the second request any more.
    let outcome = a.mpa.poll_transmit(|out| Written::Octets(out.gather.len() - out.written));
    assert_eq!(outcome, Sending::Done);
    assert_eq!(a.statuses(), [(1, 0), (2, 0)]);
}
