//! Several queue pairs take from one queue of receives, each message once.
#![allow(dead_code)]

mod common;

use std::sync::Arc;

use common::{Reports, Side, agreed, reliable, sockets};
use weft_host::mpa::MpaRole;
use weft_host::{Context, DeviceKind, HostCq, HostQp, HostQpInit, HostSrq, Pd, SrqInit};
use weft_verbs::{AsyncKind, QpCap, RecvWr, SendOp, Wc};

/// Queue pairs that take from one queue of receives, and their peers.
struct Shared {
    context: Arc<Context>,
    pd: Arc<Pd>,
    cq: Arc<HostCq>,
    srq: Arc<HostSrq>,
    qps: Vec<Arc<HostQp>>,
    peers: Vec<Side>,
}

impl Shared {
    fn new(count: usize) -> Self {
        let context =
            Context::open(common::host(), DeviceKind::Iwarp, Box::new(common::Silent)).unwrap();
        let pd = context.alloc_pd();
        let cq = context.create_cq(256, None, 1).unwrap();
        let srq = SrqInit {
            pd: Arc::clone(&pd),
            max_wr: 64,
            max_sge: 1,
            limit: 0,
            cookie: 9,
            home: None,
        };
        let srq = context.create_srq(srq).unwrap();
        let cap = QpCap { max_send_wr: 8, max_recv_wr: 0, ..QpCap::default() };
        let peers: Vec<Side> = (0..count).map(|_| Side::new()).collect();
        let connect = |peer: &Side| {
            let init = HostQpInit { srq: Some(Arc::clone(&srq)), ..reliable(&pd, &cq, cap) };
            let qp = context.create_qp(init).unwrap();
            let (near, far) = sockets();
            qp.attach(near, &agreed(), MpaRole::Responder, Arc::<Reports>::default()).unwrap();
            peer.attach(far, MpaRole::Initiator, &agreed());
            qp
        };
        let qps = peers.iter().map(connect).collect();
        Self { context, pd, cq, srq, qps, peers }
    }
}

#[test]
fn receives_go_to_whoever_needs_one_and_the_limit_is_announced() {
    let Shared { context, pd, cq, srq, qps, peers } = Shared::new(4);
    for wr_id in 0..20 {
        srq.post_recv(&RecvWr { wr_id, sges: &[] }).unwrap();
    }
    srq.modify(None, Some(5)).unwrap();
    assert!(srq.post_recv(&RecvWr { wr_id: 20, sges: &[] }).is_ok());
    assert!(context.destroy_srq(&srq, 9).is_err(), "queue pairs use it");
    for peer in &peers {
        for wr_id in 0..4 {
            peer.send(wr_id, SendOp::Send, &[]);
        }
    }
    let start = weft_os::clock::now();
    let mut got: Vec<Wc> = Vec::new();
    while got.len() < 16 {
        let mut out = [Wc::default(); 8];
        let n = cq.poll(&mut out).unwrap();
        got.extend_from_slice(&out[..n]);
        assert!(start.elapsed() < common::DEADLINE);
    }
    let mut ids: Vec<u64> = got.iter().map(|wc| wc.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..16).collect::<Vec<_>>());
    for qp in &qps {
        assert_eq!(got.iter().filter(|wc| wc.qp_num == qp.num()).count(), 4);
    }
    assert_eq!(context.poll_async(), None, "five are left");
    peers[0].send(4, SendOp::Send, &[]);
    while cq.poll(&mut [Wc::default()]).unwrap() == 0 {
        assert!(start.elapsed() < common::DEADLINE);
    }
    let event = context.poll_async().map(|e| (e.kind, e.cookie));
    assert_eq!(event, Some((AsyncKind::SrqLimitReached, 9)));
    for qp in &qps {
        qp.destroy().unwrap();
    }
    assert!(context.dealloc_pd(&pd).is_err(), "the queue uses it");
    assert!(context.destroy_srq(&srq, 9).is_ok());
    // Although the connections are still closing.
    assert!(context.dealloc_pd(&pd).is_ok());
}

#[test]
fn messages_wait_for_receives_that_come_late() {
    let Shared { cq, srq, qps, peers, .. } = Shared::new(3);
    for peer in &peers {
        (0..10).for_each(|wr_id| peer.send(wr_id, SendOp::Send, &[]));
    }
    // All are with TCP before there is a single receive; then receives come one by one.
    for peer in &peers {
        peer.completions(10);
    }
    let start = weft_os::clock::now();
    let mut got = [0; 3];
    for wr_id in 0..30 {
        srq.post_recv(&RecvWr { wr_id, sges: &[] }).unwrap();
        let mut out = [Wc::default()];
        while cq.poll(&mut out).unwrap() == 0 {
            assert!(start.elapsed() < common::DEADLINE, "{got:?}");
        }
        assert_eq!((out[0].wr_id, out[0].status), (wr_id, 0));
        let from = qps.iter().position(|qp| qp.num() == out[0].qp_num).unwrap();
        got[from] += 1;
    }
    assert_eq!(got, [10; 3]);
}
