//! Completion queues, and who is woken: by completions, by what the peer writes, by receives.

mod support;

use std::sync::Arc;

use support::{Count, parts, recv, send};
use weft_verbs::{
    AsyncKind, CompChannel, Cq, QpState, QpType, SendOp, Wake, Wc, WcOpcode, WcStatus,
};

const WRITE: SendOp = SendOp::Write { to: 0, stag: 9 };

/// An application that sleeps until its sends complete is woken by what the peer writes, once for
/// each of them.
#[test]
fn a_write_of_the_peer_wakes_who_waits_for_its_sends() {
    let parts = parts();
    let qp = parts.qp(QpType::Rc, QpState::Rts);
    parts.cq.req_notify(false);
    qp.written();
    assert_eq!(parts.channel.pop(), None, "nothing was posted");
    qp.post_send(&send(0, WRITE, &[])).unwrap();
    qp.written();
    assert_eq!(parts.channel.pop(), Some(11));
    qp.written();
    parts.cq.req_notify(false);
    qp.written();
    assert_eq!(parts.channel.pop(), None, "one for each request");
    qp.post_send(&send(1, WRITE, &[])).unwrap();
    parts.cq.req_notify(true);
    assert!(parts.cq.is_armed());
}

#[test]
fn who_waits_for_a_receive_is_woken_by_the_next() {
    let parts = parts();
    let qp = parts.qp(QpType::Rc, QpState::Rts);
    let (srq, waiter) = (parts.srq(0), Arc::new(Count::default()));
    let weak = || {
        let waiter: Arc<dyn Wake> = Arc::clone(&waiter) as Arc<dyn Wake>;
        Arc::downgrade(&waiter)
    };
    assert!(!qp.await_recv(weak()));
    assert_eq!(waiter.get(), 0);
    qp.post_recv(&recv(1)).unwrap();
    assert_eq!(waiter.get(), 1);
    assert!(qp.await_recv(weak()));
    qp.post_recv(&recv(2)).unwrap();
    assert_eq!(waiter.get(), 1, "who need not wait is not woken");
    assert!(!srq.await_recv(weak()));
    srq.post_recv(&recv(1)).unwrap();
    assert_eq!(waiter.get(), 2);
    assert!(srq.await_recv(weak()) && srq.has_recv());
    srq.take();
    assert!(!srq.has_recv() && !srq.await_recv(weak()));
    srq.retire();
    assert_eq!(waiter.get(), 3);
    assert!(srq.has_recv() && srq.await_recv(weak()), "none ever will be");
}

#[test]
fn completions_are_polled_in_order_up_to_what_the_queue_holds() {
    let parts = parts();
    let wakes = Count::default();
    let cq = Cq::new(3, None, Arc::clone(&parts.events), 5).with_warden(Box::new(wakes.clone()));
    assert!(!cq.has_entries());
    assert_eq!(cq.capacity(), 3);
    let wc = |wr_id, qp| Wc::new(wr_id, qp, WcOpcode::Send, WcStatus::Success);
    cq.push(wc(1, 7), None, false);
    cq.push(wc(2, 8), None, false);
    assert!(cq.has_entries());
    assert_eq!((cq.depth_of_success(7), cq.depth_of_success(8), cq.depth_of_success(9)), (1, 2, 0));
    assert!(cq.resize(1).is_err());
    cq.resize(2).unwrap();
    assert_eq!((wakes.get(), parts.raised()), (0, vec![]));
    cq.push(wc(3, 7), None, false);
    assert_eq!((wakes.get(), parts.raised()), (1, vec![(AsyncKind::CqErr, 5)]));
    cq.push(wc(4, 7), None, false);
    assert_eq!((wakes.get(), parts.raised()), (1, vec![]));
    let mut out = [Wc::default(); 4];
    assert_eq!((cq.poll(&mut out), out[1].wr_id), (Ok(2), 2));
    assert!(cq.poll(&mut out).is_err());
    let other = Cq::new(3, None, Arc::clone(&parts.events), 6);
    other.push(wc(1, 7), None, false);
    other.overflow();
    assert!(other.poll(&mut out).is_err());
    assert_eq!(parts.raised(), [(AsyncKind::CqErr, 6)]);
}

#[test]
fn timestamps_are_those_of_the_last_completion_polled() {
    let parts = parts();
    let cq = Cq::new(4, None, Arc::clone(&parts.events), 5).with_clock(Some(|| 123));
    cq.push(Wc::default(), None, false);
    assert_eq!(cq.stamp_ns(), 0);
    cq.poll(&mut [Wc::default()]).unwrap();
    assert_eq!(cq.stamp_ns(), 123);
    assert_eq!(parts.cq.stamp_ns(), 0);
}

#[test]
fn events_of_what_is_destroyed_are_forgotten() {
    let (parts, wakes) = (parts(), Count::default());
    let channel = CompChannel::new(Box::new(wakes.clone()));
    let queue = |cookie| Cq::new(4, Some(Arc::clone(&channel)), Arc::clone(&parts.events), cookie);
    for cq in [queue(1), queue(2), queue(1)] {
        cq.req_notify(false);
        cq.push(Wc::default(), None, false);
    }
    assert_eq!(wakes.get(), 3);
    assert_eq!(channel.forget(1), 2);
    assert_eq!((channel.pop(), channel.pop()), (Some(2), None));
    for cookie in [4, 5, 4] {
        parts.events.push(AsyncKind::QpFatal, cookie);
    }
    assert_eq!(parts.wakes.get(), 3);
    assert_eq!(parts.events.forget(4), 2);
    assert_eq!(parts.raised(), [(AsyncKind::QpFatal, 5)]);
}
