//! Queue pairs, shared receive queues and domains: what may be posted when, in which order it
//! completes, and what an end of each leaves behind.

mod support;

use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use support::{BYTES, Count, Parts, parts, recv, send, sge};
use weft_verbs::mr::{Accessor, Bind, Invalidate};
use weft_verbs::qp::Qp;
use weft_verbs::usage::Counted;
use weft_verbs::{
    Access, AsyncKind, Cq, Destination, Misuse, Pd, QpInit, QpState, QpType, RegionFault,
    SendFlags, SendOp, SendWr, Wake, Wc, WcStatus,
};

const SUCCESS: u32 = WcStatus::Success as u32;
const FLUSHED: u32 = WcStatus::WrFlushErr as u32;
const WRITE: SendOp = SendOp::Write { to: 0, stag: 9 };

fn rc(parts: &Parts) -> Qp {
    parts.qp(QpType::Rc, QpState::Rts)
}

#[test]
fn requests_are_posted_from_rts_on_and_receives_from_init_on() {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    for state in [Reset, Init, Rtr, Rts, Sqd, Sqe, Err] {
        let parts = parts();
        let qp = parts.qp(QpType::Rc, state);
        assert_eq!(qp.state(), state);
        let sends = ![Reset, Init, Rtr].contains(&state);
        assert_eq!(qp.post_send(&send(1, WRITE, &[])).is_ok(), sends, "{state:?}");
        assert_eq!(qp.post_recv(&recv(2)).is_ok(), state != Reset);
        let flushed = match state {
            Err => vec![(1, FLUSHED), (2, FLUSHED)],
            Sqe => vec![(1, FLUSHED)],
            _ => vec![],
        };
        assert_eq!(parts.done(), flushed, "{state:?}");
    }
}

#[test]
fn each_type_of_queue_pair_is_posted_to_in_its_own_way() {
    let parts = parts();
    let to = Destination::default();
    let wr = send(1, SendOp::Send, &[]);
    let ways = |qp: &Qp| {
        let sent = [qp.post_send(&wr), qp.post_send_to(&wr, 5), qp.post_datagram(&wr, &to)];
        sent.map(|posted| posted.is_ok())
    };
    assert_eq!(ways(&parts.qp(QpType::Rc, QpState::Rts)), [true, false, false]);
    assert_eq!(ways(&parts.qp(QpType::Uc, QpState::Rts)), [true, false, false]);
    assert_eq!(ways(&parts.qp(QpType::Ud, QpState::Rts)), [false, false, true]);
    let xrc = parts.qp(QpType::XrcSend, QpState::Rts);
    assert_eq!(ways(&xrc), [false, true, false]);
    assert_eq!(xrc.sq().get(0).queue, 1 << 31 | 5);
    assert!(xrc.post_send_to(&wr, 1 << 31).is_err());
    assert!(xrc.post_recv(&recv(1)).is_err());
    let uc = parts.qp(QpType::Uc, QpState::Rts);
    assert!(uc.post_send(&send(1, SendOp::Read { to: 0, stag: 9 }, &[])).is_err());
}

#[test]
fn a_datagram_goes_with_its_own_key_or_that_of_the_queue_pair() {
    let parts = parts();
    let qp = parts.qp(QpType::Ud, QpState::Rts);
    qp.set_attrs(|attrs| attrs.qkey = 77);
    for (seq, (qkey, used)) in [(5, 5), (1 << 31, 77), (u32::MAX, 77)].into_iter().enumerate() {
        let to = Destination { qpn: 3, qkey, ..Destination::default() };
        qp.post_datagram(&send(1, SendOp::Send, &[]), &to).unwrap();
        let sent = *qp.sq().destination(seq as u32).unwrap();
        assert_eq!((sent.qpn, sent.qkey), (3, used));
    }
}

