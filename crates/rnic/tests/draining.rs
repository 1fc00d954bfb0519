//! A send queue that drains finishes what it began, says so once, and begins nothing.

mod common;

use common::{ALL, Side, pair, settle};
use weft_verbs::{AsyncKind, QpState, SendOp};

fn kinds(side: &Side) -> Vec<AsyncKind> {
    side.events().iter().map(|event| event.kind).collect()
}

#[test]
fn what_is_under_way_ends_and_the_rest_waits() {
    let (mut a, mut b) = pair(1460);
    let (here, there) = (a.memory(64, ALL), b.memory(64, ALL));
    a.send(1, SendOp::Read { to: there.addr(), stag: there.key }, &[here.sge(0, 64)]);
    let request = a.output(usize::MAX);
    a.qp.drain(true);
    assert!(a.qp.attrs().sq_draining);
    b.recv(8, &[]);
    a.send(2, SendOp::Send, &[]);
    assert_eq!((kinds(&a), a.statuses()), (vec![], vec![]));
    b.input(&request);
    settle(&mut a, &mut b);
    assert_eq!((kinds(&a), a.statuses()), (vec![AsyncKind::SqDrained], vec![(1, 0)]));
    assert!(b.statuses().is_empty() && !a.qp.attrs().sq_draining);
    a.qp.enter(QpState::Rts);
    settle(&mut a, &mut b);
    assert_eq!((kinds(&a), a.statuses()), (vec![], vec![(2, 0)]));
    assert_eq!(b.statuses(), [(8, 0)]);
}

#[test]
fn a_request_that_is_half_sent_is_under_way() {
    let (mut a, mut b) = pair(1460);
    settle(&mut a, &mut b);
    let [source, inbox] = [&a, &b].map(|side| side.memory(100_000, ALL));
    b.recv(8, &[inbox.sge(0, 100_000)]);
    a.send(1, SendOp::Send, &[source.sge(0, 100_000)]);
    let part = a.output(4000);
    a.qp.drain(true);
    assert!(a.qp.attrs().sq_draining && kinds(&a).is_empty());
    b.input(&part);
    settle(&mut a, &mut b);
    assert_eq!((kinds(&a), a.statuses()), (vec![AsyncKind::SqDrained], vec![(1, 0)]));
    assert_eq!(b.statuses(), [(8, 0)]);
}

#[test]
fn an_idle_queue_has_drained_at_once_and_says_so_only_if_asked() {
    for notify in [true, false] {
        let (a, _b) = pair(1460);
        a.qp.drain(notify);
        assert_eq!(kinds(&a), vec![AsyncKind::SqDrained; usize::from(notify)]);
    }
}