#[test]
fn requests_must_fit_the_queue_pair() {
    let parts = parts();
    let memory = [1_u8; 100];
    let addr = memory.as_ptr() as u64;
    let cases = [
        (WRITE, SendFlags::empty(), vec![sge(1, 0, 1); 2], true),
        (WRITE, SendFlags::empty(), vec![sge(1, 0, 1); 3], false),
        (WRITE, SendFlags::INLINE, vec![sge(1, addr, 1); 3], true),
        (WRITE, SendFlags::INLINE, vec![sge(1, addr, 64)], true),
        (WRITE, SendFlags::INLINE, vec![sge(1, addr, 65)], false),
        (SendOp::Read { to: 0, stag: 1 }, SendFlags::INLINE, vec![sge(1, addr, 8)], false),
        (SendOp::FetchAdd { to: 0, stag: 1, add: 1 }, SendFlags::empty(), vec![], false),
        (
            SendOp::FetchAdd { to: 0, stag: 1, add: 1 },
            SendFlags::empty(),
            vec![sge(1, 0, 7)],
            false,
        ),
        (SendOp::FetchAdd { to: 0, stag: 1, add: 1 }, SendFlags::empty(), vec![sge(1, 0, 8)], true),
        (SendOp::AtomicWrite { to: 8, stag: 1 }, SendFlags::empty(), vec![sge(1, 0, 8)], true),
        (SendOp::AtomicWrite { to: 8, stag: 1 }, SendFlags::empty(), vec![sge(1, 0, 4)], false),
        (SendOp::AtomicWrite { to: 4, stag: 1 }, SendFlags::empty(), vec![sge(1, 0, 8)], false),
        (WRITE, SendFlags::empty(), vec![sge(1, 0, 1 << 30); 2], true),
        (WRITE, SendFlags::empty(), vec![sge(1, 0, 1 << 31), sge(1, 0, 1)], false),
    ];
    for (op, flags, sges, fits) in cases {
        let qp = rc(&parts);
        let posted = qp.post_send(&SendWr { wr_id: 1, op, flags, sges: &sges });
        assert_eq!(posted.is_ok(), fits, "{op:?} {sges:?}");
    }
    let qp = rc(&parts);
    let list = [sge(1, 0, 1); 3];
    assert!(qp.post_recv(&weft_verbs::RecvWr { wr_id: 1, sges: &list }).is_err());
    qp.post_recv(&weft_verbs::RecvWr { wr_id: 1, sges: &list[..2] }).unwrap();
    qp.take_recv();
    for _ in 0..4 {
        qp.post_send(&send(1, WRITE, &[])).unwrap();
        qp.post_recv(&recv(1)).unwrap();
    }
    assert_eq!(qp.post_send(&send(1, WRITE, &[])), Err(Misuse::Full));
    assert_eq!(qp.post_recv(&recv(1)), Err(Misuse::Full));
}

#[test]
fn sizes_are_granted_within_the_limits() {
    let parts = parts();
    let with = |change: fn(&mut QpInit)| {
        let mut init = parts.init(QpType::Rc, QpState::Init);
        change(&mut init);
        parts.make(init).map(|qp| qp.attrs().cap)
    };
    let least = with(|init| init.cap = weft_verbs::QpCap::default()).unwrap();
    assert_eq!((least.max_send_wr, least.max_recv_wr), (1, 1));
    assert_eq!((least.max_send_sge, least.max_recv_sge, least.max_inline_data), (1, 1, 64));
    let most = with(|init| {
        init.cap = weft_verbs::QpCap {
            max_send_wr: 32_768,
            max_recv_wr: 32_768,
            max_send_sge: 32,
            max_recv_sge: 32,
            max_inline_data: 512,
        };
    });
    assert_eq!(most.unwrap().max_send_wr, 32_768);
    assert!(with(|init| init.cap.max_send_wr = 32_769).is_err());
    assert!(with(|init| init.cap.max_recv_wr = 32_769).is_err());
    assert!(with(|init| init.cap.max_send_sge = 33).is_err());
    assert!(with(|init| init.cap.max_recv_sge = 33).is_err());
    assert!(with(|init| init.cap.max_inline_data = 513).is_err());
    // A domain is for queue pairs that receive for one, and only for them.
    assert!(with(|init| init.kind = QpType::XrcRecv).is_err());
    let mut init = parts.init(QpType::Rc, QpState::Init);
    init.xrcd = Some(parts.domain());
    assert!(parts.make(init).is_err());
    let mut init = parts.init(QpType::XrcSend, QpState::Init);
    init.srq = Some(Arc::new(parts.srq(0)));
    assert!(parts.make(init).is_err());
    let mut init = parts.init(QpType::Rc, QpState::Init);
    init.srq = Some(parts.srq(0).join(&parts.domain(), 5, &parts.cq));
    assert!(parts.make(init).is_err());
}

#[test]
fn attributes_are_kept_and_rights_apply_where_there_are_any() {
    let parts = parts();
    let adapter = parts.qp(QpType::Rc, QpState::Reset);
    assert_eq!(adapter.permit(Access::REMOTE_READ), Err(RegionFault::Access));
    adapter.set_attrs(|attrs| attrs.access = Access::REMOTE_READ);
    assert_eq!(adapter.permit(Access::REMOTE_READ), Ok(()));
    assert_eq!(adapter.permit(Access::REMOTE_WRITE), Err(RegionFault::Access));
    let rnic = parts.qp(QpType::Rc, QpState::Init);
    rnic.set_attrs(|attrs| attrs.access = Access::REMOTE_READ);
    assert_eq!(rnic.permit(Access::REMOTE_WRITE), Ok(()));
    rnic.enforce_rights();
    assert_eq!(rnic.permit(Access::REMOTE_WRITE), Err(RegionFault::Access));
    assert_eq!(rnic.permit(Access::REMOTE_READ), Ok(()));
    assert_eq!((rnic.num(), rnic.kind(), rnic.pd()), (7, QpType::Rc, 1));
    assert_eq!(rnic.accessor(), Accessor { pd: 1, qp: Some(7) });
    let mut init = parts.init(QpType::Rc, QpState::Init);
    init.pd = Arc::clone(&parts.other);
    assert_eq!(parts.make(init).unwrap().pd(), 2);
    let attrs = rnic.attrs();
    assert_eq!((attrs.state, attrs.cur_state, attrs.port), (QpState::Init, QpState::Init, 1));
    rnic.proceed(QpState::Rtr, QpState::Rts);
    assert_eq!(rnic.state(), QpState::Init);
    rnic.proceed(QpState::Init, QpState::Rtr);
    assert_eq!(rnic.state(), QpState::Rtr);
}

/// Sends request `seq` as one segment, which the peer has.
fn carry(qp: &Qp, seq: u32) {
    let mut sq = qp.sq();
    sq.segment_out(seq, true);
    sq.segments_acked(seq, 1);
    sq.complete(qp.num(), qp.send_cq());
    qp.check_drained(&sq);
}

#[test]
fn draining_ends_with_one_event_when_what_was_started_is_complete() {
    let drained = [(AsyncKind::SqDrained, 12)];
    let parts = parts();
    let qp = rc(&parts);
    qp.post_send(&send(0, WRITE, &[])).unwrap();
    qp.post_send(&send(1, WRITE, &[])).unwrap();
    qp.sq().segment_out(0, true);
    qp.drain(true);
    assert_eq!((qp.state(), qp.attrs().sq_draining), (QpState::Sqd, true));
    assert_eq!(parts.raised(), []);
    {
        let mut sq = qp.sq();
        sq.segments_acked(0, 1);
        sq.complete(qp.num(), qp.send_cq());
        qp.check_drained(&sq);
        qp.check_drained(&sq);
    }
    assert!(!qp.attrs().sq_draining);
    assert_eq!(parts.raised(), drained);
    qp.enter(QpState::Rts);
    assert!(!qp.attrs().sq_draining);
    // With nothing under way at once, and not at all if nobody asked.
    qp.drain(true);
    assert_eq!(parts.raised(), drained);
    qp.drain(false);
    assert_eq!(parts.raised(), []);
}

#[test]
fn a_failed_queue_pair_flushes_what_is_posted_once() {
    let parts = parts();
    let qp = rc(&parts);
    for wr_id in 0..3 {
        qp.post_send(&send(wr_id, WRITE, &[])).unwrap();
        qp.post_recv(&recv(10 + wr_id)).unwrap();
    }
    carry(&qp, 0);
    let taken = qp.take_recv().unwrap();
    assert!(qp.fail([taken]));
    assert_eq!(qp.state(), QpState::Err);
    let flushed = [1, 2, 10, 11, 12].map(|id| (id, FLUSHED));
    assert_eq!(parts.done(), [&[(0, SUCCESS)], &flushed[..]].concat());
    assert!(!qp.fail([]));
    assert_eq!((parts.done(), parts.raised()), (vec![], vec![]));
    qp.post_recv(&recv(20)).unwrap();
    assert_eq!(parts.done(), [(20, FLUSHED)]);
}

#[test]
fn a_failed_queue_pair_says_that_it_left_the_shared_queue() {
    let parts = parts();
    let srq = Arc::new(parts.srq(0));
    let mut init = parts.init(QpType::Rc, QpState::Rts);
    init.srq = Some(Arc::clone(&srq));
    let qp = parts.make(init).unwrap();
    assert!(qp.post_recv(&recv(1)).is_err());
    assert!(!qp.has_recv() && srq.users().any());
    srq.post_recv(&recv(1)).unwrap();
    srq.post_recv(&recv(2)).unwrap();
    assert!(qp.has_recv());
    let wqe = qp.take_recv().unwrap();
    assert_eq!((wqe.wr_id, qp.recv_pd(&wqe)), (1, 1));
    qp.fail([wqe]);
    assert_eq!(parts.done(), [(1, FLUSHED)], "what is in the queue stays there");
    assert_eq!(parts.raised(), [(AsyncKind::QpLastWqeReached, 12)]);
    assert!(srq.has_recv());
}

#[test]
fn a_send_queue_may_fail_alone() {
    let parts = parts();
    let qp = parts.qp(QpType::Uc, QpState::Rts);
    for wr_id in 0..3 {
        qp.post_send(&send(wr_id, WRITE, &[])).unwrap();
    }
    qp.post_recv(&recv(10)).unwrap();
    qp.fail_sends(1, WcStatus::LocProtErr);
    let failed = [(0, FLUSHED), (1, WcStatus::LocProtErr as u32), (2, FLUSHED)];
    assert_eq!((qp.state(), parts.done()), (QpState::Sqe, failed.to_vec()));
    assert!(qp.has_recv());
    qp.enter(QpState::Sqd);
    qp.fail_sends(9, WcStatus::LocProtErr);
    assert_eq!(qp.state(), QpState::Sqd, "only from RTS");
}

#[test]
fn reset_drops_everything_and_nothing_later() {
    let parts = parts();
    let qp = rc(&parts);
    qp.post_send(&send(0, WRITE, &[])).unwrap();
    carry(&qp, 0);
    qp.post_send(&send(1, WRITE, &[])).unwrap();
    qp.post_recv(&recv(10)).unwrap();
    qp.drain(true);
    qp.reset();
    assert_eq!((qp.state(), parts.done()), (QpState::Reset, vec![]));
    assert!(!qp.has_recv() && qp.sq().is_idle());
    qp.enter(QpState::Rts);
    parts.raised();
    for wr_id in 2..6 {
        qp.post_send(&send(wr_id, WRITE, &[])).unwrap();
    }
    let seq = qp.sq().tail();
    carry(&qp, seq);
    assert_eq!(parts.done(), [(2, SUCCESS)]);
    assert_eq!(parts.raised(), []);
    qp.raise(AsyncKind::CommEst);
    assert_eq!(parts.raised(), [(AsyncKind::CommEst, 12)]);
}

#[test]
fn a_queue_pair_that_is_destroyed_leaves_nothing() {
    let parts = parts();
    let key = parts.region(0x0100_0000, support::ALL);
    let kind = weft_verbs::mr::WindowKind::Type2;
    let window = parts.regions.allocate_window(&parts.pd, kind, || 0x0200_0000);
    let qp = rc(&parts);
    let access = Access::REMOTE_READ;
    let bind = Bind { window, key: window + 1, region: key, addr: 0x1000, len: 8, access };
    qp.post_send(&send(0, SendOp::BindMw(bind), &[])).unwrap();
    assert_eq!(qp.carry_out(0), Ok(()));
    assert_eq!(parts.done(), [(0, SUCCESS)]);
    let used = |who| parts.regions.check(window + 1, who, 0x1000, 8, access);
    assert_eq!(used(qp.accessor()).map(drop), Ok(()));
    qp.raise(AsyncKind::CommEst);
    qp.raise(AsyncKind::QpFatal);
    qp.post_recv(&recv(1)).unwrap();
    assert!(parts.cq.users().any() && parts.pd.users().any());
    assert_eq!(qp.retire(), 2);
    assert_eq!(parts.raised(), []);
    assert!(!parts.cq.users().any());
    assert_eq!(used(qp.accessor()), Err(RegionFault::InvalidStag));
    assert_eq!(parts.done(), []);
}

/// Another thread that fails `qp` just now, as that of its connection does.
fn fails_elsewhere(qp: &Arc<Qp>) -> JoinHandle<bool> {
    let (start, failing) = (Arc::new(Barrier::new(2)), Arc::clone(qp));
    let other = Arc::clone(&start);
    let thread = std::thread::spawn(move || {
        other.wait();
        failing.fail(None)
    });
    start.wait();
    thread
}

/// The thread of a connection fails the queue pair while the application destroys it.
#[test]
fn destroyed_while_it_fails_it_flushes_nothing_afterwards() {
    for _ in 0..1000 {
        let parts = parts();
        let mut init = parts.init(QpType::Rc, QpState::Rts);
        init.cap.max_recv_wr = 64;
        let qp = Arc::new(parts.make(init).unwrap());
        (0..64).for_each(|id| qp.post_recv(&recv(id)).unwrap());
        let thread = fails_elsewhere(&qp);
        qp.fail(None);
        assert_eq!(qp.retire(), 0);
        let before = parts.done();
        thread.join().unwrap();
        assert_eq!((before, parts.done()), (vec![], vec![]));
    }
}

/// Its application begins to drain it while the thread that drives its connection fails it.
#[test]
fn a_queue_pair_that_fails_while_it_begins_to_drain_stays_failed() {
    for round in 0..2000 {
        let parts = parts();
        let qp = Arc::new(rc(&parts));
        let thread = fails_elsewhere(&qp);
        qp.drain(true);
        thread.join().unwrap();
        assert_eq!(qp.state(), QpState::Err, "round {round}");
        parts.raised();
        qp.post_send(&send(1, WRITE, &[])).unwrap();
        qp.check_drained(&qp.sq());
        assert_eq!((parts.done(), parts.raised()), (vec![(1, FLUSHED)], vec![]));
    }
}

#[test]
fn muted_or_hushed_it_says_nothing_more() {
    for hush in [false, true] {
        let parts = parts();
        let qp = rc(&parts);
        qp.post_send(&send(0, WRITE, &[])).unwrap();
        qp.post_send(&send(1, WRITE, &[])).unwrap();
        carry(&qp, 0);
        if hush {
            qp.hush()
        } else {
            qp.mute()
        }
        carry(&qp, 1);
        qp.raise(AsyncKind::QpFatal);
        // Muted, it takes back what it has said.
        let before = if hush { vec![(0, SUCCESS)] } else { vec![] };
        assert_eq!((parts.done(), parts.raised()), (before, vec![]));
    }
}

#[test]
fn local_requests_are_carried_out_once() {
    let parts = parts();
    let key = parts.region(0x0100_0000, support::ALL);
    let qp = rc(&parts);
    qp.post_send(&send(0, SendOp::LocalInv { stag: key }, &[])).unwrap();
    qp.post_send(&send(1, SendOp::LocalInv { stag: 1 << 20 }, &[])).unwrap();
    qp.post_send(&send(2, SendOp::BindMw(Bind::default()), &[])).unwrap();
    qp.post_send(&send(3, WRITE, &[])).unwrap();
    assert_eq!(qp.carry_out(0), Ok(()));
    assert_eq!(parts.done(), [(0, SUCCESS)]);
    let gone = parts.regions.check(key, 1, 0x1000, BYTES, Access::empty());
    assert_eq!(gone, Err(RegionFault::InvalidStag));
    assert_eq!(qp.carry_out(0), Ok(()), "it is done already");
    assert_eq!(qp.carry_out(1), Err(WcStatus::LocProtErr));
    assert_eq!(qp.carry_out(2), Err(WcStatus::MwBindErr));
    assert_eq!(qp.carry_out(3), Ok(()));
    assert_eq!(parts.done(), []);
    assert_eq!(qp.invalidate(key, Invalidate::Local), Ok(()));
}

#[test]
fn a_shared_queue_has_the_size_that_it_was_given() {
    let parts = parts();
    let srq = parts.srq(2);
    assert_eq!((srq.query(), srq.number(), srq.pd().id()), ((4, 2, 2), None, 1));
    for wr_id in 0..4 {
        srq.post_recv(&recv(wr_id)).unwrap();
    }
    assert_eq!(srq.post_recv(&recv(9)), Err(Misuse::Full));
    srq.modify(Some(5), Some(5)).unwrap();
    assert_eq!(parts.raised(), [(AsyncKind::SrqLimitReached, 13)]);
    assert_eq!(srq.query(), (5, 2, 0), "the limit is told once");
    srq.modify(None, Some(4)).unwrap();
    assert_eq!((srq.query(), parts.raised()), ((5, 2, 4), vec![]));
    assert_eq!(srq.take().map(|wqe| wqe.wr_id), Some(0));
    assert_eq!(parts.raised().len(), 1);
    assert!(parts.pd.users().any());
    srq.retire();
    assert!(!parts.pd.users().any());
}

#[test]
fn a_domain_finds_its_queues_by_number_until_they_are_retired() {
    let parts = parts();
    let domain = parts.domain();
    assert!(!domain.is_used());
    let srq = parts.srq(0).join(&domain, 5, &parts.cq);
    assert!(domain.is_used() && parts.cq.users().any());
    assert_eq!(srq.number(), Some(5));
    assert!(domain.find(5).is_some() && domain.find(6).is_none());
    // Who is in the domain reaches what its queues are for.
    assert!(parts.pd.admits(domain.pd().id()) && !parts.pd.admits(2));
    let mut init = parts.init(QpType::XrcRecv, QpState::Rts);
    init.xrcd = Some(Arc::clone(&domain));
    init.pd = Arc::clone(domain.pd());
    let qp = parts.make(init).unwrap();
    assert_eq!(qp.take_recv_of(6).err(), Some(Misuse::NotFound));
    assert!(matches!(qp.take_recv_of(5), Ok(None)));
    let waiter = Arc::new(Count::default());
    let woken: Arc<dyn Wake> = Arc::clone(&waiter) as Arc<dyn Wake>;
    assert!(!qp.await_recv(Arc::downgrade(&woken)));
    srq.post_recv(&recv(1)).unwrap();
    srq.post_recv(&recv(2)).unwrap();
    assert_eq!(waiter.get(), 1);
    qp.set_attrs(|attrs| attrs.dest_qp_num = 99);
    let wqe = qp.take_recv_of(5).unwrap().unwrap();
    assert_eq!(qp.recv_pd(&wqe), 1, "its memory is of the queue's domain");
    qp.complete_recv(&wqe, false, |wc| wc.byte_len = 4);
    let wc = parts.poll()[0];
    assert_eq!((wc.wr_id, wc.byte_len, wc.src_qp, wc.qp_num), (1, 4, 99, 7));
    let wqe = qp.take_recv_of(5).unwrap().unwrap();
    qp.mute();
    qp.fail_recv(&wqe, WcStatus::WrFlushErr);
    assert_eq!(parts.done(), []);
    srq.retire();
    assert!(domain.find(5).is_none() && !parts.pd.admits(domain.pd().id()));
    assert!(rc(&parts).take_recv_of(5).is_err());
}

/// Destroyed, a queue pair takes back its failures from a domain's queue, and leaves what arrived.
#[test]
fn a_domains_queue_keeps_what_arrived() {
    let (parts, domain) = (parts(), parts().domain());
    let shared = Arc::new(Cq::new(8, None, Arc::clone(&parts.events), 6));
    let srq = parts.srq(0).join(&domain, 5, &shared);
    let mut init = parts.init(QpType::XrcRecv, QpState::Rts);
    (init.xrcd, init.pd) = (Some(Arc::clone(&domain)), Arc::clone(domain.pd()));
    let qp = parts.make(init).unwrap();
    srq.post_recv(&recv(1)).unwrap();
    srq.post_recv(&recv(2)).unwrap();
    let wqes = [(); 2].map(|()| qp.take_recv_of(5).unwrap().unwrap());
    qp.mute();
    qp.complete_recv(&wqes[0], false, |_| ());
    qp.fail_recv(&wqes[1], WcStatus::WrFlushErr);
    let mut out = [Wc::default(); 4];
    assert_eq!((shared.poll(&mut out), out[0].wr_id), (Ok(1), 1));
}

#[test]
fn requests_end_with_their_answer_their_confirmation_or_by_grace() {
    let parts = parts();
    let qp = rc(&parts);
    let sink = [sge(1, 0x1000, 8)];
    qp.post_send(&send(0, SendOp::Read { to: 0, stag: 9 }, &sink)).unwrap();
    carry(&qp, 0);
    assert_eq!((parts.done(), qp.sq().sinks(0)), (vec![], &sink[..]));
    qp.sq().responded(0);
    qp.sq().complete(qp.num(), qp.send_cq());
    assert_eq!((parts.done(), qp.sq().sinks(0)), (vec![(0, SUCCESS)], &[][..]));

    for wr_id in [1, 2] {
        qp.post_send(&send(wr_id, WRITE, &[])).unwrap();
        qp.sq().await_confirmation(wr_id as u32);
        carry(&qp, wr_id as u32);
    }
    assert_eq!(parts.done(), []);
    qp.sq().confirmed(1);
    qp.sq().complete(qp.num(), qp.send_cq());
    assert_eq!(parts.done(), [(1, SUCCESS)]);

    qp.post_send(&send(3, WRITE, &[])).unwrap();
    qp.sq().let_go(qp.num(), qp.send_cq());
    assert_eq!(parts.done(), [(2, SUCCESS), (3, SUCCESS)]);
}

#[test]
fn a_domain_is_admitted_as_often_as_it_has_reasons() {
    let parts = parts();
    let domain = parts.domain();
    let first = parts.srq(0).join(&domain, 5, &parts.cq);
    let second = parts.srq(0).join(&domain, 6, &parts.cq);
    first.retire();
    assert!(parts.pd.admits(9) && domain.find(6).is_some());
    second.retire();
    assert!(!parts.pd.admits(9));
    assert!(Pd::new(3).admits(3));
}
